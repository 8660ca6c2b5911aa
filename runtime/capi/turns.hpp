// SPDX-License-Identifier: Apache-2.0
// Turns of this process: who asks for one, and the one that sync() takes ahead. Wraps page::Gate, which one thread at a
// time may use: the training thread owns it, except while a turn taken ahead is `spare`, when the timer may give it back.
//
// A spare turn goes back after kSpareTick in which nothing happened. "Nothing" is judged by the CPU time of the thread
// that took it, since the optimizer step runs between sync() and begin_iteration() without a call that we would see: a
// thread that computed for at least half of the tick keeps the turn, for at most kSpareTicks ticks.
//
// On a GPU a turn ends when the work that was queued in it has run, not when the host says so: give() then only arms a
// function behind that work (Handover), and the next take() waits for it. Whoever claims a handover, that function or a
// rescuer (the device failed), ends the turn; the other does nothing.
#ifndef JIGSAW_CAPI_TURNS_HPP
#define JIGSAW_CAPI_TURNS_HPP

#include "runtime/page/gate.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <time.h>

namespace jigsaw::capi {

constexpr std::chrono::milliseconds kSpareTick{2};
constexpr int kSpareTicks = 50;

class Turns {
  public:
    /// Where a GPU's work is queued; both empty: on the host.
    struct Queue {
        /// Calls a function behind what is queued; throws when that is impossible.
        std::function<void(std::function<void()>)> run_behind;
        std::function<bool()> failed; ///< nothing queued will ever run
    };
    /// `with_timer`: whether an agent may ever give turns; without one a spare turn costs nobody anything.
    Turns(page::Gate &gate, std::function<bool()> on_wake, bool with_timer, Queue queue = {});
    ~Turns();
    Turns(const Turns &) = delete;

    /// Hold a turn; the spare one is adopted. Throws jigsaw::Error {JIGSAW_INTERRUPTED}. Returns the nanoseconds waited.
    std::uint64_t take();
    /// take(), but the turn goes back by itself if nothing follows.
    std::uint64_t take_spare();
    /// Nothing when none is held. With a queue: as soon as what it holds now has run.
    void give();
    /// At once, whatever is queued: the context is broken or the device failed.
    void give_now();
    /// Until a turn given back has ended; after `limit` it ends whatever is queued.
    void settle(std::chrono::milliseconds limit);
    /// A spare turn counts as held only through adopt(), which decides the race with the timer.
    bool holds() const { return held_; }
    bool adopt();
    /// This process has asked for a turn and not got it yet; any thread.
    bool waiting() const { return waiting_; }

    std::uint64_t count() const { return count_; }
    std::uint64_t held_ns() const { return held_ns_.load(std::memory_order_relaxed); }

  private:
    enum class Spare : int { none, held, returning };
    struct Handover {
        std::mutex mutex;
        std::condition_variable changed;
        bool claimed = false, done = false;
    };
    void give_to_gate();
    void hand_back();
    void complete(Handover &handover);
    void run_timer();
    void arm(std::chrono::nanoseconds delay);
    bool thread_was_busy();

    page::Gate &gate_;
    std::function<bool()> on_wake_;
    const Queue queue_;
    std::mutex handover_mutex_; ///< of the pointer
    std::shared_ptr<Handover> handover_;
    std::atomic<bool> waiting_{false};
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
