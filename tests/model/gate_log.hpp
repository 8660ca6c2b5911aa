// SPDX-License-Identifier: Apache-2.0
// Accepts a gate log (docs/gate-log.md) line by line, or says what the model of the gate forbids. The table of states
// is that document's; the same transitions in promela are gate.pml. Used by tests/model/replay and by unit tests.
#ifndef JIGSAW_TESTS_MODEL_GATE_LOG_HPP
#define JIGSAW_TESTS_MODEL_GATE_LOG_HPP

#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

namespace jigsaw::tests {

/// A flat JSON object: every value as its text, strings without quotes. False for anything else.
inline bool parse_flat_json(std::map<std::string, std::string> *ret_values, const std::string &line)
{
    std::size_t at = 0;
    const auto skip = [&] {
        while (at < line.size() && std::isspace(static_cast<unsigned char>(line[at])))
            ++at;
    };
    const auto take = [&](char c) {
        skip();
        return at < line.size() && line[at] == c ? (++at, true) : false;
    };
    const auto text = [&](std::string *ret_text) {
        std::string value;
        while (at < line.size() && line[at] != '"')
            if (line[at] == '\\' && at + 1 < line.size())
                value += line[at + 1], at += 2;
            else
                value += line[at++];
        *ret_text = value;
        return at < line.size() && line[at++] == '"';
    };
    std::map<std::string, std::string> values;
    if (!take('{'))
        return false;
    for (bool first = true; !take('}'); first = false) {
        std::string key, value;
        if ((!first && !take(',')) || !take('"') || !text(&key) || !take(':'))
            return false;
        if (take('"')) {
            if (!text(&value))
                return false;
        } else {
            while (at < line.size() && line[at] != ',' && line[at] != '}' && line[at] != '{' && line[at] != '[')
                value += line[at++];
        }
        if (value.empty() || !values.emplace(key, value).second)
            return false;
    }
    skip();
    *ret_values = std::move(values);
    return at == line.size();
}

class GateLog {
  public:
    /// Empty when the model allows this line after those before, else the reason; the log ends there.
    std::string accept(const std::string &line)
    {
        ++lines_;
        std::map<std::string, std::string> values;
        if (!parse_flat_json(&values, line))
            return "no flat JSON object";
        std::int64_t t_ns = 0;
        if (!number(&t_ns, values, "t_ns"))
            return "no t_ns";
        if (t_ns < last_ns_)
            return "t_ns falls";
        last_ns_ = t_ns;
        const std::string event = values["event"];
        if (event == "start") {
            processes_.clear();
            return {};
        }
        std::int64_t gpu = 0, id = 0;
        if (!number(&gpu, values, "gpu") || !number(&id, values, "process"))
            return "no gpu or no process";
        if (event == "directive" || event == "agreed" || event == "iteration")
            return {}; // of depth, not of turns
        return step(event, gpu, id);
    }

    std::size_t lines() const { return lines_; }
    std::size_t grants() const { return grants_; }

  private:
    /// Turn of a process with respect to the arbiter. `fresh`: idle, and its gate was closed with no turn since.
    enum class Turn { fresh, idle, wants, holds, expired };
    struct Process {
        std::int64_t gpu = 0;
        bool open = false;
        Turn turn = Turn::fresh;
    };

    static bool number(std::int64_t *ret_value, std::map<std::string, std::string> &values, const char *key)
    {
        char *end = nullptr;
        const std::string &text = values[key];
        *ret_value = std::strtoll(text.c_str(), &end, 10);
        return !text.empty() && *end == '\0' && *ret_value >= 0;
    }

    std::string step(const std::string &event, std::int64_t gpu, std::int64_t id)
    {
        const bool known = processes_.count(id) != 0;
        const bool gate = event == "open" || event == "close";
        if (!known && !gate)
            return "first event of a process is " + event + ", not open or close";
        Process &process = processes_[id];
        if (known && process.gpu != gpu)
            return "process moved from GPU " + std::to_string(process.gpu);
        process.gpu = gpu;
        if (event == "dead") {
            processes_.erase(id);
            return {};
        }
        return gate ? turn_gate(process, event == "open", known) : turn_event(process, event);
    }

    static std::string turn_gate(Process &process, bool open, bool known)
    {
        if (known && process.open == open)
            return open ? "gate is open already" : "gate is closed already";
        if (open && process.turn == Turn::wants)
            return "gate opens before the pending want is granted";
        process.open = open;
        process.turn = Turn::fresh;
        return {};
    }

    std::string turn_event(Process &process, const std::string &event)
    {
        const Turn before = process.turn;
        const bool holds = before == Turn::holds;
        if (event == "run")
            return move(process, Turn::holds, before == Turn::fresh && !process.open,
                        "run, but its gate is open or it had a turn since closing");
        if (event == "want")
            return move(process, Turn::wants, !holds && before != Turn::wants, "wants while it holds or wants already");
        if (event == "release")
            return move(process, Turn::idle, holds || before == Turn::expired, "gives back what it does not hold");
        if (event == "cancel")
            return move(process, Turn::idle, before == Turn::wants, "withdraws a want that it does not have");
        if (event == "lease")
            return move(process, Turn::expired, holds, "lease of one that does not hold");
        if (event == "grant")
            return grant(process);
        return "unknown event '" + event + "'";
    }

    static std::string move(Process &process, Turn to, bool allowed, const char *why)
    {
        if (!allowed)
            return why;
        process.turn = to;
        return {};
    }

    std::string grant(Process &process)
    {
        if (process.turn != Turn::wants)
            return "grant without a want";
        for (const auto &[id, other] : processes_) {
            if (&other == &process || other.gpu != process.gpu)
                continue;
            if (other.turn == Turn::holds)
                return "process " + std::to_string(id) + " holds";
            if (other.open)
                return "process " + std::to_string(id) + " has an open gate";
        }
        ++grants_;
        // Behind an open gate nobody notes the giving back.
        process.turn = process.open ? Turn::idle : Turn::holds;
        return {};
    }

    std::map<std::int64_t, Process> processes_;
    std::int64_t last_ns_ = 0;
    std::size_t lines_ = 0, grants_ = 0;
};

} // namespace jigsaw::tests
#endif
