// SPDX-License-Identifier: Apache-2.0
#include "runtime/capi/directive_log.hpp"

#include "runtime/collective/error.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace jigsaw::capi {

namespace {

/// One flat JSON object whose values are integers, strings without escapes, or arrays of integers: what we write.
class FlatJson {
  public:
    explicit FlatJson(const std::string &text) : text_(text)
    {
        expect('{');
        while (!take('}')) {
            const std::string key = string();
            expect(':');
            values_[key] = value();
            if (!take(','))
                require('}');
        }
        if (at_ != text_.size())
            fail("text after the object");
    }
    const std::string &word(const std::string &key) const
    {
        const auto found = values_.find(key);
        if (found == values_.end())
            throw std::runtime_error("no \"" + key + "\"");
        return found->second;
    }
    std::int64_t number(const std::string &key) const { return to_number(key, word(key)); }
    std::vector<std::uint32_t> numbers(const std::string &key) const
    {
        std::vector<std::uint32_t> out;
        std::string rest = word(key);
        while (!rest.empty()) {
            const std::size_t comma = rest.find(',');
            out.push_back(static_cast<std::uint32_t>(to_number(key, rest.substr(0, comma))));
            rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
        }
        return out;
    }

  private:
    static std::int64_t to_number(const std::string &key, const std::string &text)
    {
        char *end = nullptr;
        errno = 0;
        const long long value = std::strtoll(text.c_str(), &end, 10);
        if (text.empty() || *end != '\0' || errno != 0)
            throw std::runtime_error("\"" + key + "\" is not a whole number: " + text);
        return value;
    }
    [[noreturn]] void fail(const std::string &what) const
    {
        throw std::runtime_error(what + " at column " + std::to_string(at_ + 1));
    }
    bool take(char c)
    {
        if (at_ >= text_.size() || text_[at_] != c)
            return false;
        ++at_;
        return true;
    }
    void expect(char c)
    {
        if (!take(c))
            fail(std::string("expected '") + c + "'");
    }
    void require(char c) const
    {
        if (at_ >= text_.size() || text_[at_] != c)
            fail(std::string("expected ',' or '") + c + "'");
    }
    std::string string()
    {
        expect('"');
        return until("\"", 1);
    }
    std::string value()
    {
        if (take('"'))
            return until("\"", 1);
        if (take('['))
            return until("]", 1);
        return until(",}", 0);
    }
    std::string until(const char *stops, std::size_t skip)
    {
        const std::size_t end = text_.find_first_of(stops, at_);
        if (end == std::string::npos)
            fail("the line ends too early");
        const std::string out = text_.substr(at_, end - at_);
        at_ = end + skip;
        return out;
    }

    std::string text_;
    std::size_t at_ = 0;
    std::map<std::string, std::string> values_;
};

std::string pair(const char *key, std::int64_t value)
{
    return std::string("\"") + key + "\":" + std::to_string(value);
}

plan::Directive read_entry(const FlatJson &json)
{
    plan::Directive directive;
    directive.generation = static_cast<std::uint64_t>(json.number("generation"));
    directive.first_iteration = static_cast<std::uint64_t>(json.number("first_iteration"));
    directive.phase = static_cast<std::int32_t>(json.number("phase"));
    directive.direction = static_cast<std::int32_t>(json.number("direction"));
    directive.levels = static_cast<std::uint32_t>(json.number("levels"));
    directive.full_workers = static_cast<std::uint32_t>(json.number("full_workers"));
    directive.seed = static_cast<std::uint64_t>(json.number("seed"));
    directive.depth_of_level = json.numbers("depth_of_level");
    if (!plan::parse_policy(&directive.policy, json.word("policy")))
        throw std::runtime_error("\"policy\" is not known: " + json.word("policy"));
    return directive;
}

} // namespace

std::string format_directive(const plan::Directive &directive, std::uint32_t world_size)
{
    std::string depths;
    for (const std::uint32_t depth : directive.depth_of_level)
        depths += (depths.empty() ? "" : ",") + std::to_string(depth);
    return "{" + pair("generation", static_cast<std::int64_t>(directive.generation)) + "," +
           pair("first_iteration", static_cast<std::int64_t>(directive.first_iteration)) + ",\"policy\":\"" +
           plan::policy_name(directive.policy) + "\"," + pair("phase", directive.phase) + "," +
           pair("direction", directive.direction) + "," + pair("levels", directive.levels) + "," +
           pair("full_workers", directive.full_workers) + "," +
           pair("seed", static_cast<std::int64_t>(directive.seed)) + ",\"depth_of_level\":[" + depths + "]," +
           pair("world_size", world_size) + "}";
}

DirectiveLog::DirectiveLog(const std::string &path, std::uint32_t world_size)
    : world_size_(world_size), file_(std::fopen(path.c_str(), "ae"))
{
    if (!file_)
        throw Error(JIGSAW_SYSTEM_ERROR, "jigsaw_attach: directive_log " + path + ": " + std::strerror(errno));
}

bool DirectiveLog::append(const plan::Directive &directive)
{
    const std::string line = format_directive(directive, world_size_) + "\n";
    return std::fputs(line.c_str(), file_.get()) >= 0 && std::fflush(file_.get()) == 0;
}

void Replay::take_line(const std::string &line, std::uint32_t world_size, std::uint32_t num_blocks)
{
    const FlatJson json(line);
    if (json.number("world_size") != world_size)
        throw std::runtime_error("world_size was " + json.word("world_size") + ", this run has " +
                                 std::to_string(world_size));
    const plan::Directive directive = read_entry(json);
    const std::string why = plan::validate(directive, world_size, num_blocks);
    if (!why.empty())
        throw std::runtime_error(why);
    if (!directives_.empty() && directive.first_iteration <= directives_.rbegin()->first) {
        if (directive.generation > directives_.rbegin()->second.generation)
            throw std::runtime_error("first_iteration " + std::to_string(directive.first_iteration) + " does not rise");
        // A run that was resumed: what its earlier part announced from here on never happened.
        directives_.erase(directives_.lower_bound(directive.first_iteration), directives_.end());
    }
    directives_[directive.first_iteration] = directive;
}

Replay::Replay(const std::string &path, std::uint32_t world_size, std::uint32_t num_blocks)
{
    std::ifstream file(path);
    if (!file)
        throw Error(JIGSAW_INVALID_ARGUMENT, "jigsaw_attach: replay_log " + path + ": " + std::strerror(errno));
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
        try {
            take_line(line, world_size, num_blocks);
        } catch (const std::runtime_error &problem) {
            throw Error(JIGSAW_INVALID_ARGUMENT,
                        "jigsaw_attach: " + path + ":" + std::to_string(number) + ": " + problem.what());
        }
    }
}

plan::Directive Replay::at(std::uint64_t first_iteration) const
{
    const auto found = directives_.find(first_iteration);
    return found == directives_.end() ? plan::Directive() : found->second;
}

} // namespace jigsaw::capi
