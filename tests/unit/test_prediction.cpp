// SPDX-License-Identifier: Apache-2.0
// Loads, slow-downs, remaining time, and what "nobody pays" means beside the wait for GPUs of one's own.
#include "plugin/core/placement.hpp"
#include "plugin/core/prediction.hpp"
#include "tests/lib/suite.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace {

using namespace jigsaw::core;
using jigsaw::plan::Policy;

constexpr double kClose = 1e-9;

Cluster cluster_of(int nodes, std::size_t gpus)
{
    Cluster cluster;
    for (int n = 0; n < nodes; ++n)
        cluster.set_node(n, "n" + std::to_string(n + 1), std::vector<Gpu>(gpus));
    return cluster;
}

/// Always on its GPU: a third forward, the rest backward; the shallow level takes `shallow` of backward.
Profile busy(double shallow, double network_ms = 0)
{
    Profile profile;
    profile.forward_ms = 100.0 / 3;
    profile.backward_ms_of_level = {shallow * 200 / 3, 200.0 / 3};
    profile.network_ms = network_ms;
    return profile;
}

Resident resident(JobId id, std::vector<NodeGpus> where, Profile profile, std::int64_t limit_s = 36000)
{
    Resident job;
    job.id = id;
    job.spb.mode = SpbMode::automatic;
    job.profile = std::move(profile);
    job.where = std::move(where);
    job.time_limit_s = limit_s;
    return job;
}

PlacementRequest request(std::uint32_t gpus, Profile profile, std::int64_t limit_s = 36000)
{
    PlacementRequest job;
    job.id = 900;
    job.spb.mode = SpbMode::automatic;
    job.profile = std::move(profile);
    job.gpus_per_node = gpus;
    job.time_limit_s = limit_s;
    return job;
}

START_TEST(loads_are_shares_of_the_isolated_iteration)
{
    Profile profile = busy(0.25, 100);
    SpbRequest spb;
    spb.mode = SpbMode::automatic;
    Load load = load_of(spb, profile, 2);
    ck_assert_double_eq_tol(load.gpu, 0.5, kClose);
    ck_assert_double_eq_tol(load.network, 0.5, kClose);
    ck_assert_double_eq_tol(load.gpu_partial, (1.0 / 3 + 2.0 / 3 * 0.625) / 2, kClose);
    ck_assert(load.partial);
    // Stages that overlap inside the job: shares of what the iteration takes, never more than all of it.
    profile.iteration_ms = 80;
    load = load_of(spb, profile, 2);
    ck_assert_double_eq_tol(load.gpu, 1, kClose);
    ck_assert_double_eq_tol(load.network, 1, kClose);
    ck_assert_double_eq_tol(load.gpu_partial, 1.0 / 3 + 2.0 / 3 * 0.625, kClose);
    for (Load whole : {load_of(spb, profile, 1), load_of({}, profile, 2)}) {
        ck_assert(!whole.partial);
        ck_assert_double_eq_tol(whole.gpu_partial, whole.gpu, kClose);
        ck_assert_double_eq_tol(whole.network_partial, whole.network, kClose);
    }
    ck_assert(!load_of(spb, {}, 2).known);
}
END_TEST

// Bytes by docs/architecture.md "Costs": (m + k - 2) for m contributors of k ranks, 2 (k - 1) at full depth.
START_TEST(partial_sync_sends_fewer_bytes)
{
    struct {
        Policy policy;
        std::uint32_t workers;
        std::size_t levels;
        std::vector<double> bytes; ///< share up to each level
        double expected;
    } const rows[] = {
        {Policy::rotate, 4, 4, {}, 0.75},                         // depths i/k over equal blocks: 3/4 for every k
        {Policy::rotate, 8, 8, {}, 0.75},
        {Policy::two_level, 2, 2, {}, 0.75},                      // one half by both, the other by one
        {Policy::two_level, 4, 2, {}, 0.75},
        {Policy::two_level, 4, 2, {1, 1}, 1},                     // all parameters in the last block
        {Policy::two_level, 4, 2, {0, 1}, 0.5},                   // none there: sent once, not reduced
        {Policy::full, 4, 2, {}, 1},
        {Policy::rotate, 1, 4, {}, 1},
    };
    for (const auto &row : rows) {
        SpbRequest spb;
        spb.mode = SpbMode::automatic;
        spb.policy = row.policy;
        Profile profile;
        profile.backward_ms_of_level.assign(row.levels, 1);
        profile.sync_share_of_level = row.bytes;
        ck_assert_double_eq_tol(partial_sync_share(spb, profile, row.workers), row.expected, kClose);
    }
}
END_TEST

