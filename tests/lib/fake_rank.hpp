// SPDX-License-Identifier: Apache-2.0
// A process as an arbiter or a director sees it, without a process: pages, a bell, and the process's side of the gate
// written by hand. Time is the test's.
#ifndef JIGSAW_TESTS_LIB_FAKE_RANK_HPP
#define JIGSAW_TESTS_LIB_FAKE_RANK_HPP

#include "plugin/agent/process.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cmath>

namespace jigsaw::tests {

struct FakeRank {
    FakeRank(std::uint64_t id, core::JobId job, std::uint32_t rank = 0, std::uint32_t world = 1, int gpu = 0)
    {
        process.id = id;
        process.job = {job, 0};
        process.job_start_ns = job * std::uint64_t{1000000000};
        process.rank = rank;
        process.world_size = world;
        process.gpu = gpu;
        process.pages = page::create_pages();
        process.bell.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        own = page::map_pages(process.pages.directive_fd.get(), process.pages.report_fd.get());
    }

    void state(jigsaw_state value)
    {
        __atomic_store_n(&own.report->state, static_cast<std::uint32_t>(value), __ATOMIC_SEQ_CST);
    }
    void ring()
    {
        const std::uint64_t one = 1;
        if (write(process.bell.get(), &one, sizeof one) < 0)
            std::abort();
    }
    /// As begin() behind a closed gate.
    void ask()
    {
        state(JIGSAW_STATE_WAITING);
        __atomic_store_n(&own.report->want, own.report->want + 1, __ATOMIC_SEQ_CST);
        ring();
    }
    bool granted() const { return own.directive->grant == own.report->want; }
    bool gate_closed() const { return own.directive->gate == JIGSAW_GATE_CLOSED; }
    void wake() { state(JIGSAW_STATE_RUNNING); }
    void end()
    {
        state(JIGSAW_STATE_IDLE);
        ring();
    }
    /// A report of an iteration with `blocks` equal blocks, at full depth.
    void report(std::uint64_t iteration, std::uint32_t blocks = 4)
    {
        view.num_blocks = view.depth = view.last_depth = blocks;
        view.iteration = iteration;
        view.loss = view.progress = std::nan("");
        view.forward_ns = 10000000;
        view.backward_ns = 20000000;
        view.block_backward_ns.assign(blocks, view.backward_ns / blocks);
        page::publish_report(own.report.get(), view);
    }

    agent::Process process;
    page::ProcessPages own;
    page::ReportView view;
};

} // namespace jigsaw::tests

#endif
