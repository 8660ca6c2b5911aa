// SPDX-License-Identifier: Apache-2.0
// Tables of a status document; `jigsaw status` prints them once, `jigsaw top` again and again.
#ifndef JIGSAW_CLI_VIEW_HPP
#define JIGSAW_CLI_VIEW_HPP

#include "plugin/cli/json_value.hpp"

#include <string>

namespace jigsaw::cli {

/// One document as text. `before`: the document of an earlier look, for rates (top); null: none.
std::string render_status(const JsonValue &now, const JsonValue &before);

} // namespace jigsaw::cli
#endif
