// SPDX-License-Identifier: Apache-2.0
// The jigsaw command: reading JSON, tables, traces, checks of Slurm's configuration, options.
#include "plugin/cli/checks.hpp"
#include "plugin/cli/command.hpp"
#include "plugin/cli/json_value.hpp"
#include "plugin/cli/table.hpp"
#include "plugin/cli/trace_events.hpp"
#include "plugin/cli/view.hpp"

#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "tests/lib/folder.hpp"
#include "tests/lib/suite.hpp" // last: check.h has a macro named fail

namespace {

using namespace jigsaw::cli;

bool holds(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}

START_TEST(json_is_read)
{
    JsonValue value;
    std::string why;
    ck_assert(parse_json(&value, &why, R"( {"a":[1,-2.5e3,true,null,"x\"\u00e9\n"],"big":18446744073709551615,"o":{}} )"));
    ck_assert_uint_eq(value["a"].items.size(), 5);
    ck_assert(value["a"].items[1].number == -2500);
    ck_assert(value["a"].items[2].boolean);
    ck_assert(value["a"].items[3].is_null());
    ck_assert_str_eq(value["a"].items[4].text.c_str(), "x\"\xc3\xa9\n");
    ck_assert_str_eq(value["big"].text.c_str(), "18446744073709551615");
    ck_assert(value["no"]["such"].is_null());
}
END_TEST

START_TEST(what_is_no_json)
{
    const std::string rows[] = {"", "{", "[1,]", "{\"a\"}", "{\"a\":1,}", "tru", "\"x", "\"\\q\"", "\"\\u12g4\"", "1 2", "--1", "{1:2}",
                                std::string(100, '['), "\"\\"};
    for (const std::string &row : rows) {
        JsonValue value;
        std::string why;
        ck_assert_msg(!parse_json(&value, &why, row), "%s", row.c_str());
        ck_assert(holds(why, "not JSON at byte"));
    }
}
END_TEST

START_TEST(tables_are_aligned)
{
    Table table({">N", "NAME"});
    table.row({"1", "a"});
    table.row({"100", "evil\033[2J"});
    ck_assert_str_eq(table.text().c_str(), "  N  NAME\n  1  a\n100  evil?[2J\n");
    ck_assert_str_eq(duration(5).c_str(), "5.0 s");
    ck_assert_str_eq(duration(600).c_str(), "10.0 min");
    ck_assert_str_eq(duration(36000).c_str(), "10.0 h");
}
END_TEST

START_TEST(traces_become_slices)
{
    TraceEvents events;
    std::string why;
    ck_assert(events.add_log(&why, "n1",
                             R"({"t_ns":0,"event":"start"}
{"t_ns":1000,"gpu":0,"event":"close","process":1,"job":11,"rank":0}
{"t_ns":2000,"gpu":0,"event":"want","process":1,"job":11,"rank":0}
{"t_ns":3000,"gpu":0,"event":"grant","process":1,"job":11,"rank":0,"iteration":4,"depth":4,"num_blocks":4}
{"t_ns":9000,"gpu":0,"event":"release","process":1,"job":11,"rank":0,"iteration":5,"depth":1,"num_blocks":4}
{"t_ns":9500,"gpu":0,"event":"dead","process":1,"job":11,"rank":0,"why":"died"}
)"));
    JsonValue document;
    ck_assert(parse_json(&document, &why, events.text()));
    const JsonValue *slice = nullptr;
    for (const JsonValue &event : document["traceEvents"].items) {
        if (event["ph"].text == "X")
            slice = &event;
    }
    ck_assert_ptr_nonnull(slice);
    ck_assert_str_eq((*slice)["name"].text.c_str(), "job 11 rank 0 depth 1/4");
    ck_assert((*slice)["ts"].number == 3 && (*slice)["dur"].number == 6);
    ck_assert_int_eq((*slice)["args"]["iteration"].integer(), 5);
    ck_assert(holds(events.text(), "\"why\":\"died\""));
    ck_assert(!events.add_log(&why, "n2", "{\"t_ns\":1,\"event\":\"start\"}\nnonsense\n"));
    ck_assert(holds(why, "2: not JSON"));
}
END_TEST

START_TEST(status_is_shown)
{
    const char *text = R"({"node":"n1","version":"1","turns":"on","depth":"auto","phases":"complement","now_ns":2000000000,
"gpus":[{"index":0,"cores":"","residents":[11,"masked"],"gate":"closed","processes":2,"waiting":1,"turns":30,"turn_s":1.5,
"leases_expired":0,"holder":{"job_id":11,"rank":0,"held_ms":3}}],
"jobs":[{"job_id":11,"uid":0,"gpus":[0],"options":"spb=auto","attached":true,"over":false,"agreed":null,"depth_fraction":0.75,
"turn_share":0.5,"gpu_seconds":3,"misbehaving":["never gives turns back"],"processes":[{"rank":0,"pid":5,"gpu":0,"state":"running",
"turns":3,"turn_s":0.3,"wait_s":0.3,"iteration":9,"depth":1,"num_blocks":4,"sync_ms":1,"memory_peak_bytes":0,"loss":null}]},
{"gpus":[0],"masked":true}]})";
    JsonValue now, before;
    std::string why;
    ck_assert(parse_json(&now, &why, text));
    before = now;
    const std::string once = render_status(now, JsonValue());
    for (const char *part : {"node n1", "11,masked", "job 11 rank 0, 3 ms", "75%", "50%", "never gives turns back", "1/4", "PrivateData"})
        ck_assert_msg(holds(once, part), "%s in\n%s", part, once.c_str());
    now.members["now_ns"].number += 1e9;
    now.members["gpus"].items[0].members["turns"].number = 50;
    ck_assert(holds(render_status(now, before), "20.0")); // turns a second
    ck_assert(parse_json(&now, &why, R"({"node":"n2","jobs":[]})"));
    ck_assert(holds(render_status(now, JsonValue()), "no sharing jobs"));
}
END_TEST