START_TEST(slowdown_by_number_of_jobs)
{
    SharingPolicy policy;
    policy.share_slowdown_of = {1, 1.3, 1.5};
    Load light;
    light.known = true;
    light.gpu = light.gpu_partial = 0.2;
    const double expected[] = {1, 1.3, 1.5, 1.05}; // beyond the list: the scalar
    std::vector<Load> loads;
    for (double factor : expected) {
        loads.push_back(light);
        ck_assert_double_eq_tol(slowdown_of(loads, policy), factor, kClose);
    }
    policy.share_slowdown_of = {1, 0.5};
    ck_assert_double_eq_tol(slowdown_of({light, light}, policy), 1, kClose); // nobody gets faster
}
END_TEST

START_TEST(remaining_time_by_what_is_known)
{
    struct {
        const char *what;
        std::int64_t limit_s;
        double done_s;
        std::int64_t done_at_s;
        double total_s, slow;
        double progress_s, remaining_s;
    } const rows[] = { // started at 0, now 1000
        {"limit, alone", 5000, -1, 0, 0, 1, 1000, 4000},
        {"limit, slowed by two", 5000, -1, 0, 0, 2, 500, 4500},
        {"limit, measured", 5000, 300, 900, 0, 2, 350, 4650},
        {"measured is never more than elapsed", 5000, 5000, 900, 0, 1, 1000, 4000},
        {"limit nearly over", 1010, -1, 0, 0, 1, 1000, 200},
        {"no limit: attained service", 0, 700, 1000, 0, 1, 700, 1200},
        {"no limit, long service", 0, 900, 1000, 0, 1, 900, 1200},
        {"total known", 50000, 300, 1000, 1300, 1, 300, 1000},
        {"total known, nearly done", 50000, 999, 1000, 1000, 1, 999, 20},
        {"total known, but the limit ends it", 1400, 300, 1000, 1300, 1, 300, 400},
    };
    for (const auto &row : rows) {
        Resident job;
        job.time_limit_s = row.limit_s;
        job.done_s = row.done_s;
        job.done_at_s = row.done_at_s;
        job.total_s = row.total_s;
        const Remaining made = remaining_of(job, row.slow, 1000);
        ck_assert_msg(std::abs(made.progress_s - row.progress_s) < kClose, "%s: progress %g", row.what, made.progress_s);
        ck_assert_msg(std::abs(made.remaining_s - row.remaining_s) < kClose, "%s: %g left", row.what, made.remaining_s);
    }
}
END_TEST

// A resident whose limit says ten hours but whose progress says a minute: joining it costs it next to nothing.
START_TEST(measured_progress_opens_a_gpu)
{
    Cluster cluster = cluster_of(1, 1);
    Profile mostly = busy(0.25, 40);
    cluster.add(resident(42, {{0, {0}}}, mostly));
    PlacementRequest job = request(1, mostly);
    job.now_s = 1000;
    job.time_limit_s = 36000;
    ck_assert_str_eq(find_offers(cluster, job, {}).refusal.text.c_str(), "");
    cluster.add(resident(42, {{0, {0}}}, busy(0.25)));
    job.profile = busy(0.25);
    ck_assert(find_offers(cluster, job, {}).offers.empty());
    cluster.set_progress(42, 960, 1000, 1000); // of 1000 s
    ck_assert_uint_eq(find_offers(cluster, job, {}).offers.size(), 0); // gate: no capacity is gained
    SharingPolicy no_gate;
    no_gate.least_gain = -1;
    ck_assert_uint_eq(find_offers(cluster, job, no_gate).offers.size(), 1);
    cluster.set_progress(42, 10, 1000, 1000000);
    ck_assert(find_offers(cluster, job, no_gate).offers.empty());
    cluster.set_progress(7, 10, 1000, 0); // nobody: fine
}
END_TEST

