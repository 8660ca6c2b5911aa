// SPDX-License-Identifier: Apache-2.0
// Whose turn is next on one GPU. Pure: time comes as an argument. jigsawd keeps one per GPU; jigsaw sim the
// same.
#ifndef JIGSAW_CORE_TIMESLICE_HPP
#define JIGSAW_CORE_TIMESLICE_HPP

#include "plugin/core/job.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace jigsaw::core {

/// Least normalised progress first: progress counts isolated iterations (turns of a full iteration) over weight
/// since the process became a rival; a newcomer starts at the least progress present. Ties, and requests less
/// than kTieNs apart when progress is equal, go by (job start, job id): nodes choose alike without talking. A
/// process that was away may catch up by kMaxBacklog iterations, no more: otherwise a long pause would buy it
/// the GPU alone. One whose time in the last kShareWindow turns fell below its guaranteed share comes before all
/// others. Where every process states the isolated length of its iterations (`unit`), progress is isolated time and all
/// are slowed alike; where all state 1, they advance one for one, which keeps interlocked phases still.
class TurnQueue {
  public:
    using ProcessId = std::uint64_t; ///< jigsawd's own number of a process
    static constexpr std::uint64_t kTieNs = 1000000;
    static constexpr double kMaxBacklog = 8;         ///< iterations
    static constexpr std::size_t kShareWindow = 100; ///< turns of the GPU
    static constexpr double kMaxGuarantee = 0.95;    ///< whatever is promised, the others keep the rest

    struct Process {
        ProcessId id = 0;
        JobId job = 0;
        std::uint64_t job_start_ns = 0;
        double weight = 1;
        double guaranteed_share = 0; ///< floor of the share of the time that turns took, 0..1
        double unit = 1;             ///< what one iteration counts: 1, or its isolated length in ms
    };

    void add(const Process &process);
    /// All are at equal progress from now on: for a caller that changes what progress counts.
    void level();
    void remove(ProcessId id);
    void want(ProcessId id, std::uint64_t now_ns); ///< asks for a turn
    void cancel(ProcessId id);                     ///< no longer asks
    /// May the GPU idle for a process that is owed a turn and is expected back soon? At most this share of the turn that
    /// would go before it; 0, the default: never. Jobs with short turns and long ways off the GPU need it to keep their
    /// rate beside long turns (docs/decisions/0002-turn-order.md).
    void set_patience(double share_of_turn) { patience_ = share_of_turn; }
    /// The process to grant now, nullopt when nobody asks, somebody holds or the GPU idles for somebody
    /// (idle_until()). Granting is the caller's: call granted().
    std::optional<ProcessId> next(std::uint64_t now_ns) const;
    /// When to ask next() again although nothing has happened; nullopt: the GPU does not idle for anybody.
    std::optional<std::uint64_t> idle_until(std::uint64_t now_ns) const;
    void granted(ProcessId id, std::uint64_t now_ns);
    /// The holder gave back; `iterations` it advanced (1, or a fraction for accumulation and evaluation turns).
    void released(ProcessId id, std::uint64_t now_ns, double iterations);
    std::optional<ProcessId> holder() const { return holder_; }
    std::size_t size() const { return entries_.size(); }
    double progress(ProcessId id) const;
    /// max(1 s, 4 x the longest of the last 100 turns) of the process.
    std::uint64_t lease_ns(ProcessId id) const;

  private:
    struct Entry {
        Process process;
        double progress = 0;
        bool wants = false, holds = false;
        std::uint64_t want_ns = 0, granted_ns = 0, released_ns = 0;
        double mean_turn_ns = 0, mean_away_ns = 0; ///< 0: not known yet
        std::vector<std::uint64_t> turns_ns; ///< ring of the last 100
        std::size_t next_turn = 0;
    };
    struct Turn {
        ProcessId id;
        std::uint64_t length_ns;
    };
    Entry *find(ProcessId id);
    const Entry *find(ProcessId id) const;
    double greatest_progress_besides(ProcessId id) const;
    double missing_share(const Entry &entry) const;
    void remember(const Turn &turn);
    const Entry *best() const;
    std::optional<std::uint64_t> back_at(const Entry &entry) const;
    bool before(const Entry &a, const Entry &b, std::uint64_t first_want_ns) const;

    std::vector<Entry> entries_;
    std::vector<Turn> recent_; ///< ring: the last kShareWindow turns
    std::size_t next_recent_ = 0;
    std::optional<ProcessId> holder_;
    double patience_ = 0;
};

} // namespace jigsaw::core
#endif
