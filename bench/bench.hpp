// SPDX-License-Identifier: Apache-2.0
// One JSON object per line, the form of every benchmark's output (scripts/bench):
//
//     bench::Line("sync", "total_bytes_ratio", 0.75, "1").with("ranks", 4).with("strategy", "default").headline();
//
// prints {"bench":"sync","metric":"total_bytes_ratio","value":0.75,"unit":"1","ranks":4,"strategy":"default",
// "headline":true} when the object goes out of scope. headline() marks the one line that answers a figure asked for.
#ifndef JIGSAW_BENCH_BENCH_HPP
#define JIGSAW_BENCH_BENCH_HPP

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

namespace jigsaw::bench {

/// A wrong argument: one line, and the status of wrong usage. Benchmarks have no other way to end early.
[[noreturn]] inline void refuse(const std::string &line)
{
    std::fprintf(stderr, "bench/%s\n", line.c_str());
    std::exit(2);
}

/// Argument number `index` as a whole number; `fallback` where there is none. `name`: "gate: TURNS".
inline long whole_argument(int argc, char **argv, int index, const std::string &name, long fallback, long least, long most)
{
    if (index >= argc)
        return fallback;
    char *rest = nullptr;
    const long value = std::strtol(argv[index], &rest, 10);
    if (rest == argv[index] || *rest != '\0' || value < least || value > most)
        refuse(name + " is '" + argv[index] + "', allowed is " + std::to_string(least) + " to " + std::to_string(most));
    return value;
}

/// The word is one of `words`; `name`: "scan: PART".
inline void require_word(const std::string &word, const std::string &name, const std::vector<std::string> &words)
{
    std::string all;
    for (const std::string &known : words) {
        if (word == known)
            return;
        all += (all.empty() ? "" : ", ") + known;
    }
    refuse(name + " is '" + word + "', there are: " + all);
}

/// A JSON string, quotes included.
inline std::string json_string(const std::string &text)
{
    std::string quoted = "\"";
    for (const unsigned char c : text) {
        char escape[8];
        if (c == '"' || c == '\\') {
            quoted += '\\';
            quoted += static_cast<char>(c);
        } else if (c < 0x20) {
            std::snprintf(escape, sizeof escape, "\\u%04x", c);
            quoted += escape;
        } else {
            quoted += static_cast<char>(c);
        }
    }
    return quoted + '"';
}

/// A JSON number; JSON knows neither infinity nor NaN, so those become null.
inline std::string json_number(double value)
{
    if (!std::isfinite(value))
        return "null";
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", value);
    return text;
}

/// One measured value; printed by the destructor.
class Line {
public:
    Line(const std::string &bench, const std::string &metric, double value, const std::string &unit)
    {
        with("bench", bench).with("metric", metric).with("value", value).with("unit", unit);
    }
    Line(const Line &) = delete;
    Line &operator=(const Line &) = delete;
    ~Line()
    {
        std::printf("{%s}\n", fields_.c_str());
        std::fflush(stdout);
    }

    /// The case's own key: a string, a number or a truth value.
    template <typename T> Line &with(const std::string &key, const T &value)
    {
        if constexpr (std::is_same_v<T, bool>)
            return add(key, value ? "true" : "false");
        else if constexpr (std::is_integral_v<T>)
            return add(key, std::to_string(value));
        else if constexpr (std::is_floating_point_v<T>)
            return add(key, json_number(value));
        else
            return add(key, json_string(value));
    }

    Line &headline() { return with("headline", true); }

private:
    Line &add(const std::string &key, const std::string &json)
    {
        fields_ += (fields_.empty() ? "" : ",") + json_string(key) + ":" + json;
        return *this;
    }

    std::string fields_;
};

} // namespace jigsaw::bench

#endif
