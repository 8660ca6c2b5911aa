// SPDX-License-Identifier: Apache-2.0
// All state is of the one thread; the owner only sets `stop` and rings.
#include "runtime/collective/store_server.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <list>
#include <map>
#include <thread>
#include <vector>

namespace jigsaw::collective {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::size_t kMaxStrangers = 64;
constexpr auto kHelloTime = 5s;
constexpr auto kTick = 1s; ///< how often who is in hears who is missing
/// A rank that reads this little of what it asked for is not alive.
constexpr std::size_t kMaxUnsentBytes = 256u << 20;
/// After rank 0 has left, the others' last words and ours may take this long.
constexpr auto kLastWords = 300ms;

struct Connection {
    Socket socket;
    Clock::time_point since = Clock::now();
    std::string in, out;
    std::vector<std::string> awaited; ///< keys of gets not answered yet
    int rank = -1;                    ///< -1: a stranger
    bool closing = false;             ///< once `out` is gone
    bool deaf = false;                ///< takes nothing any more; what it said before is still to be read
    bool closed = false;
};

} // namespace

struct StoreServer::State {
    State(Socket socket, int ranks, const std::string &token)
        : listener(std::move(socket)), bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), size(ranks),
          digest(digest_of(token)), owner(getpid()), gone(static_cast<std::size_t>(ranks))
    {
    }

    void run();
    std::vector<pollfd> interests() const;
    int poll_timeout_ms() const;
    void accept_stranger();
    void read(Connection &connection);
    void read_hello(Connection &connection);
    void read_frames(Connection &connection);
    void handle(Connection &connection, const Frame &frame);
    void set(Connection &connection, const std::string &payload);
    void answer(Connection &connection);
    void flush(Connection &connection);
    void close(Connection &connection, const std::string &why);
    void depart(const Departure &departure);
    void check_complete();
    void tick();
    std::string missing() const;
    bool is_in(int rank) const;
    bool done() const;

    Socket listener; ///< closed once all ranks are in
    Socket bell;
    const int size;
    const std::array<unsigned char, 16> digest;
    const pid_t owner;
    std::list<Connection> connections;
    std::map<std::string, std::string> values;
    std::vector<bool> gone; ///< [rank] its departure has been told
    bool complete = false;
    Clock::time_point next_tick = Clock::now() + kTick;
    std::atomic<bool> stop{false};
    Clock::time_point stop_by;
    std::thread thread;
};

bool StoreServer::State::is_in(int rank) const
{
    return std::any_of(connections.begin(), connections.end(),
                       [&](const Connection &c) { return c.rank == rank && !c.closed && !c.closing; });
}

std::string StoreServer::State::missing() const
{
    constexpr int kNamed = 16;
    std::string text;
    int count = 0;
    for (int rank = 0; rank < size; ++rank)
        if (!is_in(rank) && ++count <= kNamed)
            text += (count > 1 ? "," : "") + std::to_string(rank);
    return count <= kNamed ? text : text + " and " + std::to_string(count - kNamed) + " more";
}

std::vector<pollfd> StoreServer::State::interests() const
{
    std::vector<pollfd> fds{{bell.fd(), POLLIN, 0}, {listener.fd(), POLLIN, 0}};
    for (const Connection &connection : connections)
        fds.push_back({connection.socket.fd(),
                       static_cast<short>(POLLIN | POLLRDHUP | (connection.out.empty() ? 0 : POLLOUT)), 0});
    return fds;
}

int StoreServer::State::poll_timeout_ms() const
{
    if (complete && !stop && connections.size() <= static_cast<std::size_t>(size))
        return -1;
    return stop ? 20 : 200;
}

void StoreServer::State::accept_stranger()
{
    Socket socket = accept_from(listener.fd());
    const auto strangers = std::count_if(connections.begin(), connections.end(),
                                         [](const Connection &c) { return c.rank < 0; });
    if (!socket || static_cast<std::size_t>(strangers) >= kMaxStrangers)
        return;
    connections.emplace_back();
    connections.back().socket = std::move(socket);
}

