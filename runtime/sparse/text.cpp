// SPDX-License-Identifier: Apache-2.0
#include "runtime/sparse/text.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

namespace jigsaw::sparse {

MappedFile::MappedFile(const std::string &path)
{
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        throw Error(path + ": " + std::strerror(errno));
    struct stat about {};
    const bool is_file = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    if (is_file && about.st_size > 0) {
        size_ = static_cast<std::size_t>(about.st_size);
        void *mapped = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
        data_ = mapped == MAP_FAILED ? nullptr : static_cast<unsigned char *>(mapped);
    }
    const int why = errno;
    close(fd);
    if (!is_file)
        throw Error(path + ": not a file");
    if (size_ > 0 && data_ == nullptr)
        throw Error(path + ": cannot be mapped: " + std::strerror(why));
}

MappedFile::~MappedFile()
{
    if (data_ != nullptr)
        munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile &&other) noexcept : data_(other.data_), size_(other.size_)
{
    other.data_ = nullptr;
    other.size_ = 0;
}

namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

} // namespace

std::string quoted(std::string_view text)
{
    std::string out = "\"";
    for (char c : text.substr(0, 40))
        out += c >= ' ' && c <= '~' ? c : '?';
    return out + (text.size() > 40 ? "...\"" : "\"");
}

bool TextLines::next()
{
    if (left_.empty())
        return false;
    const std::size_t end = left_.find('\n');
    line_ = left_.substr(0, end);
    left_ = end == std::string_view::npos ? std::string_view() : left_.substr(end + 1);
    ++number_;
    return true;
}

bool TextLines::at_end()
{
    while (!line_.empty() && is_blank(line_.front()))
        line_.remove_prefix(1);
    return line_.empty();
}

std::string_view TextLines::word(const char *what)
{
    if (at_end())
        fail(std::string("the ") + what + " is missing");
    std::size_t length = 0;
    while (length < line_.size() && !is_blank(line_[length]))
        ++length;
    const std::string_view found = line_.substr(0, length);
    line_.remove_prefix(length);
    return found;
}

std::uint64_t TextLines::unsigned_number(const char *what, std::uint64_t least, std::uint64_t most)
{
    const std::string_view text = word(what);
    std::uint64_t value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc() || end != text.data() + text.size() || value < least || value > most)
        fail(std::string("the ") + what + " is " + quoted(text) + ", not a whole number from " + std::to_string(least) + " to " +
             std::to_string(most));
    return value;
}

float TextLines::real_number(const char *what)
{
    const std::string_view text = word(what);
    float value = 0;
    const char *first = text.data() + (text.size() > 1 && text[0] == '+' && text[1] != '-' ? 1 : 0);
    const auto [end, problem] = std::from_chars(first, text.data() + text.size(), value);
    if (problem != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
        fail(std::string("the ") + what + " is " + quoted(text) + ", not a finite number");
    return value;
}

void TextLines::expect_end()
{
    if (!at_end())
        fail("nothing should follow, but there is " + quoted(line_));
}

void TextLines::fail(const std::string &what) const
{
    throw Error(name_ + ":" + std::to_string(number_) + ": " + what);
}

NewFile::NewFile(std::string path) : path_(std::move(path)), draft_(path_ + ".new." + std::to_string(getpid()))
{
    file_ = std::fopen(draft_.c_str(), "wxe");
    if (file_ == nullptr)
        fail("be created");
}

NewFile::~NewFile()
{
    if (file_ == nullptr)
        return;
    std::fclose(file_);
    unlink(draft_.c_str());
}

void NewFile::fail(const char *doing)
{
    throw Error(path_ + ": cannot " + doing + ": " + std::strerror(errno));
}

void NewFile::write(const void *data, std::size_t bytes)
{
    if (bytes > 0 && std::fwrite(data, 1, bytes, file_) != bytes)
        fail("be written");
}

void NewFile::rewrite(long at, const void *data, std::size_t bytes)
{
    if (std::fseek(file_, at, SEEK_SET) != 0)
        fail("be written");
    write(data, bytes);
    if (std::fseek(file_, 0, SEEK_END) != 0)
        fail("be written");
}

void NewFile::commit()
{
    if (std::fflush(file_) != 0 || fsync(fileno(file_)) != 0)
        fail("be written");
    std::fclose(file_);
    file_ = nullptr;
    if (rename(draft_.c_str(), path_.c_str()) != 0) {
        const int why = errno;
        unlink(draft_.c_str());
        errno = why;
        fail("be put in place");
    }
}

} // namespace jigsaw::sparse
