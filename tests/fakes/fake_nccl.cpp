// SPDX-License-Identifier: Apache-2.0
// NCCL's half of fake_gpu.so. A communicator is a file in /dev/shm that its ranks map: a table for ncclCommSplit, a
// barrier, what each rank thinks the current operation is, and a slot of data for each rank.
#include "tests/fakes/fake_internal.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace jigsaw::tests::fake {
namespace {

enum Result { success = 0, system_error = 2, internal_error = 3, invalid_argument = 4, invalid_usage = 5, in_progress = 7 };
enum Type { float32 = 7, float64 = 8, bfloat16 = 9 };
constexpr int kSum = 0, kAvg = 4, kNoColor = -1;
constexpr int kMaxRanks = 16, kMaxSplits = 512;
constexpr std::size_t kSlotBytes = 64 * 1024;

struct Description {
    char text[120];
};
struct SplitEntry {
    std::atomic<int> published;
    int color, key;
};
/// Zeros are its first state: ftruncate() makes it.
struct Shared {
    std::atomic<int> attached, left;
    std::atomic<int> waiting, round; ///< of the barrier
    std::atomic<int> torn;           ///< ranks disagreed: nobody goes on
    Description now[kMaxRanks];
    SplitEntry splits[kMaxSplits][kMaxRanks];
    unsigned char slots[kMaxRanks][kSlotBytes];
};

struct Operation {
    std::string kind; ///< "all-reduce", "reduce", "broadcast"
    const void *send = nullptr;
    void *receive = nullptr;
    std::size_t count = 0;
    int type = 0, operation = 0, root = 0;
    void *stream = nullptr;

    std::string text() const
    {
        return kind + " " + std::to_string(count) + " of type " + std::to_string(type) +
               (kind == "all-reduce" ? "" : (kind == "reduce" ? " to " : " from ") + std::to_string(root)) +
               (kind == "broadcast" ? "" : operation == kAvg ? " avg" : " sum");
    }
};

std::size_t bytes_of(int type) { return type == float64 ? 8 : type == float32 ? 4 : 2; }

struct FakeComm {
    std::string name;
    int rank = 0, size = 0;
    std::vector<int> world_ranks; ///< [rank] as in the first communicator
    Shared *shared = nullptr;
    std::atomic<bool> aborted{false};
    std::atomic<int> error{0};
    std::string error_text;
    // Non-blocking: what ncclCommGetAsyncError() still has to do.
    int polls = 0;
    bool joining = false;
    std::vector<Operation> deferred;
    int split_number = 0, split_size = 0;
    FakeComm **split_out = nullptr;
    int my_color = kNoColor;
    bool splitting = false;
    ~FakeComm()
    {
        if (shared)
            munmap(shared, sizeof(Shared));
    }
    bool dead() const { return aborted || device_broken() || (shared && shared->torn != 0); }
};

struct Recorder {
    std::mutex mutex;
    std::string lines;
    int groups = 0;
};
Recorder &recorder()
{
    static Recorder *const all = new Recorder;
    return *all;
}
std::atomic<bool> reverse{false};

bool open_shared(FakeComm &comm)
{
    const int fd = shm_open(comm.name.c_str(), O_CREAT | O_RDWR, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0)
        return false;
    void *const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED)
        return false;
    comm.shared = static_cast<Shared *>(memory);
    if (++comm.shared->attached == comm.size)
        shm_unlink(comm.name.c_str());
    return true;
}

/// False when the operation can never complete.
bool barrier(FakeComm &comm)
{
    Shared &all = *comm.shared;
    const int round = all.round;
    if (++all.waiting == comm.size) {
        all.waiting = 0;
        ++all.round;
        return !comm.dead();
    }
    for (int tries = 0; all.round == round; ++tries) {
        if (comm.dead())
            return false;
        if (tries < 50)
            std::this_thread::yield();
        else
            std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
}

float from_bf16(std::uint16_t bits)
{
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}
std::uint16_t to_bf16(float value)
{
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16); // numbers only: to nearest, ties to even
}

