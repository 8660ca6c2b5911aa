// SPDX-License-Identifier: Apache-2.0
// Collective over Gloo's unbound buffers: a slot per tag and direction, connections made through our own store.
//
// Written against Gloo of 2022-05 (Debian 12). What we rely on: a waitRecv() or waitSend() that abortWait*() ended
// returns false and may be called again; an exception of a connection is thrown to all that wait on it; destroying a
// buffer cancels what is pending on it. What we avoid: Gloo's own time-outs, which break every connection of a context, and
// the SIGPIPE that its writes raise once a peer is dead.
#include "runtime/collective/gloo.hpp"

#include "runtime/collective/pipe_signal.hpp"
#include "runtime/collective/store.hpp"
#include "runtime/collective/threads.hpp"
#include "runtime/collective/verdict.hpp"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>

namespace jigsaw::collective {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::hours kGlooNever{100}; ///< Gloo's own kLargeTimeDuration: longer ones overflow
/// Shorter waits could be interrupted before they looked.
constexpr auto kLeastWait = 1ms;
/// Gloo waits five times this long for a connection (pair.h, waitUntil()).
constexpr int kGlooConnectFactor = 5;

/// Gloo's rendezvous over our store.
class StoreForGloo final : public gloo::rendezvous::Store {
  public:
    StoreForGloo(collective::Store &store, Clock::time_point deadline) : store_(store), deadline_(deadline) {}

    void set(const std::string &key, const std::vector<char> &data) override
    {
        store_.set(key, std::string(data.begin(), data.end()));
    }
    std::vector<char> get(const std::string &key) override
    {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
        const std::string value = store_.get(key, std::max(left, std::chrono::milliseconds(0)));
        return {value.begin(), value.end()};
    }
    void wait(const std::vector<std::string> &keys) override
    {
        for (const std::string &key : keys)
            get(key);
    }
    void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &) override { wait(keys); }

  private:
    collective::Store &store_;
    const Clock::time_point deadline_;
};

/// Newer Gloo (Debian testing) shares the store; older takes a reference. The last argument prefers the first.
template <class Context, class Device>
auto connect_all(Context &context, const std::shared_ptr<StoreForGloo> &store, Device &device, int)
    -> decltype(context.connectFullMesh(store, device))
{
    context.connectFullMesh(store, device);
}
template <class Context, class Device>
void connect_all(Context &context, const std::shared_ptr<StoreForGloo> &store, Device &device, long)
{
    context.connectFullMesh(*store, device);
}

class GlooRequest final : public Request {
  public:
    GlooRequest(Verdict &verdict, gloo::Context &context, int peer, bool is_send, void *data, std::size_t bytes)
        : verdict_(verdict), rank_(context.rank), peer_(peer), is_send_(is_send), done_(bytes == 0)
    {
        if (!done_)
            buffer_ = context.createUnboundBuffer(data, bytes);
    }

    void post(std::uint64_t tag)
    {
        if (done_)
            return;
        verdict_.check();
        const NoPipeSignal quiet; // a receive writes, too: it tells the peer that there is room
        try {
            is_send_ ? buffer_->send(peer_, tag) : buffer_->recv(peer_, tag);
        } catch (const std::exception &error) { // a closed pair throws EnforceNotMet, no gloo::Exception
            verdict_.blame(peer_, error.what());
        }
    }

    bool wait_for(std::chrono::milliseconds limit) override
    {
        if (done_)
            return true;
        const auto now = Clock::now();
        const auto deadline = now + std::clamp<std::chrono::milliseconds>(limit, kLeastWait, kGlooNever);
        const Verdict::Watch watch(verdict_, deadline, [this] { interrupt(); });
        while (!wait_once()) {
            verdict_.check();
            if (Clock::now() >= deadline)
                return false;
        }
        done_ = true;
        return true;
    }

    void wait(std::chrono::milliseconds timeout) override
    {
        if (!wait_for(timeout))
            throw timeout_error(rank_, peer_, is_send_, timeout);
    }

  private:
    /// True when complete, false when interrupted.
    bool wait_once()
    {
        try {
            return is_send_ ? buffer_->waitSend(kGlooNever) : buffer_->waitRecv(kGlooNever);
        } catch (const std::exception &error) { // a closed pair throws EnforceNotMet, no gloo::Exception
            verdict_.blame(peer_, error.what());
        }
    }
    void interrupt() { is_send_ ? buffer_->abortWaitSend() : buffer_->abortWaitRecv(); }

    Verdict &verdict_;
    const int rank_;
    const int peer_;
    const bool is_send_;
    bool done_;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
};

class GlooCollective final : public Collective {
  public:
    explicit GlooCollective(const Rendezvous &where);
    ~GlooCollective() override;

