// SPDX-License-Identifier: Apache-2.0
// Prints what is written down elsewhere too, from the tables: etc/jigsaw.yaml.example, the keys of jigsaw.yaml(5) and the
// options of jigsaw-spb(7). `make update-tables` writes them into the tree, tests/unit/tables.t sees that they are in step.
//
//     gen_tables example        the example file
//     gen_tables example-full   the same with the mappings' examples in force (for the test)
//     gen_tables man-config     the section of jigsaw.yaml(5)
//     gen_tables man-options    the section of jigsaw-spb(7)
#include "plugin/config/keys.hpp"
#include "plugin/config/options.hpp"
#include "plugin/config/text.hpp"

#include <cstdio>
#include <cstring>

using namespace jigsaw::config;

namespace {

constexpr std::size_t kCommentWidth = 100;

void print_comment(const std::string &text)
{
    std::string line = "#";
    for (const std::string &word : split(text, ' ')) {
        if (line.size() + 1 + word.size() > kCommentWidth) {
            std::printf("%s\n", line.c_str());
            line = "#";
        }
        line += " " + word;
    }
    std::printf("%s\n", line.c_str());
}

/// "user, account, any" of a row whose range is "user|account|any"
std::string words_of(const KeyRow &row)
{
    std::string words;
    for (const std::string &word : split(row.range, '|'))
        words += (words.empty() ? "" : ", ") + word;
    return words;
}

/// " from 1 to 8, in jobs" of a row whose range is "1..8"
std::string range_of(const KeyRow &row)
{
    const std::string range = row.range;
    const std::size_t dots = range.find("..");
    const std::string unit = *row.unit ? std::string(", in ") + row.unit : "";
    return " from " + range.substr(0, dots) + " to " + range.substr(dots + 2) + unit;
}

/// "a whole number from 1 to 8, in jobs", "user, account or any", ...
std::string values_of(const KeyRow &row)
{
    switch (row.type) {
    case KeyType::switch_: return "on or off";
    case KeyType::whole: return "a whole number" + range_of(row);
    case KeyType::fraction: return "a number" + range_of(row);
    case KeyType::size: return "a size" + range_of(row);
    case KeyType::choice: return "one of " + words_of(row);
    case KeyType::path: return "an absolute path";
    default: return "a text";
    }
}

std::string quoted_if_empty(const char *value) { return *value ? value : "\"\""; }

void print_map_example(const KeyRow &row, const char *prefix)
{
    std::printf("%s%s:\n", prefix, row.key);
    const std::string lines = row.fallback;
    for (const std::string &line : split(lines.substr(0, lines.size() - 1), '\n'))
        std::printf("%s%s\n", prefix, line.c_str());
}

void print_example(bool with_maps)
{
    print_comment("SPDX-License-Identifier: Apache-2.0");
    print_comment("JigSaw's configuration, as /etc/jigsaw/jigsaw.yaml on the controller and on all nodes. Every key has its default "
                  "here, so an empty or missing file means the same. jigsawd reads it again on SIGHUP, slurmctld on scontrol "
                  "reconfigure; a file with a mistake changes nothing. See jigsaw.yaml(5).");
    for (const KeyRow &row : config_key_table()) {
        std::printf("\n");
        if (row.type == KeyType::section) {
            std::printf("########## %s ##########\n", row.key);
            print_comment(row.sentence);
            continue;
        }
        print_comment(row.sentence);
        if (row.type == KeyType::map) {
            print_map_example(row, with_maps ? "" : "#");
            continue;
        }
        print_comment("(" + values_of(row) + ")");
        std::printf("%s: %s\n", row.key, quoted_if_empty(row.fallback).c_str());
    }
}

/// Text as it may stand in a man page: dashes that can be copied, no line that begins with a control character.
std::string roff(const std::string &text)
{
    std::string result;
    for (char c : text)
        result += c == '-' ? "\\-" : c == '\\' ? "\\e" : std::string(1, c);
    return !result.empty() && (result[0] == '.' || result[0] == '\'') ? "\\&" + result : result;
}

void print_roff_example(const KeyRow &row)
{
    std::printf(".IP\n.EX\n%s:\n", roff(row.key).c_str());
    const std::string lines = row.fallback;
    for (const std::string &line : split(lines.substr(0, lines.size() - 1), '\n'))
        std::printf("%s\n", roff(line).c_str());
    std::printf(".EE\n");
}

void print_man_config()
{
    for (const KeyRow &row : config_key_table()) {
        if (row.type == KeyType::section) {
            std::printf(".SS %s\n%s\n", row.key, roff(row.sentence).c_str());
            continue;
        }
        std::printf(".TP\n.B %s\n%s\n", row.key, roff(row.sentence).c_str());
        if (row.type == KeyType::map)
            print_roff_example(row);
        else
            std::printf("Value: %s. Default: %s.\n", roff(values_of(row)).c_str(), roff(*row.fallback ? row.fallback : "empty").c_str());
    }
}

void print_man_options()
{
    for (const OptionRow &row : spb_option_table()) {
        const char *open = row.has_argument ? "" : "[", *close = row.has_argument ? "" : "]";
        std::printf(".TP\n.B \\-\\-%s%s=%s%s\n", roff(row.name).c_str(), open, roff(row.arginfo).c_str(), close);
        std::printf("%s.\nAbsent: %s.\n", roff(row.usage).c_str(), roff(row.fallback).c_str());
    }
}

} // namespace

int main(int argc, char **argv)
{
    const std::string what = argc == 2 ? argv[1] : "";
    if (what == "example" || what == "example-full")
        print_example(what == "example-full");
    else if (what == "man-config")
        print_man_config();
    else if (what == "man-options")
        print_man_options();
    else {
        std::fprintf(stderr, "usage: gen_tables example|example-full|man-config|man-options\n");
        return 1;
    }
    return std::fflush(stdout) == 0 ? 0 : 1;
}
