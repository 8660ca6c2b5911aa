// SPDX-License-Identifier: Apache-2.0
// Whose turn is next: least normalised progress (docs/decisions/0002-turn-order.md). A GPU has a handful of
// processes, so everything is a walk over a short vector, in an order that no hash or address decides.
#include "plugin/core/timeslice.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace jigsaw::core {

namespace {

constexpr std::size_t kTurnsKept = 100;
constexpr std::uint64_t kLeastLeaseNs = 1000000000;
constexpr double kNewest = 0.2; // weight of the newest turn in means
constexpr double kEqualProgress = 1e-6; // iterations: sums of fractions (a third of a turn, thrice) count as equal

double weight_of(double weight) { return weight > 0 ? weight : 1; }
/// Exponential mean; the first value as it is.
void average(double *mean, double value) { *mean = *mean > 0 ? (1 - kNewest) * *mean + kNewest * value : value; }

double unit_of(double unit) { return unit > 0 ? unit : 1; }

} // namespace

TurnQueue::Entry *TurnQueue::find(ProcessId id)
{
    const auto at =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry &e) { return e.process.id == id; });
    return at == entries_.end() ? nullptr : &*at;
}

const TurnQueue::Entry *TurnQueue::find(ProcessId id) const { return const_cast<TurnQueue *>(this)->find(id); }

void TurnQueue::add(const Process &process)
{
    if (Entry *known = find(process.id)) {
        known->process = process;
        return;
    }
    Entry entry;
    entry.process = process;
    entry.progress = entries_.empty() ? 0 : std::numeric_limits<double>::max();
    for (const Entry &other : entries_)
        entry.progress = std::min(entry.progress, other.progress);
    entries_.push_back(entry);
}

void TurnQueue::level()
{
    for (Entry &entry : entries_)
        entry.progress = 0;
}

void TurnQueue::remove(ProcessId id)
{
    entries_.erase(
        std::remove_if(entries_.begin(), entries_.end(), [&](const Entry &e) { return e.process.id == id; }),
        entries_.end());
    if (holder_ == id)
        holder_.reset();
}

double TurnQueue::greatest_progress_besides(ProcessId id) const
{
    double greatest = 0;
    for (const Entry &entry : entries_)
        if (entry.process.id != id)
            greatest = std::max(greatest, entry.progress);
    return greatest;
}

void TurnQueue::want(ProcessId id, std::uint64_t now_ns)
{
    Entry *entry = find(id);
    if (!entry || entry->wants)
        return;
    entry->wants = true;
    entry->want_ns = now_ns;
    if (entry->released_ns > 0 && now_ns >= entry->released_ns)
        average(&entry->mean_away_ns, static_cast<double>(now_ns - entry->released_ns));
    const double backlog = kMaxBacklog * unit_of(entry->process.unit);
    entry->progress = std::max(entry->progress, greatest_progress_besides(id) - backlog);
}

void TurnQueue::cancel(ProcessId id)
{
    if (Entry *entry = find(id))
        entry->wants = false;
}

/// How far the process is below its guaranteed share of the recent turns' time; 0: it has what it was promised.
double TurnQueue::missing_share(const Entry &entry) const
{
    const double promised = std::min(entry.process.guaranteed_share, kMaxGuarantee);
    if (!(promised > 0))
        return 0;
    double had_ns = 0, all_ns = 0;
    for (const Turn &turn : recent_) {
        all_ns += static_cast<double>(turn.length_ns);
        had_ns += turn.id == entry.process.id ? static_cast<double>(turn.length_ns) : 0;
    }
    return all_ns > 0 ? std::max(0.0, promised - had_ns / all_ns) : promised;
}

/// Is `a` to go before `b`, both of equal claim? Requests close to the first one count as simultaneous.
bool TurnQueue::before(const Entry &a, const Entry &b, std::uint64_t first_want_ns) const
{
    const bool a_early = a.want_ns < first_want_ns + kTieNs, b_early = b.want_ns < first_want_ns + kTieNs;
    if (a_early != b_early)
        return a_early;
    return std::tie(a.process.job_start_ns, a.process.job, a.process.id) <
           std::tie(b.process.job_start_ns, b.process.job, b.process.id);
}

std::optional<TurnQueue::ProcessId> TurnQueue::next(std::uint64_t now_ns) const
{
    if (holder_ || idle_until(now_ns))
        return std::nullopt;
    const Entry *found = best();
    return found ? std::optional<ProcessId>(found->process.id) : std::nullopt;
}

