// SPDX-License-Identifier: Apache-2.0
// Groups priced once and remembered; partial depth only where it gains.
#include "plugin/sim/cycle.hpp"

#include "plugin/core/load.hpp"
#include "plugin/sim/joiner.hpp"
#include "plugin/sim/text.hpp"

#include <algorithm>
#include <limits>

namespace jigsaw::sim {

namespace {

constexpr std::size_t kFirstSlots = 1024; // a power of two

} // namespace

std::array<double, kMaxSharing> peer_slowdowns()
{
    constexpr double kAlone = 1.015;
    return {1, 1.33 / (kAlone * kAlone), 1.5 / (kAlone * kAlone), 1.37 / (kAlone * kAlone)};
}

CycleMember member_of(const JobType &type)
{
    const Stages &stages = type.stages;
    return {stages.iteration_ms, stages.host_ms, stages.host_capacity, stages.gpu_ms, stages.network_ms};
}

CycleMember partial_member_of(const JobType &type, const DepthCurve &curve, bool uniform_single)
{
    CycleMember member = member_of(type);
    if (type.gpus < 2 && !uniform_single)
        return member;
    JobType priced = type;
    priced.gpus = std::max(type.gpus, uniform_single ? kMaxSharing : 1); // uniform depths are as many levels
    const core::Profile profile = profile_of(priced, curve);
    double mean_ms = 0;
    for (const double backward_ms : profile.backward_ms_of_level)
        mean_ms += backward_ms / static_cast<double>(profile.backward_ms_of_level.size());
    member.gpu_ms = profile.forward_ms + mean_ms;
    if (type.gpus > 1)
        member.network_ms *= core::partial_sync_share(spb_request(type.gpus, true), profile,
                                                     static_cast<std::uint32_t>(type.gpus));
    else
        member.iteration_ms = type.stages.iteration_ms; // rates stay against the full-depth run
    return member;
}

Slowdowns::Slowdowns(const Workload &workload, const SharingCosts &costs, bool partial_depth)
    : workload_(workload), costs_(costs), partial_depth_(partial_depth), slots_(kFirstSlots)
{
    if (costs.cycle == "turn")
        model_ = make_turn_model();
    else if (costs.cycle == "lockstep")
        model_ = make_lockstep_model();
    else
        throw InputError("'" + costs.cycle + "' is no cycle model: turn or lockstep");
    if (workload.types.size() >= std::numeric_limits<TypeId>::max())
        throw InputError(std::to_string(workload.types.size()) + " kinds of jobs, at most 65534");
    for (const JobType &type : workload.types) {
        full_.push_back(member_of(type));
        partial_.push_back(partial_member_of(type, workload.curve, costs.uniform_single));
    }
}

std::size_t Slowdowns::slot_of(std::uint64_t key) const
{
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = static_cast<std::size_t>(key * 0x9E3779B97F4A7C15ull >> 20) & mask;
    while (slots_[at].key != 0 && slots_[at].key != key)
        at = (at + 1) & mask;
    return at;
}

void Slowdowns::grow() const
{
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot &slot : old)
        if (slot.key != 0)
            slots_[slot_of(slot.key)] = slot;
}

const Slowdowns::Group &Slowdowns::group(const TypeId *types, int count) const
{
    std::array<TypeId, kMaxSharing> sorted{};
    for (int i = 0; i < count; ++i) {
        int at = i;
        for (; at > 0 && sorted[static_cast<std::size_t>(at - 1)] > types[i]; --at)
            sorted[static_cast<std::size_t>(at)] = sorted[static_cast<std::size_t>(at - 1)];
        sorted[static_cast<std::size_t>(at)] = types[i];
    }
    std::uint64_t key = 0;
    for (int i = 0; i < count; ++i)
        key = key << 16 | static_cast<std::uint64_t>(sorted[static_cast<std::size_t>(i)] + 1);
    std::size_t at = slot_of(key);
    if (slots_[at].key == 0) {
        if (groups_.size() * 2 >= slots_.size()) {
            grow();
            at = slot_of(key);
        }
        slots_[at] = {key, static_cast<std::uint32_t>(groups_.size())};
        groups_.push_back(evaluate(sorted, count));
    }
    return groups_[slots_[at].group];
}

bool Slowdowns::saves(TypeId type) const { return partial_[type].gpu_ms < full_[type].gpu_ms; }

Slowdowns::Group Slowdowns::evaluate_at(const std::array<TypeId, kMaxSharing> &types, int count, bool partial) const
{
    Group made;
    made.types = types;
    made.count = count;
    made.partial = partial;
    std::vector<CycleMember> members;
    for (int i = 0; i < count; ++i)
        members.push_back((partial ? partial_ : full_)[types[static_cast<std::size_t>(i)]]);
    const std::vector<double> slow = model_->slowdowns(members);
    for (std::size_t i = 0; i < members.size(); ++i) {
        const double q = partial && saves(types[i]) ? std::max(1.0, costs_.extra_iterations) : 1;
        made.slowdown[i] = slow[i] * q * costs_.slowdown[static_cast<std::size_t>(count - 1)];
        if (count == 1) {
            // Alone, a rotating job waits for its full-depth worker; only uniform depth makes it faster.
            const double saved_ms = partial ? full_[types[0]].gpu_ms - members[0].gpu_ms : 0;
            made.slowdown[i] = workload_.types[types[0]].gpus == 1
                                   ? q * (1 - saved_ms / full_[types[0]].iteration_ms)
                                   : 1;
        }
        made.rate_sum += 1 / made.slowdown[i];
    }
    return made;
}

Slowdowns::Group Slowdowns::evaluate(const std::array<TypeId, kMaxSharing> &types, int count) const
{
    const Group full = evaluate_at(types, count, false);
    if (!partial_depth_)
        return full;
    const Group partial = evaluate_at(types, count, true);
    const bool saving = std::any_of(types.begin(), types.begin() + count, [&](TypeId t) { return saves(t); });
    const bool forced = costs_.force_depth && count > 1 && saving;
    return forced || partial.rate_sum > full.rate_sum ? partial : full;
}

} // namespace jigsaw::sim
