// SPDX-License-Identifier: Apache-2.0
// Occupancy: what add, remove, shrink and a changed node leave behind, against a recount that knows nothing of indexes.
#include "plugin/core/cluster.hpp"
#include "tests/lib/suite.hpp"

#include <algorithm>
#include <map>
#include <random>

namespace jigsaw::core {

/// Breaks the incremental record as a bug would, so that audit() has something to find.
struct ClusterProbe {
    static std::vector<JobId> &residents(Cluster &cluster, int node, int gpu)
    {
        return cluster.nodes_.at(static_cast<std::size_t>(node)).gpus.at(static_cast<std::size_t>(gpu)).residents;
    }
    static GangIndex &gangs(Cluster &cluster) { return cluster.gangs_; }
    static int &idle(Cluster &cluster, int node) { return cluster.idle_of_node_.at(static_cast<std::size_t>(node)); }
};

} // namespace jigsaw::core

namespace {

using namespace jigsaw::core;

Cluster cluster_of(int nodes, std::size_t gpus)
{
    Cluster cluster;
    for (int n = 0; n < nodes; ++n)
        cluster.set_node(n, "n" + std::to_string(n + 1), std::vector<Gpu>(gpus));
    return cluster;
}

Resident job_on(JobId id, std::vector<NodeGpus> where)
{
    Resident job;
    job.id = id;
    job.uid = 1000 + id % 3;
    job.account = id % 2 ? "physics" : "biology";
    job.spb.mode = SpbMode::automatic;
    job.where = std::move(where);
    return job;
}

const std::vector<JobId> &residents(const Cluster &cluster, int node, std::size_t gpu)
{
    return cluster.node(node).gpus.at(gpu).residents;
}

START_TEST(residents_stand_in_order_of_arrival)
{
    Cluster cluster = cluster_of(2, 4);
    ck_assert(cluster.add(job_on(7, {{0, {0, 1}}})));
    ck_assert(cluster.add(job_on(5, {{0, {1}}, {1, {0}}})));
    ck_assert((residents(cluster, 0, 1) == std::vector<JobId>{7, 5}));
    ck_assert((residents(cluster, 0, 0) == std::vector<JobId>{7}));
    cluster.remove(7);
    ck_assert((residents(cluster, 0, 1) == std::vector<JobId>{5}));
    ck_assert(residents(cluster, 0, 0).empty());
    ck_assert(!cluster.find(7));
    cluster.remove(7);
    ck_assert_uint_eq(cluster.job_count(), 1);
    ck_assert_int_eq(cluster.audit(), 0);
}
END_TEST

START_TEST(gpus_that_do_not_exist_are_refused)
{
    Cluster cluster = cluster_of(2, 4);
    cluster.add(job_on(1, {{0, {0}}}));
    const std::vector<std::vector<NodeGpus>> bad{
        {{0, {4}}}, {{2, {0}}}, {{-1, {0}}}, {{0, {-1}}}, {{0, {1}}, {1, {9}}}};
    for (const auto &where : bad) {
        ck_assert(!cluster.add(job_on(2, where)));
        ck_assert(!cluster.add(job_on(1, where))); // nor does the old record of a known job suffer
    }
    ck_assert_uint_eq(cluster.job_count(), 1);
    ck_assert((residents(cluster, 0, 0) == std::vector<JobId>{1}));
    ck_assert(residents(cluster, 0, 1).empty());
    ck_assert_int_eq(cluster.audit(), 0);
}
END_TEST

START_TEST(a_job_is_replaced_and_its_place_put_in_order)
{
    Cluster cluster = cluster_of(2, 4);
    cluster.add(job_on(1, {{0, {0, 1}}}));
    ck_assert(cluster.add(job_on(1, {{1, {3, 2}}, {0, {2}}, {1, {2}}})));
    ck_assert(residents(cluster, 0, 0).empty());
    const std::vector<NodeGpus> expected{{0, {2}}, {1, {2, 3}}};
    ck_assert(cluster.find(1)->where == expected);
    ck_assert_uint_eq(residents(cluster, 1, 2).size(), 1); // never twice on one GPU
    ck_assert(cluster.add(*cluster.find(1)));              // its own record as the argument
    ck_assert(cluster.find(1)->where == expected);
    ck_assert_int_eq(cluster.audit(), 0);
}
END_TEST

START_TEST(shrinking_leaves_the_other_nodes)
{
    Cluster cluster = cluster_of(2, 4);
    cluster.add(job_on(1, {{0, {0}}, {1, {0}}}));
    cluster.add(job_on(2, {{1, {0}}}));
    cluster.remove_from_node(1, 1);
    ck_assert((residents(cluster, 1, 0) == std::vector<JobId>{2}));
    ck_assert((residents(cluster, 0, 0) == std::vector<JobId>{1}));
    ck_assert_uint_eq(cluster.gangs().find(1)->nodes, 1);
    cluster.remove_from_node(1, 1);
    cluster.remove_from_node(99, 0);
    cluster.remove_from_node(1, 0);
    ck_assert(cluster.find(1) && cluster.find(1)->where.empty());
    ck_assert(!cluster.gangs().find(1));
    ck_assert_int_eq(cluster.audit(), 0);
}
END_TEST

START_TEST(a_node_declared_again_keeps_its_residents)
{
    Cluster cluster = cluster_of(2, 4);
    cluster.add(job_on(1, {{0, {0, 3}}, {1, {0}}}));
    cluster.add(job_on(2, {{0, {3}}}));
    std::vector<Gpu> fewer(2);
    fewer[0].type = "a100";
    fewer[0].residents = {99}; // not a way in
    cluster.set_node(0, "n1", fewer);
    ck_assert((residents(cluster, 0, 0) == std::vector<JobId>{1}));
    ck_assert_str_eq(cluster.node(0).gpus[0].type.c_str(), "a100");
    const std::vector<NodeGpus> expected{{0, {0}}, {1, {0}}};
    ck_assert(cluster.find(1)->where == expected);
    ck_assert(cluster.find(2)->where.empty());
    ck_assert_int_eq(cluster.audit(), 0);
    cluster.set_node(0, "n1", {});
    cluster.set_node(5, "n6", std::vector<Gpu>(1)); // leaves nodes without GPUs between
    ck_assert_int_eq(cluster.node_count(), 6);
    ck_assert_int_eq(cluster.audit(), 0);
    cluster.remove(1);
    cluster.remove(2);
    ck_assert_int_eq(cluster.audit(), 0);
}
END_TEST

START_TEST(classes_follow_the_neighbours)
{
    Cluster cluster = cluster_of(2, 4);
    Resident job = job_on(1, {{0, {0, 1}}, {1, {2, 3}}});
    job.profile.forward_ms = 30;
    job.profile.backward_ms_of_level = {20, 70};
    cluster.add(job);
    const GangClass *found = cluster.gangs().find(1);
    ck_assert_uint_eq(found->residents, 1);
    ck_assert_uint_eq(found->nodes, 2);
    ck_assert_uint_eq(found->gpus_per_node, 2);
    ck_assert_int_eq(found->turn_class, 6); // 64 <= 100 ms < 128
    cluster.add(job_on(2, {{1, {3}}}));
    ck_assert_uint_eq(cluster.gangs().find(1)->residents, 2);
    Resident alone = job_on(3, {{0, {0}}});
    alone.spb.mode = SpbMode::off;
    cluster.add(alone);
    ck_assert(!cluster.gangs().find(3));
    cluster.remove(2);
    ck_assert_uint_eq(cluster.gangs().find(1)->residents, 2);
    cluster.remove(3);
    ck_assert_uint_eq(cluster.gangs().find(1)->residents, 1);
}
END_TEST

START_TEST(audit_repairs_what_is_broken)
{
    Cluster cluster = cluster_of(2, 2);
    cluster.add(job_on(1, {{0, {0}}, {1, {1}}}));
    cluster.add(job_on(2, {{0, {0}}}));
    ClusterProbe::residents(cluster, 0, 0) = {2};
    ClusterProbe::residents(cluster, 1, 0) = {1, 77};
    ck_assert_int_ge(cluster.audit(), 2);
    ck_assert((residents(cluster, 0, 0) == std::vector<JobId>{1, 2}));
    ck_assert(residents(cluster, 1, 0).empty());
    ck_assert_int_eq(cluster.audit(), 0);
    ClusterProbe::gangs(cluster).erase(2);
    ck_assert_int_eq(cluster.audit(), 1);
    ck_assert(cluster.gangs().find(2));
    ClusterProbe::gangs(cluster).put(job_on(50, {{0, {0}}}), {1, 1, 1, 0}, 0);
    ck_assert_int_eq(cluster.audit(), 1);
    ck_assert(!cluster.gangs().find(50));
    ClusterProbe::gangs(cluster).put(job_on(2, {{0, {0}}}), {1, 4, 1, 0}, 0);
    ck_assert_int_eq(cluster.audit(), 1);
    ck_assert_int_eq(cluster.audit(), 0);
}
END_TEST

using Map = std::map<std::pair<int, int>, std::multiset<JobId>>; // (node, gpu)

Map recount(const std::map<JobId, std::vector<NodeGpus>> &jobs)
{
    Map map;
    for (const auto &[id, where] : jobs)
        for (const NodeGpus &one : where)
            for (int gpu : one.gpus)
                map[{one.node, gpu}].insert(id);
    return map;
}

void compare(const Cluster &cluster, const std::map<JobId, std::vector<NodeGpus>> &jobs)
{
    const Map expected = recount(jobs);
    std::map<JobId, std::uint32_t> most;
    for (int n = 0; n < cluster.node_count(); ++n) {
        int idle = 0;
        for (std::size_t g = 0; g < cluster.node(n).gpus.size(); ++g) {
            const std::vector<JobId> &found = residents(cluster, n, g);
            const auto at = expected.find({n, static_cast<int>(g)});
            const std::multiset<JobId> truth = at == expected.end() ? std::multiset<JobId>{} : at->second;
            ck_assert((std::multiset<JobId>(found.begin(), found.end()) == truth));
            idle += truth.empty();
            for (JobId id : truth)
                most[id] = std::max(most[id], static_cast<std::uint32_t>(truth.size()));
        }
        const auto &by_idle = cluster.nodes_by_idle();
        for (std::size_t i = 0; i < by_idle.size(); ++i)
            ck_assert_uint_eq(by_idle[i].count(n), static_cast<int>(i) == idle);
    }
    for (const auto &[id, residents_most] : most)
        ck_assert_uint_eq(cluster.gangs().find(id)->residents, residents_most);
    ck_assert_uint_eq(cluster.job_count(), jobs.size());
    ck_assert_uint_eq(cluster.gangs().size(), most.size());
}

std::vector<NodeGpus> random_place(std::mt19937 &random, int nodes, int gpus)
{
    std::vector<NodeGpus> where;
    for (int n = 0; n < nodes; ++n) {
        NodeGpus one{n, {}};
        for (int g = 0; g < gpus; ++g)
            if (random() % 3 == 0)
                one.gpus.push_back(g);
        if (!one.gpus.empty() && random() % 2)
            where.push_back(one);
    }
    return where;
}

START_TEST(a_random_life_equals_the_recount)
{
    constexpr int kNodes = 5, kGpus = 4;
    std::mt19937 random(42);
    Cluster cluster = cluster_of(kNodes, kGpus);
    std::map<JobId, std::vector<NodeGpus>> jobs;
    for (int step = 0; step < 3000; ++step) {
        const JobId id = static_cast<JobId>(1 + random() % 20);
        switch (random() % 4) {
        case 0:
        case 1:
            jobs[id] = random_place(random, kNodes, kGpus);
            ck_assert(cluster.add(job_on(id, jobs[id])));
            break;
        case 2:
            jobs.erase(id);
            cluster.remove(id);
            break;
        default:
            if (jobs.count(id)) {
                const int node = static_cast<int>(random() % kNodes);
                auto &where = jobs[id];
                const auto there = [&](const NodeGpus &w) { return w.node == node; };
                where.erase(std::remove_if(where.begin(), where.end(), there), where.end());
                cluster.remove_from_node(id, node);
            }
        }
        compare(cluster, jobs);
    }
    ck_assert_int_eq(cluster.audit(), 0);
    for (JobId id = 1; id <= 20; ++id)
        cluster.remove(id);
    ck_assert(cluster.gangs().of_anyone().empty());
    ck_assert(cluster.gangs().of_user(1000).empty());
    ck_assert(cluster.gangs().of_account("physics").empty());
    ck_assert_uint_eq(cluster.nodes_by_idle().at(kGpus).size(), kNodes);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("cluster");
    jigsaw::tests::add_case(suite, "occupancy",
                            {residents_stand_in_order_of_arrival, gpus_that_do_not_exist_are_refused,
                             a_job_is_replaced_and_its_place_put_in_order, shrinking_leaves_the_other_nodes,
                             a_node_declared_again_keeps_its_residents});
    jigsaw::tests::add_case(suite, "indexes",
                            {classes_follow_the_neighbours, audit_repairs_what_is_broken,
                             a_random_life_equals_the_recount});
    return jigsaw::tests::run_tap(suite);
}
