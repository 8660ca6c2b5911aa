// SPDX-License-Identifier: Apache-2.0
// The scan over ranks (threads) against one rank's serial way, and what travels on each level.
#include "runtime/scan/distributed.hpp"
#include "tests/lib/ranks.hpp"

#include <cmath>
#include <random>

#include "tests/lib/suite.hpp" // last: Check defines a macro `fail`

namespace {

using namespace jigsaw::scan;
using jigsaw::tests::first_failure;
using jigsaw::tests::run_ranks;

constexpr std::size_t kBatch = 2, kWidth = 3;
constexpr auto kTimeout = std::chrono::seconds(30);

std::vector<double> random_values(std::mt19937 &random, std::size_t count)
{
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<double> out(count);
    for (double &value : out)
        value = uniform(random);
    return out;
}

/// Dense, diagonal, block-diagonal and sparse stages in turn; gradients enter at every other one.
Stages<double> whole_chain(std::size_t stages)
{
    std::mt19937 random(9);
    Stages<double> chain;
    chain.batch = kBatch;
    chain.seed = random_values(random, kBatch * kWidth);
    const auto diagonal = std::make_shared<Pattern>(Pattern{kWidth, kWidth, {0, 1, 3, 3}, {2, 0, 1}});
    for (std::size_t i = 0; i < stages; ++i) {
        if (i % 4 == 0)
            chain.operators.push_back(
                make_dense(kWidth, kWidth, kBatch, random_values(random, kBatch * kWidth * kWidth)));
        if (i % 4 == 1)
            chain.operators.push_back(make_diagonal(kWidth, 1, random_values(random, kWidth)));
        if (i % 4 == 2)
            chain.operators.push_back(make_csr(PatternPtr(diagonal), kBatch, random_values(random, kBatch * 3)));
        if (i % 4 == 3)
            chain.operators.push_back(make_block_diagonal(kWidth, kWidth, 1, random_values(random, kWidth * kWidth)));
        if (i % 2)
            chain.operators.back().offset = random_values(random, kBatch * kWidth);
    }
    return chain;
}

Stages<double> stretch_of(const Stages<double> &chain, std::size_t rank, std::size_t ranks)
{
    Stages<double> out;
    out.batch = chain.batch;
    if (rank == 0)
        out.seed = chain.seed;
    const std::size_t n = chain.operators.size();
    out.operators.assign(chain.operators.begin() + static_cast<std::ptrdiff_t>(rank * n / ranks),
                         chain.operators.begin() + static_cast<std::ptrdiff_t>((rank + 1) * n / ranks));
    return out;
}

START_TEST(equals_one_rank)
{
    for (const std::size_t ranks : {1u, 2u, 3u, 4u, 5u, 7u, 8u})
        for (const std::size_t stages : {ranks, ranks * 3 + 2}) {
            const Stages<double> chain = whole_chain(stages);
            const Gradients<double> wanted = scan_serial(chain);
            std::vector<Gradients<double>> got(ranks);
            const auto outcomes = run_ranks(static_cast<int>(ranks), [&](jigsaw::collective::Collective &world) {
                const auto rank = static_cast<std::size_t>(world.rank());
                for (int twice = 0; twice < 2; ++twice) // the same tags again
                    got[rank] = scan_over_ranks(world, stretch_of(chain, rank, ranks), kTimeout);
            });
            ck_assert_str_eq(first_failure(outcomes), "");
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                const std::size_t first = rank * stages / ranks;
                ck_assert_uint_eq(got[rank].size(), (rank + 1) * stages / ranks - first + 1);
                for (std::size_t i = 0; i < got[rank].size(); ++i)
                    for (std::size_t k = 0; k < kBatch * kWidth; ++k)
                        ck_assert_msg(std::abs(got[rank][i][k] - wanted[first + i][k]) < 1e-12,
                                      "%zu ranks, rank %zu, stage %zu", ranks, rank, first + i);
            }
        }
}
END_TEST

START_TEST(levels_and_bytes_are_counted)
{
    constexpr std::size_t kHeader = 64, kMatrix = kBatch * kWidth * kWidth * 8, kVector = kBatch * kWidth * 8;
    for (const std::size_t ranks : {2u, 4u, 8u}) {
        Stages<double> chain;
        chain.batch = kBatch;
        chain.seed.assign(kBatch * kWidth, 1);
        chain.operators.assign(4 * ranks,
                               make_dense(kWidth, kWidth, kBatch, std::vector<double>(kBatch * kWidth * kWidth, 0.1)));
        std::vector<DistributedReport> reports(ranks);
        const auto outcomes = run_ranks(static_cast<int>(ranks), [&](jigsaw::collective::Collective &world) {
            const auto rank = static_cast<std::size_t>(world.rank());
            const std::uint64_t before = world.bytes_sent();
            scan_over_ranks(world, stretch_of(chain, rank, ranks), kTimeout, &reports[rank]);
            std::uint64_t counted = 0;
            for (const LevelTraffic &level : reports[rank].levels)
                counted += level.bytes_sent;
            ck_assert_uint_eq(world.bytes_sent() - before, counted);
        });
        ck_assert_str_eq(first_failure(outcomes), "");
        const std::size_t levels = rank_levels(ranks);
        for (std::size_t level = 0; level < levels; ++level) {
            std::uint64_t up = 0, down = 0;
            for (const DistributedReport &report : reports) {
                ck_assert_uint_eq(report.levels.size(), 2 * levels);
                up += report.levels[level].bytes_sent;
                down += report.levels[2 * levels - 1 - level].bytes_sent;
            }
            const std::size_t pairs = ranks >> (level + 1);
            ck_assert_uint_eq(up, kHeader + kVector + (pairs - 1) * (kHeader + kMatrix));
            ck_assert_uint_eq(down, (pairs - 1) * (kHeader + kVector));
        }
    }
}
END_TEST

START_TEST(a_rank_without_stages_is_named)
{
    const auto outcomes = run_ranks(1, [](jigsaw::collective::Collective &world) {
        scan_over_ranks(world, Stages<double>{1, {1}, {}}, kTimeout);
    });
    ck_assert_str_eq(first_failure(outcomes),
                     "rank 0: scan: rank 0 holds 0 stages for a batch of 1; each rank needs at least one of both");
}
END_TEST

START_TEST(a_peer_that_leaves_is_an_error)
{
    const Stages<double> chain = whole_chain(8);
    const auto outcomes = run_ranks(4, [&](jigsaw::collective::Collective &world) {
        if (world.rank() != 2)
            scan_over_ranks(world, stretch_of(chain, static_cast<std::size_t>(world.rank()), 4), kTimeout);
    });
    ck_assert_int_eq(outcomes[3].code, JIGSAW_PEER_LEFT);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("scan_ranks");
    jigsaw::tests::add_case(suite, "ranks",
                            {equals_one_rank, levels_and_bytes_are_counted, a_rank_without_stages_is_named,
                             a_peer_that_leaves_is_an_error});
    return jigsaw::tests::run_tap(suite);
}
