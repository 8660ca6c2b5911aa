// SPDX-License-Identifier: Apache-2.0
// A send meets a receive of the same (source, destination, tag) in a mailbox; whoever comes second copies the bytes
// and completes both. Nothing is buffered, so a sender that changes its data before wait() returned is found by the
// tests as it would be by a network.
//
// One mutex guards the world: mailboxes, operations and who has left.
#include "runtime/collective/threads.hpp"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

namespace jigsaw::collective {
namespace {

struct Operation {
    int owner = 0;
    int peer = 0;
    bool is_send = false;
    std::uint64_t tag = 0;
    void *data = nullptr;
    std::size_t bytes = 0;
    bool done = false;
    std::string failure; ///< not empty: this operation never completes
    jigsaw_result_t failure_code = JIGSAW_PEER_LEFT;
    std::condition_variable changed;
};

std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

} // namespace

class ThreadWorld {
  public:
    explicit ThreadWorld(int ranks) : size(ranks), joined_(static_cast<std::size_t>(ranks)), left_(joined_.size()) {}

    void enter(int rank);
    void leave(int rank);
    void abort(int rank, const std::string &why);
    void submit(Operation &operation);
    bool wait_for(Operation &operation, std::chrono::milliseconds limit);
    void cancel(Operation &operation);

    const int size;

  private:
    using Key = std::tuple<int, int, std::uint64_t>; ///< source, destination, tag
    using Queue = std::deque<Operation *>;

    static Key key_of(const Operation &operation)
    {
        return operation.is_send ? Key{operation.owner, operation.peer, operation.tag}
                                 : Key{operation.peer, operation.owner, operation.tag};
    }
    std::map<Key, Queue> &box(bool of_sends) { return of_sends ? sends_ : receives_; }
    std::string why_impossible(const Operation &operation) const;
    void remove(Operation &operation);
    void fail_pending();
    void fail(Operation &operation, jigsaw_result_t code, const std::string &text);
    static void complete(Operation &operation);

    std::mutex mutex_;
    std::vector<bool> joined_;
    std::vector<bool> left_; ///< [rank]
    std::string aborted_;    ///< the first abort, of any rank: nothing goes on after it
    std::map<Key, Queue> sends_, receives_;
    std::set<Operation *> pending_;
};

void ThreadWorld::enter(int rank)
{
    const std::lock_guard lock(mutex_);
    if (joined_.at(static_cast<std::size_t>(rank)))
        throw Error(JIGSAW_INVALID_ARGUMENT, rank_name(rank) + " has joined this thread world before");
    joined_[static_cast<std::size_t>(rank)] = true;
}

void ThreadWorld::remove(Operation &operation)
{
    auto &boxes = box(operation.is_send);
    const auto entry = boxes.find(key_of(operation));
    if (entry == boxes.end())
        return;
    Queue &queue = entry->second;
    for (auto it = queue.begin(); it != queue.end(); ++it)
        if (*it == &operation) {
            queue.erase(it);
            break;
        }
    if (queue.empty())
        boxes.erase(entry);
}

void ThreadWorld::fail(Operation &operation, jigsaw_result_t code, const std::string &text)
{
    remove(operation);
    pending_.erase(&operation);
    operation.failure = text;
    operation.failure_code = code;
    operation.changed.notify_all();
}

void ThreadWorld::complete(Operation &operation)
{
    operation.done = true;
    operation.changed.notify_all();
}

/// Empty while `operation` may still complete.
std::string ThreadWorld::why_impossible(const Operation &operation) const
{
    if (!aborted_.empty())
        return rank_name(operation.owner) + ": " + aborted_;
    for (const int rank : {operation.owner, operation.peer})
        if (left_[static_cast<std::size_t>(rank)])
            return rank_name(operation.owner) + ": " + rank_name(rank) + " left";
    return "";
}

void ThreadWorld::fail_pending()
{
    const std::set<Operation *> pending = pending_;
    for (Operation *operation : pending)
        if (const std::string why = why_impossible(*operation); !why.empty())
            fail(*operation, JIGSAW_PEER_LEFT, why);
}

void ThreadWorld::leave(int rank)
{
    const std::lock_guard lock(mutex_);
    left_[static_cast<std::size_t>(rank)] = true;
    fail_pending();
}

void ThreadWorld::abort(int rank, const std::string &why)
{
    const std::lock_guard lock(mutex_);
    if (!aborted_.empty() || left_[static_cast<std::size_t>(rank)])
        return;
    aborted_ = rank_name(rank) + " gave up: " + why;
    fail_pending();
}

void ThreadWorld::submit(Operation &operation)
{
    const std::lock_guard lock(mutex_);
    if (const std::string why = why_impossible(operation); !why.empty())
        return fail(operation, JIGSAW_PEER_LEFT, why);
    auto &others = box(!operation.is_send);
    const auto entry = others.find(key_of(operation));
    if (entry == others.end()) {
        box(operation.is_send)[key_of(operation)].push_back(&operation);
        pending_.insert(&operation);
        return;
    }
    Operation &other = *entry->second.front();
    remove(other);
    pending_.erase(&other);
    if (other.bytes != operation.bytes) {
        const std::string text = "message of " + std::to_string(operation.bytes) + " bytes meets one of " +
                                 std::to_string(other.bytes) + " bytes between " + rank_name(operation.owner) +
                                 " and " + rank_name(operation.peer);
        fail(other, JIGSAW_INTERNAL_ERROR, text);
        return fail(operation, JIGSAW_INTERNAL_ERROR, text);
    }
    const Operation &from = operation.is_send ? operation : other;
    const Operation &to = operation.is_send ? other : operation;
    std::memcpy(to.data, from.data, from.bytes);
    complete(other);
    complete(operation);
}

bool ThreadWorld::wait_for(Operation &operation, std::chrono::milliseconds limit)
{
    std::unique_lock lock(mutex_);
    operation.changed.wait_for(lock, limit, [&] { return operation.done || !operation.failure.empty(); });
    if (!operation.failure.empty())
        throw Error(operation.failure_code, operation.failure);
    return operation.done;
}

void ThreadWorld::cancel(Operation &operation)
{
    const std::lock_guard lock(mutex_);
    remove(operation);
    pending_.erase(&operation);
}

namespace {

class ThreadRequest final : public Request {
  public:
    ThreadRequest(std::shared_ptr<ThreadWorld> world, int owner, int peer, bool is_send, std::uint64_t tag,
                  void *data, std::size_t bytes)
        : world_(std::move(world))
    {
        operation_.owner = owner;
        operation_.peer = peer;
        operation_.is_send = is_send;
        operation_.tag = tag;
        operation_.data = data;
        operation_.bytes = bytes;
        if (bytes == 0)
            operation_.done = true;
        else
            world_->submit(operation_);
    }
    ~ThreadRequest() override { world_->cancel(operation_); }

