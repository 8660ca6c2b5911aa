// SPDX-License-Identifier: Apache-2.0
// A GPU on a machine without GPUs stands for CPU cores: the whole process moves there.
#ifndef JIGSAW_CAPI_BINDING_HPP
#define JIGSAW_CAPI_BINDING_HPP

#include <string>
#include <vector>

namespace jigsaw::capi {

/// Bind every thread of this process, and so all it creates later, to `cores`. False: one line in *ret_why.
bool bind_process(const std::vector<int> &cores, std::string *ret_why);

} // namespace jigsaw::capi
#endif
