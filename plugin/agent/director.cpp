// SPDX-License-Identifier: Apache-2.0
// One look at all jobs of the node: whom each shares with, what is wanted of it, what its pages say.
#include "plugin/agent/director.hpp"

#include "runtime/page/page.hpp"

#include <algorithm>
#include <numeric>

namespace jigsaw::agent {

namespace {

bool share_a_gpu(const LocalJob &a, const LocalJob &b)
{
    return std::any_of(a.processes.begin(), a.processes.end(), [&](const Process *mine) {
        return std::any_of(b.processes.begin(), b.processes.end(),
                           [mine](const Process *theirs) { return mine->gpu == theirs->gpu; });
    });
}

/// Backward time of each block as rank 0 (or whoever is here) measured it; equal shares of the whole where it did not.
std::vector<std::uint64_t> block_times(const page::ReportView &report)
{
    std::vector<std::uint64_t> times = report.block_backward_ns;
    if (std::all_of(times.begin(), times.end(), [](std::uint64_t ns) { return ns == 0; })) {
        const std::uint64_t depth = std::max(1u, report.last_depth);
        times.assign(std::max(1u, report.num_blocks), report.backward_ns / depth);
    }
    return times;
}

double ms(std::uint64_t ns)
{
    return static_cast<double>(ns) / 1e6;
}

/// Milliseconds of backward for each level of a depth table.
std::vector<double> level_times(const std::vector<std::uint32_t> &depth_of_level,
                                const std::vector<std::uint64_t> &block_ns)
{
    std::vector<double> times;
    for (const std::uint32_t depth : depth_of_level) {
        const std::size_t blocks = std::min<std::size_t>(depth, block_ns.size());
        times.push_back(ms(std::accumulate(block_ns.end() - static_cast<std::ptrdiff_t>(blocks), block_ns.end(),
                                           std::uint64_t{0})));
    }
    return times;
}

bool same_shape(const plan::Directive &a, const plan::Directive &b)
{
    if (a.policy != b.policy)
        return false;
    return a.policy == plan::Policy::full || (a.levels == b.levels && a.full_workers == b.full_workers);
}

bool same_phase(const plan::Directive &a, const plan::Directive &b)
{
    return a.policy == plan::Policy::full || (a.phase == b.phase && a.direction == b.direction);
}

std::uint32_t wanted_levels(const core::SpbRequest &request, std::uint32_t world_size)
{
    if (request.levels > 0)
        return std::min(request.levels, JIGSAW_MAX_LEVELS);
    return plan::has_two_depths(request.policy) ? 2 : std::min(world_size, JIGSAW_MAX_LEVELS);
}

template <class Values> typename Values::value_type middle(Values values)
{
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                     values.end());
    return values[values.size() / 2];
}

std::uint64_t moved(std::uint64_t iteration, std::int64_t offset)
{
    return static_cast<std::uint64_t>(std::max<std::int64_t>(0, static_cast<std::int64_t>(iteration) + offset));
}

/// GPUs of other nodes, by the rank of ours that sits there; far from any index of this node.
constexpr int kElsewhere = 1 << 20;

/// Rivals that share no GPU with the job here, as rank 0 reported them.
std::vector<jigsaw_elsewhere_t> strangers(const LocalJob &job, const std::vector<LocalJob> &rivals)
{
    std::vector<jigsaw_elsewhere_t> out;
    for (const jigsaw_elsewhere_t &elsewhere : job.rank0()->report.elsewhere) {
        const bool here = std::any_of(rivals.begin(), rivals.end(), [&](const LocalJob &rival) {
            return rival.job->record.job_id == elsewhere.job_id;
        });
        if (!here && elsewhere.own_rank < job.rank0()->world_size && elsewhere.role.world_size <= Director::kMaxWorld)
            out.push_back(elsewhere);
    }
    return out;
}

/// The rival as core sees it, on a GPU that it shares with *mine. Its times are not told over nodes: it is taken to be
/// as fast as we are. False when its directive is none that ranks could follow.
bool meet_elsewhere(core::GroupJob *ret_other, core::GroupJob *mine, const jigsaw_elsewhere_t &elsewhere,
                    const std::vector<std::uint64_t> &block_ns)
{
    const int gpu = kElsewhere + static_cast<int>(elsewhere.own_rank);
    plan::Directive directive;
    directive.generation = elsewhere.generation;
    directive.policy = static_cast<plan::Policy>(elsewhere.policy);
    directive.phase = elsewhere.phase;
    directive.direction = elsewhere.role.direction;
    directive.levels = std::max(1u, elsewhere.role.levels);
    directive.full_workers = std::max(1u, elsewhere.role.full_workers);
    directive.depth_of_level = plan::make_depth_table(directive.policy, directive.levels, block_ns);
    const auto blocks = static_cast<std::uint32_t>(block_ns.size());
    if (elsewhere.role.world_size == 0 ||
        !plan::validate(directive, elsewhere.role.world_size, blocks).empty())
        return false;
    ret_other->id = elsewhere.job_id;
    ret_other->younger = elsewhere.older == 0;
    ret_other->world_size = elsewhere.role.world_size;
    ret_other->gpu_of_rank.assign(elsewhere.role.world_size, -1);
    ret_other->gpu_of_rank[elsewhere.role.rank] = gpu;
    ret_other->iteration = moved(mine->iteration, elsewhere.role.offset);
    ret_other->forward_ms = mine->forward_ms;
    ret_other->backward_ms_of_level = level_times(directive.depth_of_level, block_ns);
    ret_other->directive = std::move(directive);
    mine->gpu_of_rank[elsewhere.own_rank] = gpu;
    return true;
}

} // namespace

