// SPDX-License-Identifier: Apache-2.0
// The simulator on schedules small enough to work out by hand: each row says who ends when, and why.
#include "plugin/sim/node_pool.hpp"
#include "plugin/sim/policy.hpp"
#include "plugin/sim/text.hpp"
#include "plugin/sim/turns.hpp"

#include "tests/lib/suite.hpp"

#include <algorithm>
#include <cmath>

namespace {

using namespace jigsaw::sim;

void check_near(double got, double wanted)
{
    ck_assert_msg(std::fabs(got - wanted) <= 1e-9 * std::max(1.0, std::fabs(wanted)), "%.12g is not %.12g", got,
                  wanted);
}

struct Row {
    double submit_s, run_s;
    int gpus;
    double limit_s = 0;
};

/// Jobs of one model: half of an iteration on the host, half on the GPU.
Workload workload_of(const std::vector<Row> &rows, double gpu_ms = 500, double host_ms = 500)
{
    Workload made;
    for (const Row &row : rows) {
        JobType type;
        type.model = "m";
        type.gpus = row.gpus;
        type.stages.iteration_ms = 1000;
        type.stages.gpu_ms = gpu_ms;
        type.stages.host_ms = host_ms;
        Job job;
        job.type = made.type_of(type);
        job.submit_s = row.submit_s;
        job.iterations = row.run_s;
        job.iteration_s = 1;
        job.limit_s = row.limit_s > 0 ? row.limit_s : row.run_s;
        made.jobs.push_back(job);
    }
    return made;
}

PolicySettings settings_for(const ClusterShape &cluster, RestartRule restart = RestartRule::never)
{
    PolicySettings settings;
    settings.run.cluster = cluster;
    settings.restart = restart;
    return settings;
}

void check_ends(const Policy &policy, const Workload &workload, const PolicySettings &settings,
                const std::vector<double> &ends_s)
{
    const Outcome outcome = policy.run(workload, settings);
    for (std::size_t i = 0; i < ends_s.size(); ++i)
        ck_assert_msg(std::fabs(outcome.jobs[i].end_s - ends_s[i]) < 1e-6, "%s: job %zu ends at %.6f, not %.6f",
                      full_name(policy).c_str(), i, outcome.jobs[i].end_s, ends_s[i]);
}

// One GPU; the second job is short and comes when the first is half done. Nobody knows the model: 10 s to restart.
START_TEST(preempts_and_pays)
{
    const Workload workload = workload_of({{0, 100, 1}, {50, 10, 1}});
    const struct {
        RestartRule rule;
        std::vector<double> ends_s;
    } rows[] = {
        {RestartRule::never, {110, 60}},
        // at 50 the first has done 40; it runs again from 60 and ends as if it had nothing to pay
        {RestartRule::every_event, {120, 60}},
        // the second starts at 50 and pays until 60; the first has 60 left at 70 and pays again
        {RestartRule::on_start, {140, 70}},
    };
    for (const auto &row : rows) {
        check_ends(kSrtf, workload, settings_for({1, 1}, row.rule), row.ends_s);
        check_ends(kSrsf, workload, settings_for({1, 1}, row.rule), row.ends_s);
    }
}
END_TEST

// The wide job is shorter in time, the narrow one in GPU time.
START_TEST(tells_time_from_service)
{
    const Workload workload = workload_of({{0, 100, 2}, {0, 150, 1}});
    check_ends(kSrtf, workload, settings_for({1, 2}), {100, 250});
    check_ends(kSrsf, workload, settings_for({1, 2}), {250, 150});
}
END_TEST

// After 3,250 GPU-seconds a job falls behind newcomers.
START_TEST(las_serves_newcomers)
{
    check_ends(kLas, workload_of({{0, 5000, 1}, {4000, 100, 1}}), settings_for({1, 1}), {5100, 4100});
    // before that it keeps its GPU
    check_ends(kLas, workload_of({{0, 5000, 1}, {3000, 100, 1}}), settings_for({1, 1}), {5100, 3350});
    // on two GPUs it falls after half the time
    check_ends(kLas, workload_of({{0, 5000, 2}, {1700, 100, 1}}), settings_for({1, 2}), {5100, 1800});
}
END_TEST

// Two GPUs. The head wants both; the third ends before the first does, the fourth does not.
START_TEST(backfills_without_delaying_the_head)
{
    const Workload workload = workload_of({{0, 100, 1}, {1, 50, 2}, {2, 50, 1}, {3, 200, 1}});
    check_ends(kFifo, workload, settings_for({1, 2}), {100, 150, 200, 350});
    check_ends(kBackfill, workload, settings_for({1, 2}), {100, 150, 52, 350});
    // with limits that say too much the third would not be done in time
    const Workload unsure = workload_of({{0, 100, 1}, {1, 50, 2}, {2, 50, 1, 500}, {3, 200, 1}});
    check_ends(kBackfill, unsure, settings_for({1, 2}), {100, 150, 200, 350});
    check_ends(kSrtfStay, workload_of({{0, 100, 1}, {1, 80, 1}, {2, 10, 1}}), settings_for({1, 1}), {100, 190, 110});
}
END_TEST

// Two jobs that need the GPU half of the time, on one GPU: each is slowed by switching only.
START_TEST(shares_a_gpu)
{
    const Workload workload = workload_of({{0, 100, 1}, {0, 100, 1}});
    PolicySettings settings = settings_for({1, 1});
    settings.costs.slowdown = {1, 1.05, 1.05, 1.05};
    for (const Policy *policy : {&kShare, &kSharePreempt, &kJigsaw, &kJigsawPreempt, &kMuri, &kPacking})
        check_ends(*policy, workload, settings, {105, 105});
    // the second has 50 left when the first ends: 50 alone, then 50 of its own 105 together
    check_ends(kSharePreempt, workload_of({{0, 100, 1}, {50, 100, 1}}), settings, {102.5, 152.5});
    check_ends(kSrtf, workload, settings, {100, 200});
}
END_TEST

// Where the GPU is all they need, sharing gains nothing: preemptive share is SRSF then.
START_TEST(shares_only_where_it_gains)
{
    const Workload workload = workload_of({{0, 100, 1}, {0, 60, 1}}, 1000, 0);
    for (const Policy *policy : {&kSharePreempt, &kMuri, &kSrsf})
        check_ends(*policy, workload, settings_for({1, 1}), {160, 60});
}
END_TEST

START_TEST(runs_to_the_same_end_twice)
{
    std::vector<Row> rows;
    for (int i = 0; i < 200; ++i)
        rows.push_back({7.0 * i, 20.0 + i * 37 % 400, 1 << i % 4});
    const Workload workload = workload_of(rows);
    for (const Policy *policy : all_policies()) {
        const Outcome first = policy->run(workload, settings_for({2, 8}));
        const Outcome second = policy->run(workload, settings_for({2, 8}));
        for (std::size_t i = 0; i < rows.size(); ++i) {
            ck_assert(first.jobs[i].end_s == second.jobs[i].end_s);
            ck_assert(first.jobs[i].start_s >= rows[i].submit_s);
            ck_assert_msg(first.jobs[i].end_s >= first.jobs[i].start_s + rows[i].run_s - 1e-6,
                          "%s: job %zu took less than alone", full_name(*policy).c_str(), i);
        }
    }
}
END_TEST

double slowdown(const CycleModel &model, const std::vector<CycleMember> &members, std::size_t of)
{
    return model.slowdowns(members).at(of);
}

START_TEST(prices_groups)
{
    const auto lockstep = make_lockstep_model(), turn = make_turn_model();
    const CycleMember gpu{10, 0, 2, 10, 0}, host{10, 10, 2, 0, 0}, net{10, 0, 2, 0, 10}, half{10, 0, 2, 5, 0};
    const CycleMember slow_gpu{20, 0, 2, 20, 0};
    const struct {
        std::vector<CycleMember> members;
        double lockstep, turn; // of the first member
    } rows[] = {
        {{gpu}, 1, 1},
        {{gpu, gpu}, 2, 2},
        {{gpu, host}, 1, 1},
        {{gpu, net}, 1, 1},
        {{host, host}, 1, 1},             // two host stages run beside each other
        {{host, host, host, host}, 2, 2}, // four do not
        {{gpu, gpu, gpu}, 3, 3},
        {{gpu, slow_gpu}, 3, 2}, // lock-step waits for the slow one; turns share the time
    };
    for (const auto &row : rows) {
        check_near(slowdown(*lockstep, row.members, 0), row.lockstep);
        check_near(slowdown(*turn, row.members, 0), row.turn);
    }
    check_near(slowdown(*turn, {half, half}, 0), 1);
}
END_TEST

// Four workers, GPU all the time: forward 0.3245 of it, backward at four depths 0.5561 in the mean: 0.700.
START_TEST(uses_depth_where_it_gains)
{
    const Workload workload = workload_of({{0, 1, 4}, {0, 1, 1}}, 1000, 0);
    SharingCosts costs;
    costs.slowdown = {1, 1, 1, 1};
    const TypeId four[] = {0, 0}, one[] = {1, 1};
    const double forward = 30.429 / 93.762;
    const double mean = forward + (1 - forward) * (0.2088 + 0.3905 + 0.6252 + 1) / 4;
    const Slowdowns full(workload, costs, false), partial(workload, costs, true);
    check_near(full.group(four, 2).slowdown[0], 2);
    check_near(partial.group(four, 2).slowdown[0], 2 * mean);
    ck_assert(partial.group(four, 2).partial);
    check_near(partial.group(four, 1).slowdown[0], 1); // alone the full-depth worker is waited for
    check_near(partial.group(one, 2).slowdown[0], 2);  // single-GPU jobs interleave only
    costs.extra_iterations = 1.5;
    const Slowdowns dear(workload, costs, true);
    check_near(dear.group(four, 2).slowdown[0], 2); // 2 * 0.7 * 1.5 is worse
    ck_assert(!dear.group(four, 2).partial);
    costs.force_depth = true;
    check_near(Slowdowns(workload, costs, true).group(four, 2).slowdown[0], 3 * mean);
    costs.force_depth = false;
    costs.extra_iterations = 1;
    costs.uniform_single = true;
    check_near(Slowdowns(workload, costs, true).group(one, 1).slowdown[0], mean);
}
END_TEST

TurnJob turn_job(double turn_ms, double away_ms, double weight = 1)
{
    TurnJob job;
    job.gpu_of_rank = {0};
    job.forward_ms = turn_ms / 3;
    job.backward_ms_of_level = {turn_ms - turn_ms / 3};
    job.away_ms = away_ms;
    job.weight = weight;
    return job;
}

// One GPU, turns of 30 ms: rates against the isolated run, as the turn model has them.
START_TEST(takes_turns)
{
    const struct {
        std::vector<TurnJob> jobs;
        double rate; // of the first
    } rows[] = {
        {{turn_job(30, 0)}, 1},
        {{turn_job(30, 0), turn_job(30, 0)}, 0.5},
        {{turn_job(30, 30), turn_job(30, 30)}, 1},                     // one is away while the other computes
        {{turn_job(30, 30), turn_job(30, 30), turn_job(30, 30)}, 2.0 / 3}, // 90 ms of turns for 60 ms each
        {{turn_job(30, 0, 3), turn_job(30, 0, 1)}, 0.75},
    };
    for (const auto &row : rows) {
        const TurnResult got = simulate_turns(row.jobs, 1, TurnOptions{});
        ck_assert_msg(std::fabs(got.relative_rate(0, row.jobs[0]) - row.rate) < 0.002, "%.4f is not %.4f",
                      got.relative_rate(0, row.jobs[0]), row.rate);
    }
}
END_TEST

// Two gangs of four workers that only compute: with depths that rotate in step they gain what the mean depth frees.
START_TEST(interlocks_gangs)
{
    JobType type;
    type.gpus = 4;
    type.stages.gpu_ms = type.stages.iteration_ms = 93.762;
    const auto rate = [&](bool partial) {
        const TurnResult got = simulate_turns(gang_of(type, DepthCurve(), 2, partial), 4, TurnOptions{});
        return (got.iterations[0] + got.iterations[1]) / got.counted_ms;
    };
    ck_assert_msg(std::fabs(rate(false) * 93.762 - 1) < 0.01, "%.4f", rate(false) * 93.762);
    ck_assert_msg(rate(true) / rate(false) > 1.38, "%.4f", rate(true) / rate(false));
    ck_assert_msg(rate(true) / rate(false) < 1.43, "%.4f", rate(true) / rate(false)); // 1 / 0.700
}
END_TEST

START_TEST(places_as_yarn)
{
    NodePool pool({3, 8});
    ck_assert(pool.take(5));   // node 0: 3 left
    ck_assert(pool.take(4));   // node 1: 4 left
    ck_assert(pool.take(3));   // node 0: full
    ck_assert(!pool.take(13)); // one whole node, but no 5 on another
    ck_assert_int_eq(pool.free_gpus(), 12);
    ck_assert(pool.take(12)); // node 2, and the rest of node 1
    ck_assert_int_eq(pool.free_gpus(), 0);
    pool.clear();
    ck_assert(pool.take(24));
}
END_TEST

START_TEST(refuses_unknown_policies)
{
    ck_assert_str_eq(full_name(find_policy("share")), "share/stay");
    ck_assert_str_eq(full_name(find_policy("srtf")), "srtf/preempt");
    ck_assert_str_eq(full_name(find_policy("las")), "las/preempt");
    ck_assert_str_eq(full_name(find_policy("jigsaw/preempt")), "jigsaw/preempt");
    try {
        find_policy("las/stay");
        ck_abort_msg("las/stay was found");
    } catch (const InputError &error) {
        ck_assert_msg(std::string(error.what()).find("las/preempt") != std::string::npos, "%s", error.what());
    }
}
END_TEST

START_TEST(counts_figures)
{
    const Workload workload = workload_of({{0, 100, 1}, {0, 100, 1}});
    Outcome outcome, base;
    outcome.jobs = {{0, 100, 0, 1}, {100, 300, 0, 1}};
    base.jobs = {{0, 100, 0, 1}, {100, 200, 0, 1}};
    outcome.decision_ms = {1, 2, 3};
    const Figures figures = figures_of(workload, {1, 1}, outcome, &base);
    check_near(figures.avg_jct_s, 200);
    check_near(figures.makespan_s, 300);
    check_near(figures.avg_wait_s, 50);
    check_near(figures.utilisation, 2.0 / 3);
    check_near(figures.slower_fraction, 0.5);
    check_near(figures.worst_ratio, 1.5);
    // two jobs for one GPU until 100, one until 300: 100/(100*2) and 300/(100*4/3)
    check_near(figures.rho_worst, 2.25);
    check_near(figures.rho_mean, (0.5 + 2.25) / 2);
    check_near(figures.rho_bounded_mean, 1);
    check_near(figures.decision_ms_p50, 2);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("sim");
    jigsaw::tests::add_case(suite, "preemptive", {preempts_and_pays, tells_time_from_service, las_serves_newcomers});
    jigsaw::tests::add_case(suite, "staying", {backfills_without_delaying_the_head});
    jigsaw::tests::add_case(suite, "sharing", {shares_a_gpu, shares_only_where_it_gains, runs_to_the_same_end_twice});
    jigsaw::tests::add_case(suite, "cycles", {prices_groups, uses_depth_where_it_gains});
    jigsaw::tests::add_case(suite, "turns", {takes_turns, interlocks_gangs});
    jigsaw::tests::add_case(suite, "parts", {places_as_yarn, refuses_unknown_policies, counts_figures});
    return jigsaw::tests::run_tap(suite);
}
