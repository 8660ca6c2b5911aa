// SPDX-License-Identifier: Apache-2.0
// Lines of a file, their fields, and what is said of a bad one.
#ifndef JIGSAW_SIM_TEXT_HPP
#define JIGSAW_SIM_TEXT_HPP

#include <cstddef>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace jigsaw::sim {

/// A file that cannot be used; what() is one line that says which, where and why.
class InputError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

std::vector<std::string> split(const std::string &line, char separator);
std::string trim(const std::string &text);
/// A finite number, nothing else in the text.
bool parse_number(double *ret_number, const std::string &text);

/// Reads a table line by line. A bad line ends the reading with "file:line: why" (InputError), or is counted and left
/// out when `skip_bad`.
class TableReader {
  public:
    TableReader(const std::string &path, char separator, bool skip_bad);
    /// The next line that is not empty, split; false at the end.
    bool next(std::vector<std::string> *ret_fields);
    /// Take the next line as the header; fails when one of `needed` is not in it.
    void header(const std::vector<std::string> &needed);
    bool has(const std::string &column) const { return columns_.count(column) > 0; }

    /// Fields by the header's names; these complain of what is not there or no number in [least, most].
    const std::string &field(const std::vector<std::string> &fields, const std::string &column) const;
    double number(const std::vector<std::string> &fields, const std::string &column, double least,
                  double most) const;

    /// Run `take` on a line: what it throws as InputError names the line, and ends it or is counted.
    template <typename Take> void each(Take take)
    {
        std::vector<std::string> fields;
        while (next(&fields)) {
            try {
                take(fields);
            } catch (const InputError &error) {
                bad(error.what());
            }
        }
    }
    std::size_t bad_lines() const { return bad_; }
    const std::string &path() const { return path_; }

  private:
    void bad(const std::string &why);

    std::string path_;
    std::ifstream file_;
    char separator_;
    bool skip_bad_;
    std::size_t line_ = 0, bad_ = 0;
    std::map<std::string, std::size_t> columns_;
};

} // namespace jigsaw::sim
#endif
