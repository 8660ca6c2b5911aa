// SPDX-License-Identifier: Apache-2.0
// One rank's part in one job: what jigsaw_context_t holds. Owner: the C handle. One thread at a time, except
// block_ready(), which autograd's thread may call while the training thread waits for it.
//
//   attach.cpp     join: rendezvous, agent, cores, first turn; blocks given anew; leave
//   iteration.cpp  begin_iteration, block_ready, end_forward, end_compute, sync
//   device.cpp     what is different on a GPU
//   reports.cpp    report, stats, the report page, what rank 0 announces
//   group.cpp      broadcast, mean
//
//   state       attached --begin--> open --end_compute--> ended --sync--> attached
//               any --error of a peer or of the plan--> broken: only detach is left
#ifndef JIGSAW_CAPI_SESSION_HPP
#define JIGSAW_CAPI_SESSION_HPP

#include "runtime/capi/block_times.hpp"
#include "runtime/capi/directive_log.hpp"
#include "runtime/capi/director.hpp"
#include "runtime/capi/settings.hpp"
#include "runtime/capi/turns.hpp"
#include "runtime/collective/collective.hpp"
#include "runtime/sync/agreement.hpp"
#include "runtime/sync/device_sync.hpp"
#include "runtime/sync/gradient_sync.hpp"

#include <jigsaw/jigsaw.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace jigsaw::capi {

class Session {
  public:
    explicit Session(Settings settings);
    ~Session();
    Session(const Session &) = delete;

    void set_blocks(std::vector<sync::BlockBuffer> blocks);
    jigsaw_iteration_t begin_iteration();
    void block_ready(std::uint32_t block);
    void end_forward();
    void end_compute();
    jigsaw_sync_result_t sync(std::chrono::milliseconds timeout);

    void turn_begin();
    void turn_end();
    void yield_turn();

    void set_stream(void *cuda_stream);

    void report(const jigsaw_report_t &report);
    void skip_step();
    void leave();
    /// Say goodbye; the destructor then only frees.
    void detach();

    void broadcast(void *data, std::size_t bytes, std::uint32_t root);
    void mean(double *data, std::size_t count);

    jigsaw_stats_t stats() const;
    std::uint32_t rank() const { return settings_.rank; }
    std::uint32_t world_size() const { return settings_.world_size; }

    /// A peer or the plan failed: give the turn back, let every pending operation fail, refuse all later calls.
    void poison(const std::string &why);
    /// Tests only.
    sync::Agreement &agreement_for_test() { return *agreement_; }

  private:
    using Clock = std::chrono::steady_clock;
    enum class State { attached, open, ended, broken };
    void attach_agent();
    void bind_to_gpu();
    void expect(State wanted, const char *call) const;
    [[noreturn]] void refuse(const std::string &text) const;
    std::uint64_t ready_mask_of_depth() const;
    void check_all_ready() const;
    plan::Directive announcement();
    sync::AgreementInput exchange_input();
    void publish_report();
    bool wait_awake(const std::function<bool(std::chrono::milliseconds)> &wait_for, Clock::time_point deadline) const;
    void finish_exchange();
    jigsaw_sync_result_t next_turn();
    void make_agreement();
    void make_gradients();
    Turns::Queue queue();
    bool lockstep() const;
    void note_compute_end();
    void take_device_times();

    Settings settings_;
    std::unique_ptr<collective::Collective> world_;
    page::Gate gate_;
    std::unique_ptr<Turns> turns_;
    std::unique_ptr<sync::Agreement> agreement_;
    std::unique_ptr<sync::GradientExchange> gradients_;
    sync::DeviceSync *device_ = nullptr; ///< the same object when blocks are on a GPU
    BlockTimes block_times_;
    std::optional<Director> director_; ///< rank 0
    std::optional<Replay> replay_;     ///< rank 0
    std::optional<DirectiveLog> log_;  ///< rank 0

    State state_ = State::attached;
    std::string broken_why_;
    std::uint64_t next_;               ///< iteration that begins next, or is open
    plan::IterationPlan plan_;         ///< of the open iteration
    std::uint64_t ready_ = 0;          ///< bit b: block_ready(b) was called
    bool exchanged_ = false;           ///< the exchange of the ended iteration is finished
    bool skipped_ = false; ///< the step after the iteration last synchronised
    bool leaving_ = false, left_ = false, bound_ = false;

    page::ReportView report_;
    double lr_over_peak_;
    std::uint64_t begun_ns_ = 0, forward_end_ns_ = 0, compute_end_ns_ = 0;
    std::uint64_t iterations_ = 0, group_calls_ = 0;
    double depth_fraction_sum_ = 0;
};

} // namespace jigsaw::capi
#endif
