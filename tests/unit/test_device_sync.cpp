// SPDX-License-Identifier: Apache-2.0
// Partial gradient sync over NCCL, on the fake of its C interface (tests/fakes): against the same serial reference as
// GradientSync; what is launched, when, in which groups, on which communicators; failures of every call.
#include "runtime/sync/device_sync.hpp"

#include "runtime/sync/device_schedule.hpp"
#include "tests/lib/device_iteration.hpp"
#include "tests/lib/ranks.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <set>
#include <sstream>
#include <thread>

#include "tests/lib/suite.hpp" // last: Check defines a macro `fail`

namespace {

using namespace jigsaw;
using namespace jigsaw::sync;
using namespace jigsaw::tests;
using namespace std::chrono_literals;
using collective::Collective;

constexpr auto kLong = 60s;

bool power_of_two(std::size_t n) { return (n & (n - 1)) == 0; }

/// Equal bits where NCCL's way (times 1/m, then added) rounds alike; else within (m + 1) eps of the magnitudes.
template <typename Number>
void check_means(const plan::IterationPlan &plan, const std::vector<std::size_t> &counts, const Blocks<Number> &mine)
{
    const Blocks<Number> expected = reference<Number>(plan, counts);
    for (std::uint32_t block = 0; block < counts.size(); ++block) {
        const std::size_t m = plan.contributors[block].size();
        if (m == 0 || counts[block] == 0)
            continue;
        if (power_of_two(m)) {
            ck_assert_msg(std::memcmp(expected[block].data(), mine[block].data(), counts[block] * sizeof(Number)) == 0,
                          "block %u of iteration %lu differs", block, static_cast<unsigned long>(plan.iteration));
            continue;
        }
        std::vector<double> magnitude(counts[block]);
        for (const std::uint32_t rank : plan.contributors[block]) {
            const auto all = gradients_of<Number>(static_cast<int>(rank), plan.iteration, counts);
            for (std::size_t i = 0; i < magnitude.size(); ++i)
                magnitude[i] += std::fabs(static_cast<double>(all[block][i]));
        }
        for (std::size_t i = 0; i < magnitude.size(); ++i) {
            const double bound = static_cast<double>(m + 1) * std::numeric_limits<Number>::epsilon() * magnitude[i] /
                                 static_cast<double>(m);
            ck_assert(std::fabs(static_cast<double>(expected[block][i] - mine[block][i])) <= bound);
        }
    }
}

std::vector<plan::IterationPlan> plans_of(std::uint32_t ranks, std::uint32_t blocks)
{
    std::vector<plan::IterationPlan> plans;
    for (const plan::Policy policy : {plan::Policy::full, plan::Policy::two_level, plan::Policy::rotate}) {
        plan::Directive directive;
        directive.generation = 1;
        directive.policy = policy;
        directive.levels = policy == plan::Policy::two_level ? 2 : std::min(ranks, blocks);
        directive.full_workers = std::max(1u, ranks / 2);
        directive.depth_of_level = plan::make_depth_table(policy, directive.levels, std::vector<std::uint64_t>(blocks));
        for (std::uint64_t i = 0; i < (policy == plan::Policy::full ? 1u : 3u); ++i)
            plans.push_back(plan::make_iteration_plan(directive, ranks, blocks, plans.size()));
    }
    return plans;
}

template <typename Number> void check_plans(int ranks, bool lockstep, bool reverse)
{
    const FakeGpu &fake = use_fake_gpu();
    fake.fake_reverse_groups(reverse);
    const std::vector<std::size_t> counts = {40003, 1, 0, 300, 17000};
    const auto plans = plans_of(static_cast<std::uint32_t>(ranks), static_cast<std::uint32_t>(counts.size()));
    const auto outcomes = run_ranks(ranks, [&](Collective &world) {
        Blocks<Number> mine;
        for (const std::size_t count : counts)
            mine.emplace_back(count);
        Compute compute;
        DeviceSync sync(world, buffers_of(mine), {});
        sync.set_lockstep(lockstep);
        for (const plan::IterationPlan &plan : plans) {
            iterate(sync, compute, world, plan, mine, counts);
            check_means(plan, counts, mine);
        }
        leave_together(world);
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
    ck_assert_str_eq(fake.fake_violations(), "");
}

START_TEST(means_equal_the_reference)
{
    check_plans<float>(2, false, false);
    check_plans<float>(4, false, false);
    check_plans<double>(3, false, false);
}
END_TEST

START_TEST(groups_may_run_in_reverse)
{
    check_plans<float>(4, false, true);
    check_plans<float>(3, true, true);
}
END_TEST

START_TEST(lockstep_gives_the_same_means)
{
    check_plans<float>(4, true, false);
    check_plans<double>(2, true, false);
}
END_TEST

START_TEST(bfloat16_equals_the_threads_collective)
{
    use_fake_gpu();
    const auto plan = plan_of({2, 1, 2, 2}, 2);
    const std::vector<std::size_t> counts = {5000, 5000};
    const auto values = [&](int rank) {
        Blocks<std::uint16_t> blocks(2, std::vector<std::uint16_t>(5000));
        for (auto &block : blocks)
            for (std::size_t i = 0; i < block.size(); ++i) { // sign, exponent near 1, any mantissa
                const std::uint64_t bits = scramble(static_cast<std::uint64_t>(rank) << 32 | i);
                block[i] = static_cast<std::uint16_t>((bits & 0x8000) | (0x3f00 + (bits >> 16 & 0x1ff)));
            }
        return blocks;
    };
    // Two blocks, one computed by all four ranks, one by three: 1/3 is not exact, so that one only by tolerance.
    const auto outcomes = run_ranks(4, [&](Collective &world) {
        Blocks<std::uint16_t> host = values(world.rank()), device = host;
        const auto buffers = [](Blocks<std::uint16_t> &blocks) {
            std::vector<BlockBuffer> all;
            for (auto &block : blocks)
                all.push_back({block.data(), block.size(), DataType::bfloat16});
            return all;
        };
        const std::uint32_t depth = plan.depths[static_cast<std::size_t>(world.rank())];
        {
            GradientSync sync(world, buffers(host), Strategy::automatic);
            sync.begin(plan);
            for (std::uint32_t block = 2; block-- > 2 - depth;)
                sync.block_ready(block);
            sync.wait(kLong);
        }
        DeviceSync sync(world, buffers(device), {});
        sync.begin(plan);
        for (std::uint32_t block = 2; block-- > 2 - depth;)
            sync.block_ready(block);
        sync.wait(kLong);
        ck_assert(host[1] == device[1]);
        const auto number = [](std::uint16_t bits) {
            const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
            float value;
            std::memcpy(&value, &wide, sizeof value);
            return value;
        };
        for (std::size_t i = 0; i < device[0].size(); ++i)
            ck_assert(std::fabs(number(host[0][i]) - number(device[0][i])) <= 4 * 0.0078125f * 2);
        leave_together(world);
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
}
END_TEST

std::vector<std::string> lines_with(const std::string &text, const std::string &part)
{
    std::vector<std::string> found;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (line.find(part) != std::string::npos)
            found.push_back(line);
    return found;
}

START_TEST(one_split_for_a_set_and_roots_that_rotate)
{
    const FakeGpu &fake = use_fake_gpu();
    const std::vector<std::size_t> counts = {60000, 60000, 60000};
    const auto outcomes = run_ranks(3, [&](Collective &world) {
        Blocks<float> mine(3, std::vector<float>(60000));
        Compute compute;
        DeviceSync sync(world, buffers_of(mine), {});
        for (std::uint64_t i = 0; i < 3; ++i)
            iterate(sync, compute, world, plan_of({3, 2, 1}, 3, i), mine, counts);
        leave_together(world);
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
    const std::string record = fake.fake_record();
    // Only {0, 1} computes block 1; block 0 has one contributor and block 2 all: neither needs a communicator.
    ck_assert_uint_eq(lines_with(record, "split").size(), 3);
    ck_assert_uint_eq(lines_with(record, "rank 0 of 0,1,2: split color 0 key 0").size(), 1);
    ck_assert_uint_eq(lines_with(record, "rank 1 of 0,1,2: split color 0 key 1").size(), 1);
    ck_assert_uint_eq(lines_with(record, "rank 2 of 0,1,2: split color -1").size(), 1);
    ck_assert_uint_eq(lines_with(record, "all-reduce").size(), 9);
    // Block 1 in two chunks: the first is reduced to place 1, the second to place 0, each broadcast from there.
    const auto reduces = lines_with(record, "rank 0 of 0,1: reduce");
    ck_assert_uint_eq(reduces.size(), 6);
    ck_assert(reduces[0].find("to 1") != std::string::npos && reduces[1].find("to 0") != std::string::npos);
    std::set<std::string> groups;
    for (const std::string &line : lines_with(record, "rank 0 of"))
        if (line.find("group") != std::string::npos)
            groups.insert(line.substr(line.find("group")) + line.substr(line.find(": "), 8));
    std::set<std::string> numbers;
    for (const std::string &group : groups)
        ck_assert_msg(numbers.insert(group.substr(0, group.find(':'))).second, "%s holds two kinds", group.c_str());
    ck_assert_str_eq(fake.fake_violations(), "");
}
END_TEST

START_TEST(the_schedule_moves_the_least)
{
    const std::vector<BlockBuffer> blocks(4, {nullptr, 1u << 20, DataType::float32});
    for (const std::uint32_t k : {2u, 4u, 8u}) {
        std::vector<std::uint32_t> depths;
        for (std::uint32_t rank = 0; rank < k; ++rank)
            depths.push_back(1 + rank * 4 / k);
        const auto plan = plan_of(depths, 4);
        const auto schedule = make_device_schedule(plan, blocks);
        std::uint64_t sent = 0, least = 0;
        for (std::uint32_t rank = 0; rank < k; ++rank)
            sent += ring_bytes(schedule, blocks, rank, k);
        for (std::uint32_t block = 0; block < 4; ++block)
            least += plan::lower_bound_bytes(blocks[block].count * 4, static_cast<std::uint32_t>(plan.contributors[block].size()), k);
        ck_assert_uint_eq(sent, least);
        for (const DeviceStep &step : schedule) {
            std::size_t covered = 0;
            std::set<std::uint32_t> roots;
            for (const DeviceChunk &chunk : step.chunks) {
                ck_assert_uint_eq(chunk.first, covered);
                covered += chunk.count;
                roots.insert(chunk.root);
                ck_assert_uint_eq(step.contributors[chunk.root_place], chunk.root);
            }
            ck_assert_uint_eq(covered, blocks[step.block].count);
            ck_assert(step.all || roots.size() == step.contributors.size());
        }
    }
}
END_TEST

START_TEST(without_a_rival_a_block_moves_before_the_next_is_computed)
{
    const FakeGpu &fake = use_fake_gpu();
    std::atomic<int> seen{0};
    const auto outcomes = run_ranks(2, [&](Collective &world) {
        Blocks<float> mine(2, std::vector<float>(1000, 1.0f));
        Compute compute;
        DeviceSync sync(world, buffers_of(mine), {});
        sync.set_stream(compute.handle());
        sync.begin(plan_of({2, 2}, 2));
        sync.block_ready(1);
        while (lines_with(fake.fake_record(), "all-reduce").size() < 2)
            std::this_thread::yield();
        ++seen;
        while (seen < 2)
            std::this_thread::yield();
        sync.block_ready(0);
        sync.wait(kLong);
        leave_together(world);
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
}
END_TEST

START_TEST(in_lockstep_nothing_is_launched_before_all_are_ready)
{
    const FakeGpu &fake = use_fake_gpu();
    std::atomic<bool> hold{true};
    std::atomic<int> queued{0};
    const auto outcomes = run_ranks(3, [&](Collective &world) {
        Blocks<float> mine(1, std::vector<float>(1000, 1.0f));
        Compute compute;
        DeviceSync sync(world, buffers_of(mine), {});
        sync.set_stream(compute.handle());
        sync.set_lockstep(true);
        sync.begin(plan_of({1, 1, 1}, 1));
        if (world.rank() == 2) // its kernel runs long: queued, ready for the host, not for the GPU
            compute.kernel([&] {
                while (hold)
                    std::this_thread::sleep_for(1ms);
            });
        sync.block_ready(0);
        ++queued;
        if (world.rank() == 0) {
            while (queued < 3)
                std::this_thread::yield();
            std::this_thread::sleep_for(100ms); // time enough for a launch that must not come
            ck_assert_uint_eq(lines_with(fake.fake_record(), "all-reduce").size(), 0);
            hold = false;
        }
        sync.wait(kLong);
        leave_together(world);
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
    ck_assert_uint_eq(lines_with(fake.fake_record(), "all-reduce").size(), 3);
}
END_TEST

#define ASSERT_CONTAINS(text, part)                                                                                    \
    ck_assert_msg((text).find(part) != std::string::npos, "\"%s\" is not in \"%s\"", std::string(part).c_str(),       \
                  (text).c_str())

START_TEST(a_late_rank_is_named)
{
    use_fake_gpu();
    for (const bool lockstep : {false, true}) {
        std::atomic<int> waiting{2};
        const auto outcomes = run_ranks(3, [&](Collective &world) {
            Blocks<float> mine(2, std::vector<float>(1000, 1.0f));
            DeviceSync sync(world, buffers_of(mine), {});
            sync.set_lockstep(lockstep);
            sync.begin(plan_of({2, 2, 2}, 2));
            sync.block_ready(1);
            while (world.rank() == 2 && waiting > 0)
                std::this_thread::yield();
            try {
                sync.block_ready(0);
                sync.wait(world.rank() == 2 ? kLong : 150ms);
            } catch (const Error &) {
                --waiting;
                throw;
            }
        });
        const Outcome &first = outcomes[outcomes[0].code == JIGSAW_TIMEOUT ? 0 : 1];
        ck_assert_int_eq(first.code, JIGSAW_TIMEOUT);
        ASSERT_CONTAINS(first.text, "gradients of iteration 5: ");
        ASSERT_CONTAINS(first.text, "not complete after 150 ms: rank 2 ");
        ck_assert_int_eq(outcomes[2].code, JIGSAW_PEER_LEFT);
        ASSERT_CONTAINS(outcomes[2].text, "not complete after 150 ms");
    }
}
END_TEST

START_TEST(a_rank_that_waits_for_its_turn_is_excused)
{
    use_fake_gpu();
    std::atomic<bool> waits{true};
    std::atomic<bool> excused{false};
    const auto outcomes = run_ranks(2, [&](Collective &world) {
        Blocks<float> mine(1, std::vector<float>(10, 1.0f));
        DeviceSync::Options options;
        if (world.rank() == 1)
            options.waits_for_turn = [&] { return waits.load(); };
        DeviceSync sync(world, buffers_of(mine), options);
        sync.set_lockstep(true);
        if (world.rank() == 1) { // has not begun: it waits for its turn
            while (!excused)
                std::this_thread::sleep_for(1ms);
            waits = false;
        }
        sync.begin(plan_of({1, 1}, 1));
        sync.block_ready(0);
        if (world.rank() == 0) {
            while (!sync.excused())
                std::this_thread::sleep_for(1ms);
            excused = true;
        }
        sync.wait(kLong);
        leave_together(world);
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
}
END_TEST

START_TEST(host_memory_is_refused)
{
    const FakeGpu &fake = use_fake_gpu();
    fake.fake_memory_type(0);
    const auto outcomes = run_ranks(2, [&](Collective &world) {
        Blocks<float> mine(1, std::vector<float>(10));
        DeviceSync sync(world, buffers_of(mine), {});
    });
    ck_assert_int_eq(outcomes[0].code, JIGSAW_INVALID_ARGUMENT);
    ASSERT_CONTAINS(outcomes[0].text, "block 0 is host memory");
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("device sync");
    add_case(suite, "bits", {means_equal_the_reference, groups_may_run_in_reverse, lockstep_gives_the_same_means,
                             bfloat16_equals_the_threads_collective});
    add_case(suite, "launches", {one_split_for_a_set_and_roots_that_rotate, the_schedule_moves_the_least,
                                 without_a_rival_a_block_moves_before_the_next_is_computed,
                                 in_lockstep_nothing_is_launched_before_all_are_ready});
    add_case(suite, "failures", {a_late_rank_is_named, a_rank_that_waits_for_its_turn_is_excused, host_memory_is_refused});
    return run_tap(suite, Isolation::process); // each reads the whole record of its fake GPU
}