void StoreServer::State::read(Connection &connection)
{
    char bytes[16384];
    for (;;) {
        const ssize_t got = recv(connection.socket.fd(), bytes, sizeof bytes, 0);
        if (got > 0) {
            connection.in.append(bytes, static_cast<std::size_t>(got));
            connection.rank < 0 ? read_hello(connection) : read_frames(connection);
            if (connection.closed)
                return;
            continue;
        }
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        return close(connection, "");
    }
}

void StoreServer::State::read_hello(Connection &connection)
{
    if (!may_be_hello(connection.in))
        return close(connection, "");
    if (connection.in.size() < kHelloBytes || connection.closing)
        return;
    const std::optional<Hello> hello = decode_hello(connection.in);
    connection.in.erase(0, kHelloBytes);
    if (!hello || hello->digest != digest)
        return close(connection, "");
    const int rank = static_cast<int>(hello->rank);
    std::string refusal;
    if (static_cast<int>(hello->size) != size || rank < 0 || rank >= size)
        refusal = "Frank " + std::to_string(rank) + " of a world of " + std::to_string(hello->size) +
                  " ranks meets a world of " + std::to_string(size) + " ranks";
    else if (complete || is_in(rank))
        refusal = "Rrank " + std::to_string(rank) + " is here already";
    if (!refusal.empty()) {
        connection.out += encode_frame(FrameType::refused, refusal);
        connection.closing = true;
        return flush(connection);
    }
    connection.rank = rank;
    connection.out += encode_frame(FrameType::welcome);
    flush(connection);
    if (connection.closed)
        return;
    check_complete();
    read_frames(connection);
}

void StoreServer::State::read_frames(Connection &connection)
{
    Frame frame;
    while (!connection.closed) {
        const Parse parsed = take_frame(&frame, connection.in);
        if (parsed == Parse::broken)
            return close(connection, "it broke the protocol of the store");
        if (parsed == Parse::more)
            return;
        handle(connection, frame);
    }
}

void StoreServer::State::handle(Connection &connection, const Frame &frame)
{
    switch (frame.type) {
    case FrameType::set: return set(connection, frame.payload);
    case FrameType::get:
        if (frame.payload.empty() || frame.payload.size() > kMaxKeyBytes || connection.awaited.size() > values.size() +
            static_cast<std::size_t>(size) * 8)
            return close(connection, "it broke the protocol of the store");
        connection.awaited.push_back(frame.payload);
        return answer(connection);
    case FrameType::leave: return depart({connection.rank, Departure::How::left, ""});
    case FrameType::abort:
        return depart({connection.rank, Departure::How::aborted, frame.payload.substr(0, kMaxTextBytes)});
    default: return close(connection, "it broke the protocol of the store");
    }
}

void StoreServer::State::set(Connection &connection, const std::string &payload)
{
    std::optional<KeyValue> pair = decode_key_value(payload);
    if (!pair || values.size() > static_cast<std::size_t>(size) * 8 + 64)
        return close(connection, "it broke the protocol of the store");
    values[pair->key] = std::move(pair->value);
    for (Connection &other : connections)
        if (!other.closed)
            answer(other);
}

void StoreServer::State::answer(Connection &connection)
{
    auto &awaited = connection.awaited;
    for (auto key = awaited.begin(); key != awaited.end();) {
        const auto value = values.find(*key);
        if (value == values.end()) {
            ++key;
            continue;
        }
        connection.out += encode_frame(FrameType::value, *key + '\0' + value->second);
        key = awaited.erase(key);
    }
    flush(connection);
}

