// SPDX-License-Identifier: Apache-2.0
// Coming in is one thread's work; afterwards one thread reads what the store tells, any thread may write.
#include "runtime/collective/store.hpp"

#include "runtime/collective/socket.hpp"
#include "runtime/collective/store_server.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

namespace jigsaw::collective {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kConnectMs = 2000;
constexpr auto kAnswerTime = 2s; ///< a store answers a hello at once; something else on the port may never
constexpr auto kRetry = 100ms;
constexpr auto kFirstProgress = 3s, kNextProgress = 30s;
constexpr int kWriteMs = 1000;
constexpr auto kGoodbyeTime = 300ms;

int ms_until(Clock::time_point deadline)
{
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    return static_cast<int>(std::max<std::int64_t>(left, 0));
}

std::string seconds_since(Clock::time_point start)
{
    return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start).count()) + " s";
}

/// Where rank 0 listens. A machine's own name often stands for 127.0.1.1 on that machine alone (Debian): then its one
/// network address is meant.
std::vector<SocketAddress> addresses_of(std::string *ret_why, const Rendezvous &where, std::uint16_t port)
{
    const std::string &host = where.address;
    std::vector<SocketAddress> addresses = resolve(ret_why, host, port);
    if (addresses.empty() && !where.address_without_name.empty())
        return resolve(ret_why, where.address_without_name, port);
    const bool here_only = host != "localhost" && host.find_first_not_of("0123456789.:") != std::string::npos &&
                           std::all_of(addresses.begin(), addresses.end(), is_loopback);
    if (addresses.empty() || !here_only)
        return addresses;
    const std::vector<SocketAddress> own = own_addresses(port);
    if (own.size() > 1)
        throw Error(JIGSAW_INVALID_ARGUMENT, host + " stands for " + host_of(addresses.front()) +
                                                 " on this machine, which has several addresses; set MASTER_ADDR to "
                                                 "the one that all ranks reach");
    return own.empty() ? addresses : own;
}

/// The first free port of rank 0's address.
Socket open_listener(Rendezvous &where)
{
    std::string why = "no port is given";
    for (const std::uint16_t port : where.ports)
        for (const SocketAddress &address : addresses_of(&why, where, port)) {
            int error = 0;
            Socket listener = listen_on(&error, address);
            if (listener) {
                where.address = host_of(address);
                where.ports = {port};
                return listener;
            }
            why = "port " + std::to_string(port) + ": " + std::strerror(error);
        }
    throw Error(JIGSAW_SYSTEM_ERROR, "rank 0 cannot listen at " + where.address + ": " + why +
                                         "; MASTER_ADDR must be an address of rank 0's machine and MASTER_PORT a free "
                                         "port of it");
}

bool write_all(int fd, const std::string &bytes)
{
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t sent = send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
        if (sent >= 0) {
            done += static_cast<std::size_t>(sent);
            continue;
        }
        pollfd room{fd, POLLOUT, 0};
        if (errno == EINTR || (errno == EAGAIN && poll(&room, 1, kWriteMs) == 1))
            continue;
        return false;
    }
    return true;
}

/// Appends what has arrived; false at the end of the connection.
bool read_some(int fd, std::string &in)
{
    char bytes[16384];
    const ssize_t got = recv(fd, bytes, sizeof bytes, 0);
    if (got > 0)
        in.append(bytes, static_cast<std::size_t>(got));
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

/// The first frame that arrives by `deadline`.
std::optional<Frame> await_frame(std::string *ret_why, int fd, std::string &in, Clock::time_point deadline)
{
    Frame frame;
    for (;;) {
        const Parse parsed = take_frame(&frame, in);
        if (parsed == Parse::complete)
            return frame;
        pollfd readable{fd, POLLIN, 0};
        if (parsed == Parse::broken) {
            *ret_why = "something else than this job's rank 0 answers there";
            return std::nullopt;
        }
        if (poll(&readable, 1, ms_until(deadline)) == 0) {
            *ret_why = "no answer";
            return std::nullopt;
        }
        if (!read_some(fd, in)) {
            *ret_why = "the connection was closed: not this job's rank 0, or another JIGSAW_RENDEZVOUS_TOKEN";
            return std::nullopt;
        }
    }
}

} // namespace

struct Store::State {
    State(const Rendezvous &rendezvous, OnDeparture callback)
        : where(rendezvous), on_departure(std::move(callback)), bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
          owner(getpid())
    {
    }