/// Two jobs of known, equal profile that never leave their GPUs, in turns at partial depth: 1.05 x 2 x (1/3 + 2/3 x
/// (1 + shallow) / 2).
START_TEST(jobs_that_interlock_share)
{
    struct {
        double shallow;
        SpbMode mode;
        double q;
        bool joins;
    } const rows[] = {
        {0.25, SpbMode::automatic, 1, true}, // 1.575: slower than pay allows, sooner than one after the other
        {0.5, SpbMode::levels, 1, true},     // 1.75
        {0.75, SpbMode::automatic, 1, false}, // 1.925: gains less than a tenth
        {0.25, SpbMode::full, 1, false},     // 2.1
        {0.25, SpbMode::automatic, 1.2, false}, // 1.89
    };
    for (const auto &row : rows) {
        Cluster cluster = cluster_of(1, 2);
        Resident first = resident(42, {{0, {0, 1}}}, busy(row.shallow));
        first.spb.mode = row.mode;
        cluster.add(first);
        PlacementRequest job = request(2, busy(row.shallow));
        job.spb.mode = row.mode;
        SharingPolicy policy;
        policy.extra_iterations = row.q;
        const Offers found = find_offers(cluster, job, policy);
        ck_assert_msg(found.offers.empty() != row.joins, "shallow %g: %s", row.shallow, found.refusal.text.c_str());
    }
}
END_TEST

// Where the resident is soon gone, waiting is better for both: the wider bound is not used.
START_TEST(interlocking_must_beat_waiting)
{
    Cluster cluster = cluster_of(1, 2);
    cluster.add(resident(42, {{0, {0, 1}}}, busy(0.25), 3600));
    PlacementRequest job = request(2, busy(0.25), 360000);
    const Offers long_one = find_offers(cluster, job, {});
    ck_assert_uint_eq(long_one.offers.size(), 1); // it ends before one after the other would
    job.wait_s = 10;
    const Offers found = find_offers(cluster, job, {});
    ck_assert(found.offers.empty());
    ck_assert_msg(found.refusal.text.find("at most 1.50 allowed") != std::string::npos, "%s",
                  found.refusal.text.c_str());
}
END_TEST

START_TEST(a_third_job_keeps_the_strict_rules)
{
    Cluster cluster = cluster_of(1, 4);
    SharingPolicy policy;
    policy.max_jobs_per_gpu = 3;
    policy.pay = 0.7;
    for (JobId id : {1u, 2u})
        cluster.add(resident(id, {{0, {0, 1, 2, 3}}}, busy(0.25)));
    ck_assert(find_offers(cluster, request(4, busy(0.25)), policy).offers.empty());
}
END_TEST

// A short job that would wait for days is let in where a resident has already paid what it must.
START_TEST(a_short_job_is_squeezed_in)
{
    Cluster cluster = cluster_of(1, 1);
    SharingPolicy policy;
    policy.max_jobs_per_gpu = 3;
    Profile half = busy(0.25, 30);
    cluster.add(resident(1, {{0, {0}}}, half));
    cluster.add(resident(2, {{0, {0}}}, half));
    PlacementRequest job = request(1, half, 1000);
    job.now_s = 30000; // both have run at 1.6 for most of their time
    ck_assert_str_eq(find_offers(cluster, job, policy).refusal.text.substr(0, 3).c_str(), "");
    job.time_limit_s = 10000;
    ck_assert(find_offers(cluster, job, policy).offers.empty());
    job.waited_s = 100000;
    ck_assert(!find_offers(cluster, job, policy).offers.empty());
}
END_TEST

// One that is gone before anybody notices goes in beside residents that are over any bound already.
START_TEST(a_trifle_is_let_pass)
{
    Cluster cluster = cluster_of(1, 1);
    SharingPolicy policy;
    policy.max_jobs_per_gpu = 3;
    for (JobId id : {1u, 2u}) {
        cluster.add(resident(id, {{0, {0}}}, busy(0.25), 36000));
        cluster.set_progress(id, 100, 70000); // has run nearly twice its time, and hardly begun
    }
    PlacementRequest job = request(1, busy(0.25), 600);
    job.now_s = 70000;
    ck_assert_msg(find_offers(cluster, job, policy).offers.size() == 1, "a short job");
    job.time_limit_s = 6000; // costs each resident an hour of ten
    ck_assert_msg(find_offers(cluster, job, policy).offers.empty(), "a longer one");
}
END_TEST

START_TEST(earlier_runs_shorten_the_newcomer)
{
    Cluster cluster = cluster_of(1, 1);
    cluster.add(resident(42, {{0, {0}}}, busy(0.25)));
    PlacementRequest job = request(1, busy(0.25));
    ck_assert(find_offers(cluster, job, {}).offers.empty());
    job.run_s = 3000; // its limit says ten hours, its last run took less than one
    ck_assert(!find_offers(cluster, job, {}).offers.empty());
    job.run_s = 0;
    job.time_limit_s = 0;
    ck_assert(find_offers(cluster, job, {}).offers.empty());
    SharingPolicy policy;
    policy.unknown_run_s = 1200;
    ck_assert(!find_offers(cluster, job, policy).offers.empty());
}
END_TEST

