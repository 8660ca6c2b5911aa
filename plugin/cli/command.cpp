// SPDX-License-Identifier: Apache-2.0
// Options of the sub-commands.
#include "plugin/cli/command.hpp"

#include <cstdio>
#include <cstdlib>

namespace jigsaw::cli {

void complain(const std::string &line)
{
    std::fprintf(stderr, "jigsaw: %s\n", line.c_str());
}

bool parse_positive(double *ret_number, const std::string &text)
{
    char *end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(number > 0 && number < 1e9))
        return false;
    *ret_number = number;
    return true;
}

OptionReader &OptionReader::value(const std::string &name, std::string *ret_value)
{
    values_.emplace_back(name, ret_value);
    return *this;
}

OptionReader &OptionReader::flag(const std::string &name, bool *ret_flag)
{
    flags_.emplace_back(name, ret_flag);
    return *this;
}

OptionReader &OptionReader::where(Where *where)
{
    return value("--socket", &where->socket).value("--run-dir", &where->run_dir).value("--node", &where->node)
        .value("--config", &where->config);
}

bool OptionReader::read(int *ret_status)
{
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
        const std::string &word = arguments_[i];
        const std::size_t equals = word.rfind("--", 0) == 0 ? word.find('=') : std::string::npos;
        const std::string name = word.substr(0, equals);
        bool known = false;
        if (word == "--help" || word == "-h") {
            std::fputs(usage_, stdout);
            *ret_status = kOk;
            return false;
        }
        for (const auto &[flag, target] : flags_) {
            if (word == flag)
                *target = known = true;
        }
        for (const auto &[option, target] : values_) {
            if (name != option)
                continue;
            known = true;
            if (equals != std::string::npos) {
                *target = word.substr(equals + 1);
            } else if (++i < arguments_.size()) {
                *target = arguments_[i];
            } else {
                complain(name + " needs a value\n" + usage_);
                *ret_status = kUsageError;
                return false;
            }
        }
        if (!known) {
            complain("'" + word + "' is no option of this command\n" + usage_);
            *ret_status = kUsageError;
            return false;
        }
    }
    return true;
}

} // namespace jigsaw::cli
