// SPDX-License-Identifier: Apache-2.0
// Turns: the order by rows; shares and rates by a small discrete simulation of one GPU in simulated time.
#include "plugin/core/timeslice.hpp"
#include "tests/lib/suite.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

namespace {

using jigsaw::core::TurnQueue;
using Process = TurnQueue::Process;

constexpr std::uint64_t kMs = 1000000;

Process process(TurnQueue::ProcessId id, double weight = 1, double guaranteed_share = 0)
{
    Process made;
    made.id = id;
    made.job = static_cast<jigsaw::core::JobId>(id);
    made.job_start_ns = id;
    made.weight = weight;
    made.guaranteed_share = guaranteed_share;
    return made;
}

TurnQueue::ProcessId next_of(const TurnQueue &queue, std::uint64_t now_ns) { return queue.next(now_ns).value_or(0); }

void run_turn(TurnQueue &queue, TurnQueue::ProcessId id, std::uint64_t from_ns, std::uint64_t to_ns,
              double iterations = 1)
{
    queue.granted(id, from_ns);
    queue.released(id, to_ns, iterations);
}

START_TEST(nobody_asks_and_somebody_holds)
{
    TurnQueue queue;
    ck_assert(!queue.next(0));
    queue.add(process(1));
    queue.add(process(2));
    ck_assert(!queue.next(0));
    queue.want(1, 0);
    queue.want(2, 0);
    ck_assert_uint_eq(next_of(queue, 0), 1);
    queue.granted(1, 0);
    ck_assert(queue.holder() == TurnQueue::ProcessId{1});
    ck_assert(!queue.next(5));
    queue.released(1, 5, 1);
    ck_assert(!queue.holder());
    ck_assert_uint_eq(next_of(queue, 5), 2);
    queue.cancel(2);
    ck_assert(!queue.next(5));
}
END_TEST

START_TEST(least_progress_goes_first)
{
    TurnQueue queue;
    queue.add(process(1));
    queue.add(process(2));
    run_turn(queue, 1, 0, kMs);
    queue.want(1, 2 * kMs);
    queue.want(2, 50 * kMs); // later, but behind
    ck_assert_uint_eq(next_of(queue, 50 * kMs), 2);
    run_turn(queue, 2, 50 * kMs, 51 * kMs, 0.25); // a micro-batch of four
    queue.want(2, 52 * kMs);
    ck_assert_uint_eq(next_of(queue, 52 * kMs), 2);
    ck_assert_double_eq_tol(queue.progress(2), 0.25, 1e-12);
}
END_TEST

START_TEST(ties_go_by_job_start_then_job_id)
{
    struct {
        std::uint64_t start1, start2, want1_ns, want2_ns;
        jigsaw::core::JobId job1, job2;
        TurnQueue::ProcessId first;
    } const rows[] = {
        {5, 9, 0, 0, 1, 2, 1},
        {9, 5, 0, 0, 1, 2, 2},
        {5, 5, 0, 0, 2, 1, 2},
        {9, 5, 0, TurnQueue::kTieNs - 1, 1, 2, 2}, // asked almost at once: as if together
        {9, 5, 0, TurnQueue::kTieNs, 1, 2, 1},     // really earlier
        {5, 9, TurnQueue::kTieNs, 0, 1, 2, 2},
    };
    for (const auto &row : rows)
        for (bool swapped : {false, true}) { // the order of arrival at the daemon does not matter
            TurnQueue queue;
            Process one = process(1), two = process(2);
            one.job_start_ns = row.start1, one.job = row.job1;
            two.job_start_ns = row.start2, two.job = row.job2;
            queue.add(swapped ? two : one);
            queue.add(swapped ? one : two);
            queue.want(1, row.want1_ns);
            queue.want(2, row.want2_ns);
            ck_assert_uint_eq(next_of(queue, 10 * kMs), row.first);
        }
}
END_TEST

START_TEST(fractions_that_add_up_are_equal)
{
    TurnQueue queue;
    queue.add(process(1));
    queue.add(process(2));
    for (int i = 0; i < 10; ++i)
        run_turn(queue, 2, 0, kMs, 0.1);
    run_turn(queue, 1, 0, kMs, 1);
    queue.want(2, 0);
    queue.want(1, 0);
    ck_assert_uint_eq(next_of(queue, 0), 1); // equal: the older job, though 10 x 0.1 < 1 in binary
}
END_TEST

START_TEST(newcomers_start_at_the_least_progress)
{
    TurnQueue queue;
    queue.add(process(1));
    queue.add(process(2));
    for (int i = 0; i < 7; ++i)
        run_turn(queue, 1, 0, kMs);
    for (int i = 0; i < 5; ++i)
        run_turn(queue, 2, 0, kMs);
    queue.add(process(3));
    ck_assert_double_eq_tol(queue.progress(3), 5, 1e-12);
}
END_TEST

START_TEST(a_long_pause_buys_a_bounded_backlog)
{
    TurnQueue queue;
    queue.add(process(1));
    queue.add(process(2));
    for (int i = 0; i < 1000; ++i)
        run_turn(queue, 1, 0, kMs);
    int in_a_row = 0;
    queue.want(1, 0);
    for (queue.want(2, 0); next_of(queue, 0) == 2; queue.want(2, 0), ++in_a_row)
        run_turn(queue, 2, 0, kMs);
    ck_assert_int_ge(in_a_row, 1);
    ck_assert_int_le(in_a_row, static_cast<int>(TurnQueue::kMaxBacklog) + 1);
}
END_TEST

START_TEST(removing_frees_the_turn)
{
    TurnQueue queue;
    queue.add(process(1));
    queue.add(process(2));
    queue.granted(1, 0);
    queue.want(2, 0);
    ck_assert(!queue.next(0));
    queue.remove(1);
    ck_assert_uint_eq(next_of(queue, 0), 2);
    ck_assert_uint_eq(queue.size(), 1);
    queue.remove(99);
    queue.want(99, 0);
    queue.cancel(99);
    queue.granted(99, 0);
    queue.released(99, 0, 1);
    ck_assert(!queue.holder());
    ck_assert_uint_eq(next_of(queue, 0), 2);
}
END_TEST

START_TEST(a_lost_lease_is_not_counted_twice)
{
    TurnQueue queue;
    queue.add(process(1));
    queue.add(process(2));
    queue.granted(1, 0);
    queue.released(1, kMs, 0); // the caller takes an expired turn away
    queue.want(2, kMs);
    queue.granted(2, kMs);
    queue.released(1, 2 * kMs, 1); // the old holder comes back
    ck_assert(queue.holder() == TurnQueue::ProcessId{2});
    ck_assert_double_eq(queue.progress(1), 0);
}
END_TEST

START_TEST(bad_numbers_hurt_nobody)
{
    TurnQueue queue;
    queue.add(process(1, 0));
    queue.add(process(2, -3, 5));
    run_turn(queue, 1, 10, 5, std::nan(""));
    run_turn(queue, 2, 10, 20, -4);
    ck_assert_double_eq(queue.progress(1), 0);
    ck_assert_double_eq(queue.progress(2), 0);
    queue.want(1, 0);
    ck_assert_uint_eq(next_of(queue, 0), 1); // 5 is promised, 0.95 is the most that counts; it has half
}
END_TEST

START_TEST(leases_follow_the_longest_of_the_last_turns)
{
    TurnQueue queue;
    queue.add(process(1));
    ck_assert_uint_eq(queue.lease_ns(1), 1000 * kMs);
    ck_assert_uint_eq(queue.lease_ns(99), 1000 * kMs);
    run_turn(queue, 1, 0, 100 * kMs);
    ck_assert_uint_eq(queue.lease_ns(1), 1000 * kMs);
    run_turn(queue, 1, 0, 600 * kMs);
    ck_assert_uint_eq(queue.lease_ns(1), 2400 * kMs);
    for (int i = 0; i < 99; ++i)
        run_turn(queue, 1, 0, kMs);
    ck_assert_uint_eq(queue.lease_ns(1), 2400 * kMs);
    run_turn(queue, 1, 0, kMs); // the long one is the 101st now
    ck_assert_uint_eq(queue.lease_ns(1), 1000 * kMs);
}
END_TEST

/// A process that computes `turn_ms` under a turn and then is away for `away_ms` (sync, input) before it asks again.
struct Worker {
    double turn_ms, away_ms;
    double weight = 1, guaranteed_share = 0;
    double unit = 1; ///< what the caller counts an iteration as
    std::uint64_t ready_ns = 0;
    long iterations = 0;
    double longest_wait_ms = 0;

