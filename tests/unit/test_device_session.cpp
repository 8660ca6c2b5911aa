// SPDX-License-Identifier: Apache-2.0
// A session on the fake GPU: means, turns that end behind the last kernel, two jobs on one GPU, a device that breaks, a
// time-out that a rival must not cause.
#include "runtime/capi/session.hpp"
#include "runtime/collective/error.hpp"
#include "runtime/collective/threads.hpp"
#include "tests/lib/device_iteration.hpp"
#include "tests/lib/folder.hpp"
#include "tests/lib/mini_agent.hpp"
#include "tests/lib/ranks.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "tests/lib/suite.hpp" // last: Check defines a macro `fail`

namespace {

using namespace jigsaw;
using namespace jigsaw::tests;
using namespace std::chrono_literals;
using capi::Session;
using collective::Collective;

constexpr std::uint32_t kBlocks = 3;
constexpr std::size_t kCount = 5000;

/// One rank: buffers, stream, session.
struct Rank {
    Rank(std::shared_ptr<collective::ThreadWorld> *world, int rank, int size, const std::string &socket = "",
         std::uint32_t timeout_ms = 20000)
    {
        use_fake_gpu();
        for (auto &buffer : buffers)
            blocks.push_back({buffer.data(), buffer.size(), JIGSAW_FLOAT32, 0});
        jigsaw_config_t config = JIGSAW_CONFIG_INIT;
        config.num_blocks = kBlocks;
        config.blocks = blocks.data();
        config.rank = rank;
        config.world_size = size;
        config.backend = "nccl";
        config.thread_world = world;
        config.timeout_ms = timeout_ms;
        config.policy = "rotate";
        config.log = [](void *, const char *) {};
        capi::Settings settings = capi::make_settings(&config);
        settings.agent_given = !socket.empty();
        settings.agent.socket_path = socket;
        settings.agent.token = "c0ffee";
        session = std::make_unique<Session>(settings);
        session->set_stream(compute.handle());
    }
    ~Rank() { compute.drain(); }

    static float gradient(std::uint64_t iteration, std::uint32_t block, std::uint32_t of_rank)
    {
        return static_cast<float>(iteration * 100 + block * 10 + of_rank + 1);
    }
    /// Queues forward and backward; `kernel` runs on the GPU before each block's gradient.
    jigsaw_iteration_t compute_all(const std::function<void()> &kernel = [] {})
    {
        const jigsaw_iteration_t now = session->begin_iteration();
        session->end_forward();
        for (std::uint32_t block = kBlocks; block-- > kBlocks - now.depth;) {
            compute.kernel([this, kernel, block, now] {
                kernel();
                std::fill(buffers[block].begin(), buffers[block].end(), gradient(now.iteration, block, session->rank()));
            });
            session->block_ready(block);
        }
        return now;
    }
    void iterate(const std::function<void()> &kernel = [] {})
    {
        compute_all(kernel);
        session->end_compute();
        session->sync(20s);
    }

