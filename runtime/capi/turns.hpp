// SPDX-License-Identifier: Apache-2.0
// Turns of this process: who asks for one, and the one that sync() takes ahead. Wraps page::Gate, which one thread at a
// time may use: the training thread owns it, except while a turn taken ahead is `spare`, when the timer may give it back.
//
// A spare turn goes back after kSpareTick in which nothing happened. "Nothing" is judged by the CPU time of the thread
// that took it, since the optimizer step runs between sync() and begin_iteration() without a call that we would see: a
// thread that computed for at least half of the tick keeps the turn, for at most kSpareTicks ticks.
#ifndef JIGSAW_CAPI_TURNS_HPP
#define JIGSAW_CAPI_TURNS_HPP

#include "runtime/page/gate.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <time.h>

namespace jigsaw::capi {

constexpr std::chrono::milliseconds kSpareTick{2};
constexpr int kSpareTicks = 50;

class Turns {
  public:
    /// `with_timer`: whether an agent may ever give turns; without one a spare turn costs nobody anything.
    Turns(page::Gate &gate, std::function<bool()> on_wake, bool with_timer);
    ~Turns();
    Turns(const Turns &) = delete;

    /// Hold a turn; the spare one is adopted. Throws jigsaw::Error {JIGSAW_INTERRUPTED}. Returns the nanoseconds waited.
    std::uint64_t take();
    /// take(), but the turn goes back by itself if nothing follows.
    std::uint64_t take_spare();
    /// Nothing when none is held.
    void give();
    /// A spare turn counts as held only through adopt(), which decides the race with the timer.
    bool holds() const { return held_; }
    bool adopt();

    std::uint64_t count() const { return count_; }
    std::uint64_t held_ns() const { return held_ns_.load(std::memory_order_relaxed); }

  private:
    enum class Spare : int { none, held, returning };
    void give_to_gate();
    void run_timer();
    void arm(std::chrono::nanoseconds delay);
    bool thread_was_busy();

    page::Gate &gate_;
    std::function<bool()> on_wake_;
    bool held_ = false; ///< by the training thread; false while spare
    std::atomic<Spare> spare_{Spare::none};
    std::uint64_t count_ = 0, since_ns_ = 0;
    std::atomic<std::uint64_t> held_ns_{0};

    UniqueFd timer_fd_;
    std::atomic<bool> stop_{false};
    std::atomic<std::int32_t> clock_{0}; ///< CPU clock of the thread that took the spare turn
    std::atomic<std::int64_t> busy_mark_ns_{0};
    std::atomic<int> ticks_left_{0};
    std::thread timer_;
};

} // namespace jigsaw::capi
#endif
