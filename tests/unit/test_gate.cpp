// SPDX-License-Identifier: Apache-2.0
// The gate against a small agent: turns, hang-ups, silence, forks, and a torture run in which rivals come and go. The
// agent's log of each run must be one that the model of the gate accepts.
#include "runtime/page/attach.hpp"
#include "runtime/page/gate.hpp"
#include "tests/lib/folder.hpp"
#include "tests/lib/mini_agent.hpp"
#include "tests/lib/suite.hpp"
#include "tests/model/gate_log.hpp"

#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace jigsaw::page;
using jigsaw::tests::Folder;
using jigsaw::tests::GateLog;
using jigsaw::tests::MiniAgent;

AttachRequest request_for(const Folder &folder, std::uint32_t rank = 0)
{
    AttachRequest request;
    request.socket_path = folder.socket();
    request.job_id = 12;
    request.token = "c0ffee";
    request.rank = rank;
    request.world_size = 8;
    return request;
}

void must_attach(Gate &gate, const AttachRequest &request, Gate::Log log = nullptr)
{
    std::string why;
    ck_assert_msg(gate.attach(&why, request, std::move(log)), "%s", why.c_str());
}

/// Runs in a child; what it returns is its exit status.
pid_t in_child(const std::function<int()> &body)
{
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        _exit(body());
    return child;
}

void must_succeed(pid_t child)
{
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child ended with status %#x", status);
}

std::size_t accepted_grants(const std::vector<std::string> &lines)
{
    GateLog log;
    for (const std::string &line : lines) {
        const std::string why = log.accept(line);
        ck_assert_msg(why.empty(), "line %zu: %s: %s", log.lines(), why.c_str(), line.c_str());
    }
    return log.grants();
}

void wait_until(const std::function<bool()> &condition)
{
    while (!condition())
        usleep(200);
}

/// Memory that children share with the test.
template <class T> class Shared {
  public:
    Shared() : memory_(new (mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) T()) {}
    ~Shared() { munmap(memory_, sizeof(T)); }
    T *operator->() { return memory_; }

  private:
    T *memory_;
};

START_TEST(no_agent)
{
    Gate gate;
    ck_assert(!gate.attached() && !gate.holds());
    ck_assert(gate.begin() == Turn::no_agent);
    ck_assert(gate.holds());
    ck_assert(gate.begin() == Turn::no_agent);
    gate.end();
    gate.end();
    ck_assert(!gate.holds());
    DirectiveView view;
    ck_assert(!gate.read_wanted(&view));
    gate.publish(ReportView{});
    ck_assert_int_eq(gate.gpu_index(), -1);
    ck_assert(gate.cores().empty());
    gate.detach();
}
END_TEST

START_TEST(attach_refusals)
{
    const Folder folder;
    AttachRequest bad_rank = request_for(folder, 8), no_path = request_for(folder), long_path = no_path;
    no_path.socket_path.clear();
    long_path.socket_path.assign(200, 'x');
    const struct {
        AttachRequest request;
        const char *says;
    } rows[] = {{bad_rank, "rank 8 of 8"},
                {no_path, "socket path of 0 bytes"},
                {long_path, "socket path of 200 bytes"},
                {request_for(folder), "connect to "}};
    for (const auto &row : rows) {
        Gate gate;
        std::string why;
        ck_assert(!gate.attach(&why, row.request, nullptr));
        ck_assert_msg(why.find(row.says) != std::string::npos, "'%s' does not say '%s'", why.c_str(), row.says);
        ck_assert(gate.begin() == Turn::no_agent);
    }
}
END_TEST

START_TEST(answers_of_a_strange_agent)
{
    const struct {
        jigsaw::wire::Message answer;
        const char *says;
    } rows[] = {
        {{"ERROR", {{"code", "token"}, {"text", "job 12 has another token"}}}, "token job 12 has another token"},
        {{"OK", {{"proto", "9"}}}, "speaks protocol '9', this library 1 to 1"},
        {{"OK", {}}, "speaks protocol ''"},
        {{"HELLO", {}}, "refused"},
    };
    for (const auto &row : rows) {
        const Folder folder;
        MiniAgent::Options options;
        options.answer = row.answer;
        MiniAgent agent(folder.socket(), options);
        agent.start();
        Gate gate;
        std::string why;
        ck_assert(!gate.attach(&why, request_for(folder), nullptr));
        ck_assert_msg(why.find(row.says) != std::string::npos, "'%s' does not say '%s'", why.c_str(), row.says);
    }
}
END_TEST