    std::vector<std::vector<float>> buffers{kBlocks, std::vector<float>(kCount)};
    std::vector<jigsaw_block_t> blocks;
    Compute compute;
    std::unique_ptr<Session> session;
};

START_TEST(means_are_right_and_times_are_the_gpu_s)
{
    for (const int size : {1, 2, 4}) {
        auto world = collective::make_thread_world(size);
        std::vector<std::thread> threads;
        for (int r = 0; r < size; ++r)
            threads.emplace_back([&, r] {
                Rank rank(&world, r, size);
                for (std::uint64_t t = 0; t < 8; ++t) {
                    rank.iterate([] { std::this_thread::sleep_for(1ms); });
                    if (size == 1) // nothing to wait for but the stream itself
                        rank.compute.drain();
                    const plan::IterationPlan plan = rank.session->agreement_for_test().plan(t);
                    for (std::uint32_t block = 0; block < kBlocks; ++block) {
                        float sum = 0;
                        for (const std::uint32_t who : plan.contributors[block])
                            sum += Rank::gradient(t, block, who);
                        const float mean = sum / static_cast<float>(plan.contributors[block].size());
                        for (const float value : rank.buffers[block]) // three contributors: a third is not exact
                            ck_assert_msg(std::abs(value - mean) <= 3e-7f * mean, "%d ranks, iteration %lu block %u: %f is not %f",
                                          size, static_cast<unsigned long>(t), block, static_cast<double>(value),
                                          static_cast<double>(mean));
                    }
                }
                ck_assert_uint_eq(rank.session->stats().iterations, 8);
                rank.session->detach();
            });
        for (std::thread &thread : threads)
            thread.join();
    }
    ck_assert_str_eq(use_fake_gpu().fake_violations(), "");
}
END_TEST

std::size_t events(MiniAgent &agent, const char *name)
{
    std::size_t count = 0;
    for (const std::string &line : agent.log())
        count += line.find(std::string("\"event\":\"") + name + "\"") != std::string::npos;
    return count;
}

void wait_until(const std::function<bool()> &condition)
{
    while (!condition())
        std::this_thread::sleep_for(1ms);
}

MiniAgent::Options closed()
{
    MiniAgent::Options options;
    options.always_closed = true;
    return options;
}

START_TEST(a_turn_ends_behind_the_last_kernel)
{
    const Folder folder;
    MiniAgent agent(folder.socket(), closed());
    agent.start();
    auto world = collective::make_thread_world(1);
    Rank rank(&world, 0, 1, folder.socket());
    wait_until([&] { return events(agent, "release") == 1; }); // the turn of attach, not used
    std::atomic<bool> hold{true};
    rank.compute_all([&] {
        while (hold)
            std::this_thread::sleep_for(1ms);
    });
    rank.session->end_compute(); // the host is done, the GPU is not
    std::this_thread::sleep_for(50ms);
    ck_assert_uint_eq(events(agent, "release"), 1);
    hold = false;
    wait_until([&] { return events(agent, "release") == 2; });
    rank.session->sync(20s);
    rank.session->detach();
    ck_assert_str_eq(use_fake_gpu().fake_violations(), ""); // the callback called no CUDA
}
END_TEST

START_TEST(two_jobs_never_compute_at_once)
{
    const Folder folder;
    MiniAgent agent(folder.socket(), closed());
    agent.start();
    std::atomic<int> computing{0}, most{0}, kernels{0};
    std::vector<std::thread> jobs;
    for (int job = 0; job < 2; ++job)
        jobs.emplace_back([&] {
            auto world = collective::make_thread_world(1);
            Rank rank(&world, 0, 1, folder.socket());
            for (int t = 0; t < 30; ++t)
                rank.iterate([&] {
                    most = std::max(most.load(), ++computing);
                    std::this_thread::sleep_for(300us);
                    --computing;
                    ++kernels;
                });
            rank.session->detach();
        });
    for (std::thread &job : jobs)
        job.join();
    ck_assert_int_eq(kernels, 2 * 30 * kBlocks);
    ck_assert_int_eq(most, 1);
}
END_TEST

START_TEST(a_broken_device_gives_the_turn_back)
{
    const Folder folder;
    MiniAgent agent(folder.socket(), closed());
    agent.start();
    auto world = collective::make_thread_world(1);
    {
        Rank rank(&world, 0, 1, folder.socket());
        wait_until([&] { return events(agent, "release") == 1; });
        rank.compute_all([] { std::this_thread::sleep_for(20ms); });
        rank.session->end_compute();
        use_fake_gpu().fake_break_device(); // what hands the turn back will never run
        try {
            rank.session->sync(20s);
            rank.session->begin_iteration();
            ck_abort_msg("a broken device trains on");
        } catch (const Error &error) {
            ck_assert_msg(std::string(error.what()).find("719") != std::string::npos, "%s", error.what());
            rank.session->poison(error.what());
        }
    }
    wait_until([&] { return events(agent, "release") >= 2 || agent.attached() == 0; });
}
END_TEST

START_TEST(no_time_out_while_a_peer_waits_for_its_turn)
{
    const Folder folder;
    MiniAgent agent(folder.socket());
    agent.start();
    page::Gate rival;
    page::AttachRequest request;
    request.socket_path = folder.socket();
    request.token = "c0ffee";
    std::string why;
    auto world = collective::make_thread_world(2);
    std::atomic<bool> held{false};
    std::thread late([&] {
        Rank rank(&world, 1, 2, folder.socket(), 800);
        ck_assert(rival.attach(&why, request, nullptr));
        rival.begin();
        held = true;
        std::thread holder([&] { // three times as long as anybody's patience
            std::this_thread::sleep_for(2500ms);
            rival.end();
        });
        rank.iterate();
        holder.join();
        rank.iterate();
        rank.session->detach();
    });
    Rank rank(&world, 0, 2, "", 800);
    wait_until([&] { return held.load(); });
    rank.compute_all();
    rank.session->end_compute();
    rank.session->sync(800ms);
    rank.iterate();
    rank.session->detach();
    late.join();
}
END_TEST

START_TEST(a_machine_without_the_libraries_says_so)
{
    setenv("JIGSAW_CUDART_LIBRARY", "/nowhere/libcudart.so", 1);
    auto world = collective::make_thread_world(1);
    std::vector<float> data(8);
    const jigsaw_block_t block = {data.data(), data.size(), JIGSAW_FLOAT32, 0};
    jigsaw_config_t config = JIGSAW_CONFIG_INIT;
    config.num_blocks = 1;
    config.blocks = &block;
    config.backend = "nccl";
    config.thread_world = &world;
    try {
        Session session(capi::make_settings(&config));
        ck_abort_msg("attached");
    } catch (const Error &error) {
        ck_assert_int_eq(error.code(), JIGSAW_NO_BACKEND);
        ck_assert_msg(std::string(error.what()).find("JIGSAW_CUDART_LIBRARY=/nowhere/libcudart.so cannot be opened") !=
                          std::string::npos, "%s", error.what());
    }
}
END_TEST

START_TEST(an_older_program_s_configuration_is_taken)
{
    auto world = collective::make_thread_world(1);
    std::vector<float> data(8);
    const jigsaw_block_t block = {data.data(), data.size(), JIGSAW_FLOAT32, 0};
    jigsaw_config_t config = JIGSAW_CONFIG_INIT;
    config.size = offsetof(jigsaw_config_t, cuda_device);
    config.cuda_device = 77; // beyond what it knows
    config.num_blocks = 1;
    config.blocks = &block;
    config.backend = "threads";
    config.thread_world = &world;
    ck_assert_int_eq(capi::make_settings(&config).cuda_device, -1);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("device session");
    add_case(suite, "iterations", {means_are_right_and_times_are_the_gpu_s});
    add_case(suite, "turns", {a_turn_ends_behind_the_last_kernel, two_jobs_never_compute_at_once,
                              a_broken_device_gives_the_turn_back, no_time_out_while_a_peer_waits_for_its_turn});
    add_case(suite, "configuration", {a_machine_without_the_libraries_says_so, an_older_program_s_configuration_is_taken});
    return run_tap(suite, Isolation::process); // one of them breaks the device, one loads no library
}