void StoreServer::State::flush(Connection &connection)
{
    while (!connection.out.empty() && !connection.deaf) {
        const ssize_t sent = send(connection.socket.fd(), connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            break;
        // Not its end yet: a rank that has left resets the connection, and its last word may still be unread.
        if (sent < 0)
            connection.deaf = true;
        if (connection.deaf)
            break;
        connection.out.erase(0, static_cast<std::size_t>(sent));
    }
    if (connection.deaf)
        connection.out.clear();
    if (connection.out.size() > kMaxUnsentBytes)
        return close(connection, "it reads nothing");
    if (connection.out.empty() && connection.closing)
        connection.closed = true;
}

/// The list element stays until the round is over: others may hold references.
void StoreServer::State::close(Connection &connection, const std::string &why)
{
    if (connection.closed)
        return;
    connection.closed = true;
    if (complete && connection.rank >= 0)
        depart({connection.rank, Departure::How::died, why});
}

void StoreServer::State::depart(const Departure &departure)
{
    const auto rank = static_cast<std::size_t>(departure.rank);
    if (gone[rank])
        return;
    gone[rank] = true;
    for (Connection &other : connections)
        if (other.rank >= 0 && other.rank != departure.rank && !other.closed) {
            other.out += encode_frame(FrameType::departed, encode_departure(departure));
            flush(other);
        }
}

void StoreServer::State::check_complete()
{
    if (complete || !missing().empty())
        return;
    complete = true;
    listener.reset();
    for (Connection &connection : connections)
        if (connection.rank >= 0 && !connection.closed) {
            connection.out += encode_frame(FrameType::complete);
            flush(connection);
        }
}

void StoreServer::State::tick()
{
    const auto now = Clock::now();
    for (Connection &connection : connections)
        if (connection.rank < 0 && now - connection.since > kHelloTime)
            connection.closed = true;
    if (complete || now < next_tick)
        return;
    next_tick = now + kTick;
    for (Connection &connection : connections)
        if (connection.rank >= 0 && !connection.closed) {
            connection.out += encode_frame(FrameType::waiting, missing());
            flush(connection);
        }
}

/// Rank 0's own connection has ended, so that its last words are in, and ours are out.
bool StoreServer::State::done() const
{
    if (!stop)
        return false;
    if (Clock::now() >= stop_by)
        return true;
    return !is_in(0) && std::all_of(connections.begin(), connections.end(),
                                    [](const Connection &c) { return c.out.empty(); });
}

void StoreServer::State::run()
{
    while (!done()) {
        std::vector<pollfd> fds = interests();
        if (poll(fds.data(), fds.size(), poll_timeout_ms()) < 0 && errno != EINTR)
            return;
        if (fds[0].revents) {
            eventfd_t count;
            eventfd_read(bell.fd(), &count);
        }
        // Ends before words: who gives up because a rank died says so after that rank's connection has ended.
        for (const int round : {0, 1}) {
            std::size_t index = 2;
            auto connection = connections.begin();
            for (; index < fds.size(); ++index, ++connection) {
                const bool ended = fds[index].revents & (POLLHUP | POLLERR | POLLRDHUP);
                if (fds[index].revents && ended == (round == 0) && !connection->closed) {
                    if (fds[index].revents & POLLOUT)
                        flush(*connection);
                    if (!connection->closed)
                        read(*connection);
                }
            }
        }
        if (fds[1].revents && listener)
            accept_stranger();
        tick();
        connections.remove_if([](const Connection &c) { return c.closed; });
    }
    if (complete)
        depart({0, Departure::How::left, ""});
}

StoreServer::StoreServer(Socket listener, int size, const std::string &token)
    : state_(new State(std::move(listener), size, token))
{
    state_->thread = std::thread([state = state_.get()] { state->run(); });
}

StoreServer::~StoreServer()
{
    if (getpid() != state_->owner) { // a forked child has no such thread
        state_->thread.detach();
        static_cast<void>(state_.release());
        return;
    }
    state_->stop_by = Clock::now() + kLastWords;
    state_->stop = true;
    eventfd_write(state_->bell.fd(), 1);
    state_->thread.join();
}

} // namespace jigsaw::collective
