// SPDX-License-Identifier: Apache-2.0
// epoll with two priorities. Events are looked up again by (fd, serial) before each call: an earlier callback of the
// same round may have closed the fd, and the number may name another file by now.
#include "plugin/agent/loop.hpp"

#include <sys/epoll.h>

#include <cerrno>
#include <system_error>

namespace jigsaw::agent {

namespace {

constexpr int kEventsPerRound = 64;

std::uint64_t token_of(int fd, std::uint32_t serial)
{
    return static_cast<std::uint64_t>(serial) << 32 | static_cast<std::uint32_t>(fd);
}

} // namespace

Loop::Loop() : epoll_(epoll_create1(EPOLL_CLOEXEC))
{
    if (!epoll_)
        throw std::system_error(errno, std::generic_category(), "epoll_create1");
}

void Loop::watch(int fd, std::uint32_t events, Priority priority, Callback callback)
{
    auto watch = std::make_shared<Watch>(Watch{++next_serial_, priority, std::move(callback)});
    epoll_event event{};
    event.events = events;
    event.data.u64 = token_of(fd, watch->serial);
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        throw std::system_error(errno, std::generic_category(), "epoll_ctl(ADD)");
    watches_[fd] = std::move(watch);
}

void Loop::forget(int fd)
{
    if (watches_.erase(fd) > 0)
        epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

std::shared_ptr<Loop::Watch> Loop::find(std::uint64_t token) const
{
    const auto found = watches_.find(static_cast<int>(token & 0xffffffffu));
    return found != watches_.end() && found->second->serial == token >> 32 ? found->second : nullptr;
}

void Loop::step(int timeout_ms)
{
    epoll_event events[kEventsPerRound];
    const int count = epoll_wait(epoll_.get(), events, kEventsPerRound, timeout_ms);
    int client_events = 0;
    for (const Priority priority : {Priority::turn, Priority::client}) {
        for (int i = 0; i < count; ++i) {
            const std::shared_ptr<Watch> watch = find(events[i].data.u64);
            if (!watch || watch->priority != priority)
                continue;
            if (priority == Priority::client && ++client_events > kClientEventsPerRound)
                return; // level-triggered: the others come again in the next round
            watch->callback(events[i].events);
        }
    }
}

} // namespace jigsaw::agent