plan::Directive Director::wanted(const JobKey &key) const
{
    const auto found = states_.find(key);
    return found == states_.end() ? plan::Directive{} : found->second.wanted;
}

double Director::depth_fraction(const LocalJob &job)
{
    const Process *process = job.processes.empty() ? nullptr : job.processes.front();
    if (process == nullptr || !process->report_valid || process->report.agreed.generation == 0)
        return 1;
    const page::ReportView &report = process->report;
    if (!plan::validate(report.agreed, process->world_size, std::max(1u, report.num_blocks)).empty())
        return 1;
    return process->world_size > kMaxWorld
               ? 1
               : plan::mean_depth_fraction(report.agreed, process->world_size, block_times(report));
}

std::vector<double> Director::level_costs_ms(const LocalJob &job)
{
    const Process *process = job.rank0();
    if (process == nullptr || !process->report_valid)
        return {};
    const std::vector<std::uint64_t> &blocks = process->report.block_backward_ns;
    if (blocks.empty() || std::any_of(blocks.begin(), blocks.end(), [](std::uint64_t ns) { return ns == 0; }))
        return {};
    const core::SpbRequest &request = job.job->record.spb;
    const std::uint32_t levels = wanted_levels(request, process->world_size);
    return level_times(plan::make_depth_table(request.policy, levels, blocks), blocks);
}

void Director::note_pairing(const Process &younger, const Process &older)
{
    if (!younger.report_valid || !older.report_valid)
        return;
    // The younger one is about to compute the iteration after the one it reported last.
    std::deque<std::int64_t> &offsets = states_[younger.job].offsets[older.job];
    offsets.push_back(static_cast<std::int64_t>(older.report.iteration) -
                      static_cast<std::int64_t>(younger.report.iteration) - 1);
    if (offsets.size() > kSamples)
        offsets.pop_front();
}

/// What the job follows or is about to: the newer of published and agreed.
const plan::Directive &Director::current(const State &state, const LocalJob &job) const
{
    const plan::Directive &agreed = job.rank0()->report.agreed;
    return state.wanted.generation > agreed.generation ? state.wanted : agreed;
}

core::GroupJob Director::group_job(const LocalJob &job, const plan::Directive &directive) const
{
    const Process &first = *job.processes.front();
    const page::ReportView &report = first.report;
    core::GroupJob group;
    group.id = job.job->record.job_id;
    group.world_size = first.world_size;
    group.gpu_of_rank.assign(first.world_size, -1);
    for (const Process *process : job.processes)
        group.gpu_of_rank[process->rank] = process->gpu;
    group.iteration = report.iteration;
    group.directive = directive;
    group.forward_ms = std::max(1e-3, ms(report.forward_ns));
    const std::vector<std::uint64_t> block_ns = block_times(report);
    std::vector<std::uint32_t> table = directive.depth_of_level;
    if (directive.policy == plan::Policy::full || table.size() != directive.levels) {
        // Full depth, or a directive not announced yet: the levels that would be asked for.
        const core::SpbRequest &request = job.job->record.spb;
        if (directive.policy == plan::Policy::full)
            group.directive.levels = wanted_levels(request, first.world_size);
        table = plan::make_depth_table(request.policy, group.directive.levels, block_ns);
    }
    group.backward_ms_of_level = level_times(table, block_ns);
    if (std::all_of(group.backward_ms_of_level.begin(), group.backward_ms_of_level.end(),
                    [](double t) { return t <= 0; }))
        group.backward_ms_of_level.clear(); // core assumes twice the forward time
    return group;
}

