// SPDX-License-Identifier: GPL-2.0-or-later
// See admission.hpp.
#include "plugin/select/admission.hpp"

#include "plugin/core/admission.hpp"

namespace jigsaw::select {

/// Asks about a cluster that consists of this one GPU with these residents.
bool FutureAdmission::opens(int node, int gpu, const std::vector<core::JobId> &left) const
{
    if (left.empty())
        return true;
    core::Gpu lone = cluster_.node(node).gpus.at(static_cast<std::size_t>(gpu));
    lone.residents.clear();
    core::Cluster moment;
    moment.set_node(0, cluster_.node(node).name, {lone});
    for (core::JobId id : left) {
        const core::Resident *resident = cluster_.find(id);
        if (!resident)
            return false;
        core::Resident there = *resident;
        there.where = {{0, {0}}};
        moment.add(there);
    }
    return core::Admission(moment, job_, policy_).admits(0, 0);
}

} // namespace jigsaw::select