START_TEST(slurm_is_checked)
{
    const jigsaw::tests::Folder folder;
    const std::string &dir = folder.path();
    for (const char *plugin : {"/select_jigsaw.so", "/spank_jigsaw.so"})
        std::ofstream(dir + plugin) << "x";
    std::ofstream(dir + "/plugstack.conf") << "# optional spank_jigsaw.so\ninclude " << dir << "/more.*\n";
    std::ofstream(dir + "/more.conf") << "optional " << dir << "/spank_jigsaw.so arg\n";
    const std::string good = "Configuration data\nSelectType              = select/jigsaw\nSelectTypeParameters    = CR_CORE\n"
                             "PrologFlags             = Alloc\nGresTypes               = gpu\nPluginDir               = /nowhere:" +
                             dir + "\nPlugStackConfig         = " + dir + "/plugstack.conf\n";
    const Findings all_well = check_slurm_config(good);
    for (const Finding &finding : all_well)
        ck_assert_msg(finding.result == Result::ok || finding.subject == "versions", "%s", finding.text.c_str());
    const struct {
        const char *from, *to, *remedy;
    } rows[] = {{"select/jigsaw", "select/cons_tres", "SelectType=select/jigsaw"},
                {"Alloc", "(null)", "PrologFlags=Alloc"},
                {"= gpu", "= shard", "GresTypes=gpu"},
                {":/tmp", ":/nowhere/tmp", "make install"},
                {"plugstack.conf", "no.conf", "optional spank_jigsaw.so"}};
    for (const auto &row : rows) {
        std::string bad = good;
        bad.replace(bad.find(row.from), std::string(row.from).size(), row.to);
        std::string remedies;
        const Findings findings = check_slurm_config(bad);
        for (const Finding &finding : findings)
            remedies += finding.result == Result::fail ? finding.remedy + "\n" : "";
        ck_assert(has_failed(findings));
        ck_assert_msg(holds(remedies, row.remedy), "%s: %s", row.to, remedies.c_str());
    }
    std::string warned;
    for (const Finding &finding : check_slurm_config(good + "ProctrackType           = proctrack/linuxproc\n"))
        warned += finding.result == Result::warn ? finding.remedy + "\n" : "";
    ck_assert_msg(holds(warned, "ProctrackType=proctrack/cgroup"), "%s", warned.c_str());
}
END_TEST

START_TEST(options_are_read)
{
    Where where;
    bool json = false;
    int status = -1;
    const Arguments good = {"--json", "--socket", "/s", "--node=n1"};
    OptionReader reader(good, "usage\n");
    ck_assert(reader.where(&where).flag("--json", &json).read(&status));
    ck_assert(json);
    ck_assert_str_eq(where.socket.c_str(), "/s");
    ck_assert_str_eq(where.node.c_str(), "n1");
    for (const Arguments &bad : {Arguments{"--nonsense"}, Arguments{"--socket"}, Arguments{"word"}}) {
        OptionReader refuses(bad, "");
        ck_assert(!refuses.where(&where).read(&status));
        ck_assert_int_eq(status, kUsageError);
    }
    double number = 0;
    ck_assert(parse_positive(&number, "2.5") && !parse_positive(&number, "0") && !parse_positive(&number, "2x") &&
              !parse_positive(&number, "nan"));
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("cli");
    jigsaw::tests::add_case(suite, "text", {json_is_read, what_is_no_json, tables_are_aligned, traces_become_slices, status_is_shown});
    jigsaw::tests::add_case(suite, "commands", {slurm_is_checked, options_are_read});
    return jigsaw::tests::run_tap(suite);
}