std::vector<core::GroupJob> Director::group_of(core::GroupJob *mine, const LocalJob &job,
                                               const std::vector<LocalJob> &rivals, const State &state) const
{
    std::vector<core::GroupJob> others;
    for (const LocalJob &rival : rivals) {
        if (!rival.processes.front()->report_valid || rival.processes.front()->world_size > kMaxWorld)
            continue;
        const auto published = states_.find(rival.job->key());
        const plan::Directive &agreed = rival.processes.front()->report.agreed;
        const bool pending = published != states_.end() && published->second.wanted.generation > agreed.generation;
        core::GroupJob other = group_job(rival, pending ? published->second.wanted : agreed);
        other.younger = job.job->older_than(*rival.job);
        const auto offsets = state.offsets.find(rival.job->key());
        if (offsets != state.offsets.end() && !offsets->second.empty())
            other.iteration = moved(mine->iteration, middle(offsets->second));
        others.push_back(std::move(other));
    }
    for (const jigsaw_elsewhere_t &elsewhere : strangers(job, rivals)) {
        core::GroupJob other;
        if (meet_elsewhere(&other, mine, elsewhere, block_times(job.rank0()->report)))
            others.push_back(std::move(other));
    }
    return others;
}

plan::Directive Director::decide(const LocalJob &job, const std::vector<LocalJob> &rivals, const State &state,
                                 std::uint64_t generation) const
{
    plan::Directive full;
    full.generation = generation;
    full.full_workers = std::max(1u, job.rank0()->world_size);
    const page::ReportView &report = job.rank0()->report;
    if (!settings_.depth || report.warmup_left > 0)
        return full;
    core::GroupJob mine = group_job(job, current(state, job));
    const std::vector<core::GroupJob> others = group_of(&mine, job, rivals, state);
    const bool uniform = job.job->record.spb.policy == plan::Policy::uniform;
    if (others.empty() && !uniform)
        return full;
    plan::Directive next =
        core::wanted_directive(job.job->record.spb, mine, others, report.min_full_workers, generation);
    if (next.policy == plan::Policy::full)
        return full;
    if (settings_.extra_iterations > 1 && !uniform) {
        core::GroupJob placed = group_job(job, next);
        placed.gpu_of_rank = mine.gpu_of_rank;
        if (!core::depth_pays(placed, others, core::choose_phase(placed, others), settings_.extra_iterations))
            return full;
    }
    if (!settings_.complement_phases) {
        next.phase = 0;
        next.direction = 1;
    }
    return next;
}

bool Director::worth_publishing(State &state, const plan::Directive &current, const plan::Directive &next,
                                bool group_changed, std::uint64_t now_ns) const
{
    const bool nothing_yet = current.generation == 0 && next.policy == plan::Policy::full;
    if (nothing_yet || (same_shape(current, next) && same_phase(current, next))) {
        state.other_phase_since_ns = 0;
        return false;
    }
    if (group_changed || (!same_shape(current, next) && now_ns - state.published_ns >= kSettlePhaseNs))
        return true;
    // Iteration counters are read at different moments: another phase must stay the better one for a while.
    if (state.other_phase_since_ns == 0)
        state.other_phase_since_ns = now_ns;
    return now_ns - state.other_phase_since_ns >= kSettlePhaseNs;
}

void Director::notice_agreed(State &state, const LocalJob &job, std::uint64_t now_ns)
{
    const plan::Directive &agreed = job.rank0()->report.agreed;
    if (agreed.generation == state.agreed_generation)
        return;
    state.agreed_generation = agreed.generation;
    job.job->generation = std::max(job.job->generation, agreed.generation);
    trace_.add(event_of(EventKind::agreed, *job.rank0(), now_ns));
}

