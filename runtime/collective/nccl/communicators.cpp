// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/nccl/communicators.hpp"

#include "runtime/collective/ops.hpp"
#include "runtime/collective/pipe_signal.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace jigsaw::nccl {
namespace {

/// No other operation of a session counts that far (runtime/capi's own numbers start at 0).
constexpr std::uint64_t kIdSequence = std::uint64_t{1} << 59;

const abi::NcclFunctions &nccl() { return libraries().nccl; }

std::string text_of(const std::vector<std::uint32_t> &ranks)
{
    std::string text;
    for (const std::uint32_t rank : ranks)
        text += (text.empty() ? "" : ",") + std::to_string(rank);
    return text;
}

} // namespace

Communicators::Communicators(collective::Collective &host, std::chrono::milliseconds timeout, const Alive &alive)
    : rank_(static_cast<std::uint32_t>(host.rank())), ranks_(static_cast<std::uint32_t>(host.size()))
{
    const collective::NoPipeSignal quiet; // NCCL's threads inherit it: a dead peer is an error, not our end
    try {
        make_world(host, timeout, alive);
    } catch (...) {
        abort();
        throw;
    }
}

void Communicators::make_world(collective::Collective &host, std::chrono::milliseconds timeout, const Alive &alive)
{
    abi::UniqueId id{};
    if (rank_ == 0)
        check_nccl(nccl().ncclGetUniqueId(&id), "ncclGetUniqueId");
    collective::broadcast(host, &id, sizeof id, 0, kIdSequence, timeout);
    abi::Config config;
    config.blocking = 0;
    const int code = nccl().ncclCommInitRankConfig(&world_, host.size(), id, host.rank(), &config);
    try {
        check_nccl(code, "ncclCommInitRankConfig", world_);
        settle(world_, "ncclCommInitRankConfig", alive);
    } catch (const Error &error) {
        const bool usage = std::string(error.what()).find("(" + std::to_string(abi::kNcclInvalidUsage) + ")") !=
                           std::string::npos;
        throw Error(error.code(), error.what() + std::string(usage ? "; give every rank a GPU of its own" : ""));
    }
}

Communicators::~Communicators()
{
    if (aborted_)
        return;
    for (Set &set : sets_)
        if (set.comm != nullptr)
            nccl().ncclCommDestroy(set.comm);
    nccl().ncclCommDestroy(world_);
}

/// Until NCCL no longer works on the last call.
void Communicators::settle(abi::Comm comm, const char *call, const Alive &alive) const
{
    for (int tries = 0;; ++tries) {
        int state = abi::kNcclSuccess;
        check_nccl(nccl().ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError", comm);
        if (state != abi::kNcclInProgress)
            return check_nccl(state, call, comm);
        if (tries < 100) {
            std::this_thread::yield();
            continue;
        }
        alive();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

abi::Comm Communicators::of(const std::vector<std::uint32_t> &ranks, const Alive &alive)
{
    if (ranks.size() == ranks_)
        return world_;
    const auto found = std::find_if(sets_.begin(), sets_.end(), [&](const Set &set) { return set.ranks == ranks; });
    if (found != sets_.end()) {
        sets_.splice(sets_.begin(), sets_, found);
        return found->comm;
    }
    if (sets_.size() == kMost) {
        if (sets_.back().comm != nullptr)
            check_nccl(nccl().ncclCommDestroy(sets_.back().comm), "ncclCommDestroy");
        sets_.pop_back();
    }
    const abi::Comm comm = split(ranks, alive);
    sets_.push_front({ranks, comm});
    return comm;
}

abi::Comm Communicators::split(const std::vector<std::uint32_t> &ranks, const Alive &alive)
{
    const auto place = std::find(ranks.begin(), ranks.end(), rank_);
    const bool member = place != ranks.end();
    const std::string call = "ncclCommSplit for ranks " + text_of(ranks);
    abi::Config config;
    config.blocking = 0;
    config.split_share = 1; // all sets are used one after another, by one stream
    abi::Comm comm = nullptr;
    const int code = nccl().ncclCommSplit(world_, member ? 0 : abi::kNcclNoColor,
                                          static_cast<int>(member ? place - ranks.begin() : rank_), &comm, &config);
    check_nccl(code, call.c_str(), world_);
    settle(world_, call.c_str(), alive);
    if (member)
        settle(comm, call.c_str(), alive);
    return comm;
}

void Communicators::group(abi::Comm comm, const char *what, const std::function<void()> &calls, const Alive &alive)
{
    check_nccl(nccl().ncclGroupStart(), "ncclGroupStart", comm);
    try {
        calls();
    } catch (...) {
        nccl().ncclGroupEnd();
        throw;
    }
    const std::string call = std::string("ncclGroupEnd of ") + what;
    check_nccl(nccl().ncclGroupEnd(), call.c_str(), comm);
    settle(comm, call.c_str(), alive);
}

void Communicators::check() const
{
    const auto look = [](abi::Comm comm) {
        int state = abi::kNcclSuccess;
        check_nccl(nccl().ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError", comm);
        check_nccl(state, kRunningCollective, comm);
    };
    look(world_);
    for (const Set &set : sets_)
        if (set.comm != nullptr)
            look(set.comm);
}

void Communicators::abort()
{
    if (std::exchange(aborted_, true))
        return;
    for (Set &set : sets_)
        if (set.comm != nullptr)
            nccl().ncclCommAbort(set.comm);
    if (world_ != nullptr)
        nccl().ncclCommAbort(world_);
}

} // namespace jigsaw::nccl