template <typename Number> void add_up(FakeComm &comm, const Operation &op, std::size_t count, unsigned char *out)
{
    const Number scale = op.operation == kAvg ? Number(1) / static_cast<Number>(comm.size) : Number(1);
    for (std::size_t i = 0; i < count; ++i) {
        Number sum = 0, value;
        for (int rank = 0; rank < comm.size; ++rank) {
            std::memcpy(&value, comm.shared->slots[rank] + i * sizeof(Number), sizeof value);
            sum = rank == 0 ? value * scale : sum + value * scale;
        }
        std::memcpy(out + i * sizeof(Number), &sum, sizeof sum);
    }
}
void add_up_bf16(FakeComm &comm, const Operation &op, std::size_t count, unsigned char *out)
{
    const float scale = op.operation == kAvg ? from_bf16(to_bf16(1.0f / static_cast<float>(comm.size))) : 1.0f;
    for (std::size_t i = 0; i < count; ++i) {
        float sum = 0;
        std::uint16_t bits;
        for (int rank = 0; rank < comm.size; ++rank) {
            std::memcpy(&bits, comm.shared->slots[rank] + i * 2, 2);
            const float value = from_bf16(to_bf16(from_bf16(bits) * scale));
            sum = rank == 0 ? value : from_bf16(to_bf16(sum + value));
        }
        bits = to_bf16(sum);
        std::memcpy(out + i * 2, &bits, 2);
    }
}

bool same_everywhere(FakeComm &comm, const Operation &op)
{
    const std::string text = op.text();
    std::snprintf(comm.shared->now[comm.rank].text, sizeof(Description), "%s", text.c_str());
    if (!barrier(comm))
        return false;
    for (int rank = 0; rank < comm.size; ++rank)
        if (text != comm.shared->now[rank].text) {
            comm.error_text = "rank " + std::to_string(comm.rank) + ": " + text + "; rank " + std::to_string(rank) + ": " +
                              comm.shared->now[rank].text;
            violation("ranks differ: " + comm.error_text);
            comm.error = internal_error;
            comm.shared->torn = 1;
            return false;
        }
    return barrier(comm);
}

/// As a kernel on its stream: waits for all ranks, moves the data.
void run(FakeComm &comm, const Operation &op)
{
    if (comm.dead() || !same_everywhere(comm, op))
        return;
    const std::size_t size = bytes_of(op.type), most = kSlotBytes / size;
    for (std::size_t first = 0; first < op.count; first += most) {
        const std::size_t count = std::min(most, op.count - first);
        const auto *const send = static_cast<const unsigned char *>(op.send) + first * size;
        auto *const receive = static_cast<unsigned char *>(op.receive) + first * size;
        if (op.kind != "broadcast" || comm.rank == op.root)
            std::memcpy(comm.shared->slots[comm.rank], send, count * size);
        if (!barrier(comm))
            return;
        if (op.kind == "broadcast")
            std::memcpy(receive, comm.shared->slots[op.root], count * size);
        else if (op.kind == "all-reduce" || comm.rank == op.root) {
            op.type == float64 ? add_up<double>(comm, op, count, receive)
            : op.type == float32 ? add_up<float>(comm, op, count, receive)
                                 : add_up_bf16(comm, op, count, receive);
        }
        if (!barrier(comm))
            return;
    }
}

void launch(FakeComm *comm)
{
    for (const Operation &op : comm->deferred)
        enqueue(op.stream, [comm, op] { run(*comm, op); });
    comm->deferred.clear();
}

void finish_split(FakeComm &parent)
{
    SplitEntry *const row = parent.shared->splits[parent.split_number % kMaxSplits];
    std::vector<std::pair<int, int>> members; // key, rank
    for (int rank = 0; rank < parent.size; ++rank)
        if (row[rank].color == parent.my_color)
            members.push_back({row[rank].key, rank});
    parent.splitting = false;
    if (parent.my_color == kNoColor)
        return;
    std::sort(members.begin(), members.end());
    auto child = std::make_unique<FakeComm>();
    child->size = static_cast<int>(members.size());
    for (const auto &[key, rank] : members) {
        if (rank == parent.rank)
            child->rank = static_cast<int>(child->world_ranks.size());
        child->world_ranks.push_back(parent.world_ranks[static_cast<std::size_t>(rank)]);
    }
    child->name = parent.name + "." + std::to_string(parent.split_number) + "." + std::to_string(parent.my_color);
    child->joining = open_shared(*child);
    if (!child->joining)
        parent.error = system_error;
    *parent.split_out = child.release();
}

