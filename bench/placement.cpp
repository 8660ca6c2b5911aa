// SPDX-License-Identifier: Apache-2.0
// Time of one placement decision as the cluster grows, and of a naive one that tries every resident, in the
// same run on the same requests, so that the ratio means something on a busy machine.
//
//     scripts/bench placement [LARGEST_CLUSTER_IN_GPUS] [REQUESTS]
//
// Clusters of 4-GPU nodes with one resident for every two GPUs; 1,000 waiting jobs ask in turn (all of them
// sharing, scope "any", three per GPU, memory configured: the widest search there is).
#include "bench/bench.hpp"

#include "plugin/core/admission.hpp"
#include "plugin/core/placement.hpp"
#include "plugin/core/prediction.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <vector>

namespace {

using namespace jigsaw::core;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kGiB = 1024ull * 1024 * 1024;
constexpr int kGpusPerNode = 4;
constexpr int kHeadlineGpus = 10000;
constexpr std::size_t kNaiveRequests = 50; // the naive scan is slow; fewer requests give its median as well

double uniform(std::mt19937 &random, double least, double most)
{
    return std::uniform_real_distribution<double>(least, most)(random);
}

Profile random_profile(std::mt19937 &random)
{
    Profile profile;
    profile.forward_ms = uniform(random, 10, 60);
    profile.backward_ms_of_level = {profile.forward_ms * 0.5, profile.forward_ms * 2};
    profile.network_ms = uniform(random, 0, 60);
    profile.cpu_ms = uniform(random, 0, 40);
    return profile;
}

Cluster make_cluster(int gpus, std::mt19937 &random)
{
    Cluster cluster;
    Gpu gpu;
    gpu.type = "a100";
    gpu.memory_bytes = 80 * kGiB;
    for (int n = 0; n < gpus / kGpusPerNode; ++n)
        cluster.set_node(n, "n" + std::to_string(n + 1), std::vector<Gpu>(kGpusPerNode, gpu));
    JobId id = 0;
    for (int n = 0; n < cluster.node_count(); ++n)
        for (const std::vector<int> &place : {std::vector<int>{0, 1, 2, 3}, std::vector<int>{0, 1}}) {
            if (n % 50 == 49)
                continue; // two per cent of the nodes are idle
            Resident job;
            job.id = ++id;
            job.uid = static_cast<std::uint32_t>(random() % 100);
            job.spb.mode = SpbMode::automatic;
            job.spb.memory_bytes = (4 + random() % 30) * kGiB;
            job.profile = random_profile(random);
            job.time_limit_s = static_cast<std::int64_t>(uniform(random, 3600, 360000));
            job.where = {{n, place}};
            cluster.add(job);
        }
    return cluster;
}

std::vector<PlacementRequest> make_requests(std::size_t count, std::mt19937 &random)
{
    std::vector<PlacementRequest> requests(count);
    for (std::size_t i = 0; i < count; ++i) {
        PlacementRequest &job = requests[i];
        job.id = static_cast<JobId>(1000000 + i);
        job.uid = static_cast<std::uint32_t>(random() % 100);
        job.spb.mode = SpbMode::automatic;
        job.spb.memory_bytes = (4 + random() % 30) * kGiB;
        job.profile = random_profile(random);
        job.gpus_per_node = 1u << random() % 3;
        job.nodes = 1 + random() % 2;
        job.time_limit_s = static_cast<std::int64_t>(uniform(random, 3600, 360000));
    }
    return requests;
}

/// Every resident in turn: its GPUs, admission and prediction; the best gain. What the index saves.
std::size_t decide_naively(const Cluster &cluster, const PlacementRequest &job, const SharingPolicy &policy)
{
    const Admission admission(cluster, job, policy);
    Predictor predictor(cluster, job, policy);
    std::size_t offers = 0;
    double best = 0;
    for (const auto &[id, resident] : cluster.jobs()) {
        const bool open = std::all_of(resident.where.begin(), resident.where.end(), [&](const NodeGpus &one) {
            return one.gpus.size() >= job.gpus_per_node && admission.why_not(one).empty();
        });
        if (!open)
            continue;
        best = std::max(best, predictor.predict(resident.where).gain);
        ++offers;
    }
    return best > 0 ? offers : 0;
}

template <typename Decide>
std::vector<double> times_us(const std::vector<PlacementRequest> &requests, Decide decide)
{
    std::vector<double> times;
    for (const PlacementRequest &job : requests) {
        const auto before = Clock::now();
        decide(job);
        times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count());
    }
    std::sort(times.begin(), times.end());
    return times;
}

double quantile(const std::vector<double> &sorted, double q)
{
    return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(q * static_cast<double>(sorted.size())))];
}

void measure(int gpus, std::size_t count)
{
    std::mt19937 random(1);
    const Cluster cluster = make_cluster(gpus, random);
    const std::vector<PlacementRequest> requests = make_requests(count, random);
    SharingPolicy policy;
    policy.scope = SharingScope::any;
    policy.max_jobs_per_gpu = 3;
    policy.context_bytes = kGiB / 2;
    std::uint32_t examined = 0;
    std::size_t offered = 0;
    const std::vector<double> indexed = times_us(requests, [&](const PlacementRequest &job) {
        const Offers found = find_offers(cluster, job, policy);
        examined = std::max(examined, found.examined);
        offered += !found.offers.empty();
    });
    std::size_t reached = 0;
    const std::vector<PlacementRequest> few(
        requests.begin(), requests.begin() + static_cast<std::ptrdiff_t>(std::min(count, kNaiveRequests)));
    const std::vector<double> naive =
        times_us(few, [&](const PlacementRequest &job) { reached += decide_naively(cluster, job, policy) > 0; });

    const auto line = [&](const char *metric, double value, const char *unit) {
        jigsaw::bench::Line printed("placement", metric, value, unit);
        printed.with("gpus", gpus).with("residents", cluster.job_count()).with("requests", count);
        if (gpus == kHeadlineGpus && std::string(metric) == "decision_ms_p50")
            printed.headline();
    };
    line("decision_ms_p50", quantile(indexed, 0.5) / 1000, "ms");
    line("decision_ms_p99", quantile(indexed, 0.99) / 1000, "ms");
    line("candidates_examined_max", examined, "1");
    line("requests_with_an_offer", static_cast<double>(offered) / static_cast<double>(count), "1");
    line("naive_ms_p50", quantile(naive, 0.5) / 1000, "ms");
    line("naive_to_indexed_ratio", quantile(naive, 0.5) / quantile(indexed, 0.5), "1");
    line("naive_requests_with_an_offer", static_cast<double>(reached) / static_cast<double>(few.size()), "1");
}

} // namespace

int main(int argc, char **argv)
{
    const auto largest = static_cast<int>(jigsaw::bench::whole_argument(argc, argv, 1, "placement: GPUS", 100000, 100, 10000000));
    const auto count = static_cast<int>(jigsaw::bench::whole_argument(argc, argv, 2, "placement: REQUESTS", 1000, 1, 10000000));
    for (int gpus = 100; gpus <= largest; gpus *= 10)
        measure(gpus, static_cast<std::size_t>(count));
    return 0;
}
