// SPDX-License-Identifier: Apache-2.0
// How many bytes partial gradient sync really sends, against a ring all-reduce of all gradients in the same run.
//
// k processes over Gloo on loopback, a model of k equal blocks, rank r at depth (r + 1)/k. Bytes are those that the
// kernel counted on each process's TCP connections (tcpi_bytes_sent: headers of Gloo and acknowledgements of a transfer
// included), or, where the kernel does not tell, the payload that was handed to Gloo; "method" says which.
//
//     total_bytes_ratio     all ranks together, strategy / ring
//     busiest_bytes_ratio   the rank that sends most, strategy / ring
//     time_ratio            wall time of the slowest rank, strategy / ring: loopback has no slow link, so this is the cost
//                           in processor time and messages
//     formula               what (m + k - 2) B against 2 (k - 1) B says
//
// Usage: bench/sync [MiB of the model, default 16] [iterations, default 4]
#include "bench/bench.hpp"
#include "runtime/collective/ops.hpp"
#include "runtime/collective/tags.hpp"
#include "runtime/sync/gradient_sync.hpp"
#include "tests/lib/processes.hpp"

#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace {

using namespace jigsaw;
using namespace jigsaw::collective;
using namespace jigsaw::sync;

constexpr int kMaxRanks = 8;
constexpr auto kTimeout = std::chrono::seconds(120);
constexpr unsigned kLimitSeconds = 600;

struct Case {
    const char *name; ///< "ring": the baseline
    Strategy strategy;
};
constexpr Case kCases[] = {{"ring", Strategy::full_all_reduce},
                           {"default", Strategy::automatic},
                           {"scatter-gather", Strategy::scatter_gather},
                           {"chain", Strategy::chain}};
constexpr std::size_t kNumCases = std::size(kCases);

struct Sizes {
    std::size_t model_bytes = 16u << 20;
    int iterations = 4;
};

/// In memory that all rank processes share.
struct Sent {
    std::uint64_t tcp = 0, payload = 0;
    bool tcp_known = false;
    double seconds = 0;
};
using Results = Sent[kMaxRanks][kNumCases];

/// Sum over this process's TCP connections; false where the kernel's tcp_info does not reach so far (before 4.19).
bool tcp_bytes_sent(std::uint64_t *ret_bytes)
{
    std::uint64_t sum = 0;
    bool known = false;
    DIR *const folder = opendir("/proc/self/fd");
    while (const dirent *entry = folder ? readdir(folder) : nullptr) {
        tcp_info info{};
        socklen_t length = sizeof info;
        if (getsockopt(std::atoi(entry->d_name), IPPROTO_TCP, TCP_INFO, &info, &length) != 0)
            continue;
        known |= length >= offsetof(tcp_info, tcpi_bytes_sent) + sizeof info.tcpi_bytes_sent && info.tcpi_bytes_sent;
        sum += info.tcpi_bytes_sent;
    }
    if (folder)
        closedir(folder);
    *ret_bytes = sum;
    return known;
}

/// Send to the next rank, receive from the one before.
void ring_step(Collective &world, std::uint64_t tag, const float *out, std::size_t out_count, float *in,
               std::size_t in_count)
{
    const int rank = world.rank(), size = world.size();
    const auto receiving = world.receive((rank + size - 1) % size, tag, in, in_count * sizeof(float));
    world.send((rank + 1) % size, tag, out, out_count * sizeof(float))->wait(kTimeout);
    receiving->wait(kTimeout);
}

/// The classic: k - 1 steps of reduce-scatter, k - 1 of all-gather, one chunk of B/k bytes each.
void ring_all_reduce(Collective &world, std::vector<float> &data, std::uint64_t &sequence)
{
    const std::size_t size = static_cast<std::size_t>(world.size()), rank = static_cast<std::size_t>(world.rank());
    const auto first = [&](std::size_t chunk) { return data.size() * (chunk % size) / size; };
    const auto count = [&](std::size_t chunk) { return data.size() * (chunk % size + 1) / size - first(chunk); };
    std::vector<float> scratch(data.size() / size + 1);
    for (std::size_t step = 0; step + 1 < size; ++step) {
        const std::size_t out = rank + size - step, in = rank + 2 * size - step - 1;
        ring_step(world, sequence_tag(TagKind::test, sequence++), &data[first(out)], count(out), scratch.data(), count(in));
        for (std::size_t i = 0; i < count(in); ++i)
            data[first(in) + i] += scratch[i];
    }
    for (std::size_t step = 0; step + 1 < size; ++step) {
        const std::size_t out = rank + 1 + size - step, in = rank + size - step;
        ring_step(world, sequence_tag(TagKind::test, sequence++), &data[first(out)], count(out), &data[first(in)], count(in));
    }
    for (float &value : data)
        value /= static_cast<float>(size);
}

plan::IterationPlan plan_at(int ranks, std::uint64_t iteration)
{
    plan::Directive directive;
    directive.generation = 1;
    directive.policy = plan::Policy::fixed;
    directive.levels = static_cast<std::uint32_t>(ranks);
    directive.depth_of_level.resize(directive.levels);
    std::iota(directive.depth_of_level.begin(), directive.depth_of_level.end(), 1);
    return plan::make_iteration_plan(directive, directive.levels, directive.levels, iteration);
}

