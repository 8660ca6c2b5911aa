// SPDX-License-Identifier: Apache-2.0
// Options of the sub-commands.
#include "plugin/cli/command.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace jigsaw::cli {

void complain(const std::string &line)
{
    std::fflush(stdout); // so that both stand in their order where they go to the same file
    std::fprintf(stderr, "jigsaw: %s\n", line.c_str());
}

int wrong_usage(const std::string &line)
{
    complain(line);
    return kUsageError;
}

bool parse_in_range(double *ret_number, const std::string &text, double least, double most)
{
    char *end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(number >= least && number <= most))
        return false;
    *ret_number = number;
    return true;
}

bool finish_output()
{
    errno = 0;
    const bool flushed = std::fflush(stdout) == 0;
    if (flushed && !std::ferror(stdout)) // an earlier write may have failed, its bytes are gone from the buffer
        return true;
    complain(std::string("standard output: ") + (errno != 0 ? std::strerror(errno) : "not all could be written"));
    return false;
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
    where_ = where;
    return value("--socket", &where->socket).value("--run-dir", &where->run_dir).value("--node", &where->node)
        .value("--config", &where->config);
}

bool OptionReader::flag_known(const std::string &word)
{
    for (const auto &[flag, target] : flags_) {
        if (word == flag)
            return *target = true;
    }
    return false;
}

std::string *OptionReader::target_of(const std::string &name) const
{
    for (const auto &[option, target] : values_) {
        if (name == option)
            return target;
    }
    return nullptr;
}

bool OptionReader::wrong(int *ret_status, const std::string &what) const
{
    *ret_status = wrong_usage(what + "; `jigsaw " + command_ + " --help` has the options");
    return false;
}

bool OptionReader::read(int *ret_status)
{
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
        const std::string &word = arguments_[i];
        if (word == "--help" || word == "-h") {
            std::fputs(usage_, stdout);
            *ret_status = kOk;
            return false;
        }
        if (flag_known(word))
            continue;
        const bool is_long = word.rfind("--", 0) == 0;
        const std::size_t equals = is_long ? word.find('=') : std::string::npos;
        const std::string name = is_long ? word.substr(0, equals) : word.substr(0, 2); // -nVALUE
        std::string *const target = target_of(name);
        if (target == nullptr)
            return wrong(ret_status, "'" + word + "' is no option of jigsaw " + command_);
        if (equals != std::string::npos)
            *target = word.substr(equals + 1);
        else if (!is_long && word.size() > 2)
            *target = word.substr(2);
        else if (++i < arguments_.size())
            *target = arguments_[i];
        else
            return wrong(ret_status, name + " needs a value");
        if (target->empty())
            return wrong(ret_status, name + " needs a value that is not empty");
    }
    if (where_ != nullptr && !where_->socket.empty() && !(where_->node + where_->run_dir).empty())
        return wrong(ret_status, "--socket says whom to ask: leave out --node and --run-dir");
    return true;
}

} // namespace jigsaw::cli
