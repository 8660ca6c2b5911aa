// SPDX-License-Identifier: Apache-2.0
// Turns as jigsawd gives them, by the same function that places jobs (core::slowdown_of): whoever has made least
// progress is next, so all are slowed alike, by the sum of loads of the busiest resource. turns.cpp checks it turn by
// turn.
#include "plugin/core/prediction.hpp"
#include "plugin/sim/cycle.hpp"

#include <algorithm>

namespace jigsaw::sim {

namespace {

constexpr double kCoreHostCapacity = 2; // core counts CPU and input as two

core::Load load_of_member(const CycleMember &member)
{
    const auto share = [&](double stage_ms) { return std::min(1.0, stage_ms / member.iteration_ms); };
    core::Load load;
    load.known = true;
    load.gpu = load.gpu_partial = share(member.gpu_ms);
    load.network = load.network_partial = share(member.network_ms);
    load.host = share(member.host_ms) * kCoreHostCapacity / member.host_capacity;
    return load;
}

class TurnModel : public CycleModel {
  public:
    const char *name() const override { return "turn"; }

    std::vector<double> slowdowns(const std::vector<CycleMember> &members) const override
    {
        std::vector<core::Load> loads;
        for (const CycleMember &member : members)
            loads.push_back(load_of_member(member));
        core::SharingPolicy policy;
        policy.share_slowdown = 1; // the cost of switching is added by the caller, by number of jobs
        return std::vector<double>(members.size(), core::slowdown_of(loads, policy));
    }
};

} // namespace

std::unique_ptr<CycleModel> make_turn_model() { return std::make_unique<TurnModel>(); }

} // namespace jigsaw::sim
