// SPDX-License-Identifier: Apache-2.0
// Text in aligned columns.
#ifndef JIGSAW_CLI_TABLE_HPP
#define JIGSAW_CLI_TABLE_HPP

#include <string>
#include <vector>

namespace jigsaw::cli {

class Table {
  public:
    /// A heading that begins with '>' is aligned to the right (the mark is not shown).
    explicit Table(const std::vector<std::string> &headings);
    void row(const std::vector<std::string> &cells); ///< missing cells are empty
    /// Lines with a line end each; cells keep control characters out ('?').
    std::string text(const std::string &indent = "") const;

  private:
    std::vector<bool> right_;
    std::vector<std::vector<std::string>> rows_;
};

std::string with_decimals(double value, int decimals);
std::string percent(double share);
/// "12.3 s", "4.5 min", "6.7 h".
std::string duration(double seconds);

} // namespace jigsaw::cli
#endif
