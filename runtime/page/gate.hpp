// SPDX-License-Identifier: Apache-2.0
// The process's side of the gate and of the socket: attach, begin, end, attach again. docs/protocol.md "Gate".
#ifndef JIGSAW_PAGE_GATE_HPP
#define JIGSAW_PAGE_GATE_HPP

#include "runtime/page/page.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace jigsaw::page {

struct AttachRequest {
    std::string socket_path;
    std::uint32_t job_id = 0, restart = 0, step_id = 0;
    std::string token; ///< hex
    std::uint32_t rank = 0, local_rank = 0, world_size = 1;
    std::string gpu;                    ///< UUID or index, empty: by local rank
    std::uint64_t agreed_generation = 0; ///< told again after a restart of jigsawd
};

/// Why a begin() returned.
enum class Turn {
    no_agent,   ///< ungated: nobody gives turns (never attached, agent gone, forked child)
    open,       ///< the gate is open: no rival
    granted,    ///< waited for and got
    interrupted ///< on_wake said stop
};

/// One process, one GPU, one thread at a time. Without an agent every call is a branch and a return (the budget:
/// begin + end under 20 ns; with an agent and no rival under 500 ns).
class Gate {
  public:
    using Log = std::function<void(const std::string &)>;

    Gate(); ///< no agent
    ~Gate();
    Gate(const Gate &) = delete;

    /// Connect and attach. False: no agent (one line in *ret_why); the gate then lets everything pass and attaches
    /// again by itself at begin(), with back-off 0.1 to 5 s, if `request` was plausible.
    bool attach(std::string *ret_why, const AttachRequest &request, Log log);
    void detach();

    /// Take a turn; returns at once if one is held. Waits wake every 100 ms to call on_wake (signals, peer death);
    /// on_wake returning false ends the wait with Turn::interrupted.
    Turn begin(const std::function<bool()> &on_wake = nullptr);
    /// Give it back. Nothing when none is held. Async-signal-safe and free of CUDA calls: a host callback may run it.
    void end();
    bool holds() const;

    bool attached() const;          ///< an agent is there now
    int gpu_index() const;          ///< -1 unknown
    const std::vector<int> &cores() const; ///< that stand for the GPU on this host (binding); empty: leave alone

    /// Rank 0's look at its directive page; false when absent, torn, or its heartbeat is older than 500 ms.
    bool read_wanted(DirectiveView *ret_view) const;
    /// Copy into the report page; nothing without an agent.
    void publish(const ReportView &view);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace jigsaw::page
#endif