/// A daemon that accepts nothing: the limit of attach() and, in the middle of training, no wait at all.
START_TEST(a_hanging_agent_costs_a_second_once)
{
    const Folder folder;
    std::string why;
    const jigsaw::UniqueFd listener = jigsaw::wire::listen_at(&why, folder.socket(), 4);
    ck_assert_msg(static_cast<bool>(listener), "%s", why.c_str());
    Gate gate;
    ck_assert(!gate.attach(&why, request_for(folder), nullptr));
    ck_assert_str_eq(why.c_str(), "no answer to ATTACH within 1000 ms");
    for (int i = 0; i < 200; ++i) {
        ck_assert(gate.begin() == Turn::no_agent);
        gate.end();
        usleep(1000);
    }
}
END_TEST

START_TEST(processors)
{
    ck_assert(parse_cores("0") == std::vector<int>{0});
    ck_assert((parse_cores("0-2,7") == std::vector<int>{0, 1, 2, 7}));
    for (const char *text : {"", "a", "1-", "-1", "2-1", "1,,2", "1,", "9999999", "0-8192"})
        ck_assert_msg(parse_cores(text).empty(), "%s", text);
}
END_TEST

START_TEST(alone_the_gate_is_open)
{
    const Folder folder;
    MiniAgent agent(folder.socket());
    agent.start();
    Gate gate;
    AttachRequest request = request_for(folder, 5);
    request.gpu = "GPU-1";
    request.agreed_generation = 4;
    must_attach(gate, request);
    ck_assert(gate.attached());
    ck_assert_int_eq(gate.gpu_index(), 3);
    ck_assert((gate.cores() == std::vector<int>{0, 1}));
    const std::string seen = jigsaw::wire::format(agent.last_attach());
    ck_assert_str_eq(seen.c_str(),
                     "ATTACH generation=4 gpu=GPU-1 job=12 local_rank=0 proto=1-1 rank=5 restart=0 step=0 "
                     "token=c0ffee world=8");
    for (int i = 0; i < 1000; ++i) {
        ck_assert(gate.begin() == Turn::open);
        ck_assert(gate.holds());
        gate.end();
        ck_assert(!gate.holds());
    }
    ck_assert_uint_eq(accepted_grants(agent.log()), 0);
    gate.detach();
    ck_assert(!gate.attached());
    ck_assert(gate.begin() == Turn::no_agent);
}
END_TEST

START_TEST(directives_and_reports_pass)
{
    const Folder folder;
    MiniAgent agent(folder.socket());
    agent.start();
    Gate gate;
    must_attach(gate, request_for(folder));
    DirectiveView view;
    ck_assert(gate.read_wanted(&view));
    ck_assert_uint_eq(view.wanted.generation, 0);
    view.wanted.generation = 3;
    view.wanted.levels = 2;
    agent.publish(view);
    DirectiveView back;
    ck_assert(gate.read_wanted(&back));
    ck_assert(back.wanted == view.wanted);
    gate.publish(ReportView{});
    agent.freeze();
    ck_assert(!gate.read_wanted(&back)); // the word of a silent agent is stale
}
END_TEST

START_TEST(closed_gates_grant)
{
    const Folder folder;
    MiniAgent::Options options;
    options.always_closed = true;
    MiniAgent agent(folder.socket(), options);
    agent.start();
    Gate gate;
    must_attach(gate, request_for(folder));
    for (int i = 0; i < 200; ++i) {
        ck_assert(gate.begin() == Turn::granted);
        ck_assert(gate.begin() == Turn::granted); // held already
        gate.end();
    }
    gate.detach();
    ck_assert_uint_eq(accepted_grants(agent.log()), 200);
}
END_TEST

/// Two gates in one thread: the first holds, so the second waits until told to stop.
START_TEST(waits_end_when_told)
{
    const Folder folder;
    MiniAgent::Options options;
    options.always_closed = true;
    MiniAgent agent(folder.socket(), options);
    agent.start();
    Gate first, second;
    must_attach(first, request_for(folder, 0));
    must_attach(second, request_for(folder, 1));
    ck_assert(first.begin() == Turn::granted);
    int calls = 0;
    for (int round = 1; round <= 2; ++round) {
        ck_assert(second.begin([&] { return ++calls % 3 != 0; }) == Turn::interrupted);
        ck_assert_int_eq(calls, 3 * round);
        ck_assert(!second.holds());
    }
    first.end();
    ck_assert(second.begin() == Turn::granted); // a want that was given up is in nobody's way
    int last_calls = 0;
    ck_assert(first.begin([&] { return ++last_calls < 2; }) == Turn::interrupted);
    second.end();
    ck_assert(first.begin() == Turn::granted);
    accepted_grants(agent.log());
}
END_TEST

