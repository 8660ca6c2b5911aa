// SPDX-License-Identifier: Apache-2.0
// jigsaw.yaml: what is read, and what is said about what is not. And: the example file is the defaults.
#include "plugin/config/config.hpp"
#include "plugin/config/keys.hpp"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

// Check last: it defines fail().
#include "tests/lib/folder.hpp"
#include "tests/lib/same_text.hpp"
#include "tests/lib/suite.hpp"

using namespace jigsaw;
using config::Config;

namespace {

std::shared_ptr<const Config> parsed(const std::string &text)
{
    std::string why;
    auto result = config::parse_config(&why, text, "f");
    ck_assert_msg(result != nullptr, "%s", why.c_str());
    return result;
}

std::string refusal(const std::string &text)
{
    std::string why;
    ck_assert_msg(config::parse_config(&why, text, "f") == nullptr, "taken: %s", text.substr(0, 200).c_str());
    ck_assert_msg(why.find('\n') == std::string::npos && why.size() < 400, "%s", why.c_str());
    return why;
}

/// Everything of a Config in one text, to compare two.
std::string dump(const Config &c)
{
    std::ostringstream out;
    const core::SharingPolicy &s = c.sharing;
    out << c.run_dir << ' ' << s.enabled << s.max_jobs_per_gpu << static_cast<int>(s.scope) << ' ' << s.context_bytes << ' '
        << s.memory_headroom << ' ' << s.default_memory_bytes << ' ' << s.pay << ' ' << s.least_gain
        << ' ' << s.share_slowdown << ' ' << s.pack << ' ' << s.max_turn_ratio << ' ' << s.max_offers
        << ' ' << c.anticipation << ' ' << c.extra_iterations << ' ' << c.depth << ' ' << c.phases << ' ' << c.turns << ' '
        << c.lease_min_ms << ' ' << c.slurm_conf << ' ' << c.scontrol << ' ' << c.admin_comment_period_s << ' '
        << c.trace_events << ' ' << c.trace_file;
    for (const auto *map : {&c.partitions, &c.qos, &c.accounts})
        for (const auto &[name, change] : *map)
            out << " | " << name << change.enabled.value_or(false) << change.max_jobs_per_gpu.value_or(0)
                << (change.scope ? static_cast<int>(*change.scope) : -1);
    for (const auto &[type, bytes] : c.gpu_memory)
        out << " | " << type << bytes;
    for (const auto &[node, cores] : c.gpu_cores)
        for (const auto &[gpu, core] : cores)
            out << " | " << node << gpu << core;
    return out.str();
}

std::string example_text()
{
    const char *source = std::getenv("top_srcdir");
    std::ifstream stream(std::string(source ? source : ".") + "/etc/jigsaw.yaml.example");
    ck_assert_msg(stream.is_open(), "etc/jigsaw.yaml.example is missing");
    std::stringstream text;
    text << stream.rdbuf();
    return text.str();
}

/// The example with its commented mappings in force: "#key:" and "#  key:", never "# word".
std::string with_mappings(std::string text)
{
    std::size_t count = 0;
    for (std::size_t at = text.find("\n#"); at != std::string::npos; at = text.find("\n#", at + 1)) {
        const bool is_key = text[at + 2] >= 'a' && text[at + 2] <= 'z';
        if (is_key || text.compare(at + 2, 2, "  ") == 0) {
            text.erase(at + 1, 1);
            ++count;
        }
    }
    ck_assert_uint_gt(count, 10);
    return text;
}

} // namespace

START_TEST(empty_is_the_default)
{
    const std::string usual = dump(Config());
    for (const char *text : {"", "\n", "# nothing\n", "---\n", "--- \n...\n", "{}", "partitions:\ngpu_memory:\nqos: {}\n", "\xef\xbb\xbf"})
        assert_same_text(dump(*parsed(text)), usual);
}
END_TEST

START_TEST(example_is_the_default)
{
    const auto example = parsed(example_text());
    assert_same_text(dump(*example), dump(Config()));
    const auto full = parsed(with_mappings(example_text()));
    ck_assert_uint_eq(full->gpu_memory.at("a100"), 40ULL << 30);
    ck_assert_int_eq(full->gpu_cores.at("*").at(1), 1);
    ck_assert(full->partitions.at("debug").enabled == false);
    ck_assert_uint_eq(full->partitions.at("batch").max_jobs_per_gpu.value(), 3);
}
END_TEST

