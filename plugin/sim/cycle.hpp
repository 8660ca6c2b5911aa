// SPDX-License-Identifier: Apache-2.0
// How much jobs on one GPU slow each other: two models behind one interface, and a memory of their answers.
#ifndef JIGSAW_SIM_CYCLE_HPP
#define JIGSAW_SIM_CYCLE_HPP

#include "plugin/sim/workload.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace jigsaw::sim {

/// One job of a group at the depth it runs at.
struct CycleMember {
    double iteration_ms = 0; ///< alone, at full depth
    double host_ms = 0, host_capacity = 2;
    double gpu_ms = 0, network_ms = 0;
};

/// Slow-downs of the members of a group against their isolated runs, before the cost of switching.
class CycleModel {
  public:
    virtual ~CycleModel() = default;
    virtual const char *name() const = 0;
    virtual std::vector<double> slowdowns(const std::vector<CycleMember> &members) const = 0;
};

/// The peer's: everybody does one iteration per cycle, in a rotation of four slots (cycle_lockstep.cpp).
std::unique_ptr<CycleModel> make_lockstep_model();
/// jigsawd's turns: least normalised progress, so all are slowed alike by the busiest resource (cycle_turn.cpp).
std::unique_ptr<CycleModel> make_turn_model();

/// How sharing is priced; one per run.
struct SharingCosts {
    std::string cycle = "turn"; ///< or lockstep
    /// Of 1, 2, 3, 4 jobs on a GPU beyond what the cycle model says.
    std::array<double, kMaxSharing> slowdown = {1, 1.05, 1.05, 1.05};
    double extra_iterations = 1; ///< q
    bool force_depth = false;    ///< partial depth whenever a GPU is shared, gain or not: for the break-even of q
    bool uniform_single = false; ///< single-GPU jobs at uniform partial depth, also when alone
};
/// What Muri's simulator takes for two, three, four jobs against an isolated run: 1.33, 1.5, 1.37 over 1.015 squared.
std::array<double, kMaxSharing> peer_slowdowns();

/// A type's member value at full depth, and at the mean depth of rotating levels.
CycleMember member_of(const JobType &type);
CycleMember partial_member_of(const JobType &type, const DepthCurve &curve, bool uniform_single);

using TypeId = std::uint16_t;

/// Answers for groups of types. With partial depth a group runs at it only where the sum of rates is larger after the
/// extra iterations.
class Slowdowns {
  public:
    struct Group {
        std::array<TypeId, kMaxSharing> types{}; ///< ascending
        std::array<double, kMaxSharing> slowdown{};
        int count = 0;
        bool partial = false;
        double rate_sum = 0; ///< of 1 / slowdown

        double of(TypeId type) const
        {
            int at = 0;
            while (at + 1 < count && types[static_cast<std::size_t>(at)] != type)
                ++at;
            return slowdown[static_cast<std::size_t>(at)];
        }
    };

    Slowdowns(const Workload &workload, const SharingCosts &costs, bool partial_depth);
    const Group &group(const TypeId *types, int count) const;
    const SharingCosts &costs() const { return costs_; }
    const Workload &workload() const { return workload_; }
    bool partial_depth() const { return partial_depth_; }

  private:
    bool saves(TypeId type) const; ///< does partial depth free anything?
    Group evaluate(const std::array<TypeId, kMaxSharing> &types, int count) const;
    Group evaluate_at(const std::array<TypeId, kMaxSharing> &types, int count, bool partial) const;

    const Workload &workload_;
    SharingCosts costs_;
    bool partial_depth_;
    std::unique_ptr<CycleModel> model_;
    std::vector<CycleMember> full_, partial_;
    // Open addressing: asked a hundred million times in a long run.
    struct Slot {
        std::uint64_t key = 0; ///< 0: empty (types are kept plus one)
        std::uint32_t group = 0;
    };
    std::size_t slot_of(std::uint64_t key) const;
    void grow() const;
    mutable std::vector<Slot> slots_;
    mutable std::deque<Group> groups_; ///< answers stay where they are
};

} // namespace jigsaw::sim
#endif