START_TEST(a_dead_agent_lets_go_and_a_new_one_is_found)
{
    const Folder folder;
    std::vector<std::string> said;
    MiniAgent::Options options;
    options.always_closed = true;
    auto agent = std::make_unique<MiniAgent>(folder.socket(), options);
    agent->start();
    Gate gate;
    must_attach(gate, request_for(folder), [&](const std::string &text) { said.push_back(text); });
    ReportView report;
    report.agreed.generation = 9;
    gate.publish(report);
    ck_assert(gate.begin() == Turn::granted);
    agent.reset(); // in the middle of a turn
    gate.end();
    ck_assert(gate.begin() == Turn::no_agent);
    ck_assert(gate.holds());
    gate.end();
    ck_assert(!gate.attached());
    ck_assert_uint_eq(said.size(), 1);
    ck_assert_str_eq(said[0].c_str(), "job 12 rank 0: jigsawd ended; going on without turns, attaching again at "
                                      "iterations");
    agent = std::make_unique<MiniAgent>(folder.socket(), options);
    agent->start();
    while (gate.begin() != Turn::granted)
        gate.end();
    ck_assert_uint_eq(said.size(), 2);
    const jigsaw::wire::Message seen = agent->last_attach();
    ck_assert_str_eq(seen.find("generation")->c_str(), "9");
    gate.end();
}
END_TEST

START_TEST(the_agent_dies_under_a_waiter)
{
    const Folder folder;
    MiniAgent::Options options;
    options.always_closed = true;
    auto agent = std::make_unique<MiniAgent>(folder.socket(), options);
    agent->start();
    Gate first, second;
    must_attach(first, request_for(folder, 0));
    must_attach(second, request_for(folder, 1));
    ck_assert(first.begin() == Turn::granted);
    ck_assert(second.begin([&] { return agent.reset(), true; }) == Turn::no_agent);
    ck_assert(second.holds());
}
END_TEST

START_TEST(a_silent_agent_is_passed_and_heard_again)
{
    const Folder folder;
    std::vector<std::string> said;
    MiniAgent::Options options;
    options.always_closed = true;
    MiniAgent agent(folder.socket(), options);
    agent.start();
    Gate first, second;
    must_attach(first, request_for(folder, 0), [&](const std::string &text) { said.push_back(text); });
    must_attach(second, request_for(folder, 1));
    ck_assert(first.begin() == Turn::granted);
    // Falls silent while the second waits.
    ck_assert(second.begin([&] { return agent.freeze(), true; }) == Turn::no_agent);
    first.end();
    for (int i = 0; i < 3; ++i) {
        ck_assert(first.begin() == Turn::no_agent);
        ck_assert(!first.attached());
        first.end();
    }
    ck_assert_uint_eq(said.size(), 1);
    ck_assert_msg(said[0].find("(limit 500 ms); going on without turns") != std::string::npos, "%s", said[0].c_str());
    agent.thaw();
    // The second still computes in the turn that nobody gave: it counts as a holder.
    ck_assert(first.begin([] { return false; }) == Turn::interrupted);
    second.end();
    ck_assert(first.begin() == Turn::granted);
    ck_assert_uint_eq(said.size(), 2);
    ck_assert_msg(said[1].find("heard again") != std::string::npos, "%s", said[1].c_str());
}
END_TEST

START_TEST(a_forked_child_is_no_agent)
{
    const Folder folder;
    MiniAgent::Options options;
    options.always_closed = true;
    MiniAgent agent(folder.socket(), options);
    agent.start();
    Gate gate;
    must_attach(gate, request_for(folder));
    ck_assert(gate.begin() == Turn::granted);
    must_succeed(in_child([&] {
        if (gate.attached() || gate.holds())
            return 1;
        gate.end(); // of a turn that is not the child's
        if (gate.begin() != Turn::no_agent)
            return 2;
        gate.end();
        DirectiveView view;
        if (gate.read_wanted(&view))
            return 3;
        gate.publish(ReportView{});
        gate.detach();
        return 0;
    }));
    ck_assert(gate.holds());
    gate.end();
    ck_assert(gate.begin() == Turn::granted);
    gate.end();
    gate.detach();
    ck_assert_uint_eq(accepted_grants(agent.log()), 2);
}
END_TEST

