// SPDX-License-Identifier: GPL-2.0-or-later
// Victims of preemption and the jobs that share GPUs with them: nobody is killed for nothing. cons_tres sorts the list of
// candidates anew while it looks for the fewest victims, so its answer is closed here.
#ifndef JIGSAW_SELECT_PREEMPT_HPP
#define JIGSAW_SELECT_PREEMPT_HPP

#include "plugin/select/admission.hpp"
#include "plugin/select/occupancy.hpp"

namespace jigsaw::select {

/// For a newcomer that wants GPUs of its own: every candidate that shares a GPU on the chosen nodes with a victim goes,
/// too; without that the victim's GPU stays taken and the next try comes a minute later.
void take_neighbours_along(const Occupancy &occupancy, const JobTest &test);

/// For a newcomer that shares: add candidates until the GPUs chosen for it are open. False: a job that may not be
/// preempted stands in the way; nobody is preempted then.
bool open_for_sharing(const Occupancy &occupancy, const JobTest &test, const FutureAdmission &admission);

} // namespace jigsaw::select
#endif
