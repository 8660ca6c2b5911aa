// SPDX-License-Identifier: Apache-2.0
// A sub-command of jigsaw: its name, its help, what it does. main.cpp has the table.
#ifndef JIGSAW_CLI_COMMAND_HPP
#define JIGSAW_CLI_COMMAND_HPP

#include "plugin/cli/client.hpp"

#include <string>
#include <vector>

namespace jigsaw::cli {

using Arguments = std::vector<std::string>;

constexpr int kOk = 0, kFailed = 1, kUsageError = 2;

struct Command {
    const char *name;
    const char *summary; ///< one line of `jigsaw help`
    const char *usage;   ///< text of --help
    int (*run)(const Arguments &arguments);
};

int run_status(const Arguments &arguments);
int run_top(const Arguments &arguments);
int run_trace(const Arguments &arguments);
int run_doctor(const Arguments &arguments);
int run_sim(const Arguments &arguments);
extern const char *const kStatusUsage, *const kTopUsage, *const kTraceUsage, *const kDoctorUsage, *const kSimUsage;

/// Options of a command: "--name VALUE", "--name=VALUE" or "--flag". One that asks for help or is wrong ends the command:
/// then *ret_status is set and ok() is false.
class OptionReader {
  public:
    OptionReader(const Arguments &arguments, const char *usage) : arguments_(arguments), usage_(usage) {}
    OptionReader &value(const std::string &name, std::string *ret_value);
    OptionReader &flag(const std::string &name, bool *ret_flag);
    OptionReader &where(Where *where); ///< --socket, --run-dir, --node, --config
    /// Read all. False: the command ends with *ret_status.
    bool read(int *ret_status);

  private:
    const Arguments &arguments_;
    const char *usage_;
    std::vector<std::pair<std::string, std::string *>> values_;
    std::vector<std::pair<std::string, bool *>> flags_;
};

/// "jigsaw: line" on standard error.
void complain(const std::string &line);
/// Whole-string decimal number above 0.
bool parse_positive(double *ret_number, const std::string &text);

} // namespace jigsaw::cli
#endif