    int rank() const override { return parts_->context->rank; }
    int size() const override { return parts_->context->size; }
    std::unique_ptr<Request> send(int peer, std::uint64_t tag, const void *data, std::size_t bytes) override
    {
        auto request = start(peer, tag, true, const_cast<void *>(data), bytes);
        bytes_sent_ += bytes;
        return request;
    }
    std::unique_ptr<Request> receive(int peer, std::uint64_t tag, void *data, std::size_t bytes) override
    {
        return start(peer, tag, false, data, bytes);
    }
    void abort(const std::string &why) override
    {
        if (aborted_.exchange(true))
            return;
        parts_->store->abort(why);
        parts_->verdict.tell({rank(), Departure::How::aborted, why});
    }
    std::uint64_t bytes_sent() const override { return bytes_sent_; }
    const char *name() const override { return "gloo"; }

  private:
    /// Destroyed from the last to the first: first Gloo's connections are closed, after ~GlooCollective() said goodbye.
    struct Parts {
        explicit Parts(int rank) : verdict(rank) {}
        Verdict verdict;
        std::unique_ptr<Store> store;
        std::shared_ptr<gloo::transport::Device> device;
        std::shared_ptr<gloo::rendezvous::Context> context;
    };

    void connect(const Rendezvous &where, Clock::time_point deadline);
    static void wait_for_all(StoreForGloo &store, const Rendezvous &where);
    std::unique_ptr<Request> start(int peer, std::uint64_t tag, bool is_send, void *data, std::size_t bytes)
    {
        check_peer(*this, peer);
        auto request =
            std::make_unique<GlooRequest>(parts_->verdict, *parts_->context, peer, is_send, data, bytes);
        request->post(tag);
        return request;
    }

    const pid_t owner_ = getpid();
    std::unique_ptr<Parts> parts_;
    std::atomic<std::uint64_t> bytes_sent_{0};
    std::atomic<bool> aborted_{false};
};

GlooCollective::GlooCollective(const Rendezvous &where) : parts_(new Parts(where.rank))
{
    const auto deadline = Clock::now() + where.timeout;
    Verdict &verdict = parts_->verdict;
    parts_->store = std::make_unique<Store>(where, [&verdict](const Departure &departure) { verdict.tell(departure); });
    connect(where, deadline);
}

/// Listens on the address that leads to rank 0, never on all.
void GlooCollective::connect(const Rendezvous &where, Clock::time_point deadline)
{
    gloo::transport::tcp::attr attributes;
    attributes.hostname = parts_->store->local_address();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const NoPipeSignal quiet; // Gloo's own thread inherits it
    try {
        parts_->device = gloo::transport::tcp::CreateDevice(attributes);
        parts_->context = std::make_shared<gloo::rendezvous::Context>(where.rank, where.size);
        parts_->context->setTimeout(std::max(left / kGlooConnectFactor, std::chrono::milliseconds(100)));
        const auto store = std::make_shared<StoreForGloo>(*parts_->store, deadline);
        connect_all(*parts_->context, store, parts_->device, 0);
        wait_for_all(*store, where);
    } catch (const std::exception &error) {
        const auto *ours = dynamic_cast<const Error *>(&error);
        const std::string text = ours ? error.what()
                                      : "rank " + std::to_string(where.rank) + " at " + attributes.hostname +
                                            " cannot connect to all ranks: " + error.what();
        parts_->store->abort(text);
        parts_->verdict.check();
        throw Error(ours ? ours->code() : JIGSAW_SYSTEM_ERROR, text);
    }
}

/// Nobody goes on before all are connected: one that fails a moment later would leave the others waiting for a connection.
/// Rank 0, who answers, waits until all have heard it.
void GlooCollective::wait_for_all(StoreForGloo &store, const Rendezvous &where)
{
    const auto hear_all = [&](const std::string &what) {
        for (int rank = 1; rank < where.size; ++rank)
            store.get(what + std::to_string(rank));
    };
    const std::string me = std::to_string(where.rank);
    if (where.rank != 0) {
        store.set("connected/" + me, {});
        store.get("all connected");
        store.set("heard/" + me, {});
        return;
    }
    hear_all("connected/");
    store.set("all connected", {});
    hear_all("heard/");
}

GlooCollective::~GlooCollective()
{
    if (getpid() != owner_) { // a forked child has no such threads, and the connections are its parent's
        static_cast<void>(parts_.release());
        return;
    }
    if (parts_)
        parts_->store.reset();
}

} // namespace

bool gloo_available() { return true; }

std::unique_ptr<Collective> join_gloo(const Rendezvous &where)
{
    if (where.size == 1)
        return join(make_thread_world(1), 0);
    return std::make_unique<GlooCollective>(where);
}

} // namespace jigsaw::collective