    double alone_ms() const { return turn_ms + away_ms; }
};

/// One GPU, whole-iteration turns, until `end_ms`. Returns the share of time that the GPU was busy.
double simulate(std::vector<Worker> &workers, double end_ms, double patience = 0)
{
    TurnQueue queue;
    queue.set_patience(patience);
    for (std::size_t i = 0; i < workers.size(); ++i) {
        Process entry = process(i + 1, workers[i].weight, workers[i].guaranteed_share);
        entry.unit = workers[i].unit;
        queue.add(entry);
    }
    std::uint64_t now_ns = 0, busy_ns = 0;
    std::vector<bool> asked(workers.size(), false);
    while (static_cast<double>(now_ns) < end_ms * kMs) {
        std::uint64_t soonest = UINT64_MAX;
        for (std::size_t i = 0; i < workers.size(); ++i) {
            if (!asked[i] && workers[i].ready_ns <= now_ns) {
                queue.want(i + 1, workers[i].ready_ns);
                asked[i] = true;
            }
            soonest = asked[i] ? soonest : std::min(soonest, workers[i].ready_ns);
        }
        const auto chosen = queue.next(now_ns);
        if (!chosen) {
            now_ns = std::min(soonest, queue.idle_until(now_ns).value_or(soonest));
            continue;
        }
        Worker &worker = workers[*chosen - 1];
        worker.longest_wait_ms = std::max(worker.longest_wait_ms, static_cast<double>(now_ns - worker.ready_ns) / kMs);
        queue.granted(*chosen, now_ns);
        const auto turn_ns = static_cast<std::uint64_t>(worker.turn_ms * kMs);
        now_ns += turn_ns;
        busy_ns += turn_ns;
        queue.released(*chosen, now_ns, 1);
        ++worker.iterations;
        worker.ready_ns = now_ns + static_cast<std::uint64_t>(worker.away_ms * kMs);
        asked[*chosen - 1] = false;
    }
    return static_cast<double>(busy_ns) / static_cast<double>(now_ns);
}

START_TEST(unequal_iterations_advance_one_for_one)
{
    std::vector<Worker> workers{{10, 0}, {37, 0}};
    ck_assert_double_gt(simulate(workers, 60000), 0.999);
    ck_assert_int_le(std::abs(workers[0].iterations - workers[1].iterations), 1);
    workers = {{12, 5}, {40, 8}, {9, 1}};
    simulate(workers, 60000);
    ck_assert_int_le(std::abs(workers[0].iterations - workers[1].iterations), 2);
    ck_assert_int_le(std::abs(workers[2].iterations - workers[1].iterations), 2);
}
END_TEST

START_TEST(weights_are_shares_of_turns)
{
    std::vector<Worker> workers{{10, 0, 2}, {10, 0, 1}};
    simulate(workers, 60000);
    const double ratio = static_cast<double>(workers[0].iterations) / static_cast<double>(workers[1].iterations);
    ck_assert_double_eq_tol(ratio, 2, 0.02);
    workers = {{10, 0, 3}, {25, 0, 1}, {5, 0, 0.5}};
    simulate(workers, 200000);
    const double turns = static_cast<double>(workers[0].iterations + workers[1].iterations + workers[2].iterations);
    ck_assert_double_eq_tol(static_cast<double>(workers[0].iterations) / turns, 3 / 4.5, 0.02);
    ck_assert_double_eq_tol(static_cast<double>(workers[1].iterations) / turns, 1 / 4.5, 0.02);
}
END_TEST

START_TEST(a_guaranteed_share_is_a_floor)
{
    std::vector<Worker> workers{{10, 0, 1, 0.6}, {10, 0}, {10, 0}};
    simulate(workers, 60000);
    double turns = static_cast<double>(workers[0].iterations + workers[1].iterations + workers[2].iterations);
    ck_assert_double_ge(static_cast<double>(workers[0].iterations) / turns, 0.6 - 0.01);
    ck_assert_int_gt(workers[1].iterations, 0);
    ck_assert_int_le(std::abs(workers[1].iterations - workers[2].iterations), 1);
    workers = {{10, 0, 1, 0.25}, {10, 0}}; // equal turns give it more than its floor: the floor changes nothing
    simulate(workers, 60000);
    turns = static_cast<double>(workers[0].iterations + workers[1].iterations);
    ck_assert_double_eq_tol(static_cast<double>(workers[0].iterations) / turns, 0.5, 0.01);
}
END_TEST

START_TEST(nobody_starves)
{
    const std::vector<std::vector<Worker>> mixes{
        {{10, 0}, {10, 0}, {10, 0}, {10, 0}},
        {{50, 0}, {5, 0, 1, 1}, {5, 30}},          // one is promised everything
        {{5, 0, 100}, {40, 10, 0.01}, {20, 0}},    // weights 10,000 : 1 apart
        {{20, 200}, {20, 0}, {1, 0}},
    };
    for (std::vector<Worker> workers : mixes) {
        simulate(workers, 600000);
        for (const Worker &worker : workers) {
            ck_assert_int_ge(worker.iterations, 2);
            if (worker.weight > 0.5 && worker.weight < 2)
                ck_assert_double_lt(worker.longest_wait_ms, 5000);
        }
    }
}
END_TEST

/// Sum of rates against the work-conserving model: all are slowed by max(1, sum of loads) (scheduling-study 2).
double rate_of_model(const std::vector<Worker> &workers, double end_ms)
{
    double load = 0, rates = 0;
    for (const Worker &worker : workers) {
        load += worker.turn_ms / worker.alone_ms();
        rates += static_cast<double>(worker.iterations) * worker.alone_ms() / end_ms;
    }
    return rates / (static_cast<double>(workers.size()) / std::max(1.0, load));
}

START_TEST(turns_are_work_conserving)
{
    // turn and away time of the same order as bert, gpt2, vgg and resnet on one GPU
    const std::vector<Worker> kinds{{60, 20}, {30, 30}, {93, 10}, {25, 45}, {40, 5}};
    double sum = 0;
    int cases = 0;
    for (std::size_t a = 0; a < kinds.size(); ++a)
        for (std::size_t b = a; b < kinds.size(); ++b)
            for (std::size_t c = b; c < kinds.size(); ++c) {
                std::vector<Worker> workers{kinds[a], kinds[b], kinds[c]};
                double load = 0;
                for (Worker &worker : workers) {
                    worker.unit = worker.alone_ms(); // progress in isolated time: all are slowed alike
                    load += worker.turn_ms / worker.alone_ms();
                }
                const double busy = simulate(workers, 100000);
                ck_assert_double_ge(busy, 0.95 * std::min(1.0, load));
                const double reached = rate_of_model(workers, 100000);
                ck_assert_double_ge(reached, 0.9);
                sum += reached;
                ++cases;
            }
    ck_assert_double_ge(sum / cases, 0.95);
}
END_TEST

/// The eight models of Muri's profiles on one GPU, ms: on the GPU, and the whole iteration.
const std::vector<std::pair<double, double>> kModels{{14, 517},  {160, 178}, {8, 490},  {410, 426},
                                                     {110, 779}, {59, 798},  {68, 107}, {80, 109}};

struct Group {
    std::vector<Worker> workers;
    double load = 0;
};

/// All multisets of `size` models.
void groups_of(std::size_t size, std::size_t from, Group group, std::vector<Group> *ret_groups)
{
    if (group.workers.size() == size)
        return ret_groups->push_back(group);
    for (std::size_t m = from; m < kModels.size(); ++m) {
        const auto &[turn_ms, iteration_ms] = kModels[m];
        Group next = group;
        next.workers.push_back({turn_ms, iteration_ms - turn_ms});
        next.workers.back().unit = iteration_ms;
        next.load += turn_ms / iteration_ms;
        groups_of(size, m, next, ret_groups);
    }
}

struct Reached {
    double mean_rate = 0;  ///< sum of rates over the model's, mean over all groups
    double p90_worst = 0;  ///< slow-down of the worst member over the model's
};

Reached reached_on_all_groups(double patience)
{
    std::vector<Group> groups;
    for (std::size_t size : {2u, 3u, 4u})
        groups_of(size, 0, {}, &groups);
    ck_assert_uint_eq(groups.size(), 36 + 120 + 330);
    Reached reached;
    std::vector<double> worst;
    constexpr double kEndMs = 120000;
    for (Group &group : groups) {
        simulate(group.workers, kEndMs, patience);
        reached.mean_rate += rate_of_model(group.workers, kEndMs) / static_cast<double>(groups.size());
        double slowest = 0;
        for (const Worker &worker : group.workers)
            slowest = std::max(slowest, kEndMs / (static_cast<double>(worker.iterations) * worker.alone_ms()));
        worst.push_back(slowest / std::max(1.0, group.load));
    }
    std::sort(worst.begin(), worst.end());
    reached.p90_worst = worst[worst.size() * 9 / 10];
    std::printf("# patience %.2f: %.4f of the model's rate, worst member at p90 %.4f of its slow-down\n", patience,
                reached.mean_rate, reached.p90_worst);
    return reached;
}

// Progress in isolated time: the sum of rates is what the model says, and nobody is much slower than it says. Jobs that
// are rarely on the GPU need some patience beside turns as long as their whole iteration.
START_TEST(turns_reach_the_model_on_all_groups)
{
    const Reached hasty = reached_on_all_groups(0), patient = reached_on_all_groups(0.25);
    ck_assert_double_ge(hasty.mean_rate, 0.95);
    ck_assert_double_ge(patient.mean_rate, 0.95);
    ck_assert_double_le(patient.p90_worst, 1.15);
    ck_assert_double_gt(hasty.p90_worst, patient.p90_worst);
}
END_TEST

// The GPU idles for somebody who is owed, expected and near, and for nobody else.
START_TEST(patience_has_bounds)
{
    struct {
        double patience;
        std::uint64_t asks_ms; ///< process 1 asks after its turns of 100 ms; 2 is back 150 ms after its own of 10
        std::uint64_t until_ms; ///< 0: no idling
    } const rows[] = {
        {0.25, 140, 160}, {0.25, 130, 0}, {0.25, 160, 0}, {0.5, 115, 160}, {0, 159, 0},
    };
    for (const auto &row : rows) {
        TurnQueue queue;
        queue.set_patience(row.patience);
        queue.add(process(1));
        queue.add(process(2));
        for (int i = 0; i < 5; ++i)
            run_turn(queue, 1, 0, 100 * kMs);
        run_turn(queue, 2, 0, 10 * kMs);
        queue.want(2, 160 * kMs); // away for 150
        run_turn(queue, 2, 0, 10 * kMs);
        queue.want(1, 100 * kMs);
        const auto until = queue.idle_until(row.asks_ms * kMs);
        ck_assert_uint_eq(until.value_or(0), row.until_ms * kMs);
        ck_assert_uint_eq(next_of(queue, row.asks_ms * kMs), until ? 0 : 1);
        queue.remove(2);
        ck_assert_uint_eq(next_of(queue, row.asks_ms * kMs), 1);
    }
}
END_TEST

// Weights are shares of the GPU's time where everybody is always ready, whatever the lengths of turns.
START_TEST(weights_are_shares_of_time)
{
    const std::vector<std::vector<Worker>> mixes{
        {{10, 0, 2}, {10, 0, 1}},
        {{10, 0, 1}, {37, 0, 1}},
        {{10, 0, 3}, {25, 0, 1}, {5, 0, 0.5}},
        {{7, 0, 1}, {11, 0, 2}, {13, 0, 3}, {90, 0, 4}},
    };
    for (std::vector<Worker> workers : mixes) {
        double weights = 0, time_ms = 0;
        for (Worker &worker : workers) {
            worker.unit = worker.turn_ms;
            weights += worker.weight;
        }
        simulate(workers, 200000);
        for (const Worker &worker : workers)
            time_ms += static_cast<double>(worker.iterations) * worker.turn_ms;
        for (const Worker &worker : workers)
            ck_assert_double_eq_tol(static_cast<double>(worker.iterations) * worker.turn_ms / time_ms,
                                    worker.weight / weights, 0.02 * worker.weight / weights);
    }
}
END_TEST

// A floor in time: three of ten turns would be too few for the short one.
START_TEST(a_guaranteed_share_counts_time)
{
    std::vector<Worker> workers{{5, 0, 1, 0.3}, {50, 0}, {50, 0}};
    simulate(workers, 120000);
    const double own_ms = static_cast<double>(workers[0].iterations) * 5;
    const double all_ms = own_ms + static_cast<double>(workers[1].iterations + workers[2].iterations) * 50;
    ck_assert_double_ge(own_ms / all_ms, 0.3 - 0.02);
    ck_assert_double_le(own_ms / all_ms, 0.3 + 0.05); // a floor, not more
    ck_assert_int_le(std::abs(workers[1].iterations - workers[2].iterations), 1);
}
END_TEST

START_TEST(units_may_change_on_the_way)
{
    TurnQueue queue;
    queue.add(process(1));
    queue.add(process(2));
    for (int i = 0; i < 5; ++i)
        run_turn(queue, 1, 0, kMs);
    ck_assert_double_eq(queue.progress(1), 5);
    queue.level();
    ck_assert_double_eq(queue.progress(1), queue.progress(2));
    TurnQueue::Process timed = process(2);
    timed.unit = 40;
    queue.add(timed);
    run_turn(queue, 2, 0, kMs);
    ck_assert_double_eq(queue.progress(2), 40);
    timed.unit = -1; // no number: one for one
    queue.add(timed);
    run_turn(queue, 2, 0, kMs);
    ck_assert_double_eq(queue.progress(2), 41);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("timeslice");
    jigsaw::tests::add_case(suite, "order",
                            {nobody_asks_and_somebody_holds, least_progress_goes_first,
                             ties_go_by_job_start_then_job_id, fractions_that_add_up_are_equal,
                             newcomers_start_at_the_least_progress, a_long_pause_buys_a_bounded_backlog});
    jigsaw::tests::add_case(suite, "life",
                            {removing_frees_the_turn, a_lost_lease_is_not_counted_twice, bad_numbers_hurt_nobody,
                             leases_follow_the_longest_of_the_last_turns});
    jigsaw::tests::add_case(suite, "simulation",
                            {unequal_iterations_advance_one_for_one, weights_are_shares_of_turns,
                             a_guaranteed_share_is_a_floor, nobody_starves, turns_are_work_conserving,
                             turns_reach_the_model_on_all_groups, patience_has_bounds, weights_are_shares_of_time,
                             a_guaranteed_share_counts_time, units_may_change_on_the_way});
    return jigsaw::tests::run_tap(suite);
}
