// SPDX-License-Identifier: Apache-2.0
// What is said over jigsawd's socket: every verb, who may, limits; and the jobs folder. The agent runs in this process.
#include "plugin/agent/proc.hpp"
#include "plugin/agent/status.hpp"
#include "tests/lib/agent_in_process.hpp"
#include "tests/lib/suite.hpp"

#include <sys/socket.h>

#include <algorithm>

namespace {

using namespace jigsaw;
using namespace jigsaw::agent;
using jigsaw::tests::AgentInProcess;

bool said(const AgentInProcess &ground, const std::string &text)
{
    return std::any_of(ground.lines.begin(), ground.lines.end(),
                       [&](const std::string &line) { return line.find(text) != std::string::npos; });
}

START_TEST(every_verb_answers)
{
    AgentInProcess ground;
    ground.register_job(AgentInProcess::record(11));
    const struct {
        wire::Message question;
        const char *verb, *code;
        std::size_t fds;
    } rows[] = {
        {{"PING", {}}, "OK", "", 0},
        {{"STATUS", {}}, "OK", "", 1},
        {{"METRICS", {}}, "OK", "", 1},
        {{"TRACE", {{"since_ns", "0"}}}, "OK", "", 1},
        {{"TRACE", {{"since_ns", "x"}}}, "ERROR", "BAD_VALUE", 0},
        {{"REGISTER", {{"job", "11"}, {"restart", "0"}}}, "OK", "", 0},
        {{"REGISTER", {{"job", "12"}}}, "ERROR", "BAD_RECORD", 0},
        {{"REGISTER", {{"job", "-1"}}}, "ERROR", "BAD_VALUE", 0},
        {{"REGISTER", {}}, "ERROR", "BAD_VALUE", 0},
        {{"SET", {{"job", "11"}, {"weight", "2.5"}}}, "OK", "", 0},
        {{"SET", {{"job", "11"}, {"weight", "nan"}}}, "ERROR", "BAD_VALUE", 0},
        {{"SET", {{"job", "11"}, {"weight", "-2"}}}, "ERROR", "BAD_VALUE", 0},
        {{"SET", {{"job", "13"}, {"weight", "2"}}}, "ERROR", "NO_JOB", 0},
        {{"NONSENSE", {}}, "ERROR", "BAD_VERB", 0},
        {AgentInProcess::attach_message(11), "OK", "", 3},
        {{"DRAIN", {{"job", "11"}, {"restart", "0"}}}, "OK", "", 0},
        {AgentInProcess::attach_message(11), "ERROR", "NO_JOB", 0},
    };
    for (const auto &row : rows) {
        std::vector<UniqueFd> fds;
        const wire::Message answer = ground.ask(row.question, &fds);
        ck_assert_msg(answer.verb == row.verb, "%s: %s", row.question.verb.c_str(), answer.verb.c_str());
        const std::string *code = answer.find("code");
        ck_assert_msg((code ? *code : "") == row.code, "%s: %s", row.question.verb.c_str(), code ? code->c_str() : "");
        ck_assert_uint_eq(fds.size(), row.fds);
    }
}
END_TEST

START_TEST(attach_checks_every_value)
{
    AgentInProcess ground;
    ground.register_job(AgentInProcess::record(11));
    config::Registration foreign = AgentInProcess::record(12);
    foreign.uid = getuid() + 1;
    ground.register_job(foreign);
    const struct {
        const char *key, *value, *code; ///< value "": leave it out
    } rows[] = {{"proto", "2-3", "VERSION"},     {"proto", "", "VERSION"},       {"proto", "x", "VERSION"},
                {"job", "", "BAD_VALUE"},        {"job", "0", "BAD_VALUE"},      {"job", "99999999999", "BAD_VALUE"},
                {"job", "13", "NO_JOB"},         {"job", "12", "NOT_YOURS"},     {"restart", "1", "NO_JOB"},
                {"token", "token12", "BAD_TOKEN"}, {"token", "", "BAD_TOKEN"},   {"world", "0", "BAD_VALUE"},
                {"rank", "1", "BAD_VALUE"},      {"rank", "-1", "BAD_VALUE"},    {"world", "70000", "BAD_VALUE"},
                {"gpu", "2", "NO_GPU"},          {"local_rank", "1e3", "BAD_VALUE"}};
    for (const auto &row : rows) {
        wire::Message message = AgentInProcess::attach_message(11);
        message.values[row.key] = row.value;
        if (std::string(row.value).empty())
            message.values.erase(row.key);
        const wire::Message answer = ground.ask(message);
        ck_assert_msg(answer.verb == "ERROR" && answer.values.at("code") == row.code, "%s=%s: %s %s", row.key, row.value,
                      answer.verb.c_str(), answer.values.count("code") ? answer.values.at("code").c_str() : "");
    }
    ck_assert_uint_eq(ground.agent->processes().size(), 0);
}
END_TEST

START_TEST(gpus_go_by_index_or_by_local_rank)
{
    Job job;
    job.record.gpus = {1, 3};
    const struct {
        const char *gpu;
        unsigned local_rank;
        int expected;
    } rows[] = {{"", 0, 1}, {"", 1, 3}, {"", 2, 1}, {"3", 0, 3}, {"GPU-b", 0, 3}, {"2", 0, -1}, {"GPU-c", 0, -1}, {"GPU-a", 0, -1}};
    for (const auto &row : rows) {
        AttachOrder order;
        order.gpu = row.gpu;
        order.local_rank = row.local_rank;
        int gpu = -1;
        choose_gpu(&gpu, order, job, {{"GPU-a", 0}, {"GPU-b", 3}});
        ck_assert_msg(gpu == row.expected, "gpu='%s' local_rank=%u: %d", row.gpu, row.local_rank, gpu);
    }
}
END_TEST

START_TEST(the_same_process_may_attach_anew)
{
    AgentInProcess ground;
    ground.register_job(AgentInProcess::record(11));
    const UniqueFd first = ground.connect(), second = ground.connect();
    std::vector<UniqueFd> fds;
    ck_assert_str_eq(ground.say(first, AgentInProcess::attach_message(11), &fds).verb.c_str(), "OK");
    const page::ProcessPages pages = page::map_pages(fds[0].get(), fds[1].get());
    ck_assert_uint_ne(pages.directive->agent_start, 0);
    ck_assert_str_eq(ground.say(first, AgentInProcess::attach_message(11)).values["code"].c_str(), "ALREADY");
    ck_assert_str_eq(ground.say(second, AgentInProcess::attach_message(11)).verb.c_str(), "OK");
    ck_assert_uint_eq(ground.agent->processes().size(), 1);
    ck_assert_str_eq(ground.hear(first).verb.c_str(), ""); // closed
}
END_TEST

START_TEST(garbage_closes_and_is_said)
{
    AgentInProcess ground;
    const std::string rows[] = {std::string("\0\1\2", 3), "lower case", "PING =", std::string(5000, 'A'), "PING a=%zz", "\n"};
    for (const std::string &row : rows) {
        const UniqueFd socket = ground.connect();
        send(socket.get(), row.data(), row.size(), MSG_NOSIGNAL);
        ck_assert_str_eq(ground.hear(socket).values["code"].c_str(), "BAD_MESSAGE");
        ck_assert_str_eq(ground.hear(socket).verb.c_str(), "");
    }
    ck_assert(said(ground, "not a message of ours"));
    ck_assert_str_eq(ground.ask({"PING", {}}).verb.c_str(), "OK");
}
END_TEST

START_TEST(a_silent_connection_goes)
{
    AgentInProcess ground;
    const UniqueFd socket = ground.connect();
    for (int i = 0; i < 2000 && !wire::has_hung_up(socket.get()); ++i)
        ground.agent->step(1);
    ck_assert(wire::has_hung_up(socket.get()));
}
END_TEST

START_TEST(one_user_has_so_many_connections)
{
    AgentInProcess ground;
    std::vector<UniqueFd> sockets;
    for (unsigned i = 0; i < Server::kConnectionsPerUid; ++i) {
        sockets.push_back(ground.connect());
        ground.agent->step(0);
    }
    const UniqueFd over = ground.connect();
    ck_assert_str_eq(ground.hear(over).values["code"].c_str(), "TOO_MANY");
    sockets.pop_back();
    ground.agent->step(0);
    ck_assert_str_eq(ground.ask({"PING", {}}).verb.c_str(), "OK");
}
END_TEST

START_TEST(a_log_of_clients_is_bounded)
{
    AgentInProcess ground;
    for (int i = 0; i < 100; ++i)
        ground.log.client("line", 5000000000);
    ck_assert_int_eq(std::count(ground.lines.begin(), ground.lines.end(), "line"), Log::kClientLinesPerSecond);
    ground.log.client("line", 6000000000);
    ck_assert(said(ground, "90 more lines"));
}
END_TEST

START_TEST(records_come_and_go)
{
    AgentInProcess ground;
    const config::Registration record = AgentInProcess::record(11);
    ground.register_job(record);
    for (int i = 0; i < 100 && ground.agent->registry().jobs().empty(); ++i)
        ground.agent->step(1);
    ck_assert_uint_eq(ground.agent->registry().jobs().size(), 1); // by inotify
    ground.write(ground.agent->paths().jobs + "/.tmp", "x");
    ground.write(ground.record_path(12), "job_id=12\nnonsense");
    ground.write(ground.record_path(13), config::format_registration(record)); // holds job 11
    ground.register_job(AgentInProcess::record(14), 0666);                    // anybody may have written it
    for (int i = 0; i < 100 && !said(ground, "record 14.0"); ++i)
        ground.agent->step(1);
    ck_assert(said(ground, "record 12.0"));
    ck_assert(said(ground, "record 13.0: holds job 11.0"));
    ck_assert_uint_eq(ground.agent->registry().jobs().size(), 1);
    ground.start(); // a new jigsawd reads the folder
    ck_assert_uint_eq(ground.agent->registry().jobs().size(), 1);
    unlink(ground.record_path(11).c_str());
    for (int i = 0; i < 200 && !ground.agent->registry().jobs().empty(); ++i)
        ground.agent->step(1);
    ck_assert_uint_eq(ground.agent->registry().jobs().size(), 0);
}
END_TEST

START_TEST(a_job_outlives_its_record_while_it_computes)
{
    AgentInProcess ground;
    ground.register_job(AgentInProcess::record(11));
    const UniqueFd socket = ground.connect();
    ck_assert_str_eq(ground.say(socket, AgentInProcess::attach_message(11)).verb.c_str(), "OK");
    unlink(ground.record_path(11).c_str());
    for (int i = 0; i < 150; ++i)
        ground.agent->step(1);
    ck_assert_uint_eq(ground.agent->registry().jobs().size(), 1);
    ck_assert_uint_eq(ground.agent->processes().size(), 1);
}
END_TEST

START_TEST(others_see_only_what_they_may)
{
    AgentInProcess ground;
    ground.register_job(AgentInProcess::record(11));
    const UniqueFd socket = ground.connect();
    ground.say(socket, AgentInProcess::attach_message(11));
    // scontrol does not answer here, so nobody said that jobs are public.
    const std::string own = status_json(*ground.agent, getuid()), others = status_json(*ground.agent, getuid() + 1);
    ck_assert(own.find("\"job_id\":11") != std::string::npos);
    ck_assert(others.find("\"job_id\":11") == std::string::npos);
    ck_assert(others.find("\"masked\":true") != std::string::npos);
    ck_assert(others.find(std::to_string(getpid())) == std::string::npos);
    ck_assert(metrics_text(*ground.agent).find("jigsaw_gpu_processes{gpu=\"0\"} 1") != std::string::npos);
}
END_TEST

START_TEST(proc_stat_is_parsed_whatever_the_name)
{
    ProcStat stat;
    ck_assert(parse_proc_stat(&stat, "7 (a) b) (c)) T 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9\n"));
    ck_assert_int_eq(stat.state, 'T');
    ck_assert_uint_eq(stat.start_ticks, 4711);
    ck_assert(!parse_proc_stat(&stat, "7 (a) T 1"));
    ck_assert(!parse_proc_stat(&stat, ""));
    ck_assert(read_proc_stat(&stat, getpid()));
    ck_assert(!read_proc_stat(&stat, 0));
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("server");
    tests::add_case(suite, "messages", {every_verb_answers, attach_checks_every_value, gpus_go_by_index_or_by_local_rank,
                                        the_same_process_may_attach_anew, others_see_only_what_they_may});
    tests::add_case(suite, "limits", {garbage_closes_and_is_said, a_silent_connection_goes, one_user_has_so_many_connections,
                                      a_log_of_clients_is_bounded});
    tests::add_case(suite, "records", {records_come_and_go, a_job_outlives_its_record_while_it_computes,
                                       proc_stat_is_parsed_whatever_the_name});
    return tests::run_tap(suite);
}