    void come_in();
    bool knock(const SocketAddress &address);
    bool knock_everywhere();
    bool await_all();
    void progress();
    std::string waiting() const;
    void write(const std::string &bytes);
    void listen();
    void leave();
    bool listen_once();
    void handle(const Frame &frame);
    void depart(const Departure &departure);

    Rendezvous where;
    const OnDeparture on_departure;
    std::unique_ptr<StoreServer> server; ///< of rank 0
    Socket socket, bell;
    const pid_t owner;
    std::string in;

    // Of coming in.
    const Clock::time_point start = Clock::now();
    Clock::time_point next_progress = start + kFirstProgress;
    std::string why = "nobody answered"; ///< the last knock failed
    std::string missing;                 ///< ranks, once we are in
    bool gone = false;                   ///< the store was there and is not any more

    std::mutex write_mutex; ///< of the socket's sending side
    std::mutex mutex;       ///< of values, ended
    std::condition_variable changed;
    std::map<std::string, std::string> values;
    std::optional<Departure> ended; ///< after which no value will come
    bool store_left = false;        ///< rank 0 left: the end of the connection is no news. Of the thread
    bool heard_all = false;         ///< the thread has read the connection's end
    std::atomic<bool> leaving{false}, stop{false};
    std::thread thread;
};

std::string Store::State::waiting() const
{
    const std::string place = where.address + ":" + std::to_string(where.ports.empty() ? 0 : where.ports.front());
    const std::string me = "rank " + std::to_string(where.rank) + " waits for ";
    if (missing.empty())
        return me + "rank 0 at " + place + " since " + seconds_since(start) + " (" + why + ")";
    const bool many = missing.find_first_of(", ") != std::string::npos;
    return me + (many ? "ranks " : "rank ") + missing + " of " + std::to_string(where.size) + " at " + place +
           " since " + seconds_since(start) + (gone ? ", and rank 0 went away" : "");
}

void Store::State::progress()
{
    if (Clock::now() < next_progress)
        return;
    next_progress = Clock::now() + kNextProgress;
    if (where.log)
        where.log("jigsaw: " + waiting());
}

/// True when the store let us in.
bool Store::State::knock(const SocketAddress &address)
{
    int error = 0;
    socket = connect_to(&error, address, kConnectMs);
    if (!socket) {
        why = std::strerror(error);
        return false;
    }
    const Hello hello{digest_of(where.token), static_cast<std::uint32_t>(where.rank),
                      static_cast<std::uint32_t>(where.size)};
    in.clear();
    if (!write_all(socket.fd(), encode_hello(hello)))
        return false;
    const std::optional<Frame> frame = await_frame(&why, socket.fd(), in, Clock::now() + kAnswerTime);
    if (frame && frame->type == FrameType::welcome) {
        gone = false;
        return true;
    }
    if (frame && frame->type == FrameType::refused && !frame->payload.empty()) {
        why = frame->payload.substr(1, kMaxTextBytes);
        if (frame->payload.front() == 'F')
            throw Error(JIGSAW_INVALID_ARGUMENT, why + " at " + host_of(address) + "; check WORLD_SIZE on all ranks");
    }
    return false;
}

bool Store::State::knock_everywhere()
{
    for (const std::uint16_t port : where.ports)
        for (const SocketAddress &address : addresses_of(&why, where, port))
            if (knock(address)) {
                where.address = host_of(address);
                where.ports = {port};
                return true;
            }
    return false;
}

/// True when all ranks are in; false when the store went away first or the time is over.
bool Store::State::await_all()
{
    while (Clock::now() - start < where.timeout) {
        const auto deadline = std::min(start + where.timeout, Clock::now() + std::chrono::milliseconds(kRetry));
        std::string closed;
        const std::optional<Frame> frame = await_frame(&closed, socket.fd(), in, deadline);
        if (frame && frame->type == FrameType::complete)
            return true;
        if (frame && frame->type == FrameType::waiting)
            missing = frame->payload.substr(0, kMaxTextBytes);
        if (!frame && closed != "no answer")
            return false;
        progress();
    }
    return false;
}

void Store::State::come_in()
{
    const Rendezvous given = where;
    if (where.rank == 0)
        server = std::make_unique<StoreServer>(open_listener(where), where.size, where.token);
    while (Clock::now() - start < where.timeout) {
        if (knock_everywhere()) {
            if (await_all())
                return;
            if (Clock::now() - start >= where.timeout)
                break;
            gone = true; // it may have given up a moment before us: who was missing then is still the best answer
            if (where.rank != 0) {
                where.address = given.address;
                where.ports = given.ports;
            }
        }
        progress();
        std::this_thread::sleep_for(kRetry);
    }
    throw Error(JIGSAW_TIMEOUT, waiting());
}

