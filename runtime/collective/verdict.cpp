// SPDX-License-Identifier: Apache-2.0
// One mutex, one waker; interrupts are called with the mutex held and must not wait.
#include "runtime/collective/verdict.hpp"

#include <algorithm>

namespace jigsaw::collective {
namespace {

/// Between a broken connection to a peer and the store's word about who broke first.
constexpr std::chrono::milliseconds kStoreTime{500};
constexpr std::chrono::hours kNever{1000};

} // namespace

Verdict::Verdict(int rank) : rank_(rank), waker_([this] { run(); }) {}

Verdict::~Verdict()
{
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    bell_.notify_all();
    waker_.join();
}

void Verdict::tell(const Departure &departure)
{
    const std::lock_guard lock(mutex_);
    if (departure.how == Departure::How::left) {
        left_.insert(departure.rank);
    } else if (!final_) {
        final_ = true;
        end_ = departure;
        for (Watch *watch : watches_)
            watch->interrupt_();
    }
    told_.notify_all();
}

void Verdict::check_locked() const
{
    if (!final_)
        return;
    const std::string me = "rank " + std::to_string(rank_);
    throw Error(JIGSAW_PEER_LEFT, end_.rank == rank_ ? to_string(end_) : me + ": " + to_string(end_));
}

void Verdict::check() const
{
    const std::lock_guard lock(mutex_);
    check_locked();
}

void Verdict::blame(int peer, const std::string &what) const
{
    std::unique_lock lock(mutex_);
    told_.wait_for(lock, kStoreTime, [&] { return final_ || left_.count(peer); });
    check_locked();
    const std::string me = "rank " + std::to_string(rank_) + ": ";
    const std::string they = "rank " + std::to_string(peer);
    if (left_.count(peer))
        throw Error(JIGSAW_PEER_LEFT, me + they + " left");
    throw Error(JIGSAW_PEER_LEFT, me + "lost the connection to " + they + " (" + what + ")");
}

Verdict::Clock::time_point Verdict::next_deadline() const
{
    auto next = Clock::now() + kNever;
    for (const Watch *watch : watches_)
        next = std::min(next, watch->deadline_);
    return next;
}

void Verdict::run()
{
    std::unique_lock lock(mutex_);
    while (!stop_) {
        waker_sleeps_until_ = next_deadline();
        bell_.wait_until(lock, waker_sleeps_until_);
        const auto now = Clock::now();
        for (Watch *watch : watches_)
            if (watch->deadline_ <= now) {
                watch->deadline_ = Clock::time_point::max(); // once
                watch->interrupt_();
            }
    }
}

Verdict::Watch::Watch(Verdict &verdict, Clock::time_point deadline, std::function<void()> interrupt)
    : verdict_(verdict), interrupt_(std::move(interrupt)), deadline_(deadline)
{
    const std::lock_guard lock(verdict_.mutex_);
    verdict_.check_locked();
    place_ = verdict_.watches_.insert(verdict_.watches_.end(), this);
    if (deadline_ < verdict_.waker_sleeps_until_)
        verdict_.bell_.notify_all();
}

Verdict::Watch::~Watch()
{
    const std::lock_guard lock(verdict_.mutex_);
    verdict_.watches_.erase(place_);
}

} // namespace jigsaw::collective
