// SPDX-License-Identifier: Apache-2.0
// The communicators of one job: the world, and one for each set of ranks that computed a block.
//
// Sub-communicators come from ncclCommSplit of the world, collective on all ranks, once for a set and in rank order: all
// ranks ask for the same sets in the same order, since all follow the same plans. The least recently used one goes when
// there are kMost of them, on all ranks alike.
//
// Communicators are non-blocking: no call of NCCL's holds our thread, so a time-out or a peer's end can abort everything.
// Not thread-safe: one thread uses them.
#ifndef JIGSAW_COLLECTIVE_NCCL_COMMUNICATORS_HPP
#define JIGSAW_COLLECTIVE_NCCL_COMMUNICATORS_HPP

#include "runtime/collective/collective.hpp"
#include "runtime/collective/nccl/device.hpp"

#include <functional>
#include <list>
#include <vector>

namespace jigsaw::nccl {

/// How check() begins what it says.
constexpr const char *kRunningCollective = "a running collective";

class Communicators {
  public:
    /// Called about every millisecond while NCCL works on a call; throws to end the wait.
    using Alive = std::function<void()>;
    static constexpr std::size_t kMost = 64;

    /// Collective on all ranks. `host` carries the unique id. Throws jigsaw::Error.
    Communicators(collective::Collective &host, std::chrono::milliseconds timeout, const Alive &alive);
    ~Communicators();
    Communicators(const Communicators &) = delete;

    abi::Comm world() const { return world_; }
    /// Collective on all ranks. nullptr on a rank that is not of `ranks`; the world's when all are.
    abi::Comm of(const std::vector<std::uint32_t> &ranks, const Alive &alive);

    /// Runs `calls`, operations on `comm`, as one group, and returns when NCCL has queued them. What depends on another
    /// operation must not be in its group: a group's operations run in no order.
    void group(abi::Comm comm, const char *what, const std::function<void()> &calls, const Alive &alive);

    /// Throws what NCCL has found out about operations that are running.
    void check() const;
    /// Ends every operation, also those that wait for a peer on the GPU. Afterwards there is nothing but the destructor.
    void abort();
    std::size_t size() const { return sets_.size(); }

  private:
    struct Set {
        std::vector<std::uint32_t> ranks;
        abi::Comm comm = nullptr; ///< nullptr: this rank is not of it
    };
    void settle(abi::Comm comm, const char *call, const Alive &alive) const;
    void make_world(collective::Collective &host, std::chrono::milliseconds timeout, const Alive &alive);
    abi::Comm split(const std::vector<std::uint32_t> &ranks, const Alive &alive);

    const std::uint32_t rank_, ranks_;
    abi::Comm world_ = nullptr;
    std::list<Set> sets_; ///< most recently used first
    bool aborted_ = false;
};

} // namespace jigsaw::nccl
#endif