/// When a process that is away is expected to ask.
std::optional<std::uint64_t> TurnQueue::back_at(const Entry &entry) const
{
    if (entry.wants || entry.holds || entry.released_ns == 0 || !(entry.mean_away_ns > 0))
        return std::nullopt;
    return entry.released_ns + static_cast<std::uint64_t>(entry.mean_away_ns);
}

/// The soonest return of a process that is more than an iteration behind the next one, within the patience.
std::optional<std::uint64_t> TurnQueue::idle_until(std::uint64_t now_ns) const
{
    const Entry *first = patience_ > 0 && !holder_ ? best() : nullptr;
    std::optional<std::uint64_t> until;
    if (!first || missing_share(*first) > 0)
        return until;
    const double limit_ns = patience_ * first->mean_turn_ns;
    for (const Entry &entry : entries_) {
        const auto back_ns = back_at(entry);
        const double behind = unit_of(entry.process.unit) / weight_of(entry.process.weight);
        if (!back_ns || *back_ns <= now_ns || entry.progress + behind >= first->progress ||
            static_cast<double>(*back_ns - now_ns) > limit_ns)
            continue;
        until = std::min(until.value_or(*back_ns), *back_ns);
    }
    return until;
}

/// Of those that ask.
const TurnQueue::Entry *TurnQueue::best() const
{
    double most_missing = 0, least_progress = std::numeric_limits<double>::max();
    for (const Entry &entry : entries_)
        if (entry.wants)
            most_missing = std::max(most_missing, missing_share(entry));
    const auto owed = [&](const Entry &e) { return e.wants && missing_share(e) >= most_missing; };
    for (const Entry &entry : entries_)
        if (owed(entry))
            least_progress = std::min(least_progress, entry.progress);
    const auto stands = [&](const Entry &e) { return owed(e) && e.progress <= least_progress + kEqualProgress; };
    std::uint64_t first_want_ns = std::numeric_limits<std::uint64_t>::max() - kTieNs;
    for (const Entry &entry : entries_)
        if (stands(entry))
            first_want_ns = std::min(first_want_ns, entry.want_ns);
    const Entry *best = nullptr;
    for (const Entry &entry : entries_)
        if (stands(entry) && (!best || before(entry, *best, first_want_ns)))
            best = &entry;
    return best;
}

void TurnQueue::granted(ProcessId id, std::uint64_t now_ns)
{
    Entry *entry = find(id);
    if (!entry)
        return;
    entry->wants = false;
    entry->holds = true;
    entry->granted_ns = now_ns;
    holder_ = id;
}

void TurnQueue::remember(const Turn &turn)
{
    if (recent_.size() < kShareWindow)
        recent_.push_back(turn);
    else
        recent_[next_recent_] = turn;
    next_recent_ = (next_recent_ + 1) % kShareWindow;
}

void TurnQueue::released(ProcessId id, std::uint64_t now_ns, double iterations)
{
    if (holder_ == id)
        holder_.reset();
    Entry *entry = find(id);
    if (!entry || !entry->holds)
        return;
    entry->holds = false;
    const double advanced = (iterations > 0 ? iterations : 0) * unit_of(entry->process.unit);
    entry->progress += advanced / weight_of(entry->process.weight);
    const std::uint64_t turn_ns = now_ns > entry->granted_ns ? now_ns - entry->granted_ns : 0;
    remember({id, turn_ns});
    average(&entry->mean_turn_ns, static_cast<double>(turn_ns));
    entry->released_ns = now_ns;
    if (entry->turns_ns.size() < kTurnsKept)
        entry->turns_ns.push_back(turn_ns);
    else
        entry->turns_ns[entry->next_turn] = turn_ns;
    entry->next_turn = (entry->next_turn + 1) % kTurnsKept;
}

double TurnQueue::progress(ProcessId id) const
{
    const Entry *entry = find(id);
    return entry ? entry->progress : 0;
}

std::uint64_t TurnQueue::lease_ns(ProcessId id) const
{
    const Entry *entry = find(id);
    if (!entry || entry->turns_ns.empty())
        return kLeastLeaseNs;
    return std::max(kLeastLeaseNs, 4 * *std::max_element(entry->turns_ns.begin(), entry->turns_ns.end()));
}

} // namespace jigsaw::core