START_TEST(scores_order_offers_of_every_kind)
{
    Cluster cluster = cluster_of(2, 2);
    cluster.add(resident(1, {{0, {0}}}, busy(0.25, 60)));     // exact, GPU-bound
    cluster.add(resident(2, {{1, {0, 1}}}, busy(0.25, 300))); // a subset, mostly away from its GPUs
    cluster.add(resident(3, {{0, {1}}}, busy(0.25, 60)));
    PlacementRequest job = request(1, busy(0.25, 40));
    ck_assert(find_offers(cluster, job, {}).offers.front().kind == Offer::Kind::exact_gang);
    job.wait_s = 50000;
    const Offers found = find_offers(cluster, job, {});
    ck_assert(found.offers.front().kind == Offer::Kind::subset);
    ck_assert_uint_eq(found.offers.front().joins.front(), 2);
    for (std::size_t i = 1; i < found.offers.size(); ++i)
        ck_assert_double_ge(found.offers[i - 1].score, found.offers[i].score);
    ck_assert_double_gt(found.offers.back().score, 0);
}
END_TEST

// Each GPU of a node is a candidate for a job of one GPU, not only the emptiest.
START_TEST(single_gpus_are_all_looked_at)
{
    Cluster cluster = cluster_of(1, 2);
    SharingPolicy policy;
    policy.max_jobs_per_gpu = 3;
    Profile light = busy(0.25);
    light.io_ms = 900;
    cluster.add(resident(1, {{0, {0, 1}}}, light));
    cluster.add(resident(2, {{0, {1}}}, light));
    PlacementRequest job = request(1, busy(0.25, 100));
    job.wait_s = 50000;
    bool first = false, second = false;
    for (const Offer &offer : find_offers(cluster, job, policy).offers) {
        first = first || offer.where == std::vector<NodeGpus>{{0, {0}}};
        second = second || offer.where == std::vector<NodeGpus>{{0, {1}}};
    }
    ck_assert(first && second);
}
END_TEST

START_TEST(gpus_near_each_other_are_picked)
{
    std::vector<Gpu> gpus(8);
    for (std::size_t g = 0; g < gpus.size(); ++g)
        gpus[g].link_group = g < 3 ? 0 : 1;
    Cluster cluster;
    cluster.set_node(0, "n1", gpus);
    cluster.add(resident(1, {{0, {0, 1, 2, 3, 4, 5, 6, 7}}}, busy(0.25, 100)));
    ck_assert((find_offers(cluster, request(2, busy(0.25, 100)), {}).offers.front().where ==
               std::vector<NodeGpus>{{0, {0, 1}}})); // the smaller group that holds them
    ck_assert((find_offers(cluster, request(4, busy(0.25, 100)), {}).offers.front().where ==
               std::vector<NodeGpus>{{0, {3, 4, 5, 6}}}));
    ck_assert((find_offers(cluster, request(6, busy(0.25, 100)), {}).offers.front().where ==
               std::vector<NodeGpus>{{0, {0, 1, 2, 3, 4, 5}}})); // no group holds six
    // Fewer residents come before nearness.
    SharingPolicy policy;
    policy.max_jobs_per_gpu = 3;
    cluster.add(resident(2, {{0, {1, 3}}}, busy(0.25, 100)));
    const Offers third = find_offers(cluster, request(2, busy(0.25, 100)), policy);
    ck_assert(std::any_of(third.offers.begin(), third.offers.end(), [](const Offer &offer) {
        return offer.kind == Offer::Kind::subset && offer.where == std::vector<NodeGpus>{{0, {0, 2}}};
    }));
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("prediction");
    jigsaw::tests::add_case(suite, "loads",
                            {loads_are_shares_of_the_isolated_iteration, partial_sync_sends_fewer_bytes,
                             slowdown_by_number_of_jobs});
    jigsaw::tests::add_case(suite, "remaining time",
                            {remaining_time_by_what_is_known, measured_progress_opens_a_gpu,
                             earlier_runs_shorten_the_newcomer});
    jigsaw::tests::add_case(suite, "who pays",
                            {jobs_that_interlock_share, interlocking_must_beat_waiting,
                             a_third_job_keeps_the_strict_rules, a_short_job_is_squeezed_in, a_trifle_is_let_pass});
    jigsaw::tests::add_case(suite, "choice",
                            {scores_order_offers_of_every_kind, single_gpus_are_all_looked_at,
                             gpus_near_each_other_are_picked});
    return jigsaw::tests::run_tap(suite);
}