    bool wait_for(std::chrono::milliseconds limit) override { return world_->wait_for(operation_, limit); }
    void wait(std::chrono::milliseconds timeout) override
    {
        if (!wait_for(timeout))
            throw timeout_error(operation_.owner, operation_.peer, operation_.is_send, timeout);
    }

  private:
    std::shared_ptr<ThreadWorld> world_;
    Operation operation_;
};

class ThreadCollective final : public Collective {
  public:
    ThreadCollective(std::shared_ptr<ThreadWorld> world, int rank) : world_(std::move(world)), rank_(rank)
    {
        world_->enter(rank_);
    }
    ~ThreadCollective() override { world_->leave(rank_); }

    int rank() const override { return rank_; }
    int size() const override { return world_->size; }
    std::unique_ptr<Request> send(int peer, std::uint64_t tag, const void *data, std::size_t bytes) override
    {
        check_peer(*this, peer);
        sent_ += bytes;
        return std::make_unique<ThreadRequest>(world_, rank_, peer, true, tag, const_cast<void *>(data), bytes);
    }
    std::unique_ptr<Request> receive(int peer, std::uint64_t tag, void *data, std::size_t bytes) override
    {
        check_peer(*this, peer);
        return std::make_unique<ThreadRequest>(world_, rank_, peer, false, tag, data, bytes);
    }
    void abort(const std::string &why) override { world_->abort(rank_, why); }
    std::uint64_t bytes_sent() const override { return sent_; }
    const char *name() const override { return "threads"; }

  private:
    std::shared_ptr<ThreadWorld> world_;
    const int rank_;
    std::atomic<std::uint64_t> sent_{0};
};

} // namespace

std::shared_ptr<ThreadWorld> make_thread_world(int size)
{
    if (size < 1)
        throw Error(JIGSAW_INVALID_ARGUMENT, "a thread world of " + std::to_string(size) + " ranks; give 1 or more");
    return std::make_shared<ThreadWorld>(size);
}

std::unique_ptr<Collective> join(std::shared_ptr<ThreadWorld> world, int rank)
{
    if (!world || rank < 0 || rank >= world->size)
        throw Error(JIGSAW_INVALID_ARGUMENT, rank_name(rank) + " is not of this thread world of " +
                                                 std::to_string(world ? world->size : 0) + " ranks");
    return std::make_unique<ThreadCollective>(std::move(world), rank);
}

} // namespace jigsaw::collective