START_TEST(numbers_wrap_around)
{
    AgentPages pages = create_pages();
    const ProcessPages process = map_pages(pages.directive_fd.get(), pages.report_fd.get());
    for (const std::uint32_t want : {0x7fffffffu, 0x80000001u, 0xffffffffu, 1u, 3u}) {
        close_gate(pages);
        ck_assert(claim(pages) == Claim::idle);
        process.report->state = JIGSAW_STATE_WAITING;
        ck_assert(claim(pages) == Claim::holds); // not asked yet: the number granted last
        process.report->want = want;
        ck_assert(claim(pages) == Claim::asks);
        ck_assert_uint_eq(grant(pages), want);
        ck_assert_uint_eq(process.directive->grant, want);
        ck_assert(claim(pages) == Claim::holds);
        process.report->state = JIGSAW_STATE_RUNNING;
        ck_assert(claim(pages) == Claim::holds);
        process.report->state = 77; // garbage holds, until its lease expires
        ck_assert(claim(pages) == Claim::holds);
        process.report->state = JIGSAW_STATE_WAITING;
        process.report->want = want + 1;
        open_gate(pages);
        ck_assert_uint_eq(process.directive->grant, want + 1);
        ck_assert(!gate_is_closed(pages));
        process.report->state = JIGSAW_STATE_IDLE;
    }
}
END_TEST

struct Scene {
    std::atomic<int> inside{0}, overlaps{0}, turns{0}, ready{0}, go{0};
};

int take_turns(const Folder &folder, std::uint32_t rank, Shared<Scene> &scene, int visits, int turns)
{
    for (int visit = 0; visit < visits; ++visit) {
        Gate gate;
        std::string why;
        if (!gate.attach(&why, request_for(folder, rank), nullptr))
            return 2;
        for (int i = 0; i < turns; ++i) {
            const Turn turn = gate.begin();
            if (turn != Turn::granted && turn != Turn::open)
                return 3;
            if (scene->inside.fetch_add(1) != 0)
                ++scene->overlaps;
            if (i % 16 == 0)
                sched_yield();
            ++scene->turns;
            --scene->inside;
            gate.end();
        }
    }
    return 0;
}

/// Rivals come and go, gates close and open under running turns: never two inside, none starves.
START_TEST(torture)
{
    const Folder folder;
    MiniAgent agent(folder.socket());
    Shared<Scene> scene;
    constexpr int kProcesses = 3, kVisits = 20, kTurns = 100;
    pid_t children[kProcesses];
    for (std::uint32_t rank = 0; rank < kProcesses; ++rank)
        children[rank] = in_child([&] { return take_turns(folder, rank, scene, kVisits, kTurns); });
    agent.start();
    for (const pid_t child : children)
        must_succeed(child);
    ck_assert_int_eq(scene->overlaps, 0);
    ck_assert_int_eq(scene->turns, kProcesses * kVisits * kTurns);
    wait_until([&] { return agent.attached() == 0; });
    ck_assert_uint_gt(accepted_grants(agent.log()), 0);
}
END_TEST

/// A holder is killed; its forked worker lives on and keeps its socket: the pidfd tells, the rival gets the turn.
START_TEST(a_killed_holder_frees_its_turn)
{
    const Folder folder;
    MiniAgent::Options options;
    options.always_closed = true;
    MiniAgent agent(folder.socket(), options);
    Shared<Scene> scene;
    const pid_t holder = in_child([&] {
        Gate gate;
        std::string why;
        if (!gate.attach(&why, request_for(folder, 0), nullptr) || gate.begin() != Turn::granted)
            return 1;
        const pid_t worker = fork();
        if (worker == 0) {
            while (scene->go == 0)
                usleep(1000);
            _exit(0);
        }
        ++scene->ready;
        pause();
        return 1;
    });
    const pid_t rival = in_child([&] {
        while (scene->ready == 0)
            usleep(200);
        Gate gate;
        std::string why;
        if (!gate.attach(&why, request_for(folder, 1), nullptr))
            return 1;
        ++scene->ready;
        return gate.begin() == Turn::granted ? 0 : 2;
    });
    agent.start();
    wait_until([&] { return scene->ready == 2; });
    kill(holder, SIGKILL);
    must_succeed(rival);
    int status = 0;
    ck_assert_int_eq(waitpid(holder, &status, 0), holder);
    scene->go = 1;
    ck_assert_uint_eq(accepted_grants(agent.log()), 2);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("gate");
    jigsaw::tests::add_case(suite, "attach",
                            {no_agent, attach_refusals, answers_of_a_strange_agent,
                             a_hanging_agent_costs_a_second_once, processors, alone_the_gate_is_open,
                             directives_and_reports_pass});
    jigsaw::tests::add_case(suite, "turns", {closed_gates_grant, waits_end_when_told, numbers_wrap_around, torture});
    jigsaw::tests::add_case(suite, "failures",
                            {a_dead_agent_lets_go_and_a_new_one_is_found, the_agent_dies_under_a_waiter,
                             a_silent_agent_is_passed_and_heard_again, a_forked_child_is_no_agent,
                             a_killed_holder_frees_its_turn});
    return jigsaw::tests::run_tap(suite);
}
