// SPDX-License-Identifier: Apache-2.0
// The layout of the shared pages as C++ sees it: the same table.
#include "tests/abi/page_layout.c"
