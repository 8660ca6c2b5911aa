// SPDX-License-Identifier: Apache-2.0
// What stands in a page under its sequence counter: written by one thread, read by anybody, believed by nobody.
// The order (acquire loads, release stores, no fence) and why it is enough: if a reader's acquire load of a field takes
// a value of a later writing, that writing's odd counter happened before it, so the second look at the counter differs.
#include "runtime/page/page.hpp"

#include <algorithm>
#include <cmath>
#include <sched.h>

namespace jigsaw::page {
namespace {

// A lock inside a page would be a stranger's.
static_assert(__atomic_always_lock_free(sizeof(std::uint64_t), nullptr), "64-bit words of a page need no lock");
static_assert(__atomic_always_lock_free(sizeof(double), nullptr), "doubles of a page need no lock");

// A writer that is preempted in the middle is back after a few yields; one that died, or leaves its counter odd on
// purpose, costs the reader these tries and no more.
constexpr int kTries = 256;
constexpr int kTriesBeforeYield = 16;

// 36 years and an exabyte: what is more is garbage, what is less can be added up without overflow.
constexpr std::uint64_t kMaxNs = std::uint64_t{1} << 60;
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 60;
constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 60;

template <class T> T load(const T &field)
{
    T value;
    __atomic_load(&field, &value, __ATOMIC_ACQUIRE);
    return value;
}

template <class T, class V> void store(T &field, V value)
{
    T converted = static_cast<T>(value);
    __atomic_store(&field, &converted, __ATOMIC_RELEASE);
}

/// Runs `write` between an odd and an even counter. A writer that died here left it odd: the next one starts from that.
template <class Page, class Write> void under_seq(Page *page, Write write)
{
    const std::uint32_t odd = load(page->seq) | 1u;
    store(page->seq, odd);
    write();
    store(page->seq, odd + 1);
}

template <class Page, class Read> bool consistently(const Page *page, Read read)
{
    for (int attempt = 0; attempt < kTries; ++attempt) {
        const std::uint32_t before = load(page->seq);
        if (!(before & 1)) {
            read();
            if (load(page->seq) == before)
                return true;
        }
        if (attempt >= kTriesBeforeYield)
            sched_yield();
    }
    return false;
}

// The fields of each record, once for both ways: Copy is Store (into a page) or Load (out of one).
struct Store {
    template <class T> void operator()(T &to, const T &from) const { store(to, from); }
};
struct Load {
    template <class T> void operator()(T &to, const T &from) const { to = load(from); }
};

template <class Copy> void copy_fields(const Copy &copy, jigsaw_rival_t &to, const jigsaw_rival_t &from)
{
    copy(to.job_id, from.job_id);
    copy(to.older, from.older);
    copy(to.generation, from.generation);
    copy(to.iteration, from.iteration);
    copy(to.phase, from.phase);
    copy(to.policy, from.policy);
}

template <class Copy> void copy_fields(const Copy &copy, jigsaw_rival_role_t &to, const jigsaw_rival_role_t &from)
{
    copy(to.offset, from.offset);
    copy(to.rank, from.rank);
    copy(to.world_size, from.world_size);
    copy(to.levels, from.levels);
    copy(to.full_workers, from.full_workers);
    copy(to.direction, from.direction);
}

template <class Copy> void copy_fields(const Copy &copy, jigsaw_elsewhere_t &to, const jigsaw_elsewhere_t &from)
{
    copy(to.own_rank, from.own_rank);
    copy(to.job_id, from.job_id);
    copy(to.older, from.older);
    copy(to.policy, from.policy);
    copy(to.generation, from.generation);
    copy(to.phase, from.phase);
    copy_fields(copy, to.role, from.role);
}

template <class Record> void store_record(Record &to, const Record &from) { copy_fields(Store{}, to, from); }

template <class Record> Record load_record(const Record &from)
{
    Record record = {};
    copy_fields(Load{}, record, from);
    return record;
}

DirectiveView copy_directive(const jigsaw_directive_page_t *page)
{
    DirectiveView view;
    view.wanted.policy = static_cast<plan::Policy>(load(page->policy));
    view.wanted.generation = load(page->generation);
    view.wanted.seed = load(page->seed);
    view.wanted.phase = load(page->phase);
    view.wanted.direction = load(page->direction);
    view.wanted.levels = load(page->levels);
    view.wanted.full_workers = load(page->full_workers);
    view.published_ns = load(page->published_ns);
    const std::uint32_t nrivals = load(page->nrivals);
    // One too many is kept as a mark for the range check.
    view.rivals.resize(std::min(nrivals, JIGSAW_MAX_RIVALS + 1));
    for (std::uint32_t i = 0; i < std::min(nrivals, JIGSAW_MAX_RIVALS); ++i)
        view.rivals[i] = load_record(page->rivals[i]);
    for (std::uint32_t i = 0; i < std::min(nrivals, JIGSAW_MAX_RIVALS); ++i)
        view.roles.push_back(load_record(page->rival_roles[i]));
    return view;
}

bool policy_in_range(std::uint32_t policy) { return policy <= JIGSAW_POLICY_UNIFORM; }

bool rival_in_range(const jigsaw_rival_t &rival)
{
    return rival.older <= 1 && policy_in_range(rival.policy) && rival.iteration <= kMaxCount;
}

/// The fields that a page can judge; rank 0 knows world size and blocks and calls plan::validate() besides.
bool wanted_in_range(const plan::Directive &wanted)
{
    return policy_in_range(static_cast<std::uint32_t>(wanted.policy)) &&
           (wanted.direction == 1 || wanted.direction == -1) && wanted.levels >= 1 &&
           wanted.levels <= JIGSAW_MAX_LEVELS && wanted.full_workers >= 1;
}

bool in_range(const DirectiveView &view)
{
    return wanted_in_range(view.wanted) && view.rivals.size() <= JIGSAW_MAX_RIVALS &&
           std::all_of(view.rivals.begin(), view.rivals.end(), rival_in_range);
}

void store_agreed(jigsaw_report_page_t *page, const plan::Directive &agreed)
{
    store(page->agreed_generation, agreed.generation);
    store(page->agreed_first_iteration, agreed.first_iteration);
    store(page->agreed_seed, agreed.seed);
    store(page->agreed_policy, agreed.policy);
    store(page->agreed_phase, agreed.phase);
    store(page->agreed_direction, agreed.direction);
    store(page->agreed_levels, agreed.levels);
    store(page->agreed_full_workers, agreed.full_workers);
    const std::size_t entries = std::min<std::size_t>(agreed.depth_of_level.size(), JIGSAW_MAX_LEVELS);
    for (std::size_t i = 0; i < JIGSAW_MAX_LEVELS; ++i)
        store(page->depth_of_level[i], i < entries ? agreed.depth_of_level[i] : 0);
}

plan::Directive copy_agreed(const jigsaw_report_page_t *page)
{
    plan::Directive agreed;
    agreed.generation = load(page->agreed_generation);
    agreed.first_iteration = load(page->agreed_first_iteration);
    agreed.seed = load(page->agreed_seed);
    agreed.policy = static_cast<plan::Policy>(load(page->agreed_policy));
    agreed.phase = load(page->agreed_phase);
    agreed.direction = load(page->agreed_direction);
    agreed.levels = load(page->agreed_levels);
    agreed.full_workers = load(page->agreed_full_workers);
    for (std::uint32_t i = 0; i < std::min(agreed.levels, JIGSAW_MAX_LEVELS); ++i)
        agreed.depth_of_level.push_back(load(page->depth_of_level[i]));
    return agreed;
}

void copy_times(ReportView *view, const jigsaw_report_page_t *page)
{
    view->iteration = load(page->iteration);
    view->turns = load(page->turns);
    view->turn_ns = load(page->turn_ns);
    view->forward_ns = load(page->forward_ns);
    view->backward_ns = load(page->backward_ns);
    view->sync_ns = load(page->sync_ns);
    view->iteration_ns = load(page->iteration_ns);
    view->memory_bytes = load(page->memory_bytes);
    view->memory_peak_bytes = load(page->memory_peak_bytes);
}

ReportView copy_report(const jigsaw_report_page_t *page)
{
    ReportView view;
    copy_times(&view, page);
    view.loss = load(page->loss);
    view.progress = load(page->progress);
    view.depth = load(page->depth);
    view.last_depth = load(page->last_depth);
    view.num_blocks = load(page->num_blocks);
    view.agreed = copy_agreed(page);
    view.min_full_workers = load(page->min_full_workers);
    view.warmup_left = load(page->warmup_left);
    for (std::uint32_t i = 0; i < std::min(view.num_blocks, JIGSAW_MAX_BLOCKS); ++i)
        view.block_backward_ns.push_back(load(page->block_backward_ns[i]));
    const std::uint32_t nelsewhere = load(page->nelsewhere);
    view.elsewhere.resize(std::min(nelsewhere, JIGSAW_MAX_RIVALS + 1)); // one more: out of range, and seen to be
    for (std::uint32_t i = 0; i < std::min(nelsewhere, JIGSAW_MAX_RIVALS); ++i)
        view.elsewhere[i] = load_record(page->elsewhere[i]);
    return view;
}

bool times_in_range(const ReportView &view)
{
    const std::uint64_t times[] = {view.turn_ns, view.forward_ns, view.backward_ns, view.sync_ns, view.iteration_ns};
    const auto plausible = [](std::uint64_t ns) { return ns <= kMaxNs; };
    return std::all_of(std::begin(times), std::end(times), plausible) &&
           std::all_of(view.block_backward_ns.begin(), view.block_backward_ns.end(), plausible);
}

/// Generation 0 is "none yet", whatever else stands there; anything else must be a directive that ranks could follow.
bool agreed_in_range(const ReportView &view)
{
    if (view.agreed.generation == 0)
        return true;
    return view.num_blocks > 0 && view.agreed.full_workers >= 1 && view.agreed.first_iteration <= kMaxCount &&
           plan::validate(view.agreed, UINT32_MAX, view.num_blocks).empty();
}

bool elsewhere_in_range(const jigsaw_elsewhere_t &elsewhere)
{
    const jigsaw_rival_role_t &role = elsewhere.role;
    return elsewhere.older <= 1 && policy_in_range(elsewhere.policy) && role.rank < std::max(1u, role.world_size) &&
           role.levels <= JIGSAW_MAX_LEVELS && (role.direction == 1 || role.direction == -1);
}

bool in_range(const ReportView &view)
{
    const bool progress = std::isnan(view.progress) || (view.progress >= 0 && view.progress <= 1);
    return view.num_blocks <= JIGSAW_MAX_BLOCKS && view.depth <= view.num_blocks &&
           view.last_depth <= view.num_blocks && view.iteration <= kMaxCount && view.turns <= kMaxCount &&
           view.memory_bytes <= kMaxBytes && view.memory_peak_bytes <= kMaxBytes && view.min_full_workers >= 1 &&
           view.elsewhere.size() <= JIGSAW_MAX_RIVALS &&
           std::all_of(view.elsewhere.begin(), view.elsewhere.end(), elsewhere_in_range) && progress &&
           times_in_range(view) && agreed_in_range(view);
}

} // namespace

void publish_directive(jigsaw_directive_page_t *page, const DirectiveView &view)
{
    // What does not fit is left out rather than written past the end; range is the reader's business.
    const std::size_t nrivals = std::min<std::size_t>(view.rivals.size(), JIGSAW_MAX_RIVALS);
    under_seq(page, [&] {
        store(page->policy, view.wanted.policy);
        store(page->generation, view.wanted.generation);
        store(page->published_ns, view.published_ns);
        store(page->seed, view.wanted.seed);
        store(page->phase, view.wanted.phase);
        store(page->direction, view.wanted.direction);
        store(page->levels, view.wanted.levels);
        store(page->full_workers, view.wanted.full_workers);
        store(page->nrivals, nrivals);
        for (std::size_t i = 0; i < nrivals; ++i)
            store_record(page->rivals[i], view.rivals[i]);
        for (std::size_t i = 0; i < nrivals; ++i)
            store_record(page->rival_roles[i], i < view.roles.size() ? view.roles[i] : jigsaw_rival_role_t{});
    });
}

bool read_directive(DirectiveView *ret_view, const jigsaw_directive_page_t *page)
{
    DirectiveView view;
    if (!header_problem(page, JIGSAW_PAGE_MAGIC_DIRECTIVE).empty())
        return false;
    if (!consistently(page, [&] { view = copy_directive(page); }) || !in_range(view))
        return false;
    *ret_view = std::move(view);
    return true;
}

void publish_report(jigsaw_report_page_t *page, const ReportView &view)
{
    under_seq(page, [&] {
        store(page->iteration, view.iteration);
        store(page->turns, view.turns);
        store(page->turn_ns, view.turn_ns);
        store(page->forward_ns, view.forward_ns);
        store(page->backward_ns, view.backward_ns);
        store(page->sync_ns, view.sync_ns);
        store(page->iteration_ns, view.iteration_ns);
        store(page->memory_bytes, view.memory_bytes);
        store(page->memory_peak_bytes, view.memory_peak_bytes);
        store(page->loss, view.loss);
        store(page->progress, view.progress);
        store(page->depth, view.depth);
        store(page->last_depth, view.last_depth);
        store(page->num_blocks, view.num_blocks);
        store(page->min_full_workers, view.min_full_workers);
        store(page->warmup_left, view.warmup_left);
        store_agreed(page, view.agreed);
        for (std::size_t i = 0; i < JIGSAW_MAX_BLOCKS; ++i)
            store(page->block_backward_ns[i], i < view.block_backward_ns.size() ? view.block_backward_ns[i] : 0);
        const std::size_t nelsewhere = std::min<std::size_t>(view.elsewhere.size(), JIGSAW_MAX_RIVALS);
        store(page->nelsewhere, nelsewhere);
        for (std::size_t i = 0; i < nelsewhere; ++i)
            store_record(page->elsewhere[i], view.elsewhere[i]);
    });
}

bool read_report(ReportView *ret_view, const jigsaw_report_page_t *page)
{
    ReportView view;
    if (!header_problem(page, JIGSAW_PAGE_MAGIC_REPORT).empty())
        return false;
    if (!consistently(page, [&] { view = copy_report(page); }) || !in_range(view))
        return false;
    if (view.agreed.generation == 0)
        view.agreed = plan::Directive{};
    *ret_view = std::move(view);
    return true;
}

} // namespace jigsaw::page
