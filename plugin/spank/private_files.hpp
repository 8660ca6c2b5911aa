// SPDX-License-Identifier: Apache-2.0
// Folders and files that belong to this process's user alone, written whole or not at all. Throws std::runtime_error with
// one line that names the path.
#ifndef JIGSAW_SPANK_PRIVATE_FILES_HPP
#define JIGSAW_SPANK_PRIVATE_FILES_HPP

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace jigsaw::spank {

/// The folder exists, with this mode, is no link, and belongs to us; its parent exists.
void ensure_folder(const std::string &path, mode_t mode);
/// ensure_folder() for `path` and, with mode 0755, for those above it that are missing.
void ensure_folders(const std::string &path, mode_t mode);

/// Mode 0600, by rename from a name that begins with a dot.
void write_whole(const std::string &folder, const std::string &name, const std::string &text);
/// nullopt when there is no such file, or it is longer than 64 KiB.
std::optional<std::string> read_whole(const std::string &path);
/// Names of a folder's entries; none when there is no folder.
std::vector<std::string> list_folder(const std::string &path);

} // namespace jigsaw::spank
#endif
