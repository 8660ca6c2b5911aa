// SPDX-License-Identifier: Apache-2.0
// The arbiter of one GPU, step by step under a clock of the test's own. The model accepts every log.
#include "plugin/agent/arbiter.hpp"
#include "tests/lib/fake_rank.hpp"
#include "tests/lib/suite.hpp"
#include "tests/model/gate_log.hpp"

#include <map>

namespace {

using namespace jigsaw;
using namespace jigsaw::agent;
using jigsaw::tests::FakeRank;

constexpr std::uint64_t kMs = 1000000, kSecond = 1000 * kMs;

/// A GPU with an arbiter whose log is checked at the end.
struct Ground {
    Log log{Level::error, nullptr};
    Trace trace{log, 10000};
    std::map<std::uint64_t, char> states; ///< /proc state by process; R
    int expired = 0, returned = 0, rogues = 0;
    std::vector<std::uint64_t> granted;
    ArbiterContext context{trace,
                           [this](const Process &p) { return states.count(p.id) ? states[p.id] : 'R'; },
                           [this](Process &p) { granted.push_back(p.id); },
                           [this](Process &, bool late) { ++(late ? expired : returned); },
                           [this](Process &) { ++rogues; }};
    ArbiterSettings settings;
    Arbiter arbiter{0, settings, context};
    std::uint64_t now = kSecond;