/// One look at what goes on in the background.
void advance(FakeComm &comm)
{
    if (comm.polls > 0)
        --comm.polls;
    if (comm.joining && comm.shared->attached == comm.size)
        comm.joining = false;
    if (comm.splitting) {
        SplitEntry *const row = comm.shared->splits[comm.split_number % kMaxSplits];
        const bool all = std::all_of(row, row + comm.size,
                                     [&](const SplitEntry &entry) { return entry.published == comm.split_number; });
        if (all)
            finish_split(comm);
    }
    if (comm.polls == 0)
        launch(&comm);
}

bool busy(const FakeComm &comm) { return comm.polls > 0 || comm.joining || comm.splitting || !comm.deferred.empty(); }

std::string rank_text(const FakeComm &comm)
{
    std::string text = "rank " + std::to_string(comm.world_ranks[static_cast<std::size_t>(comm.rank)]) + " of ";
    for (std::size_t i = 0; i < comm.world_ranks.size(); ++i)
        text += (i ? "," : "") + std::to_string(comm.world_ranks[i]);
    return text;
}

// Of the calling thread: operations between ncclGroupStart and ncclGroupEnd.
thread_local int group_depth = 0;
thread_local std::vector<std::pair<FakeComm *, Operation>> group;

bool overlap(const Operation &a, const Operation &b)
{
    const auto *const first_a = static_cast<const unsigned char *>(a.receive);
    const auto *const first_b = static_cast<const unsigned char *>(b.receive);
    return first_a < first_b + b.count * bytes_of(b.type) && first_b < first_a + a.count * bytes_of(a.type);
}

void close_group()
{
    Recorder &record = recorder();
    const std::lock_guard lock(record.mutex);
    ++record.groups;
    for (std::size_t i = 0; i < group.size(); ++i) {
        const auto &[comm, op] = group[i];
        record.lines += rank_text(*comm) + ": " + op.text() + " group " + std::to_string(record.groups) + "\n";
        for (std::size_t j = 0; j < i; ++j)
            if (overlap(group[j].second, op))
                violation("dependent operations in one group: " + group[j].second.text() + " and " + op.text());
    }
    if (reverse)
        std::reverse(group.begin(), group.end());
    for (auto &[comm, op] : group) {
        comm->deferred.push_back(op);
        comm->polls = 3;
    }
    group.clear();
}

int add(FakeComm *comm, Operation op)
{
    if (comm == nullptr || op.root < 0 || op.root >= comm->size || (op.operation != kSum && op.operation != kAvg))
        return invalid_argument;
    if (busy(*comm))
        violation(op.text() + " on a communicator that is still in progress");
    group.push_back({comm, std::move(op)});
    if (group_depth == 0)
        close_group();
    return in_progress;
}

std::atomic<int> next_id{0};

} // namespace
} // namespace jigsaw::tests::fake

using namespace jigsaw::tests::fake;

#define ENTER(name)                                                                                                    \
    if (const int injected_code = enter(name))                                                                         \
    return injected_code

FAKE_API void fake_reverse_groups(int on) { reverse = on != 0; }
FAKE_API const char *fake_record(void)
{
    static thread_local std::string copy;
    const std::lock_guard lock(recorder().mutex);
    copy = recorder().lines;
    return copy.c_str();
}
FAKE_API void fake_clear(void)
{
    const std::lock_guard lock(recorder().mutex);
    recorder().lines.clear();
}

FAKE_API const char *ncclGetErrorString(int error)
{
    switch (error) {
    case success: return "no error";
    case system_error: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case internal_error: return "internal error";
    case invalid_usage: return "invalid usage";
    default: return "fake error";
    }
}
FAKE_API const char *ncclGetLastError(void *comm)
{
    return comm ? static_cast<FakeComm *>(comm)->error_text.c_str() : "";
}
FAKE_API int ncclGetVersion(int *ret_version)
{
    ENTER("ncclGetVersion");
    *ret_version = 21803;
    return success;
}

