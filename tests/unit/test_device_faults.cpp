// SPDX-License-Identifier: Apache-2.0
// Every call of CUDA and NCCL fails once, on one of three processes over Gloo: all ranks end soon, the one that failed
// names the call, the others name it. Also a rank that is killed, and a device that breaks.
#include "tests/lib/device_iteration.hpp"
#include "tests/lib/processes.hpp"

#include <cstdio>

#include "tests/lib/suite.hpp" // last: Check defines a macro `fail`

namespace {

using namespace jigsaw;
using namespace jigsaw::sync;
using namespace jigsaw::tests;
using collective::Collective;

#define ASSERT_CONTAINS(text, part)                                                                                    \
    ck_assert_msg((text).find(part) != std::string::npos, "\"%s\" is not in \"%s\"", std::string(part).c_str(),       \
                  (text).c_str())

/// Three iterations with every kind of collective. To `culprit` happens `trouble` before it begins, and `later` on its GPU
/// before the second.
void train(Collective &world, bool lockstep, int culprit, const std::function<void(const FakeGpu &)> &trouble,
           const std::function<void()> &later = [] {})
{
    const FakeGpu &fake = use_fake_gpu();
    if (world.rank() == culprit)
        trouble(fake);
    const std::vector<std::size_t> counts = {40000, 40000, 100};
    Blocks<float> mine;
    for (const std::size_t count : counts)
        mine.emplace_back(count);
    DeviceSync::Options options;
    options.timeout = std::chrono::seconds(20);
    DeviceSync sync(world, buffers_of(mine), options);
    sync.set_lockstep(lockstep);
    Compute compute;
    for (std::uint64_t i = 0; i < 3; ++i) {
        if (i == 1 && world.rank() == culprit)
            compute.kernel(later);
        iterate(sync, compute, world, plan_of({3, 2, 1}, 3, i), mine, counts, std::chrono::seconds(20));
    }
    leave_together(world);
    ck_assert_str_eq(fake.fake_violations(), "");
}

/// Calls whose failure costs nothing but a measurement or memory.
bool harmless(const std::string &function)
{
    return function.find("Destroy") != std::string::npos || function == "cudaEventElapsedTime" ||
           function == "cudaStreamQuery" || function == "cudaEventQuery" || function == "ncclCommAbort" ||
           function.find("Error") != std::string::npos;
}

void check_injection(const char *function, int nth, bool lockstep)
{
    if (std::getenv("JIGSAW_TEST_VERBOSE"))
        std::fprintf(stderr, "# %s ...\n", function);
    const auto outcomes = run_processes(3, [&](Collective &world) {
        train(world, lockstep, 0, [&](const FakeGpu &fake) {
            fake.fake_inject(function, nth, std::string(function).rfind("nccl", 0) == 0 ? 2 : 400);
        });
    }, 60);
    if (std::getenv("JIGSAW_TEST_VERBOSE"))
        std::fprintf(stderr, "# %s: %s\n", function, first_failure(outcomes).c_str());
    const std::string what = std::string(function) + " number " + std::to_string(nth);
    const Outcome &culprit = outcomes[0];
    if (culprit.code == JIGSAW_SUCCESS) {
        ck_assert_msg(first_failure(outcomes).empty(), "%s: %s", what.c_str(), first_failure(outcomes).c_str());
        ck_assert_msg(harmless(function) || nth > 1, "%s failed and nobody noticed", what.c_str());
        return;
    }
    ck_assert_msg(culprit.text.find(function) != std::string::npos, "%s: \"%s\"", what.c_str(), culprit.text.c_str());
    for (const std::size_t rank : {std::size_t{1}, std::size_t{2}}) {
        const Outcome &other = outcomes[rank];
        ck_assert_msg(other.code == JIGSAW_PEER_LEFT && other.text.find("rank 0") != std::string::npos,
                      "%s: rank %zu: \"%s\"", what.c_str(), rank, other.text.c_str());
    }
}

#define CHECK_CALL(result, name, parameters) check_injection(#name, 1, false);
START_TEST(every_call_of_cuda_may_fail)
{
    JIGSAW_CUDA_FUNCTIONS(CHECK_CALL)
}
END_TEST

START_TEST(every_call_of_nccl_may_fail)
{
    JIGSAW_NCCL_FUNCTIONS(CHECK_CALL)
}
END_TEST

START_TEST(also_later_and_in_lockstep)
{
    for (const char *function : {"cudaEventRecord", "cudaStreamWaitEvent", "cudaLaunchHostFunc", "ncclReduce",
                                 "ncclBroadcast", "ncclGroupEnd", "ncclCommGetAsyncError"})
        check_injection(function, 4, true);
}
END_TEST

START_TEST(a_killed_rank_is_named)
{
    for (const bool lockstep : {false, true}) {
        const auto outcomes = run_processes(3, [&](Collective &world) {
            train(world, lockstep, 1, [](const FakeGpu &) {}, [] { raise(SIGKILL); });
        }, 60);
        for (const std::size_t rank : {std::size_t{0}, std::size_t{2}}) {
            ck_assert_msg(outcomes[rank].code == JIGSAW_PEER_LEFT, "rank %zu: %d \"%s\"", rank, outcomes[rank].code,
                          outcomes[rank].text.c_str());
            ASSERT_CONTAINS(outcomes[rank].text, "rank 1");
            ASSERT_CONTAINS(outcomes[rank].text, "gradients of iteration ");
        }
    }
}
END_TEST

START_TEST(a_broken_device_ends_the_job)
{
    for (const bool lockstep : {false, true}) {
        const auto outcomes = run_processes(3, [&](Collective &world) {
            train(world, lockstep, 1, [](const FakeGpu &) {}, [] { use_fake_gpu().fake_break_device(); });
        }, 60);
        ck_assert_int_ne(outcomes[1].code, JIGSAW_SUCCESS);
        ASSERT_CONTAINS(outcomes[1].text, "719");
        ck_assert_msg(outcomes[0].code == JIGSAW_PEER_LEFT, "rank 0: %d \"%s\"", outcomes[0].code, outcomes[0].text.c_str());
        ASSERT_CONTAINS(outcomes[0].text, "rank 1");
    }
}
END_TEST

START_TEST(a_missing_library_is_named_to_all)
{
    const auto outcomes = run_processes(2, [&](Collective &world) {
        use_fake_gpu();
        if (world.rank() == 1)
            setenv("JIGSAW_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
        Blocks<float> mine(1, std::vector<float>(8));
        DeviceSync sync(world, buffers_of(mine), {});
    });
    ck_assert_int_eq(outcomes[1].code, JIGSAW_NO_BACKEND);
    ASSERT_CONTAINS(outcomes[1].text, "backend \"nccl\": JIGSAW_NCCL_LIBRARY=/nowhere/libnccl.so.2 cannot be opened");
    ASSERT_CONTAINS(outcomes[1].text, "or use backend \"gloo\"");
    ck_assert_int_eq(outcomes[0].code, JIGSAW_PEER_LEFT);
    ASSERT_CONTAINS(outcomes[0].text, "rank 1: backend \"nccl\": JIGSAW_NCCL_LIBRARY");
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("device faults");
    add_case(suite, "faults", {every_call_of_cuda_may_fail, every_call_of_nccl_may_fail, also_later_and_in_lockstep, a_killed_rank_is_named,
                               a_broken_device_ends_the_job, a_missing_library_is_named_to_all});
    return run_tap(suite);
}
