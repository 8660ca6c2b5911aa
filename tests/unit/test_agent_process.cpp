// SPDX-License-Identifier: Apache-2.0
// A real jigsawd and real processes: turns, deaths, stops, restarts, strangers. What came before what is read from the
// gate log; the model of the gate must accept every log.
#include "tests/lib/daemon.hpp"
#include "tests/lib/suite.hpp"
#include "tests/model/gate_log.hpp"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <map>
#include <set>

namespace {

using namespace jigsaw;
using namespace jigsaw::tests;

std::string programs()
{
    const char *top = std::getenv("top_builddir");
    return top ? top : ".";
}

struct Line {
    std::string event, why;
    int job = 0;
};

std::vector<Line> events_of(const Daemon &daemon)
{
    std::vector<Line> events;
    for (const std::string &text : daemon.trace()) {
        std::map<std::string, std::string> values;
        if (parse_flat_json(&values, text))
            events.push_back({values["event"], values["why"], std::atoi(values["job"].c_str())});
    }
    return events;
}

/// Is there `event` of `job`, and behind it a grant to `next` with no expired lease between?
bool granted_after(const Daemon &daemon, const std::string &event, int job, int next)
{
    bool seen = false;
    for (const Line &line : events_of(daemon)) {
        if (seen && line.event == "lease" && line.why == "expired")
            return false;
        if (seen && line.event == "grant" && line.job == next)
            return true;
        seen = seen || (line.event == event && line.job == job);
    }
    return false;
}

void model_accepts(const Daemon &daemon)
{
    GateLog model;
    for (const std::string &line : daemon.trace()) {
        const std::string why = model.accept(line);
        ck_assert_msg(why.empty(), "line %zu: %s: %s", model.lines(), why.c_str(), line.c_str());
    }
}

/// Two ranks on GPU 0; job 11 holds its turn number `hold_at` for ever, and job 12 waits for one.
struct Pair {
    explicit Pair(Daemon &daemon, const std::string &hold_at, const std::string &more = "pause_us=0")
    {
        daemon.register_job(11);
        daemon.register_job(12);
        b = daemon.rank(12, {"work_us=500"});
        ck_assert_str_ne(b->line_with("attached").c_str(), "");
        a = daemon.rank(11, {"work_us=500", "hold_at=" + hold_at, more});
        ck_assert_str_ne(a->line_with("turn " + hold_at + " granted").c_str(), "");
        ck_assert(eventually([&] { return daemon.status().find("\"waiting\":1") != std::string::npos; }));
    }
    std::unique_ptr<Child> a, b;
};

START_TEST(turns_alternate)
{
    Daemon daemon(programs());
    daemon.register_job(11);
    daemon.register_job(12);
    auto a = daemon.rank(11, {"work_us=500"});
    auto b = daemon.rank(12, {"work_us=500"});
    const auto grants_of = [&] {
        const std::vector<Line> events = events_of(daemon);
        return std::count_if(events.begin(), events.end(), [](const Line &line) { return line.event == "grant"; });
    };
    ck_assert(eventually([&] { return grants_of() >= 100; }));
    // Nobody is granted twice while the other waits the whole time, but one who had fewer turns: on a busy machine a process
    // may come late to ask, and catches up.
    std::map<int, bool> waits;
    std::map<int, int> passed_over, granted;
    for (const Line &line : events_of(daemon)) {
        if (line.event == "want")
            waits[line.job] = true;
        if (line.event != "grant")
            continue;
        waits[line.job] = false;
        passed_over[line.job] = 0;
        const int other = line.job == 11 ? 12 : 11;
        passed_over[other] = waits[other] ? passed_over[other] + 1 : 0;
        ++granted[line.job];
        ck_assert(passed_over[other] <= 1 || granted[line.job] <= granted[other] + 1);
    }
    model_accepts(daemon);
}
END_TEST

START_TEST(a_killed_holder_frees_its_turn)
{
    Daemon daemon(programs());
    Pair pair(daemon, "5");
    pair.a->kill(SIGKILL);
    ck_assert(eventually([&] { return granted_after(daemon, "dead", 11, 12); }));
    model_accepts(daemon);
}
END_TEST

START_TEST(a_forked_child_keeps_nothing)
{
    Daemon daemon(programs());
    Pair pair(daemon, "5", "fork=1"); // the child holds the socket open
    pair.a->kill(SIGKILL);
    ck_assert(eventually([&] { return granted_after(daemon, "dead", 11, 12); }));
    model_accepts(daemon);
}
END_TEST

START_TEST(a_stopped_holder_loses_its_turn)
{
    Daemon daemon(programs(), "lease_min_ms: 60000\n"); // so it is not the lease
    Pair pair(daemon, "5");
    pair.a->kill(SIGSTOP);
    ck_assert(eventually([&] { return granted_after(daemon, "lease", 11, 12); }));
    const std::string status = daemon.status();
    ck_assert_str_ne(pair.b->line_with("granted").c_str(), "");
    ck_assert_msg(status.find("\"state\":\"stopped\"") != std::string::npos, "%s", status.c_str());
    pair.a->kill(SIGCONT);
    ck_assert(eventually([&] { return daemon.status().find("\"state\":\"stopped\"") == std::string::npos; }));
    model_accepts(daemon);
}
END_TEST

START_TEST(a_turn_never_given_back_is_seen_and_named)
{
    Daemon daemon(programs());
    Pair pair(daemon, "5");
    ck_assert(eventually([&] { return granted_after(daemon, "lease", 11, 12); }));
    ck_assert_msg(daemon.status().find("never gives turns back") != std::string::npos, "%s", daemon.status().c_str());
    const std::string log = daemon.log();
    const std::size_t first = log.find("job 11 rank 0");
    ck_assert_str_ne(log.substr(first).c_str(), "");
    const std::size_t named = log.find("never gives turns back");
    ck_assert(named != std::string::npos);
    ck_assert_msg(log.find("never gives turns back", named + 1) == std::string::npos, "said twice: %s", log.c_str());
    model_accepts(daemon);
}
END_TEST

START_TEST(without_jigsawd_processes_go_on_and_come_back)
{
    Daemon daemon(programs());
    daemon.register_job(11);
    daemon.register_job(12);
    auto a = daemon.rank(11, {"work_us=500"});
    auto b = daemon.rank(12, {"work_us=500", "generation=7"});
    ck_assert_str_ne(a->line_with("granted").c_str(), "");
    ck_assert_str_ne(b->line_with("granted").c_str(), "");
    daemon.agent().kill(SIGKILL);
    ck_assert_str_ne(a->line_with("no_agent").c_str(), "");
    ck_assert_str_ne(b->line_with("no_agent").c_str(), "");
    daemon.agent().wait();
    daemon.start(); // the lock of a dead one is free; both jobs are in the folder
    ck_assert_str_ne(a->line_with("granted").c_str(), "");
    ck_assert_str_ne(b->line_with("granted").c_str(), "");
    model_accepts(daemon);
}
END_TEST

START_TEST(a_stopped_jigsawd_finds_its_processes_again)
{
    Daemon daemon(programs());
    daemon.register_job(11);
    daemon.register_job(12);
    auto a = daemon.rank(11, {"work_us=500"});
    auto b = daemon.rank(12, {"work_us=500"});
    ck_assert_str_ne(a->line_with("granted").c_str(), "");
    daemon.agent().kill(SIGSTOP);
    ck_assert_str_ne(a->line_with("no_agent").c_str(), "");
    ck_assert_str_ne(b->line_with("no_agent").c_str(), "");
    daemon.agent().kill(SIGCONT);
    ck_assert_str_ne(a->line_with("granted").c_str(), "");
    ck_assert_str_ne(b->line_with("granted").c_str(), "");
    ck_assert_msg(daemon.status().find("computes without") == std::string::npos, "%s", daemon.status().c_str());
    model_accepts(daemon);
}
END_TEST

START_TEST(a_clean_end_lets_everybody_through_and_leaves_nothing)
{
    Daemon daemon(programs());
    Pair pair(daemon, "5");
    daemon.agent().kill(SIGTERM);
    ck_assert_int_eq(daemon.agent().wait(), 0);
    ck_assert_str_ne(pair.b->line_with("no_agent").c_str(), "");
    std::set<std::string> left;
    DIR *dir = opendir(daemon.paths().base.c_str());
    while (const dirent *entry = readdir(dir))
        left.insert(entry->d_name);
    closedir(dir);
    ck_assert(left == (std::set<std::string>{".", "..", "jobs"}));
    model_accepts(daemon);
}
END_TEST

START_TEST(a_second_jigsawd_ends_with_a_clear_line)
{
    Daemon daemon(programs());
    Child second({programs() + "/plugin/agent/jigsawd", "--config", daemon.dir() + "/jigsaw.yaml", "--node", "t1",
                  "--run-dir", daemon.dir() + "/run"},
                 daemon.dir() + "/second.log");
    ck_assert_int_eq(second.wait(), 1);
    const std::string said = read_text(daemon.dir() + "/second.log");
    ck_assert_msg(said.find("another jigsawd (pid " + std::to_string(daemon.agent().pid()) + ")") != std::string::npos,
                  "%s", said.c_str());
    ck_assert(daemon.answers());
}
END_TEST

START_TEST(wrong_usage_is_one_line)
{
    const Folder folder;
    const struct {
        std::vector<std::string> arguments;
        const char *said;
    } rows[] = {{{"--nonsense"}, "--nonsense: no such option"},
                {{"now"}, "now: no argument is expected"},
                {{"--config"}, "--config needs a value"},
                {{"--log-level", "loud"}, "--log-level loud: error, warning, info or debug is needed"},
                {{"--node", "a/b"}, "node name 'a/b': "}};
    for (const auto &row : rows) {
        const std::string log = folder.file(row.arguments[0]);
        std::vector<std::string> words = {programs() + "/plugin/agent/jigsawd"};
        words.insert(words.end(), row.arguments.begin(), row.arguments.end());
        Child jigsawd(words, log);
        ck_assert_int_eq(jigsawd.wait(), 2);
        const std::string said = read_text(log);
        ck_assert_msg(said.find(std::string("jigsawd: ") + row.said) == 0, "%s", said.c_str());
        ck_assert_msg(said.find("`jigsawd --help` has the options\n") == said.find('\n') - 32, "%s", said.c_str());
        ck_assert_uint_eq(std::count(said.begin(), said.end(), '\n'), 1);
    }
    Child full({"/bin/sh", "-c", programs() + "/plugin/agent/jigsawd --help >/dev/full"}, folder.file("full"));
    ck_assert_int_eq(full.wait(), 1);
    ck_assert_str_eq(read_text(folder.file("full")).c_str(), "jigsawd: standard output: No space left on device\n");
}
END_TEST

/// "job:group" of every job that the status tells of, in its order.
std::string groups_of(const std::string &status)
{
    std::string groups;
    for (std::size_t at = 0; (at = status.find("\"group\":", at)) != std::string::npos; ++at) {
        const std::size_t job = status.find("\"job_id\":", at);
        groups += (groups.empty() ? "" : " ") + std::to_string(std::atoi(status.c_str() + job + 9)) + ":" +
                  std::to_string(std::atoi(status.c_str() + at + 8));
    }
    return groups;
}

START_TEST(jobs_chained_over_gpus_are_one_group)
{
    Daemon daemon(programs());
    const auto add = [&](core::JobId job, const std::vector<int> &gpus) {
        daemon.register_job(job, getuid(), 0, Daemon::sharing(), gpus);
    };
    add(11, {1, 2});
    add(12, {4});
    add(13, {3, 5}); // joined to job 11 by job 15 only
    add(14, {0});
    add(15, {2, 3});
    add(16, {4});
    ck_assert(eventually([&] { return groups_of(daemon.status()) == "11:1 12:4 13:1 14:0 15:1 16:4"; }));
    add(17, {0, 5});
    ck_assert(eventually([&] { return groups_of(daemon.status()) == "11:0 12:4 13:0 14:0 15:0 16:4 17:0"; }));
}
END_TEST

START_TEST(configuration_is_read_again)
{
    Daemon daemon(programs());
    daemon.configure("turns: sometimes\n");
    daemon.agent().kill(SIGHUP);
    ck_assert(eventually([&] { return daemon.log().find("the configuration in force stays") != std::string::npos; }));
    ck_assert_msg(daemon.log().find("jigsaw.yaml:4:") != std::string::npos, "%s", daemon.log().c_str());
    Pair pair(daemon, "5"); // turns are given
    daemon.configure("turns: off\n");
    daemon.agent().kill(SIGHUP);
    ck_assert_str_ne(pair.b->line_with("open").c_str(), "");
    daemon.configure("turns: on\n");
    daemon.agent().kill(SIGHUP);
    ck_assert(eventually([&] { return daemon.status().find("\"gate\":\"closed\"") != std::string::npos; }));
    model_accepts(daemon);
}
END_TEST

START_TEST(a_second_rank_of_the_same_number_is_refused)
{
    Daemon daemon(programs());
    daemon.register_job(11);
    auto first = daemon.rank(11, {"turns=1", "stay=1"});
    ck_assert_str_ne(first->line_with("attached").c_str(), "");
    auto second = daemon.rank(11, {"turns=1"});
    const std::string said = second->line_with("refused");
    ck_assert_msg(said.find("ALREADY") != std::string::npos, "%s", said.c_str());
    first->kill(SIGKILL);
    first->wait();
    ck_assert(eventually([&] { return !daemon.rank(11, {"turns=1"})->line_with("attached").empty(); }));
}
END_TEST

START_TEST(memory_beyond_the_claim_is_marked)
{
    Daemon daemon(programs());
    core::SpbRequest request = Daemon::sharing();
    request.memory_bytes = 1 << 20;
    daemon.register_job(11, getuid(), 0, request);
    auto rank = daemon.rank(11, {"memory=2097152", "turns=5", "stay=1"});
    ck_assert(eventually([&] { return daemon.status().find("claimed 1M") != std::string::npos; }));
    ck_assert(daemon.log().find("larger --spb-mem") != std::string::npos);
}
END_TEST

START_TEST(strangers_may_not_attach)
{
    if (getuid() != 0)
        return; // needs two users
    Daemon daemon(programs());
    daemon.register_job(11, 65534);
    daemon.register_job(12, 65533);
    const struct {
        int job;
        const char *uid, *token, *code;
    } rows[] = {{11, "65533", "", "NOT_YOURS"},
                {12, "65534", "", "NOT_YOURS"},
                {11, "0", "", "NOT_YOURS"},
                {11, "65534", "00", "BAD_TOKEN"},
                {12, "65533", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa10000011", "BAD_TOKEN"},
                {13, "65533", "", "NO_JOB"}};
    for (const auto &row : rows) {
        auto rank = daemon.rank(static_cast<core::JobId>(row.job), {std::string("uid=") + row.uid}, row.token);
        const std::string said = rank->line_with("refused");
        ck_assert_msg(said.find(row.code) != std::string::npos, "job %d uid %s: %s", row.job, row.uid, said.c_str());
    }
    auto a = daemon.rank(11, {"uid=65534"});
    auto b = daemon.rank(12, {"uid=65533"});
    ck_assert_str_ne(a->line_with("granted").c_str(), "");
    ck_assert_str_ne(b->line_with("granted").c_str(), "");
}
END_TEST

/// A thousand connections at once, garbage on every third; the number that was refused.
int crowd(const std::string &path)
{
    std::string why;
    std::vector<UniqueFd> sockets;
    for (int i = 0; i < 1000; ++i) {
        sockets.push_back(wire::connect_to(&why, path, kPatienceMs));
        if (i % 3 == 0)
            send(sockets.back().get(), "\x01\xff garbage", 10, MSG_NOSIGNAL);
    }
    int refused = 0;
    for (const UniqueFd &socket : sockets) {
        wire::Message message;
        std::vector<UniqueFd> fds;
        refused += wire::receive_message(&message, &fds, &why, socket.get(), kPatienceMs) == wire::Received::message &&
                   message.values["code"] == "TOO_MANY";
    }
    return refused;
}

START_TEST(a_thousand_connections_and_garbage)
{
    if (getuid() != 0)
        return; // needs another user
    Daemon daemon(programs());
    daemon.register_job(11);
    daemon.register_job(12);
    auto a = daemon.rank(11, {"work_us=500"});
    auto b = daemon.rank(12, {"work_us=500"});
    ck_assert_str_ne(a->line_with("granted").c_str(), "");
    const pid_t child = fork();
    if (child == 0) {
        if (setuid(65534) != 0)
            _exit(2);
        _exit(crowd(daemon.paths().socket) > 0 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    ck_assert(daemon.answers());
    ck_assert_str_ne(a->line_with("granted").c_str(), "");
    ck_assert_str_ne(b->line_with("granted").c_str(), "");
    ck_assert(eventually([&] { return daemon.status().find("\"connections\":3,") != std::string::npos; }));
    model_accepts(daemon);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("jigsawd");
    add_case(suite, "turns", {turns_alternate, a_turn_never_given_back_is_seen_and_named});
    add_case(suite, "deaths", {a_killed_holder_frees_its_turn, a_forked_child_keeps_nothing, a_stopped_holder_loses_its_turn});
    add_case(suite, "life", {without_jigsawd_processes_go_on_and_come_back, a_stopped_jigsawd_finds_its_processes_again,
                             a_clean_end_lets_everybody_through_and_leaves_nothing, a_second_jigsawd_ends_with_a_clear_line,
                             wrong_usage_is_one_line, jobs_chained_over_gpus_are_one_group, configuration_is_read_again});
    add_case(suite, "rights", {a_second_rank_of_the_same_number_is_refused, strangers_may_not_attach,
                               a_thousand_connections_and_garbage, memory_beyond_the_claim_is_marked});
    return run_tap(suite);
}
