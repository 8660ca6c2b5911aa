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

/// What every command which asks jigsawd takes; in its usage.
#define JIGSAW_CLI_WHERE "[--node NAME] [--run-dir DIR] [--socket PATH] [--config FILE]"

/// Options of a command: "--name VALUE", "--name=VALUE", "-n VALUE", "-nVALUE" or "--flag". One that asks for help or is wrong
/// ends the command: then read() is false and *ret_status is set.
class OptionReader {
  public:
    OptionReader(const char *command, const Arguments &arguments, const char *usage)
        : command_(command), arguments_(arguments), usage_(usage)
    {
    }
    OptionReader &value(const std::string &name, std::string *ret_value);
    OptionReader &flag(const std::string &name, bool *ret_flag);
    OptionReader &where(Where *where); ///< --socket, --run-dir, --node, --config
    /// Read all. False: the command ends with *ret_status.
    bool read(int *ret_status);

  private:
    bool flag_known(const std::string &word);
    std::string *target_of(const std::string &name) const;
    bool wrong(int *ret_status, const std::string &what) const;

    const char *command_;
    const Where *where_ = nullptr;
    const Arguments &arguments_;
    const char *usage_;
    std::vector<std::pair<std::string, std::string *>> values_;
    std::vector<std::pair<std::string, bool *>> flags_;
};

/// "jigsaw: line" on standard error.
void complain(const std::string &line);
/// "jigsaw: line" and kUsageError, for a command to return.
int wrong_usage(const std::string &line);
/// Whole-string decimal number from `least` to `most`.
bool parse_in_range(double *ret_number, const std::string &text, double least, double most);
/// Write out what stands in stdout's buffer. False, with one line on standard error, when any of it was lost.
bool finish_output();

} // namespace jigsaw::cli
#endif
