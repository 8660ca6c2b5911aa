// SPDX-License-Identifier: Apache-2.0
#include "runtime/capi/turns.hpp"

#include "runtime/collective/error.hpp"

#include <cerrno>
#include <cstring>
#include <pthread.h>
#include <sys/timerfd.h>
#include <utility>

namespace jigsaw::capi {

namespace {

constexpr std::chrono::hours kNoLimit{24};

std::int64_t clock_ns(clockid_t clock)
{
    timespec now{};
    if (clock_gettime(clock, &now) != 0)
        return 0; // the thread is gone: it does not compute
    return now.tv_sec * std::int64_t{1000000000} + now.tv_nsec;
}

} // namespace

Turns::Turns(page::Gate &gate, std::function<bool()> on_wake, bool with_timer, Queue queue)
    : gate_(gate), on_wake_(std::move(on_wake)), queue_(std::move(queue))
{
    if (!with_timer)
        return;
    timer_fd_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
    if (!timer_fd_)
        throw Error(JIGSAW_SYSTEM_ERROR, std::string("jigsaw_attach: timerfd_create: ") + std::strerror(errno));
    timer_ = std::thread([this] { run_timer(); });
}

Turns::~Turns()
{
    give_now();
    if (!timer_.joinable())
        return;
    stop_.store(true);
    arm(std::chrono::nanoseconds(1));
    timer_.join();
}

bool Turns::adopt()
{
    if (held_)
        return true;
    Spare expected = Spare::held;
    if (spare_.compare_exchange_strong(expected, Spare::none)) {
        if (timer_fd_)
            arm(std::chrono::nanoseconds(0));
        return held_ = true;
    }
    // The timer is inside gate_.end(), which takes a microsecond.
    while (spare_.load() == Spare::returning)
        std::this_thread::yield();
    return false;
}

std::uint64_t Turns::take()
{
    if (adopt())
        return 0;
    settle(kNoLimit);
    const std::uint64_t asked_ns = page::monotonic_ns();
    waiting_ = true;
    const page::Turn turn = gate_.begin(on_wake_);
    waiting_ = false;
    if (turn == page::Turn::interrupted)
        throw Error(JIGSAW_INTERRUPTED, "the wake callback ended the wait for a turn");
    held_ = true;
    ++count_;
    since_ns_ = page::monotonic_ns();
    return since_ns_ - asked_ns;
}

std::uint64_t Turns::take_spare()
{
    const std::uint64_t waited_ns = take();
    held_ = false;
    if (!timer_fd_) {
        spare_.store(Spare::held);
        return waited_ns;
    }
    clockid_t clock{};
    pthread_getcpuclockid(pthread_self(), &clock);
    clock_.store(clock);
    busy_mark_ns_.store(clock_ns(clock));
    ticks_left_.store(kSpareTicks);
    spare_.store(Spare::held);
    arm(kSpareTick);
    return waited_ns;
}

void Turns::give()
{
    if (!adopt())
        return;
    held_ = false;
    hand_back();
}

void Turns::give_now()
{
    if (adopt()) {
        held_ = false;
        return give_to_gate();
    }
    std::shared_ptr<Handover> pending;
    {
        const std::lock_guard lock(handover_mutex_);
        pending = handover_;
    }
    if (pending)
        complete(*pending);
}

/// Ends the turn of `handover` unless somebody does or did; returns when it has ended.
void Turns::complete(Handover &handover)
{
    {
        std::unique_lock lock(handover.mutex);
        if (std::exchange(handover.claimed, true)) {
            handover.changed.wait(lock, [&] { return handover.done; });
            return;
        }
    }
    give_to_gate();
    {
        const std::lock_guard lock(handover.mutex);
        handover.done = true;
    }
    handover.changed.notify_all();
}

/// The calling thread no longer holds the turn; the gate learns it now, or from behind the queue.
void Turns::hand_back()
{
    if (!queue_.run_behind)
        return give_to_gate();
    const auto handover = std::make_shared<Handover>();
    {
        const std::lock_guard lock(handover_mutex_);
        handover_ = handover;
    }
    try {
        queue_.run_behind([this, handover] {
            {
                const std::lock_guard lock(handover->mutex);
                if (handover->claimed)
                    return; // this object may be gone
                handover->claimed = true;
            }
            give_to_gate();
            {
                const std::lock_guard lock(handover->mutex);
                handover->done = true;
            }
            handover->changed.notify_all();
        });
    } catch (const Error &) {
        complete(*handover); // the next call of the device's reports it
    }
}

/// The gate is used by one thread at a time: not before the last turn has ended.
void Turns::settle(std::chrono::milliseconds limit)
{
    std::shared_ptr<Handover> pending;
    {
        const std::lock_guard lock(handover_mutex_);
        pending.swap(handover_);
    }
    if (!pending)
        return;
    const auto done = [&] { return pending->done; };
    std::unique_lock lock(pending->mutex);
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!pending->changed.wait_for(lock, std::chrono::milliseconds(50), done)) {
        lock.unlock();
        if (queue_.failed() || std::chrono::steady_clock::now() >= deadline)
            complete(*pending);
        lock.lock();
    }
}

void Turns::give_to_gate()
{
    held_ns_.fetch_add(page::monotonic_ns() - since_ns_, std::memory_order_relaxed);
    gate_.end();
}

void Turns::arm(std::chrono::nanoseconds delay)
{
    itimerspec when{};
    when.it_value.tv_sec = delay.count() / 1000000000;
    when.it_value.tv_nsec = delay.count() % 1000000000;
    timerfd_settime(timer_fd_.get(), 0, &when, nullptr);
}

bool Turns::thread_was_busy()
{
    const std::int64_t now_ns = clock_ns(clock_.load());
    const std::int64_t used_ns = now_ns - busy_mark_ns_.exchange(now_ns);
    return used_ns * 2 >= std::chrono::nanoseconds(kSpareTick).count() && ticks_left_.fetch_sub(1) > 0;
}

void Turns::run_timer()
{
    std::uint64_t expirations = 0;
    while (read(timer_fd_.get(), &expirations, sizeof expirations) > 0 || errno == EINTR) {
        if (stop_.load())
            return;
        if (spare_.load() != Spare::held)
            continue;
        if (thread_was_busy()) {
            arm(kSpareTick);
            continue;
        }
        Spare expected = Spare::held;
        if (!spare_.compare_exchange_strong(expected, Spare::returning))
            continue;
        hand_back();
        spare_.store(Spare::none);
    }
}

} // namespace jigsaw::capi