void Director::direct_job(LocalJob &job, const std::vector<LocalJob> &rivals, std::uint64_t now_ns)
{
    Process &rank0 = *job.rank0();
    State &state = states_[job.job->key()];
    notice_agreed(state, job, now_ns);
    const std::size_t rivals_now = rivals.size() + strangers(job, rivals).size();
    const bool group_changed = state.rivals != rivals_now;
    if (!rank0.report_valid || rank0.report.num_blocks == 0 || rank0.world_size > kMaxWorld)
        return;
    if (now_ns < state.not_before_ns && !group_changed)
        return;
    const plan::Directive &agreed = rank0.report.agreed;
    if (state.wanted.generation == 0)
        state.wanted = agreed; // a jigsawd before us wanted it: our page says so too
    // Rank 0 may have raised what was wanted to the job's floor: as long as it follows that generation, all is well.
    const plan::Directive before = state.wanted.generation >= agreed.generation ? state.wanted : agreed;
    const std::uint64_t began_ns = page::monotonic_ns();
    const plan::Directive next = decide(job, rivals, state, job.job->generation + 1);
    state.not_before_ns = now_ns + settings_.cost_factor * (page::monotonic_ns() - began_ns);
    if (!worth_publishing(state, before, next, group_changed, now_ns)) {
        state.rivals = rivals_now;
        return;
    }
    state.rivals = rivals_now;
    state.other_phase_since_ns = 0;
    state.published_ns = now_ns;
    state.wanted = next;
    job.job->generation = next.generation;
    Event event = event_of(EventKind::directive, rank0, now_ns);
    event.generation = next.generation;
    event.phase = next.phase;
    trace_.add(event);
}

/// By the pairings where the job follows the other one, else by what both reported last.
std::int32_t Director::offset_to(const Process &process, const Job &other, std::uint64_t other_iteration) const
{
    const auto state = states_.find(process.job);
    if (state != states_.end()) {
        const auto offsets = state->second.offsets.find(other.key());
        if (offsets != state->second.offsets.end() && !offsets->second.empty())
            return static_cast<std::int32_t>(middle(offsets->second));
    }
    return static_cast<std::int32_t>(other_iteration - process.report.iteration);
}

void Director::write_page(Process &process, const std::vector<LocalJob> &jobs, bool is_rank0)
{
    page::DirectiveView view;
    const auto own = states_.find(process.job);
    if (is_rank0 && own != states_.end()) {
        view.wanted = own->second.wanted;
        view.published_ns = own->second.published_ns;
    }
    const auto mine = std::find_if(jobs.begin(), jobs.end(),
                                   [&](const LocalJob &job) { return job.job->key() == process.job; });
    for (const LocalJob &other : jobs) {
        if (&other == &*mine || view.rivals.size() >= JIGSAW_MAX_RIVALS)
            continue;
        const auto here = std::find_if(other.processes.begin(), other.processes.end(),
                                       [&](const Process *p) { return p->gpu == process.gpu; });
        if (here == other.processes.end())
            continue;
        const page::ReportView &report = (*here)->report;
        jigsaw_rival_t rival{};
        rival.job_id = other.job->record.job_id;
        rival.older = other.job->older_than(*mine->job) ? 1 : 0;
        rival.generation = report.agreed.generation;
        rival.iteration = report.iteration;
        rival.phase = report.agreed.phase;
        rival.policy = static_cast<std::uint32_t>(report.agreed.policy);
        view.rivals.push_back(rival);
        const plan::Directive &agreed = report.agreed;
        view.roles.push_back({offset_to(process, *other.job, report.iteration), (*here)->rank, (*here)->world_size,
                              agreed.levels, agreed.full_workers, agreed.direction});
    }
    page::publish_directive(process.pages.directive.get(), view);
}

void Director::direct(std::vector<LocalJob> &jobs, std::uint64_t now_ns)
{
    std::sort(jobs.begin(), jobs.end(),
              [](const LocalJob &a, const LocalJob &b) { return a.job->older_than(*b.job); });
    for (LocalJob &job : jobs) {
        if (job.rank0() == nullptr)
            continue;
        std::vector<LocalJob> rivals;
        std::copy_if(jobs.begin(), jobs.end(), std::back_inserter(rivals),
                     [&](const LocalJob &other) { return other.job != job.job && share_a_gpu(job, other); });
        direct_job(job, rivals, now_ns);
    }
    for (LocalJob &job : jobs) {
        for (Process *process : job.processes)
            write_page(*process, jobs, process == job.rank0());
    }
}

} // namespace jigsaw::agent
