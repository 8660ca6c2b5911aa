// SPDX-License-Identifier: Apache-2.0
// Placement: who may share with whom, which offers come first, what is refused and in which words, and that a
// decision on 10,000 GPUs looks at its candidates only.
#include "plugin/core/placement.hpp"
#include "tests/lib/suite.hpp"

#include <algorithm>
#include <random>
#include <set>
#include <string>

namespace {

using namespace jigsaw::core;

constexpr std::uint64_t kGiB = 1024ull * 1024 * 1024;

Cluster cluster_of(int nodes, std::size_t gpus, std::uint64_t memory_bytes = 0, const std::string &type = "")
{
    Cluster cluster;
    Gpu gpu;
    gpu.memory_bytes = memory_bytes;
    gpu.type = type;
    for (int n = 0; n < nodes; ++n)
        cluster.set_node(n, "n" + std::to_string(n + 1), std::vector<Gpu>(gpus, gpu));
    return cluster;
}

/// Busy for `turn_ms` (a third of it forward) and away for `network_ms`; the shallow one of its two levels is a
/// quarter of backward.
Profile profile_of(double turn_ms, double network_ms = 0)
{
    Profile profile;
    profile.forward_ms = turn_ms / 3;
    profile.backward_ms_of_level = {turn_ms / 6, turn_ms * 2 / 3};
    profile.network_ms = network_ms;
    return profile;
}

Resident resident(JobId id, std::vector<NodeGpus> where, Profile profile = {})
{
    Resident job;
    job.id = id;
    job.uid = 1000;
    job.account = "physics";
    job.spb.mode = SpbMode::automatic;
    job.profile = std::move(profile);
    job.where = std::move(where);
    job.time_limit_s = 36000;
    return job;
}

PlacementRequest request(std::uint32_t nodes, std::uint32_t gpus_per_node, Profile profile = {})
{
    PlacementRequest job;
    job.id = 900;
    job.uid = 1000;
    job.account = "physics";
    job.spb.mode = SpbMode::automatic;
    job.profile = std::move(profile);
    job.nodes = nodes;
    job.gpus_per_node = gpus_per_node;
    job.time_limit_s = 36000;
    return job;
}

std::string text_of(const Offer &offer)
{
    const char *kinds[] = {"exact", "subset", "mixed", "idle"};
    std::string text = kinds[static_cast<int>(offer.kind)];
    for (const NodeGpus &one : offer.where) {
        text += " " + std::to_string(one.node) + ":";
        for (int gpu : one.gpus)
            text += std::to_string(gpu);
    }
    for (JobId id : offer.joins)
        text += " j" + std::to_string(id);
    return text;
}

std::string text_of(const Offers &found)
{
    std::string text;
    for (const Offer &offer : found.offers)
        text += (text.empty() ? "" : "; ") + text_of(offer);
    return text;
}

void expect(const Offers &found, const std::string &expected)
{
    ck_assert_str_eq(text_of(found).c_str(), expected.c_str());
}

void expect_refusal(const Offers &found, const std::string &expected)
{
    ck_assert_str_eq(text_of(found).c_str(), "");
    ck_assert_str_eq(found.refusal.text.c_str(), expected.c_str());
    ck_assert_uint_le(found.refusal.text.size(), 200);
    ck_assert(found.refusal.text.find('\n') == std::string::npos);
}

START_TEST(idle_gpus_before_a_loss)
{
    Cluster cluster = cluster_of(2, 2);
    expect(find_offers(cluster, request(1, 2), {}), "idle 0:01 1:01");
    cluster.add(resident(1, {{0, {0, 1}}}));
    expect(find_offers(cluster, request(1, 2), {}), "idle 1:01; exact 0:01 j1");
    SharingPolicy packing;
    packing.pack = true;
    expect(find_offers(cluster, request(1, 2), packing), "exact 0:01 j1; idle 1:01");
    // Two jobs that fill less than half a GPU each lose nothing by sharing: the idle GPUs are kept for others.
    SharingPolicy frictionless;
    frictionless.share_slowdown = 1;
    cluster.add(resident(1, {{0, {0, 1}}}, profile_of(40, 60)));
    expect(find_offers(cluster, request(1, 2, profile_of(40, 60)), frictionless), "exact 0:01 j1; idle 1:01");
    cluster.add(resident(2, {{1, {0, 1}}}));
    expect(find_offers(cluster, request(2, 1), {}), "mixed 0:0 1:0 j1 j2");
}
END_TEST

START_TEST(a_job_that_does_not_share_needs_no_offer)
{
    Cluster cluster = cluster_of(1, 2);
    PlacementRequest job = request(1, 1);
    for (SpbMode mode : {SpbMode::off, SpbMode::automatic}) {
        job.spb.mode = mode;
        job.spb.max_share = 1;
        const Offers found = find_offers(cluster, job, {});
        ck_assert(found.offers.empty() && found.refusal.text.empty());
    }
}
END_TEST

START_TEST(exact_gangs_before_subsets_before_mixed)
{
    Cluster cluster = cluster_of(4, 4);
    cluster.add(resident(1, {{0, {0, 1}}, {1, {0, 1}}}));       // the same shape
    cluster.add(resident(2, {{2, {0, 1, 2, 3}}, {3, {0, 1, 2, 3}}})); // larger
    cluster.add(resident(3, {{0, {2, 3}}}));                    // smaller
    cluster.add(resident(4, {{1, {2, 3}}}));
    expect(find_offers(cluster, request(2, 2), {}), "exact 0:01 1:01 j1; subset 2:01 3:01 j2");
    cluster.remove(1);
    cluster.remove(2);
    cluster.add(resident(5, {{0, {0}}, {1, {0}}}));
    for (int n : {2, 3})
        cluster.add(resident(static_cast<JobId>(10 + n), {{n, {0, 1, 2}}}));
    // Nothing of the shape is left: the GPUs with fewest residents, idle ones among them.
    expect(find_offers(cluster, request(2, 2), {}), "mixed 0:01 1:01 j5");
    expect(find_offers(cluster, request(1, 4), {}), "mixed 2:0123 j12; mixed 3:0123 j13; mixed 0:0123 j3 j5; "
                                                    "mixed 1:0123 j4 j5");
}
END_TEST

START_TEST(a_gang_off_the_allowed_nodes_is_a_subset)
{
    Cluster cluster = cluster_of(3, 1);
    cluster.add(resident(1, {{0, {0}}, {1, {0}}, {2, {0}}}));
    PlacementRequest job = request(2, 1);
    job.allowed_nodes = {false, true, true};
    expect(find_offers(cluster, job, {}), "subset 1:0 2:0 j1");
    job.allowed_nodes = {true, false}; // shorter than the cluster: the rest is not allowed
    ck_assert(find_offers(cluster, job, {}).offers.empty());
}
END_TEST

START_TEST(gains_order_the_offers)
{
    Cluster cluster = cluster_of(3, 4);
    const double turns_ms[] = {80, 40, 60}; // of 100: sums of loads 1.4, 1.0 and 1.2
    for (int n = 0; n < 3; ++n) {
        Resident job = resident(static_cast<JobId>(n + 1), {{n, {0, 1, 2, 3}}},
                                profile_of(turns_ms[n], 100 - turns_ms[n]));
        job.spb.mode = SpbMode::full;
        cluster.add(job);
    }
    PlacementRequest asked = request(1, 4, profile_of(60, 40));
    asked.spb.mode = SpbMode::full;
    const Offers found = find_offers(cluster, asked, {});
    expect(found, "exact 1:0123 j2; exact 2:0123 j3; exact 0:0123 j1");
    ck_assert_double_gt(found.offers[0].gain, found.offers[1].gain);
    ck_assert_double_gt(found.offers[1].gain, found.offers[2].gain);
}
END_TEST

START_TEST(types_are_kept_apart)
{
    Cluster cluster = cluster_of(1, 4);
    std::vector<Gpu> mixed(4);
    mixed[0].type = mixed[1].type = "a100";
    mixed[2].type = mixed[3].type = "h100";
    cluster.set_node(0, "n1", mixed);
    cluster.add(resident(1, {{0, {0, 1}}}));
    PlacementRequest job = request(1, 2);
    job.gpu_type = "h100";
    expect(find_offers(cluster, job, {}), "idle 0:23");
    job.gpu_type = "a100";
    expect(find_offers(cluster, job, {}), "exact 0:01 j1");
    job.gpu_type = "v100";
    ck_assert(find_offers(cluster, job, {}).offers.empty());
}
END_TEST

START_TEST(no_two_ranks_of_a_job_on_a_gpu)
{
    Cluster cluster = cluster_of(1, 2);
    cluster.add(resident(900, {{0, {0, 1}}})); // the job itself, before its requeue is known
    expect_refusal(find_offers(cluster, request(1, 2), {}), "n1 gpu 0-1 already holds a rank of this job");
    cluster.add(resident(900, {{0, {0}}}));
    expect(find_offers(cluster, request(1, 1), {}), "idle 0:1");
}
END_TEST

START_TEST(only_those_who_agreed_share)
{
    struct {
        SharingScope scope;
        std::uint32_t uid;
        const char *account;
        SpbMode mode;
        std::uint32_t max_share, max_jobs;
        bool enabled;
        const char *part_of_why; ///< nullptr: they may
    } const rows[] = {
        {SharingScope::user, 1000, "physics", SpbMode::automatic, 0, 2, true, nullptr},
        {SharingScope::user, 1000, "biology", SpbMode::full, 2, 2, true, nullptr},
        {SharingScope::user, 1001, "physics", SpbMode::automatic, 0, 2, true, "another user"},
        {SharingScope::account, 1001, "physics", SpbMode::levels, 0, 2, true, nullptr},
        {SharingScope::account, 1000, "biology", SpbMode::automatic, 0, 2, true, "account biology"},
        {SharingScope::account, 1000, "", SpbMode::automatic, 0, 2, true, "account (none)"},
        {SharingScope::any, 1001, "biology", SpbMode::automatic, 0, 2, true, nullptr},
        {SharingScope::any, 1000, "physics", SpbMode::off, 0, 2, true, "does not share"},
        {SharingScope::any, 1000, "physics", SpbMode::automatic, 1, 2, true, "does not share"},
        {SharingScope::any, 1000, "physics", SpbMode::automatic, 0, 1, true, "max_jobs_per_gpu"},
        {SharingScope::any, 1000, "physics", SpbMode::automatic, 0, 2, false, "sharing is off"},
    };
    for (const auto &row : rows) {
        Cluster cluster = cluster_of(1, 1);
        Resident other = resident(42, {{0, {0}}});
        other.uid = row.uid;
        other.account = row.account;
        other.spb.mode = row.mode;
        other.spb.max_share = row.max_share;
        cluster.add(other);
        SharingPolicy policy;
        policy.scope = row.scope;
        policy.max_jobs_per_gpu = row.max_jobs;
        policy.enabled = row.enabled;
        const std::string why = why_not_together(request(1, 1), other, policy);
        const Offers found = find_offers(cluster, request(1, 1), policy);
        if (!row.part_of_why) {
            ck_assert_str_eq(why.c_str(), "");
            expect(found, "exact 0:0 j42");
            continue;
        }
        ck_assert_msg(why.find(row.part_of_why) != std::string::npos, "'%s' is not in '%s'", row.part_of_why,
                      why.c_str());
        ck_assert(found.offers.empty());
        ck_assert(!found.refusal.text.empty());
        ck_assert_uint_le(found.refusal.text.size(), 200);
    }
}
END_TEST

START_TEST(a_stranger_is_named)
{
    Cluster cluster = cluster_of(1, 1);
    Resident other = resident(42, {{0, {0}}});
    other.uid = 1001;
    cluster.add(other);
    expect_refusal(find_offers(cluster, request(1, 1), {}),
                   "n1 gpu 0: job 42 is another user's, jobs share only with their own user's (sharing_scope): "
                   "wait for it");
    expect_refusal(find_offers(cluster, request(2, 3), {}),
                   "no idle GPUs and no job to share with on 2 node(s) with 3 GPU(s) each: wait or ask for fewer");
}
END_TEST

START_TEST(at_most_k_share_a_gpu)
{
    Cluster cluster = cluster_of(1, 4);
    Profile light = profile_of(20, 20);
    light.io_ms = 60;
    cluster.add(resident(1, {{0, {0, 1, 2, 3}}}, light));
    cluster.add(resident(2, {{0, {0, 1, 2, 3}}}, light));
    SharingPolicy policy;
    expect_refusal(find_offers(cluster, request(1, 4, light), policy),
                   "n1 gpu 0-3: 2 jobs there, at most 2 may share a GPU: wait for jobs 1, 2");
    policy.max_jobs_per_gpu = 3;
    expect(find_offers(cluster, request(1, 4, light), policy), "exact 0:0123 j1 j2");
    PlacementRequest shy = request(1, 4, light);
    shy.spb.max_share = 2;
    ck_assert(find_offers(cluster, shy, policy).offers.empty());
    ck_assert(find_offers(cluster, request(1, 4), policy).offers.empty()); // no profile: two at most
    expect_refusal(find_offers(cluster, request(1, 4), policy),
                   "n1 gpu 0-3: 2 jobs there, at most 2 may share a GPU while this job's speed is not known: wait, or "
                   "name an earlier run with --spb-profile");
    cluster.add(resident(2, {{0, {0, 1, 2, 3}}}));
    expect_refusal(find_offers(cluster, request(1, 4, light), policy),
                   "n1 gpu 0-3: 2 jobs there, at most 2 may share a GPU until job 2 has been measured: wait");
    Resident modest = resident(2, {{0, {0, 1, 2, 3}}}, light);
    modest.spb.max_share = 2; // a resident's own limit binds too
    cluster.add(modest);
    ck_assert(find_offers(cluster, request(1, 4, light), policy).offers.empty());
}
END_TEST

START_TEST(memory_is_counted_at_full_depth)
{
    SharingPolicy policy;
    policy.context_bytes = kGiB;
    Cluster cluster = cluster_of(1, 4, 80 * kGiB);
    Resident first = resident(42, {{0, {0, 1, 2, 3}}});
    first.spb.memory_bytes = 56 * kGiB;
    cluster.add(first);
    PlacementRequest job = request(1, 4);
    job.spb.memory_bytes = 18 * kGiB; // 4 of headroom, 56 + 1, 18 + 1: exactly 80
    expect(find_offers(cluster, job, policy), "exact 0:0123 j42");
    job.spb.memory_bytes = 18 * kGiB + 1;
    ck_assert(find_offers(cluster, job, policy).offers.empty());
    job.spb.memory_bytes = 23 * kGiB;
    expect_refusal(find_offers(cluster, job, policy),
                   "GPU memory 61.0 of 80.0 GiB taken on n1 gpu 0-3, 24.0 GiB asked: "
                   "lower --spb-mem or wait for job 42");
    job.spb.memory_bytes = kGiB;
    job.profile.memory_peak_bytes = 30 * kGiB; // what was measured counts when it is more than what is stated
    ck_assert(find_offers(cluster, job, policy).offers.empty());
}
END_TEST

START_TEST(memory_must_be_stated_where_it_is_configured)
{
    SharingPolicy policy;
    Cluster cluster = cluster_of(1, 1, 80 * kGiB);
    Resident first = resident(42, {{0, {0}}});
    first.spb.memory_bytes = kGiB;
    cluster.add(first);
    PlacementRequest job = request(1, 1);
    expect_refusal(find_offers(cluster, job, policy),
                   "GPU memory of n1 gpu 0 is 80.0 GiB and this job states no peak: add --spb-mem");
    job.spb.memory_bytes = kGiB;
    expect(find_offers(cluster, job, policy), "exact 0:0 j42");
    first.spb.memory_bytes = 0;
    cluster.add(first);
    expect_refusal(find_offers(cluster, job, policy),
                   "GPU memory of n1 gpu 0 is 80.0 GiB and job 42 states no peak: wait for it");
    policy.default_memory_bytes = 10 * kGiB;
    job.spb.memory_bytes = 0;
    expect(find_offers(cluster, job, policy), "exact 0:0 j42");
    policy.default_memory_bytes = 40 * kGiB;
    ck_assert(find_offers(cluster, job, policy).offers.empty());
    // Alone it may try whatever it needs, but not what no GPU has.
    cluster.remove(42);
    policy.default_memory_bytes = 0;
    expect(find_offers(cluster, job, policy), "idle 0:0");
    job.spb.memory_bytes = 81 * kGiB;
    ck_assert(find_offers(cluster, job, policy).offers.empty());
}
END_TEST

START_TEST(some_gpus_of_a_gang_may_have_room)
{
    Cluster cluster = cluster_of(1, 4, 80 * kGiB);
    Resident wide = resident(1, {{0, {0, 1, 2, 3}}}), narrow = resident(2, {{0, {0, 1}}});
    wide.spb.memory_bytes = narrow.spb.memory_bytes = 30 * kGiB;
    cluster.add(wide);
    cluster.add(narrow);
    PlacementRequest job = request(1, 2);
    job.spb.memory_bytes = 30 * kGiB;
    SharingPolicy policy;
    policy.max_jobs_per_gpu = 3;
    expect(find_offers(cluster, job, policy), "subset 0:23 j1");
}
END_TEST

START_TEST(turns_of_a_kind)
{
    Cluster cluster = cluster_of(1, 1);
    cluster.add(resident(42, {{0, {0}}}, profile_of(50, 50)));
    ck_assert(!find_offers(cluster, request(1, 1, profile_of(200, 200)), {}).offers.empty());
    expect_refusal(find_offers(cluster, request(1, 1, profile_of(201, 200)), {}),
                   "n1 gpu 0: turns of 201.0 ms beside 50.0 ms differ more than 4.0 times: wait for job 42");
    expect_refusal(find_offers(cluster, request(1, 1, profile_of(5000, 5000)), {}),
                   "n1 gpu 0: turns of 5000.0 ms beside 50.0 ms differ more than 4.0 times: wait for job 42");
}
END_TEST

START_TEST(nobody_pays)
{
    Cluster cluster = cluster_of(1, 1);
    cluster.add(resident(42, {{0, {0}}}, profile_of(100)));
    // Two jobs on one GPU that never leave it: the resident would run 2.1 times its time.
    PlacementRequest job = request(1, 1, profile_of(100));
    expect_refusal(find_offers(cluster, job, {}),
                   "job 42 on n1 gpu 0 would run 2.10 times its time alone, at most 1.50 "
                   "allowed: wait for it or lower --time");
    job.time_limit_s = 0; // endless: the same
    ck_assert(find_offers(cluster, job, {}).offers.empty());
    job.time_limit_s = 3000; // 3000 s of 36000 s: a short visit costs 3300 s
    expect(find_offers(cluster, job, {}), "exact 0:0 j42");
    // Four workers, two-level: 100 x (1/3 + 2/3 x (1 + 3/4) / 4), twice, is 1.31: allowed.
    Cluster four = cluster_of(1, 4);
    four.add(resident(42, {{0, {0, 1, 2, 3}}}, profile_of(100)));
    expect(find_offers(four, request(1, 4, profile_of(100)), {}), "exact 0:0123 j42");
    // The same pair when partial depth costs half as many iterations again, or where the newcomer never goes shallow.
    SharingPolicy dear;
    dear.extra_iterations = 1.5;
    ck_assert(find_offers(four, request(1, 4, profile_of(100)), dear).offers.empty());
    PlacementRequest full = request(1, 4, profile_of(100));
    full.spb.mode = SpbMode::full;
    ck_assert(find_offers(four, full, {}).offers.empty());
    // Without a profile there is no number to refuse by, and both asked to share.
    expect(find_offers(cluster, request(1, 1), {}), "exact 0:0 j42");
}
END_TEST

// Sharing slows both 1.05 x 1.46 = 1.533 times; the resident was alone until now, for `elapsed` of its 36000 s.
START_TEST(what_was_run_before_counts)
{
    struct {
        std::int64_t elapsed_s;
        bool joins;
    } const rows[] = {{0, false}, {1000, false}, {3600, true}}; // 1.533, 1.518 and 1.480 times its isolated run
    for (const auto &row : rows) {
        Cluster cluster = cluster_of(1, 1);
        cluster.add(resident(42, {{0, {0}}}, profile_of(73, 27)));
        PlacementRequest job = request(1, 1, profile_of(73, 27));
        job.now_s = row.elapsed_s;
        const Offers found = find_offers(cluster, job, {});
        ck_assert_msg(found.offers.empty() != row.joins, "after %d s: %s", static_cast<int>(row.elapsed_s),
                      found.refusal.text.c_str());
    }
}
END_TEST

// The resident has run half of its time beside another job: it has nothing left to give a third one.
START_TEST(what_is_already_paid_counts)
{
    Cluster cluster = cluster_of(1, 4);
    SharingPolicy policy;
    policy.max_jobs_per_gpu = 3;
    const Profile half = profile_of(70, 30);
    cluster.add(resident(1, {{0, {0, 1, 2, 3}}}, half));
    PlacementRequest job = request(1, 4, half);
    job.now_s = 18000;
    ck_assert(!find_offers(cluster, job, policy).offers.empty());
    cluster.add(resident(2, {{0, {0, 1, 2, 3}}}, half));
    ck_assert(find_offers(cluster, job, policy).offers.empty());
}
END_TEST

START_TEST(a_join_must_gain_capacity)
{
    Cluster cluster = cluster_of(1, 1);
    SharingPolicy generous;
    generous.pay = 10;
    cluster.add(resident(42, {{0, {0}}}, profile_of(100)));
    PlacementRequest job = request(1, 1, profile_of(100));
    expect_refusal(find_offers(cluster, job, generous),
                   "sharing n1 gpu 0 with job 42 would gain the work of -0.05 GPUs, at "
                   "least 0.30 needed: wait or lower --time");
    job.time_limit_s = 3600; // gone after a tenth of the resident's run: capacity is not the point then
    expect(find_offers(cluster, job, generous), "exact 0:0 j42");
}
END_TEST

START_TEST(waiting_may_be_better)
{
    Cluster cluster = cluster_of(1, 1);
    cluster.add(resident(42, {{0, {0}}}, profile_of(50, 30)));
    PlacementRequest job = request(1, 1, profile_of(50, 30));
    job.time_limit_s = 36000;
    expect(find_offers(cluster, job, {}), "exact 0:0 j42"); // no wait known: not weighed
    job.wait_s = 60;
    const Offers found = find_offers(cluster, job, {});
    ck_assert(found.offers.empty());
    ck_assert(found.refusal.text.find("more than waiting 60 s: wait") != std::string::npos);
    job.wait_s = 100000;
    expect(find_offers(cluster, job, {}), "exact 0:0 j42");
}
END_TEST

START_TEST(offers_are_bounded_and_the_idle_one_stays)
{
    Cluster cluster = cluster_of(41, 1);
    for (int n = 0; n < 40; ++n)
        cluster.add(resident(static_cast<JobId>(n + 1), {{n, {0}}}));
    SharingPolicy policy;
    policy.pack = true;
    policy.max_offers = 5;
    const Offers found = find_offers(cluster, request(1, 1), policy);
    ck_assert_uint_eq(found.offers.size(), 5);
    ck_assert(found.offers.back().kind == Offer::Kind::idle);
    std::set<std::string> different;
    for (const Offer &offer : found.offers)
        different.insert(text_of(offer));
    ck_assert_uint_eq(different.size(), 5);
}
END_TEST

/// `nodes` x 4 GPUs, each with a sharing job of one to four GPUs and a random profile, some with a second one.
Cluster busy_cluster(int nodes, unsigned seed)
{
    std::mt19937 random(seed);
    Cluster cluster = cluster_of(nodes, 4, 80 * kGiB);
    JobId id = 0;
    for (int n = 0; n < nodes; ++n)
        for (int from = 0; from < 4;) {
            const int size = std::min(4 - from, 1 << random() % 3);
            NodeGpus place{n, {}};
            for (int g = from; g < from + size; ++g)
                place.gpus.push_back(g);
            from += size;
            for (unsigned jobs = 1 + random() % 2; jobs > 0; --jobs) {
                Resident job = resident(++id, {place}, profile_of(20.0 + static_cast<double>(random() % 400),
                                                                  static_cast<double>(random() % 200)));
                job.uid = 1000 + static_cast<std::uint32_t>(random() % 50);
                job.spb.memory_bytes = (5 + random() % 50) * kGiB;
                cluster.add(job);
            }
        }
    return cluster;
}

START_TEST(work_does_not_grow_with_the_cluster)
{
    SharingPolicy policy;
    policy.scope = SharingScope::any;
    policy.max_jobs_per_gpu = 3;
    std::uint32_t most_small = 0, most_large = 0;
    const Cluster small = busy_cluster(100, 1), large = busy_cluster(2500, 1);
    ck_assert_uint_gt(large.job_count(), 5000);
    for (unsigned i = 0; i < 60; ++i) {
        PlacementRequest job = request(1 + i % 2, 1u << i % 3, profile_of(30.0 + 5 * i, 4.0 * i));
        job.spb.memory_bytes = (5 + i % 20) * kGiB;
        most_small = std::max(most_small, find_offers(small, job, policy).examined);
        most_large = std::max(most_large, find_offers(large, job, policy).examined);
    }
    ck_assert_uint_gt(most_large, 0);
    ck_assert_uint_le(most_large, 160); // 48 + 32 + 32 seeds, and as many offers from them; never 5,000
    ck_assert_uint_le(most_large, 2 * most_small);
}
END_TEST

START_TEST(every_offer_keeps_the_rules)
{
    SharingPolicy policy;
    policy.max_jobs_per_gpu = 3;
    policy.context_bytes = kGiB;
    int offers = 0;
    for (unsigned seed = 1; seed <= 30; ++seed) {
        const Cluster cluster = busy_cluster(30, seed);
        for (SharingScope scope : {SharingScope::user, SharingScope::any}) {
            policy.scope = scope;
            PlacementRequest job = request(1 + seed % 2, 1 + seed % 4, profile_of(40.0 + 3 * seed, 30));
            job.spb.memory_bytes = 10 * kGiB;
            job.uid = 1000 + seed;
            for (const Offer &offer : find_offers(cluster, job, policy).offers) {
                ++offers;
                std::set<std::pair<int, int>> gpus;
                std::set<JobId> joins;
                ck_assert_uint_ge(offer.where.size(), job.nodes);
                for (const NodeGpus &one : offer.where) {
                    ck_assert_uint_ge(one.gpus.size(), job.gpus_per_node);
                    for (int g : one.gpus) {
                        ck_assert(gpus.insert({one.node, g}).second);
                        const Gpu &gpu = cluster.node(one.node).gpus.at(static_cast<std::size_t>(g));
                        std::uint64_t bytes = 11 * kGiB + 4 * kGiB;
                        for (JobId id : gpu.residents) {
                            const Resident *other = cluster.find(id);
                            bytes += other->spb.memory_bytes + kGiB;
                            joins.insert(id);
                            ck_assert_str_eq(why_not_together(job, *other, policy).c_str(), "");
                        }
                        ck_assert(bytes <= gpu.memory_bytes);
                        ck_assert_uint_le(gpu.residents.size() + 1, policy.max_jobs_per_gpu);
                    }
                }
                ck_assert((std::vector<JobId>(joins.begin(), joins.end()) == offer.joins));
                if (offer.kind == Offer::Kind::exact_gang)
                    ck_assert(std::any_of(joins.begin(), joins.end(),
                                          [&](JobId id) { return cluster.find(id)->where == offer.where; }));
            }
        }
    }
    ck_assert_int_gt(offers, 100);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("placement");
    jigsaw::tests::add_case(suite, "offers",
                            {idle_gpus_before_a_loss, a_job_that_does_not_share_needs_no_offer,
                             exact_gangs_before_subsets_before_mixed, a_gang_off_the_allowed_nodes_is_a_subset,
                             gains_order_the_offers, types_are_kept_apart, no_two_ranks_of_a_job_on_a_gpu,
                             offers_are_bounded_and_the_idle_one_stays});
    jigsaw::tests::add_case(suite, "admission",
                            {only_those_who_agreed_share, a_stranger_is_named, at_most_k_share_a_gpu,
                             memory_is_counted_at_full_depth, memory_must_be_stated_where_it_is_configured,
                             some_gpus_of_a_gang_may_have_room, turns_of_a_kind});
    jigsaw::tests::add_case(suite, "prediction",
                            {nobody_pays, what_was_run_before_counts, what_is_already_paid_counts,
                             a_join_must_gain_capacity, waiting_may_be_better});
    jigsaw::tests::add_case(suite, "scale", {work_does_not_grow_with_the_cluster, every_offer_keeps_the_rules});
    return jigsaw::tests::run_tap(suite);
}
