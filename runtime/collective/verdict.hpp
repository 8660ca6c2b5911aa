// SPDX-License-Identifier: Apache-2.0
// Who ended the world, and the waits that must hear it: the part of a process-spanning back end that knows no library.
//
// A library's own time-outs often break its connections (Gloo's do), so waits are given to it without a limit, and one
// thread of ours ends them: at their deadline, and at once when a rank has gone.
#ifndef JIGSAW_COLLECTIVE_VERDICT_HPP
#define JIGSAW_COLLECTIVE_VERDICT_HPP

#include "runtime/collective/error.hpp"
#include "runtime/collective/store_wire.hpp"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <set>
#include <thread>

namespace jigsaw::collective {

class Verdict {
  public:
    using Clock = std::chrono::steady_clock;

    explicit Verdict(int rank);
    ~Verdict();
    Verdict(const Verdict &) = delete;

    /// A rank has gone. All but a clean end is final: the first one is why everything fails.
    void tell(const Departure &departure);
    /// Throws JIGSAW_PEER_LEFT if somebody's end was final.
    void check() const;
    /// An operation with `peer` failed: who is to blame? Gives the store a moment to tell. Throws JIGSAW_PEER_LEFT.
    [[noreturn]] void blame(int peer, const std::string &what) const;

    /// While it lives, `interrupt` is called from the waker's thread once at `deadline` and once at a final end.
    class Watch {
      public:
        Watch(Verdict &verdict, Clock::time_point deadline, std::function<void()> interrupt);
        ~Watch();
        Watch(const Watch &) = delete;

      private:
        friend class Verdict;
        Verdict &verdict_;
        const std::function<void()> interrupt_;
        Clock::time_point deadline_;
        std::list<Watch *>::iterator place_;
    };

  private:
    void run();
    Clock::time_point next_deadline() const;
    void check_locked() const;

    const int rank_;
    mutable std::mutex mutex_; ///< of everything below
    mutable std::condition_variable told_;
    std::condition_variable bell_; ///< of the waker
    bool final_ = false;
    Departure end_;
    std::set<int> left_;
    std::list<Watch *> watches_;
    Clock::time_point waker_sleeps_until_ = Clock::time_point::max();
    bool stop_ = false;
    std::thread waker_;
};

} // namespace jigsaw::collective
#endif