/// All iterations of one case on this rank, after the last of which every block must hold the mean.
void run_case(Collective &world, const Case &which, const Sizes &sizes, std::uint64_t &sequence)
{
    const std::size_t count = sizes.model_bytes / sizeof(float) / static_cast<std::size_t>(world.size());
    std::vector<std::vector<float>> blocks(static_cast<std::size_t>(world.size()), std::vector<float>(count));
    std::vector<BlockBuffer> buffers;
    for (auto &block : blocks)
        buffers.push_back({block.data(), count, DataType::float32});
    const bool ring = std::string(which.name) == "ring";
    GradientSync sync(world, buffers, which.strategy);
    for (int iteration = 0; iteration < sizes.iterations; ++iteration) {
        const auto plan = plan_at(world.size(), static_cast<std::uint64_t>(iteration));
        for (auto &block : blocks)
            std::fill(block.begin(), block.end(), static_cast<float>(world.rank()));
        if (ring) {
            for (auto &block : blocks)
                ring_all_reduce(world, block, sequence);
        } else {
            sync.begin(plan);
            for (std::size_t b = 0; b < blocks.size(); ++b)
                if (plan.depths[static_cast<std::size_t>(world.rank())] >= blocks.size() - b)
                    sync.block_ready(static_cast<std::uint32_t>(b));
            sync.wait(kTimeout);
        }
        for (std::size_t b = 0; b < blocks.size(); ++b) {
            const auto &who = plan.contributors[b];
            const double sum = ring ? world.size() * (world.size() - 1) / 2.0 : std::accumulate(who.begin(), who.end(), 0.0);
            const float mean = static_cast<float>(sum / (ring ? world.size() : static_cast<double>(who.size())));
            if (std::any_of(blocks[b].begin(), blocks[b].end(), [&](float value) { return value != mean; }))
                throw Error(JIGSAW_INTERNAL_ERROR, std::string(which.name) + ": block is not the mean");
        }
    }
}

void run_rank(Collective &world, const Sizes &sizes, Results &results)
{
    std::uint64_t sequence = 0, barriers = 0;
    for (std::size_t i = 0; i < kNumCases; ++i) {
        Sent &sent = results[world.rank()][i];
        std::uint64_t before = 0, after = 0;
        barrier(world, barriers++, kTimeout);
        sent.tcp_known = tcp_bytes_sent(&before);
        const std::uint64_t payload_before = world.bytes_sent();
        const auto start = std::chrono::steady_clock::now();
        run_case(world, kCases[i], sizes, sequence);
        sent.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        sent.payload = world.bytes_sent() - payload_before;
        barrier(world, barriers++, kTimeout); // others may still be fetching what we sent
        sent.tcp_known = tcp_bytes_sent(&after) && sent.tcp_known;
        sent.tcp = after - before;
    }
    barrier(world, barriers, kTimeout); // who ends takes its connections, and what they counted, along
}

struct Summary {
    double total = 0, busiest = 0, seconds = 0;
};
Summary summarize(const Results &results, int ranks, std::size_t which, bool tcp)
{
    Summary summary;
    for (int rank = 0; rank < ranks; ++rank) {
        const Sent &sent = results[rank][which];
        const double bytes = static_cast<double>(tcp ? sent.tcp : sent.payload);
        summary.total += bytes;
        summary.busiest = std::max(summary.busiest, bytes);
        summary.seconds = std::max(summary.seconds, sent.seconds);
    }
    return summary;
}

double formula_of(int ranks)
{
    const auto k = static_cast<std::uint32_t>(ranks);
    std::uint64_t partial = 0, full = 0;
    for (const auto &who : plan_at(ranks, 0).contributors) {
        partial += plan::lower_bound_bytes(1, static_cast<std::uint32_t>(who.size()), k);
        full += plan::lower_bound_bytes(1, k, k);
    }
    return static_cast<double>(partial) / static_cast<double>(full);
}

void print(const Results &results, int ranks)
{
    bool tcp = true;
    for (int rank = 0; rank < ranks; ++rank)
        for (const Sent &sent : results[rank])
            tcp = tcp && sent.tcp_known;
    const Summary ring = summarize(results, ranks, 0, tcp);
    for (std::size_t i = 1; i < kNumCases; ++i) {
        const Summary partial = summarize(results, ranks, i, tcp);
        const char *const method = tcp ? "tcp_info" : "payload";
        {
            bench::Line total("sync", "total_bytes_ratio", partial.total / ring.total, "1");
            total.with("ranks", ranks).with("strategy", kCases[i].name).with("method", method);
            total.with("formula", formula_of(ranks));
            if (ranks == 4 && kCases[i].strategy == Strategy::automatic)
                total.headline();
        }
        bench::Line("sync", "busiest_bytes_ratio", partial.busiest / ring.busiest, "1")
            .with("ranks", ranks).with("strategy", kCases[i].name).with("method", method);
        bench::Line("sync", "time_ratio", partial.seconds / ring.seconds, "1")
            .with("ranks", ranks).with("strategy", kCases[i].name);
    }
}

} // namespace

int main(int argc, char **argv)
{
    Sizes sizes;
    if (argc > 1)
        sizes.model_bytes = static_cast<std::size_t>(bench::whole_argument(argc, argv, 1, "sync: MEGABYTES", 1, 1, 65536)) << 20;
    if (argc > 2)
        sizes.iterations = static_cast<int>(bench::whole_argument(argc, argv, 2, "sync: ITERATIONS", 1, 1, 1000000));
    void *const shared = mmap(nullptr, sizeof(Results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    auto &results = *static_cast<Results *>(shared);
    for (const int ranks : {2, 4, 8}) {
        const auto outcomes =
            tests::run_processes(ranks, [&](Collective &world) { run_rank(world, sizes, results); }, kLimitSeconds);
        if (const std::string failure = tests::first_failure(outcomes); !failure.empty()) {
            std::fprintf(stderr, "bench/sync: %s\n", failure.c_str());
            return 1;
        }
        print(results, ranks);
    }
    return 0;
}