START_TEST(every_default_is_a_good_value)
{
    std::size_t values = 0;
    for (const config::KeyRow &row : config::config_key_table()) {
        ck_assert(*row.key && *row.sentence);
        if (row.take == nullptr)
            continue;
        Config changed;
        assert_same_text(row.take(&changed, row, row.fallback), "");
        assert_same_text(dump(changed), dump(Config()));
        ++values;
    }
    ck_assert_uint_eq(values, 24);
}
END_TEST

START_TEST(values_arrive)
{
    const auto c = parsed("run_dir: /tmp/j\nsharing: off\nmax_jobs_per_gpu: 4\nsharing_scope: account\ncontext_memory: 600M\n"
                          "memory_headroom: 0.1\ndefault_memory: 8G\npay: 1.5\nleast_gain: 0.2\nshare_slowdown: 1.3\npack: on\nmax_turn_ratio: 2\nmax_offers: 3\n"
                          "anticipation: 0.05\nextra_iterations: 1.2\ndepth: off\nphases: same\nturns: \"off\"\n"
                          "lease_min_ms: 50\nslurm_conf: /etc/s\nscontrol: /bin/scontrol\nadmin_comment_period_s: 0\n"
                          "trace_events: 10\ntrace_file: '/t'\n"
                          "gpu_memory: {a100: 40G, \"*\": 1G}\ngpu_cores:\n  n1: {0: 1}\n  '*':\n    0: 0\n");
    assert_same_text(dump(*c), "/tmp/j 041 629145600 0.1 8589934592 1.5 0.2 1.3 1 2 3 0.05 1.2 off same off 50 /etc/s /bin/scontrol 0 10 /t"
                               " | *1073741824 | a10042949672960 | *00 | n101");
}
END_TEST

// Placement reckons with the extra iterations that jigsawd's choice of depths does.
START_TEST(one_key_for_both)
{
    ck_assert_double_eq(parsed("extra_iterations: 1.2\n")->sharing.extra_iterations, 1.2);
    ck_assert_double_eq(policy_for(*parsed("extra_iterations: 1.2\n"), "p", "q", "a").extra_iterations, 1.2);
    ck_assert_double_eq(parsed("pay: 1\n")->sharing.extra_iterations, 1);
}
END_TEST