void Store::State::write(const std::string &bytes)
{
    const std::lock_guard lock(write_mutex);
    write_all(socket.fd(), bytes); // a broken connection is the reading thread's to tell
}

void Store::State::depart(const Departure &departure)
{
    // Whoever waits for a value waits in vain once any rank has failed, or rank 0, who answers, has left.
    if (departure.how != Departure::How::left || departure.rank == 0) {
        const std::lock_guard lock(mutex);
        if (!ended)
            ended = departure;
    }
    changed.notify_all();
    if (on_departure)
        on_departure(departure);
}

void Store::State::handle(const Frame &frame)
{
    if (frame.type == FrameType::departed) {
        const std::optional<Departure> departure = decode_departure(frame.payload);
        if (!departure)
            return;
        store_left |= departure->rank == 0;
        return depart(*departure);
    }
    std::optional<KeyValue> pair;
    if (frame.type == FrameType::value)
        pair = decode_key_value(frame.payload);
    if (!pair)
        return;
    {
        const std::lock_guard lock(mutex);
        values[pair->key] = std::move(pair->value);
    }
    changed.notify_all();
}

/// False when there is nothing more to hear.
bool Store::State::listen_once()
{
    Frame frame;
    Parse parsed;
    while ((parsed = take_frame(&frame, in)) == Parse::complete)
        handle(frame);
    pollfd fds[] = {{bell.fd(), POLLIN, 0}, {socket.fd(), POLLIN, 0}};
    if (parsed != Parse::broken && poll(fds, 2, -1) < 0)
        return errno == EINTR;
    if (stop)
        return false;
    if (parsed != Parse::broken && (!fds[1].revents || read_some(socket.fd(), in)))
        return true;
    if (!store_left && !leaving)
        depart({0, Departure::How::died, "its store is gone"});
    return false;
}

void Store::State::listen()
{
    while (!stop && listen_once()) {
    }
    {
        const std::lock_guard lock(mutex);
        heard_all = true;
    }
    changed.notify_all();
}

/// Says goodbye and reads on until the store has closed: closing with something unread would reset the connection, and
/// a reset may overtake the goodbye.
void Store::State::leave()
{
    leaving = true;
    write(encode_frame(FrameType::leave));
    shutdown(socket.fd(), SHUT_WR);
    std::unique_lock lock(mutex);
    changed.wait_for(lock, kGoodbyeTime, [&] { return heard_all; });
}

Store::Store(const Rendezvous &where, OnDeparture on_departure)
    : state_(new State(where, std::move(on_departure)))
{
    state_->come_in();
    state_->thread = std::thread([state = state_.get()] { state->listen(); });
}

Store::~Store()
{
    if (getpid() != state_->owner) { // a forked child has no such thread, and the connection is its parent's
        state_->thread.detach();
        static_cast<void>(state_.release());
        return;
    }
    state_->leave();
    state_->stop = true;
    eventfd_write(state_->bell.fd(), 1);
    state_->thread.join();
    state_->socket.reset();
    state_->server.reset();
}

void Store::set(const std::string &key, const std::string &value)
{
    state_->write(encode_frame(FrameType::set, key + '\0' + value));
}

std::string Store::get(const std::string &key, std::chrono::milliseconds timeout)
{
    State &state = *state_;
    state.write(encode_frame(FrameType::get, key));
    std::unique_lock lock(state.mutex);
    state.changed.wait_for(lock, timeout, [&] { return state.ended || state.values.count(key); });
    const auto value = state.values.find(key);
    if (value != state.values.end())
        return value->second;
    const std::string me = "rank " + std::to_string(state.where.rank) + ": ";
    if (state.ended)
        throw Error(JIGSAW_PEER_LEFT, me + to_string(*state.ended));
    throw Error(JIGSAW_TIMEOUT, me + "nobody set \"" + key + "\" within " + std::to_string(timeout.count()) + " ms");
}

void Store::abort(const std::string &why) { state_->write(encode_frame(FrameType::abort, why.substr(0, kMaxTextBytes))); }

std::string Store::local_address() const { return local_host_of(state_->socket.fd()); }

} // namespace jigsaw::collective
