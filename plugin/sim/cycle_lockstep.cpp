// SPDX-License-Identifier: Apache-2.0
// Muri's cycle (SIGCOMM 2022, section 4; constants and slots as in its simulator, Apache-2.0, of which only the rule was
// read). Four slots rotate over the resources: in each step one job uses the network, the one behind it the GPU, and the
// host stage of the next began a step earlier, since it spans two slots (CPU and input). A step ends when the longest of
// these is done. All members do one iteration per cycle, in the best order there is.
#include "plugin/sim/cycle.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace jigsaw::sim {

namespace {

constexpr int kSlots = 4;
constexpr double kSteady = 1e-3; // relative: two cycles that differ by less are the steady state

double cycle_of_order(const std::vector<CycleMember> &members, const std::vector<int> &order)
{
    const int count = static_cast<int>(members.size());
    const auto in_slot = [&](int slot) -> const CycleMember * {
        const int at = slot % kSlots;
        return at < count ? &members[static_cast<std::size_t>(order[static_cast<std::size_t>(at)])] : nullptr;
    };
    std::array<double, 2 * kSlots + 1> end{}; // [i]: when step i is over
    for (int step = 0; step < 2 * kSlots; ++step) {
        const auto i = static_cast<std::size_t>(step);
        double over = 0;
        if (const CycleMember *sends = in_slot(step + 1))
            over = std::max(over, end[i] + sends->network_ms);
        if (const CycleMember *computes = in_slot(step + 2))
            over = std::max(over, end[i] + computes->gpu_ms);
        if (const CycleMember *prepares = step > 0 ? in_slot(step + 3) : nullptr)
            over = std::max(over, end[i - 1] + prepares->host_ms);
        end[i + 1] = over;
        if (step < kSlots)
            continue;
        const double cycle = end[i + 1] - end[i - 3], before = end[i] - end[i - 4];
        if (std::fabs(cycle - before) <= kSteady * std::max(std::fabs(cycle), std::fabs(before)))
            return cycle;
    }
    return end[2 * kSlots] - end[kSlots];
}

/// A pair may also swap between two phases: host of one beside GPU and network of the other.
double two_phase_cycle(const CycleMember &a, const CycleMember &b)
{
    return std::max(a.host_ms, b.gpu_ms + b.network_ms) + std::max(b.host_ms, a.gpu_ms + a.network_ms);
}

class LockstepModel : public CycleModel {
  public:
    const char *name() const override { return "lockstep"; }

    std::vector<double> slowdowns(const std::vector<CycleMember> &members) const override
    {
        if (members.size() < 2)
            return std::vector<double>(members.size(), 1);
        std::vector<int> order(members.size());
        std::iota(order.begin(), order.end(), 0);
        double cycle_ms = std::numeric_limits<double>::max();
        do
            cycle_ms = std::min(cycle_ms, cycle_of_order(members, order));
        while (std::next_permutation(order.begin(), order.end()));
        if (members.size() == 2)
            cycle_ms = std::min(cycle_ms, two_phase_cycle(members[0], members[1]));
        std::vector<double> made;
        for (const CycleMember &member : members)
            made.push_back(cycle_ms / member.iteration_ms);
        return made;
    }
};

} // namespace

std::unique_ptr<CycleModel> make_lockstep_model() { return std::make_unique<LockstepModel>(); }

} // namespace jigsaw::sim