START_TEST(refusals)
{
    const std::vector<std::pair<std::string, std::string>> rows = {
        {"colour: red\n", "f:1:1: colour: unknown key; jigsaw.yaml(5) lists them all"},
        {"\n\n  Sharing: on\n", "f:3:3: Sharing: unknown key"},
        {"sharing: maybe\n", "f:1:10: sharing: 'maybe' is not on or off"},
        {"sharing:\n", "f:1:9: sharing: '' is not on or off"},
        {"sharing: {enabled: on}\n", "f:1:10: sharing: 'key: value' lines, where a single value belongs"},
        {"sharing: [on]\n", "f:1:10: sharing: a list, where"},
        {"max_jobs_per_gpu: 0\n", "f:1:19: max_jobs_per_gpu: '0' is not a whole number from 1 to 8"},
        {"max_jobs_per_gpu: 9\n", "'9' is not a whole number from 1 to 8"},
        {"max_jobs_per_gpu: 4294967298\n", "is not a whole number from 1 to 8"},
        {"max_jobs_per_gpu: 2.0\n", "is not a whole number"},
        {"max_jobs_per_gpu: -2\n", "is not a whole number"},
        {"max_jobs_per_gpu: 2K\n", "is not a whole number"},
        {"max_jobs_per_gpu: two\n", "is not a whole number"},
        {"max_jobs_per_gpu: 2\nmax_jobs_per_gpu: 3\n", "f:2:1: max_jobs_per_gpu: given twice; the first is in line 1"},
        {"sharing_scope: all\n", "f:1:16: sharing_scope: 'all' is not one of user, account, any"},
        {"memory_headroom: 0.6\n", "is not a number from 0 to 0.5"},
        {"memory_headroom: nan\n", "is not a number from 0 to 0.5"},
        {"memory_headroom: .05\n", "is not a number from 0 to 0.5"},
        {"least_gain: -0.1\n", "f:1:13: least_gain: '-0.1' is not a number from 0 to 1"},
        {"share_slowdown: 0.9\n", "f:1:17: share_slowdown: '0.9' is not a number from 1 to 4"},
        {"pack: sometimes\n", "f:1:7: pack: 'sometimes' is not on or off"},
        {"anticipation: 5%\n", "is not a number from 0 to 0.05"},
        {"context_memory: 65G\n", "is not a size from 0 to 64G"},
        {"context_memory: 600MB\n", "is not a size"},
        {"turns: sometimes\n", "turns: 'sometimes' is not one of on, off"},
        {"run_dir: run\n", "f:1:10: run_dir: 'run' is not an absolute path"},
        {"run_dir:\n", "run_dir: '' is not an absolute path"},
        {"run_dir: \"/a\\nb\"\n", "run_dir: '/a?b' is not an absolute path"},
        {"scontrol: ''\n", "scontrol: '' is not a text"},
        {"trace_file: t\n", "trace_file: 't' is not an absolute path"},
        {"gpu_memory: 40G\n", "f:1:13: gpu_memory: '40G', where 'key: value' lines belong"},
        {"gpu_memory:\n  a100: lots\n", "f:2:9: gpu_memory.a100: 'lots' is not a size from 1M to 16T"},
        {"gpu_memory:\n  a100: 40\n", "gpu_memory.a100: '40' is not a size from 1M to 16T"},
        {"gpu_memory:\n  a100: {x: 1}\n", "gpu_memory.a100: 'key: value' lines, where a single value belongs"},
        {"gpu_memory:\n  a: 1G\n  a: 2G\n", "f:3:3: gpu_memory.a: given twice; the first is in line 2"},
        {"gpu_cores:\n  n1: 3\n", "f:2:7: gpu_cores.n1: '3', where 'key: value' lines belong"},
        {"gpu_cores:\n  n1:\n    a: 3\n", "f:3:5: gpu_cores.n1.a: 'a' is not a GPU index from 0 to 1023"},
        {"gpu_cores:\n  n1:\n    0: -1\n", "f:3:8: gpu_cores.n1.0: '-1' is not a CPU core from 0 to 1023"},
        {"gpu_cores:\n  n1:\n    0: 1024\n", "is not a CPU core"},
        {"gpu_cores:\n  n1:\n    0: 1\n    00: 2\n", "f:4:5: gpu_cores.n1.00: GPU 0 is given twice"},
        {"gpu_cores:\n  n1:\n    0: {a: {b: c}}\n", "f:3:12: gpu_cores.n1.0.a: nested deeper than 4 levels"},
        {"partitions:\n  debug: off\n", "f:2:10: partitions.debug: 'off', where"},
        {"partitions:\n  debug:\n    turns: off\n", "f:3:5: partitions.debug.turns: unknown key; known are sharing"},
        {"qos:\n  q:\n    max_jobs_per_gpu: 99\n", "f:3:23: qos.q.max_jobs_per_gpu: '99' is not a whole number from 1 to 8"},
        {"accounts:\n  a:\n    sharing_scope: {}\n", "accounts.a.sharing_scope: 'key: value' lines"},
        {"sharing\n", "f:1:1: syntax: 'sharing' is not a list of"},
        {"- sharing\n", "f:1:1: syntax: a list"},
        {"sharing: on\n bad\n", "f:1:10: sharing: 'on bad' is not on or off"},
        {"sharing: on\n bad: x\n", "f:2:5: syntax: mapping values are not allowed in this context"},
        {"sharing: \"on\n", "syntax: found unexpected end of stream"},
        {"\tsharing: on\n", "f:1:1: syntax:"},
        {"sharing: on\n---\nturns: on\n", "f:2:1: syntax: a second document"},
        {"run_dir: &a /tmp\n", "f:1:10: run_dir: anchors, aliases and tags are not allowed"},
        {"run_dir: *a\n", "f:1:10: run_dir: anchors, aliases"},
        {"run_dir: !!str /tmp\n", "f:1:10: run_dir: anchors, aliases"},
        {"&a sharing: on\n", "anchors, aliases"},
        {"&a {sharing: on}\n", "anchors, aliases"},
        {"? {a: b}\n: c\n", "nested deeper"},
        {"? [a]\n: c\n", "a list, where"},
        {"<<: {sharing: on}\n", "f:1:1: <<: unknown key"},
        {"a\x01: b\n", "f:1:"},
        {"sharing: \xff\n", "f:1:"},
        {std::string(300000, '#'), "f:1:1: file: 300000 bytes (limit 262144)"},
        {std::string(100000, '['), "f:1:1: syntax: a list"},
        {std::string(100000, '{'), "nested deeper than 4 levels"},
    };
    for (const auto &[text, expected] : rows)
        assert_has_text(refusal(text), expected);
}
END_TEST

