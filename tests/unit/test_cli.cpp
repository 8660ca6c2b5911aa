// SPDX-License-Identifier: Apache-2.0
// The jigsaw command: reading JSON, tables, traces, checks of Slurm's configuration, options.
#include "plugin/cli/checks.hpp"
#include "plugin/cli/command.hpp"
#include "plugin/cli/json_value.hpp"
#include "plugin/cli/plugin_file.hpp"
#include "plugin/cli/table.hpp"
#include "plugin/cli/trace_events.hpp"
#include "plugin/cli/view.hpp"
#include "plugin/config/config.hpp"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

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
    ck_assert(!events.add_log(&why, "n2", "nonsense\n", 40));
    ck_assert(holds(why, "40: not JSON"));
}
END_TEST

START_TEST(the_last_of_a_log)
{
    const auto lines = [](const std::vector<int> &times) {
        std::string text;
        for (const int ns : times)
            text += "{\"t_ns\":" + std::to_string(ns) + ",\"event\":\"want\"}\n";
        return text;
    };
    const struct {
        std::vector<int> times, kept;
    } rows[] = {{{}, {}},
                {{5}, {5}},
                {{1, 10, 89, 90, 90, 100}, {90, 90, 100}},
                {{1, 2, 3}, {1, 2, 3}},
                {{95, 99, 3, 7}, {3, 7}},       // the machine started anew
                {{1000, 2000, 95, 99}, {95, 99}}};
    for (const auto &row : rows) {
        const std::string log = lines(row.times);
        ck_assert_str_eq(log.substr(recent_part(log, 10)).c_str(), lines(row.kept).c_str());
    }
    const std::string torn = lines({1, 95}) + "nonsense\n" + lines({100}) + "{\"t_n"; // stays, to be complained of
    ck_assert_str_eq(torn.substr(recent_part(torn, 10)).c_str(), (lines({95}) + "nonsense\n" + lines({100}) + "{\"t_n").c_str());
}
END_TEST

START_TEST(status_is_shown)
{
    const char *text = R"({"node":"n1","version":"1","turns":"on","depth":"auto","phases":"complement","now_ns":2000000000,
"gpus":[{"index":0,"cores":"","residents":[11,"masked"],"gate":"closed","processes":2,"waiting":1,"turns":30,"turn_s":1.5,
"leases_expired":0,"holder":{"job_id":11,"rank":0,"held_ms":3}}],
"jobs":[{"job_id":11,"uid":0,"gpus":[0],"group":7,"options":"spb=auto","attached":true,"over":false,"agreed":null,"depth_fraction":0.75,
"turn_share":0.5,"gpu_seconds":3,"misbehaving":["never gives turns back"],"processes":[{"rank":0,"pid":5,"gpu":0,"state":"running",
"turns":3,"turn_s":0.3,"wait_s":0.3,"iteration":9,"depth":1,"num_blocks":4,"sync_ms":1,"memory_peak_bytes":0,"loss":null}]},
{"gpus":[0],"group":7,"masked":true},{"gpus":[1],"job_id":12,"uid":0}]})";
    JsonValue now, before;
    std::string why;
    ck_assert(parse_json(&now, &why, text));
    before = now;
    const std::string once = render_status(now, JsonValue());
    for (const char *part : {"node n1", "11,masked", "job 11 rank 0, 3 ms", "75%", "50%", "never gives turns back", "1/4", "PrivateData", "GROUP  JOB", "\n    7   11  root", "\n    7    -  another", "\n    -   12  root"})
        ck_assert_msg(holds(once, part), "%s in\n%s", part, once.c_str());
    now.members["now_ns"].number += 1e9;
    now.members["gpus"].items[0].members["turns"].number = 50;
    ck_assert(holds(render_status(now, before), "20.0")); // turns a second
    ck_assert(parse_json(&now, &why, R"({"node":"n2","jobs":[]})"));
    ck_assert(holds(render_status(now, JsonValue()), "no sharing jobs"));
}
END_TEST

