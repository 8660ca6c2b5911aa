// SPDX-License-Identifier: Apache-2.0
// The epoll loop of jigsawd's one thread. What decides over turns (bells, ends of processes) is served before what
// clients say, and clients are served a few messages a round, so that no client delays a turn by much.
#ifndef JIGSAW_AGENT_LOOP_HPP
#define JIGSAW_AGENT_LOOP_HPP

#include "runtime/page/fd.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

namespace jigsaw::agent {

class Loop {
  public:
    enum class Priority { turn, client };
    using Callback = std::function<void(std::uint32_t events)>;
    static constexpr int kClientEventsPerRound = 16;

    Loop(); ///< throws std::system_error
    Loop(const Loop &) = delete;

    /// Call back on `events` of fd (level-triggered) until forget(fd); the fd stays the caller's.
    void watch(int fd, std::uint32_t events, Priority priority, Callback callback);
    void forget(int fd);
    /// Wait up to timeout_ms (-1: for ever) and serve what came. A callback may watch and forget any fd.
    void step(int timeout_ms);

  private:
    struct Watch {
        std::uint32_t serial = 0; ///< tells a watch from an earlier one of the same fd number
        Priority priority = Priority::client;
        Callback callback;
    };
    std::shared_ptr<Watch> find(std::uint64_t token) const;

    UniqueFd epoll_;
    std::unordered_map<int, std::shared_ptr<Watch>> watches_;
    std::uint32_t next_serial_ = 0;
};

} // namespace jigsaw::agent
#endif
