// SPDX-License-Identifier: GPL-2.0-or-later
// Are Slurm's structures what this plugin was built for? Slurm itself refuses another release, but layouts have changed
// inside one (a source tree that is not quite the running package: slurm-facts 3.4). Checked when first used, by reading
// memory through the kernel, so that a wrong pointer is an answer and not a crash.
#ifndef JIGSAW_SELECT_SELFCHECK_HPP
#define JIGSAW_SELECT_SELFCHECK_HPP

#include "plugin/select/shim.hpp"

namespace jigsaw::select {

/// "" when all is well, else what is wrong.
std::string check_job(const job_record_t *job);
std::string check_nodes();

} // namespace jigsaw::select
#endif