    Ground() { arbiter.set_settled(true, now); }
    ~Ground()
    {
        bool more = false;
        tests::GateLog model;
        std::string line;
        for (const char c : trace.lines_since(&more, 0, SIZE_MAX, 0, true)) {
            if (c != '\n') {
                line += c;
                continue;
            }
            const std::string why = model.accept(line);
            ck_assert_msg(why.empty(), "%s: %s", why.c_str(), line.c_str());
            line.clear();
        }
    }
    void sit(FakeRank &rank) { arbiter.add(rank.process, now); }
    void ask(FakeRank &rank)
    {
        rank.ask();
        arbiter.look(rank.process, now);
    }
    void end(FakeRank &rank)
    {
        rank.end();
        arbiter.look(rank.process, now);
    }
    void pass(std::uint64_t ns) { now += ns; }
    /// 50 ms at a time, as jigsawd does.
    void tick_for(std::uint64_t ns)
    {
        for (const std::uint64_t until = now + ns; now < until;) {
            pass(20 * kMs);
            arbiter.tick(now);
        }
    }
};

START_TEST(alone_the_gate_is_open)
{
    Ground ground;
    FakeRank a(1, 11);
    ground.sit(a);
    ck_assert(!a.gate_closed());
    ck_assert(!ground.arbiter.closed());
}
END_TEST

START_TEST(a_rival_closes_gates_and_finds_the_holder)
{
    Ground ground;
    FakeRank a(1, 11), b(2, 12);
    ground.sit(a);
    a.wake(); // computes behind its open gate
    ground.sit(b);
    ck_assert(a.gate_closed() && b.gate_closed());
    ground.ask(b);
    ck_assert(!b.granted());
    ground.end(a);
    ck_assert(b.granted());
}
END_TEST

START_TEST(turns_pass_from_one_to_the_other)
{
    Ground ground;
    FakeRank a(1, 11), b(2, 12);
    ground.sit(a);
    ground.sit(b);
    for (int turn = 0; turn < 10; ++turn) {
        ground.ask(a);
        ground.ask(b);
        ck_assert(a.granted() && !b.granted());
        a.wake();
        ground.pass(10 * kMs);
        ground.end(a);
        ck_assert(b.granted());
        b.wake();
        ground.pass(10 * kMs);
        ground.end(b);
    }
    ck_assert_uint_eq(ground.arbiter.turns(), 20);
    ck_assert_int_eq(ground.returned, 20);
}
END_TEST

START_TEST(a_late_bell_takes_no_turn_back)
{
    Ground ground;
    FakeRank a(1, 11), b(2, 12);
    ground.sit(a);
    ground.sit(b);
    ground.ask(a);
    ck_assert(a.granted());
    a.ring(); // and has not woken up yet
    ground.arbiter.look(a.process, ground.now);
    ground.ask(b);
    ck_assert(!b.granted());
}
END_TEST

START_TEST(weights_share_turns)
{
    Ground ground;
    FakeRank a(1, 11), b(2, 12), c(3, 13);
    c.process.weight = 2;
    for (FakeRank *rank : {&a, &b, &c})
        ground.sit(*rank);
    for (FakeRank *rank : {&a, &b, &c})
        ground.ask(*rank);
    std::map<std::uint64_t, int> turns;
    for (std::uint64_t turn = 0; turn < 40; ++turn) {
        FakeRank &holder = a.process.seat.counted ? a : b.process.seat.counted ? b : c;
        ++turns[holder.process.id];
        holder.wake();
        holder.report(turn + 1);
        ground.pass(10 * kMs);
        ground.end(holder);
        ground.ask(holder);
    }
    // Nobody has two turns in a row while another waits, so half of them is the most that a weight of 2 in 4 can get.
    ck_assert_int_ge(turns[3], 19);
    ck_assert_int_ge(turns[1], 9);
    ck_assert_int_ge(turns[2], 9);
}
END_TEST

START_TEST(a_lease_lets_the_next_one_in)
{
    Ground ground;
    FakeRank a(1, 11), b(2, 12);
    ground.sit(a);
    ground.sit(b);
    ground.ask(a);
    a.wake();
    ground.tick_for(2 * kSecond); // nobody waits: it may go on
    ck_assert_int_eq(ground.expired, 0);
    ground.ask(b);
    ground.tick_for(kSecond);
    ck_assert_int_eq(ground.expired, 1);
    ck_assert(b.granted());
    ground.end(a); // late
    ck_assert(!a.process.seat.overrun);
    b.wake();
    ground.ask(a);
    ck_assert(!a.granted());
    ground.end(b);
    ck_assert(a.granted());
}
END_TEST

START_TEST(a_stopped_holder_is_passed_over)
{
    Ground ground;
    FakeRank a(1, 11), b(2, 12);
    ground.sit(a);
    ground.sit(b);
    ground.ask(a);
    a.wake();
    ground.ask(b);
    ground.states[1] = 'T';
    ground.tick_for(50 * kMs);
    ck_assert(b.granted());
    ck_assert(a.process.seat.stopped);
    ck_assert_int_eq(ground.expired, 0);
    ground.states[1] = 'R';
    ground.tick_for(20 * kMs);
    ck_assert(!a.process.seat.stopped);
}
END_TEST

START_TEST(a_stopped_waiter_waits_on)
{
    Ground ground;
    FakeRank a(1, 11), b(2, 12);
    ground.sit(a);
    ground.sit(b);
    ground.ask(a);
    ground.states[1] = 'T'; // before it woke up
    ground.ask(b);
    ground.tick_for(50 * kMs);
    ck_assert(b.granted());
}
END_TEST

START_TEST(the_dead_free_their_turn)
{
    Ground ground;
    FakeRank a(1, 11), b(2, 12);
    ground.sit(a);
    ground.sit(b);
    ground.ask(a);
    a.wake();
    ground.ask(b);
    Event dead = event_of(EventKind::dead, a.process, ground.now);
    ground.trace.add(dead);
    ground.arbiter.remove(a.process, ground.now);
    ck_assert(b.granted());
    ck_assert(!b.gate_closed()); // alone again
}
END_TEST

START_TEST(giving_up_is_no_turn)
{
    Ground ground;
    FakeRank a(1, 11), b(2, 12);
    ground.sit(a);
    ground.sit(b);
    ground.ask(a);
    a.wake();
    ground.ask(b);
    b.end(); // interrupted
    ground.arbiter.look(b.process, ground.now);
    ground.end(a);
    ck_assert(!b.granted());
    ground.ask(b);
    ck_assert(b.granted());
}
END_TEST

START_TEST(one_that_asks_nobody_is_seen)
{
    Ground ground;
    FakeRank a(1, 11), b(2, 12);
    ground.sit(a);
    ground.sit(b);
    ground.tick_for(3 * kSecond); // the first tick forgives, as after a silence
    a.wake(); // without a turn
    ground.ask(b);
    ck_assert(!b.granted());
    ground.tick_for(kSecond);
    ck_assert_int_eq(ground.rogues, 1);
    ck_assert(b.granted()); // nobody waits for it any more
}
END_TEST

START_TEST(after_our_silence_nobody_is_to_blame)
{
    Ground ground;
    FakeRank a(1, 11), b(2, 12);
    ground.sit(a);
    ground.sit(b);
    ground.ask(a);
    ground.ask(b);
    ground.arbiter.tick(ground.now);
    b.wake(); // b waited, heard nothing, went on
    ground.pass(kSecond);
    ground.arbiter.tick(ground.now);
    ground.tick_for(200 * kMs);
    ck_assert_int_eq(ground.rogues, 0);
    a.wake();
    ground.end(a);
    ground.ask(a);
    ck_assert(!a.granted()); // b computes
    ground.end(b);
    ck_assert(a.granted());
}
END_TEST

START_TEST(turns_off_opens_all)
{
    Ground ground;
    FakeRank a(1, 11), b(2, 12);
    ground.sit(a);
    ground.sit(b);
    ground.ask(a);
    ground.ask(b);
    ArbiterSettings off;
    off.turns = false;
    ground.arbiter.set_settings(off, ground.now);
    ck_assert(b.granted() && !a.gate_closed() && !b.gate_closed());
    ground.arbiter.set_settings(ArbiterSettings{}, ground.now);
    ck_assert(a.gate_closed() && b.gate_closed());
}
END_TEST

START_TEST(anticipation_waits_for_the_owed)
{
    Ground ground;
    ground.settings.anticipation = 0.05;
    ground.arbiter.set_settings(ground.settings, ground.now);
    FakeRank a(1, 11), b(2, 12);
    ground.sit(a);
    ground.sit(b);
    for (int turn = 0; turn < 3; ++turn) { // a runs ahead
        ground.ask(a);
        ground.pass(kSecond);
        ground.arbiter.tick(ground.now);
        a.wake();
        ground.pass(10 * kMs);
        ground.end(a);
    }
    ground.ask(a);
    ck_assert(!a.granted()); // b is owed: idle for at most 5 % of a cycle
    ground.pass(200 * kMs);
    ground.arbiter.tick(ground.now);
    ck_assert(a.granted());
}
END_TEST

START_TEST(lines_since_a_time)
{
    Log log{Level::error, nullptr};
    Trace trace(log, 4);
    FakeRank a(1, 11);
    a.process.uid = 7;
    for (std::uint64_t ns = 1; ns <= 6; ++ns)
        trace.add(event_of(EventKind::want, a.process, ns));
    bool more = false;
    ck_assert(trace.lines_since(&more, 0, SIZE_MAX, 0, false).rfind("{\"t_ns\":3,", 0) == 0); // the ring holds four
    ck_assert(trace.lines_since(&more, 5, SIZE_MAX, 7, false).rfind("{\"t_ns\":6,", 0) == 0);
    ck_assert(trace.lines_since(&more, 6, SIZE_MAX, 7, false).empty());
    ck_assert(trace.lines_since(&more, 0, SIZE_MAX, 8, false).empty()); // another user's
    ck_assert(!more);
    ck_assert(!trace.lines_since(&more, 0, 1, 8, true).empty());
    ck_assert(more);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("arbiter");
    tests::add_case(suite, "gates", {alone_the_gate_is_open, a_rival_closes_gates_and_finds_the_holder, turns_off_opens_all});
    tests::add_case(suite, "turns", {turns_pass_from_one_to_the_other, a_late_bell_takes_no_turn_back, weights_share_turns,
                                     giving_up_is_no_turn, anticipation_waits_for_the_owed});
    tests::add_case(suite, "trouble", {a_lease_lets_the_next_one_in, a_stopped_holder_is_passed_over, a_stopped_waiter_waits_on,
                                       the_dead_free_their_turn, one_that_asks_nobody_is_seen,
                                       after_our_silence_nobody_is_to_blame});
    tests::add_case(suite, "log", {lines_since_a_time});
    return tests::run_tap(suite);
}
