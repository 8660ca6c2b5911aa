// SPDX-License-Identifier: Apache-2.0
// Files: mapped to read, lines of numbers whose mistakes are named by file and line, and files that appear when they are
// whole.
#ifndef JIGSAW_RUNTIME_SPARSE_TEXT_HPP
#define JIGSAW_RUNTIME_SPARSE_TEXT_HPP

#include "runtime/sparse/matrix.hpp"

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace jigsaw::sparse {

/// A file's bytes, read-only, for as long as this lives. Throws an Error that names the file.
class MappedFile {
public:
    explicit MappedFile(const std::string &path);
    ~MappedFile();
    MappedFile(const MappedFile &) = delete;
    MappedFile &operator=(const MappedFile &) = delete;
    MappedFile(MappedFile &&other) noexcept;

    const unsigned char *data() const { return data_; }
    std::size_t size() const { return size_; }
    std::string_view text() const { return {reinterpret_cast<const char *>(data_), size_}; }

private:
    unsigned char *data_ = nullptr;
    std::size_t size_ = 0;
};

/// Lines of blank-separated fields. Every complaint is an Error `file:line: what`.
class TextLines {
public:
    TextLines(std::string name, std::string_view text) : name_(std::move(name)), left_(text) {}

    /// To the next line; false at the end of the text. The last line may lack its newline.
    bool next();
    std::uint64_t number() const { return number_; }
    std::string_view rest() const { return line_; }

    bool at_end(); ///< nothing but blanks is left in this line
    std::string_view word(const char *what);
    std::uint64_t unsigned_number(const char *what, std::uint64_t least, std::uint64_t most);
    float real_number(const char *what);
    void expect_end(); ///< fails where something is left in the line
    [[noreturn]] void fail(const std::string &what) const;

private:
    std::string name_;
    std::string_view left_, line_;
    std::uint64_t number_ = 0;
};

/// Printable, short, in quotes: what a stranger's file holds, for a message.
std::string quoted(std::string_view text);

/// Written beside its place and renamed there by commit(): who reads it sees all of it or nothing.
class NewFile {
public:
    explicit NewFile(std::string path);
    ~NewFile();
    NewFile(const NewFile &) = delete;
    NewFile &operator=(const NewFile &) = delete;

    void write(const void *data, std::size_t bytes);
    void write(const std::string &text) { write(text.data(), text.size()); }
    /// Bytes that were written before become these.
    void rewrite(long at, const void *data, std::size_t bytes);
    void commit();

private:
    [[noreturn]] void fail(const char *doing);
    std::string path_, draft_;
    std::FILE *file_ = nullptr;
};

} // namespace jigsaw::sparse

#endif