struct FakeId {
    char bytes[128];
};
FAKE_API int ncclGetUniqueId(FakeId *ret_id)
{
    ENTER("ncclGetUniqueId");
    // Never that of an earlier process of this number: a killed one leaves its file behind.
    const long long now = std::chrono::system_clock::now().time_since_epoch().count();
    std::snprintf(ret_id->bytes, sizeof ret_id->bytes, "/jigsaw-fake-nccl-%d-%d-%lld", getpid(), next_id++, now);
    return success;
}

struct FakeConfig {
    std::size_t size;
    unsigned magic, version;
    int blocking;
};
FAKE_API int ncclCommInitRankConfig(void **ret_comm, int ranks, FakeId id, int rank, FakeConfig *config)
{
    ENTER("ncclCommInitRankConfig");
    if (config == nullptr || config->magic != 0xcafebeef || config->blocking != 0 || ranks > kMaxRanks)
        return invalid_argument;
    auto comm = std::make_unique<FakeComm>();
    comm->name = id.bytes;
    comm->rank = rank;
    comm->size = ranks;
    for (int r = 0; r < ranks; ++r)
        comm->world_ranks.push_back(r);
    if (!open_shared(*comm))
        return system_error;
    comm->joining = true;
    *ret_comm = comm.release();
    return in_progress;
}
FAKE_API int ncclCommSplit(FakeComm *comm, int color, int key, FakeComm **ret_comm, FakeConfig *config)
{
    ENTER("ncclCommSplit");
    if (config == nullptr || config->magic != 0xcafebeef || config->blocking != 0)
        return invalid_argument;
    if (busy(*comm))
        violation("ncclCommSplit on a communicator that is still in progress");
    *ret_comm = nullptr;
    comm->split_out = ret_comm;
    comm->my_color = color;
    comm->splitting = true;
    ++comm->split_number;
    SplitEntry &mine = comm->shared->splits[comm->split_number % kMaxSplits][comm->rank];
    mine.color = color;
    mine.key = key;
    mine.published = comm->split_number;
    {
        const std::lock_guard lock(recorder().mutex);
        recorder().lines += rank_text(*comm) + ": split color " + std::to_string(color) + " key " + std::to_string(key) + "\n";
    }
    return in_progress;
}
FAKE_API int ncclCommDestroy(FakeComm *comm)
{
    if (busy(*comm))
        violation("ncclCommDestroy of a communicator that is still in progress");
    delete comm;
    ENTER("ncclCommDestroy");
    return success;
}
/// The object stays: operations that are queued look at it.
FAKE_API int ncclCommAbort(FakeComm *comm)
{
    static std::vector<FakeComm *> *const graveyard = new std::vector<FakeComm *>;
    comm->aborted = true;
    shm_unlink(comm->name.c_str());
    {
        const std::lock_guard lock(recorder().mutex);
        graveyard->push_back(comm);
    }
    ENTER("ncclCommAbort");
    return success;
}
FAKE_API int ncclCommGetAsyncError(FakeComm *comm, int *ret_error)
{
    ENTER("ncclCommGetAsyncError");
    advance(*comm);
    *ret_error = comm->error != 0 ? comm->error.load() : busy(*comm) ? static_cast<int>(in_progress) : success;
    return success;
}
FAKE_API int ncclGroupStart(void)
{
    ENTER("ncclGroupStart");
    ++group_depth;
    return success;
}
FAKE_API int ncclGroupEnd(void)
{
    const int code = enter("ncclGroupEnd");
    if (--group_depth == 0) {
        if (code != 0)
            group.clear();
        else
            close_group();
    }
    return code != 0 ? code : static_cast<int>(in_progress);
}
FAKE_API int ncclAllReduce(const void *send, void *receive, std::size_t count, int type, int operation, FakeComm *comm,
                           void *stream)
{
    ENTER("ncclAllReduce");
    return add(comm, {"all-reduce", send, receive, count, type, operation, 0, stream});
}
FAKE_API int ncclReduce(const void *send, void *receive, std::size_t count, int type, int operation, int root,
                        FakeComm *comm, void *stream)
{
    ENTER("ncclReduce");
    return add(comm, {"reduce", send, receive, count, type, operation, root, stream});
}
FAKE_API int ncclBroadcast(const void *send, void *receive, std::size_t count, int type, int root, FakeComm *comm,
                           void *stream)
{
    ENTER("ncclBroadcast");
    return add(comm, {"broadcast", send, receive, count, type, kSum, root, stream});
}