/// A shared object with what Slurm asks a plugin for. `version` is SLURM_VERSION_NUMBER.
void make_plugin(const std::string &path, const std::string &type, const std::string &version)
{
    const char *compiler = std::getenv("CC");
    std::ofstream(path + ".c") << "const char plugin_name[] = \"test\", plugin_type[] = \"" << type << "\";\n"
                               << "const unsigned plugin_version = " << version << ";\n"
                               << "extern void nobody_has_this(void);\nvoid init(void) { nobody_has_this(); }\n";
    const std::string command =
        std::string(compiler ? compiler : "cc") + " -shared -fPIC -o " + path + " " + path + ".c";
    if (std::system(command.c_str()) != 0)
        throw std::runtime_error(command);
}

std::string bytes_of(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

START_TEST(plugin_files_are_read)
{
    const jigsaw::tests::Folder folder;
    const std::string good = folder.file("good.so"), bad = folder.file("bad.so");
    make_plugin(good, "select/jigsaw", "0x160508");
    PluginFile plugin;
    std::string why;
    ck_assert_msg(read_plugin_file(&plugin, &why, good), "%s", why.c_str());
    ck_assert_str_eq(plugin.type.c_str(), "select/jigsaw");
    ck_assert_uint_eq(plugin.version, 0x160508);

    const std::string whole = bytes_of(good);
    std::string of_another_processor = whole;
    of_another_processor[18] ^= 1; // e_machine
    const struct {
        std::string bytes, why;
    } rows[] = {{"", "is empty"},
                {"x", "is no shared object"},
                {std::string(4096, '\0'), "is no shared object"},
                {of_another_processor, "is no shared object"},
                {bytes_of("/proc/self/exe"), "is no S"}, // this program: no plugin, or linked as no shared object
                {whole.substr(0, 64), "is no Slurm plugin"}};
    for (const auto &row : rows) {
        std::ofstream(bad, std::ios::binary) << row.bytes;
        ck_assert(!read_plugin_file(&plugin, &why, bad));
        ck_assert_msg(holds(why, row.why) || holds(why, "is no shared object"), "%s", why.c_str());
    }
    // Damaged files end in an answer, never in a crash; with half of it gone the section table is gone, too.
    for (std::size_t size = 1; size < whole.size() / 2; size += 97) {
        std::ofstream(bad, std::ios::binary) << whole.substr(0, size);
        ck_assert(!read_plugin_file(&plugin, &why, bad));
    }
    for (std::size_t at = 0; at < 1024; ++at) {
        std::string damaged = whole;
        damaged[at] = static_cast<char>(~damaged[at]);
        std::ofstream(bad, std::ios::binary) << damaged;
        read_plugin_file(&plugin, &why, bad);
    }
    ck_assert(!read_plugin_file(&plugin, &why, folder.file("none.so")));
    ck_assert(holds(why, "No such file"));
    ck_assert_str_eq(plugin.type.c_str(), "select/jigsaw");
}
END_TEST

/// `scontrol show config` of a cluster in a folder.
struct Cluster {
    const jigsaw::tests::Folder folder;
    const std::string &dir = folder.path();
    std::string config = "Configuration data\nSelectType              = select/jigsaw\nSelectTypeParameters    = CR_CORE\n"
                         "PrologFlags             = Alloc\nGresTypes               = gpu\nPluginDir               = /nowhere:" +
                         dir + "\nJobSubmitPlugins        = jigsaw\nPlugStackConfig         = " + dir +
                         "/plugstack.conf\nSLURM_VERSION           = 22.05.8\n";

    Cluster()
    {
        make_plugin(dir + "/select_jigsaw.so", "select/jigsaw", "0x160508");
        make_plugin(dir + "/spank_jigsaw.so", "spank", "0x160502"); // another micro release will do for SPANK
        make_plugin(dir + "/job_submit_jigsaw.so", "job_submit/jigsaw", "0x160508");
        write("plugstack.conf", "# optional spank_jigsaw.so\ninclude more.*\n"); // beside this file, wherever we are
        write("more.conf", "optional " + dir + "/spank_jigsaw.so run_dir=/run/x/../jigsaw/\n");
    }
    void write(const std::string &name, const std::string &text) const { std::ofstream(dir + "/" + name) << text; }
    std::string with(const std::string &from, const std::string &to) const
    {
        std::string changed = config;
        return changed.replace(changed.find(from), from.size(), to);
    }
};

std::string told(const Findings &findings, Result result)
{
    std::string text;
    for (const Finding &finding : findings)
        text += finding.result == result ? finding.text + " -> " + finding.remedy + "\n" : "";
    return text;
}

START_TEST(slurm_is_checked)
{
    const Cluster cluster;
    for (const Finding &finding : check_slurm_config(cluster.config, "/run/jigsaw"))
        ck_assert_msg(finding.result == Result::ok, "%s", finding.text.c_str());
    const struct {
        const char *from, *to, *remedy;
    } rows[] = {{"select/jigsaw", "select/cons_tres", "SelectType=select/jigsaw"},
                {"Alloc", "(null)", "PrologFlags=Alloc"},
                {"= gpu", "= shard", "GresTypes=gpu"},
                {":/tmp", ":/nowhere/tmp", "make install"},
                {"select/jigsaw", "select/cons_tres_jigsaw", "select_cons_tres_jigsaw.so is in none of"},
                {"22.05.8", "22.05.9", "select_jigsaw.so is for Slurm 22.05.8, but Slurm is 22.05.9"},
                {"22.05.8", "23.02.8", "spank_jigsaw.so is for Slurm 22.05.2, but Slurm is 23.02.8"},
                {"plugstack.conf", "no.conf", "optional spank_jigsaw.so"}};
    for (const auto &row : rows) {
        const Findings findings = check_slurm_config(cluster.with(row.from, row.to), "/run/jigsaw");
        ck_assert(has_failed(findings));
        const std::string failed = told(findings, Result::fail);
        ck_assert_msg(holds(failed, row.remedy), "%s: %s", row.to, failed.c_str());
    }
    const Findings next_micro = check_slurm_config(cluster.with("22.05.8", "22.05.9"), "/run/jigsaw");
    ck_assert(!holds(told(next_micro, Result::fail), "spank_jigsaw.so"));
    const std::string warned =
        told(check_slurm_config(cluster.config + "ProctrackType           = proctrack/linuxproc\n", "/run/jigsaw"), Result::warn);
    ck_assert_msg(holds(warned, "ProctrackType=proctrack/cgroup"), "%s", warned.c_str());
    const std::string apart = told(check_slurm_config(cluster.config, "/run/other"), Result::fail);
    ck_assert_msg(holds(apart, "/more.conf), but jigsawd looks in /run/other"), "%s", apart.c_str());
}
END_TEST

START_TEST(plugins_must_be_plugins)
{
    const Cluster cluster;
    const char *names[] = {"select_jigsaw.so", "spank_jigsaw.so", "job_submit_jigsaw.so"};
    for (const char *name : names) {
        const std::string path = cluster.dir + "/" + name, whole = bytes_of(path);
        cluster.write(name, "");
        std::string failed = told(check_slurm_config(cluster.config, "/run/jigsaw"), Result::fail);
        ck_assert_msg(holds(failed, path + " is empty"), "%s", failed.c_str());
        cluster.write(name, bytes_of(cluster.dir + "/" + names[name == names[0]]));
        failed = told(check_slurm_config(cluster.config, "/run/jigsaw"), Result::fail);
        ck_assert_msg(holds(failed, path + " is s"), "%s", failed.c_str()); // another plugin under this name
        cluster.write(name, whole);
    }
    make_plugin(cluster.dir + "/select_cons_tres_jigsaw.so", "select/cons_tres_jigsaw", "0x160508");
    unlink((cluster.dir + "/select_jigsaw.so").c_str());
    ck_assert(!has_failed(check_slurm_config(cluster.with("select/jigsaw", "select/cons_tres_jigsaw"), "/run/jigsaw")));
    unlink((cluster.dir + "/job_submit_jigsaw.so").c_str());
    const Findings elsewhere = check_slurm_config(cluster.with("select/jigsaw", "select/cons_tres_jigsaw"), "/run/jigsaw");
    ck_assert(!has_failed(elsewhere)); // only slurmctld's machine needs it
    ck_assert(holds(told(elsewhere, Result::warn), "job_submit_jigsaw.so"));
}
END_TEST

START_TEST(prologs_and_jigsawd_must_meet)
{
    const jigsaw::tests::Folder folder;
    const std::string &dir = folder.path();
    const std::string yaml = folder.file("a.yaml");
    std::ofstream(yaml) << "run_dir: " << dir << "/a\n";
    std::ofstream(folder.file("bad.yaml")) << "run_dir: [\n";
    std::string why;
    const auto own = jigsaw::config::load_config(&why, jigsaw::config::kDefaultConfigPath); // of the machine that tests
    const std::string usual = own ? own->run_dir : "/run/jigsaw";
    if (symlink(dir.c_str(), folder.file("same").c_str()) != 0)
        ck_abort_msg("symlink");
    const struct {
        std::vector<std::string> arguments;
        std::string run_dir;
        bool meet;
    } rows[] = {{{}, usual, true},
                {{"run_dir="}, usual, true},
                {{}, "/var/other", false},
                {{"config=" + yaml}, dir + "/a", true},
                {{"config=" + yaml}, dir + "/same/a/", true},
                {{"config=" + yaml}, "/run/jigsaw", false},
                {{"config=" + yaml, "run_dir=/run/jigsaw"}, "/run/jigsaw", true},
                {{"config=" + folder.file("bad.yaml")}, "/run/jigsaw", true}, // as the plugin itself does
                {{"run_dir=/run/jigsaw2"}, "/run/jigsaw", false}};
    for (const auto &row : rows) {
        const Finding finding = check_run_dir({"plugstack.conf", "spank_jigsaw.so", row.arguments}, row.run_dir);
        ck_assert_msg((finding.result == Result::ok) == row.meet, "%s", finding.text.c_str());
    }
}
END_TEST

START_TEST(options_are_read)
{
    Where where;
    bool json = false;
    int status = -1;
    const Arguments good = {"--json", "--run-dir", "/s", "--node=n1"};
    OptionReader reader("status", good, "usage\n");
    ck_assert(reader.where(&where).flag("--json", &json).read(&status));
    ck_assert(json);
    ck_assert_str_eq(where.run_dir.c_str(), "/s");
    ck_assert_str_eq(where.node.c_str(), "n1");
    for (const Arguments &bad : {Arguments{"--nonsense"}, Arguments{"--socket"}, Arguments{"word"}, Arguments{"--socket="},
                                 Arguments{"--json=1"}, Arguments{"-x1"}, Arguments{"-n"}, Arguments{"-"}, Arguments{""},
                                 Arguments{"--socket=/s", "--node=n1"}, Arguments{"--run-dir", "/r", "--socket", "/s"}}) {
        Where none;
        std::string count;
        OptionReader refuses("status", bad, "");
        ck_assert_msg(!refuses.where(&none).flag("--json", &json).value("-n", &count).read(&status), "%s", bad[0].c_str());
        ck_assert_int_eq(status, kUsageError);
    }
    for (const Arguments &short_form : {Arguments{"-n", "3"}, Arguments{"-n3"}}) {
        std::string count;
        OptionReader takes("top", short_form, "");
        ck_assert(takes.value("-n", &count).read(&status));
        ck_assert_str_eq(count.c_str(), "3");
    }
    double number = 0;
    ck_assert(parse_in_range(&number, "2.5", 1, 3) && !parse_in_range(&number, "0", 1, 3) && !parse_in_range(&number, "2x", 1, 3) &&
              !parse_in_range(&number, "nan", 1, 3) && !parse_in_range(&number, "", 1, 3));
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("cli");
    jigsaw::tests::add_case(suite, "text", {json_is_read, what_is_no_json, tables_are_aligned, traces_become_slices,
                                           the_last_of_a_log, status_is_shown});
    jigsaw::tests::add_case(suite, "commands", {plugin_files_are_read, slurm_is_checked, plugins_must_be_plugins, prologs_and_jigsawd_must_meet,
                                               options_are_read});
    return jigsaw::tests::run_tap(suite);
}
