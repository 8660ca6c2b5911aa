// SPDX-License-Identifier: Apache-2.0
// See private_files.hpp. No descriptor survives an exec, no link is followed at the end of a path.
#include "plugin/spank/private_files.hpp"

#include "runtime/page/fd.hpp"

#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <stdexcept>
#include <sys/stat.h>

namespace jigsaw::spank {
namespace {

constexpr std::size_t kLongestFile = 65536;

[[noreturn]] void fail(const std::string &path, const char *what)
{
    throw std::runtime_error(path + ": " + what + ": " + std::strerror(errno));
}

void write_all(int fd, const std::string &path, const std::string &text)
{
    for (std::size_t done = 0; done < text.size();) {
        const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
        if (wrote < 0 && errno != EINTR)
            fail(path, "cannot write");
        done += wrote > 0 ? static_cast<std::size_t>(wrote) : 0;
    }
}

} // namespace

void ensure_folder(const std::string &path, mode_t mode)
{
    if (mkdir(path.c_str(), mode) != 0 && errno != EEXIST)
        fail(path, "cannot make the folder");
    const UniqueFd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder)
        fail(path, "is not a folder");
    struct stat status = {};
    if (fstat(folder.get(), &status) != 0)
        fail(path, "cannot look at the folder");
    if (status.st_uid != geteuid())
        throw std::runtime_error(path + ": belongs to uid " + std::to_string(status.st_uid) + ", not to uid " +
                                 std::to_string(geteuid()) + "; remove it");
    if ((status.st_mode & 07777) != mode && fchmod(folder.get(), mode) != 0) // an umask, or somebody's chmod
        fail(path, "cannot set the folder's mode");
}

void ensure_folders(const std::string &path, mode_t mode)
{
    for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1))
        if (mkdir(path.substr(0, slash).c_str(), 0755) == 0)
            ensure_folder(path.substr(0, slash), 0755);
    ensure_folder(path, mode);
}

void write_whole(const std::string &folder, const std::string &name, const std::string &text)
{
    const std::string path = folder + "/" + name, draft = folder + "/." + name;
    unlink(draft.c_str());
    UniqueFd file(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file)
        fail(draft, "cannot be made");
    write_all(file.get(), draft, text);
    if (rename(draft.c_str(), path.c_str()) != 0)
        fail(path, "cannot be put in place");
}

std::optional<std::string> read_whole(const std::string &path)
{
    const UniqueFd file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (!file)
        return std::nullopt;
    std::string text(kLongestFile + 1, '\0');
    std::size_t have = 0;
    for (ssize_t got; have < text.size() && (got = read(file.get(), &text[have], text.size() - have)) != 0;) {
        if (got < 0 && errno != EINTR)
            return std::nullopt;
        have += got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    if (have > kLongestFile)
        return std::nullopt;
    text.resize(have);
    return text;
}

std::vector<std::string> list_folder(const std::string &path)
{
    std::vector<std::string> names;
    const std::unique_ptr<DIR, int (*)(DIR *)> folder(opendir(path.c_str()), closedir);
    while (const dirent *entry = folder ? readdir(folder.get()) : nullptr)
        names.emplace_back(entry->d_name);
    return names;
}

} // namespace jigsaw::spank
