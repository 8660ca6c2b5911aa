// SPDX-License-Identifier: Apache-2.0
// Turns on one GPU. The order is core::TurnQueue's; here are the gates, the leases and what is done about processes
// that die, stop or do not obey. docs/protocol.md "Gate".
#ifndef JIGSAW_AGENT_ARBITER_HPP
#define JIGSAW_AGENT_ARBITER_HPP

#include "plugin/agent/process.hpp"
#include "plugin/agent/trace.hpp"
#include "plugin/core/timeslice.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace jigsaw::agent {

struct ArbiterSettings {
    bool turns = true;                        ///< false: gates stay open (control runs)
    std::uint64_t lease_min_ns = 1000000000;
    double anticipation = 0;                  ///< share of a cycle the GPU idles for an owed process
};

/// What an arbiter needs from the rest of jigsawd.
struct ArbiterContext {
    Trace &trace;
    /// /proc state of a process; '?' when it is gone. Tests put their own.
    std::function<char(const Process &)> proc_state;
    /// A turn was just granted (after the waiter was woken).
    std::function<void(Process &)> granted;
    /// A lease ended, or a turn was given back in time.
    std::function<void(Process &, bool expired)> lease_outcome;
    /// Seen running without a turn for several looks.
    std::function<void(Process &)> rogue;
};

class Arbiter {
  public:
    static constexpr std::uint64_t kStateCheckNs =
        20000000; ///< holders are looked at this often while others wait
    static constexpr unsigned kRogueLooks = 3;

    Arbiter(int gpu, const ArbiterSettings &settings, ArbiterContext &context);

    /// Sit down; the gate of its page is set before the process can see it.
    void add(Process &process, std::uint64_t now_ns);
    /// Leave, dead or alive: a turn it held is free at once.
    void remove(Process &process, std::uint64_t now_ns);
    /// Its bell rang.
    void look(Process &process, std::uint64_t now_ns);
    /// Leases, stopped holders, rogues, gates. At least every 100 ms, and at next_check_ns().
    void tick(std::uint64_t now_ns);
    /// When tick() has something to do before the next 100 ms: UINT64_MAX: nothing.
    std::uint64_t next_check_ns(std::uint64_t now_ns) const;
    /// May gates be closed? Not while ranks that ran under an earlier jigsawd may still be out there.
    void set_settled(bool settled, std::uint64_t now_ns);
    void set_settings(const ArbiterSettings &settings, std::uint64_t now_ns);
    /// SET weight: counts from its next turn.
    void set_weight(Process &process, double weight);
    /// Give every waiter its turn and open all gates: jigsawd ends.
    void release_all(std::uint64_t now_ns);

    int gpu() const { return gpu_; }
    bool closed() const { return closed_; }
    const std::vector<Process *> &seats() const { return seats_; }
    const Process *holder() const; ///< the one that was granted; nullptr: none
    std::size_t waiting() const;
    std::uint64_t turns() const { return turns_; }
    std::uint64_t held_ns() const { return held_ns_; }
    std::uint64_t leases_expired() const { return leases_expired_; }
    double progress(const Process &process) const { return queue_.progress(process.id); }
    std::uint64_t lease_ns(const Process &process) const;

  private:
    void update_gates(std::uint64_t now_ns);
    void close_gates(std::uint64_t now_ns);
    void open_gates(std::uint64_t now_ns);
    void observe(Process &process, std::uint64_t now_ns);
    void count_unasked(Process &process, std::uint64_t now_ns);
    void notice_cancel(Process &process, std::uint64_t now_ns);
    void notice_want(Process &process, std::uint64_t now_ns);
    void notice_end(Process &process, std::uint64_t now_ns);
    void count(Process &process, std::uint64_t now_ns);
    void grant(Process &process, std::uint64_t now_ns);
    /// The seat no longer holds; `iterations` it advanced.
    void free_turn(Process &process, std::uint64_t now_ns, double iterations);
    void take_away(Process &process, std::uint64_t now_ns, const char *why);
    void dispatch(std::uint64_t now_ns);
    bool idle_for_owed(std::uint64_t next_id, std::uint64_t now_ns) const;
    void check_holder(Process &process, std::uint64_t now_ns);
    void check_stopped(Process &process, std::uint64_t now_ns);
    void check_rogue(Process &process, std::uint64_t now_ns);
    double iterations_of_turn(Process &process, std::uint64_t turn_ns);
    Process *find(std::uint64_t id) const;
    bool may_close() const;
    bool anybody_counted() const;
    bool anybody_ready() const;
    core::TurnQueue::Process queue_entry(const Process &process) const;

    int gpu_;
    ArbiterSettings settings_;
    ArbiterContext &context_;
    core::TurnQueue queue_;
    std::vector<Process *> seats_;
    bool closed_ = false, settled_ = false;
    std::uint64_t idle_until_ns_ = 0; ///< anticipation
    std::uint64_t last_tick_ns_ = 0, silent_until_ns_ = 0;
    std::uint64_t turns_ = 0, held_ns_ = 0, leases_expired_ = 0;
};

} // namespace jigsaw::agent
#endif
