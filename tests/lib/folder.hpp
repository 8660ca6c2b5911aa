// SPDX-License-Identifier: Apache-2.0
// A folder of a test's own under /tmp, removed with all it holds when the object goes.
#ifndef JIGSAW_TESTS_LIB_FOLDER_HPP
#define JIGSAW_TESTS_LIB_FOLDER_HPP

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace jigsaw::tests {

class Folder {
  public:
    explicit Folder(const std::string &name = "test") : path_("/tmp/jigsaw-" + name + "-XXXXXX")
    {
        if (mkdtemp(path_.data()) == nullptr)
            throw std::runtime_error("mkdtemp " + path_);
    }
    ~Folder()
    {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Folder(const Folder &) = delete;

    const std::string &path() const { return path_; }
    std::string file(const std::string &name) const { return path_ + "/" + name; }
    std::string socket() const { return file("socket"); }

  private:
    std::string path_;
};

} // namespace jigsaw::tests
#endif