START_TEST(bombs_are_refused)
{
    std::string laughs = "a: &a [x,x,x,x,x,x,x,x,x]\n";
    for (char c = 'b'; c < 'j'; ++c)
        laughs += std::string(1, c) + ": &" + c + " [*" + std::string(1, static_cast<char>(c - 1)) + "]\n";
    assert_has_text(refusal(laughs), "f:1:4: a: anchors, aliases and tags are not allowed");
    std::string many = "gpu_memory:\n";
    for (int i = 0; i < 12000; ++i)
        many += "  t" + std::to_string(i) + ": 1G\n";
    assert_has_text(refusal(many), "more than 20000 values");
}
END_TEST

START_TEST(overrides)
{
    const auto c = parsed("partitions:\n  p:\n    max_jobs_per_gpu: 3\n    sharing_scope: any\n  dark:\n    sharing: off\n"
                          "qos:\n  q:\n    max_jobs_per_gpu: 4\n  light:\n    sharing: on\n"
                          "accounts:\n  a:\n    sharing_scope: account\n  none:\n    sharing: off\n");
    struct Row {
        const char *partition, *qos, *account;
        bool enabled;
        unsigned jobs;
        core::SharingScope scope;
    };
    const std::vector<Row> rows = {
        {"", "", "", true, 2, core::SharingScope::user},      {"x", "y", "z", true, 2, core::SharingScope::user},
        {"p", "", "", true, 3, core::SharingScope::any},      {"p", "q", "", true, 4, core::SharingScope::any},
        {"p", "q", "a", true, 4, core::SharingScope::account}, {"dark", "light", "", false, 2, core::SharingScope::user},
        {"p", "light", "none", false, 3, core::SharingScope::any},
    };
    for (const Row &row : rows) {
        const core::SharingPolicy policy = config::policy_for(*c, row.partition, row.qos, row.account);
        ck_assert_msg(policy.enabled == row.enabled && policy.max_jobs_per_gpu == row.jobs && policy.scope == row.scope,
                      "%s %s %s: %d %u", row.partition, row.qos, row.account, policy.enabled, policy.max_jobs_per_gpu);
    }
    const auto mostly_off = parsed("sharing: off\npartitions:\n  p:\n    sharing: on\n");
    ck_assert(!config::policy_for(*mostly_off, "", "", "").enabled);
    ck_assert(config::policy_for(*mostly_off, "p", "", "").enabled);
}
END_TEST

START_TEST(files)
{
    const tests::Folder folder;
    const std::string path = folder.file("jigsaw.yaml");
    std::string why;
    ck_assert(config::load_config(&why, path) == nullptr);
    assert_same_text(why, path + ":1:1: file: No such file or directory");
    std::ofstream(path) << "max_jobs_per_gpu: 5\n";
    const auto good = config::load_config(&why, path);
    ck_assert(good != nullptr && good->sharing.max_jobs_per_gpu == 5);
    std::ofstream(path) << "max_jobs_per_gpu: 50\n";
    ck_assert(config::load_config(&why, path) == nullptr);
    assert_has_text(why, path + ":1:19: max_jobs_per_gpu: '50'");
    std::ofstream(path) << std::string(1 << 20, '\n');
    ck_assert(config::load_config(&why, path) == nullptr);
    assert_has_text(why, "file: 262145 bytes (limit 262144)");
    ck_assert(config::load_config(&why, folder.path()) == nullptr);
    assert_has_text(why, "not a regular file");
}
END_TEST

int main()
{
    Suite *suite = suite_create("config");
    tests::add_case(suite, "defaults", {empty_is_the_default, example_is_the_default, every_default_is_a_good_value});
    tests::add_case(suite, "values", {values_arrive, one_key_for_both, overrides, files});
    tests::add_case(suite, "refusals", {refusals, bombs_are_refused});
    return tests::run_tap(suite);
}
