// SPDX-License-Identifier: GPL-2.0-or-later
// Texts that users read: the pending reason (squeue %R, scontrol), and system_comment.
#ifndef JIGSAW_SELECT_COMMENTS_HPP
#define JIGSAW_SELECT_COMMENTS_HPP

#include "plugin/select/occupancy.hpp"

namespace jigsaw::select {

/// The job's system_comment holds one segment of ours, "jigsaw:{TEXT}"; "" removes it. What others wrote there stays.
void set_system_comment(job_record_t *job, const std::string &text);

/// Say with whom a job shares, to it and to its neighbours.
void announce_sharing(const Occupancy &occupancy, core::JobId job);
/// The neighbours of a job that has left.
void announce_leaving(const Occupancy &occupancy, const std::vector<core::JobId> &neighbours);

/// Why a job waits. Slurm frees a pending reason that a select plugin sets while it decides (node_scheduler.c,
/// select_nodes()), so a thread of ours writes it once the scheduler has let go of its locks: woken by refuse(), it never
/// polls. Only jobs that Slurm lets wait for Resources are touched.
class Reasons {
  public:
    /// The instance lives until the process ends: slurmctld does not always call fini() before exit().
    static Reasons &instance();
    void refuse(job_record_t *job, const std::string &text);
    void stop();

  private:
    void work();
    void write(const std::map<core::JobId, std::string> &refusals);
    std::mutex mutex_;
    std::condition_variable wake_;
    std::map<core::JobId, std::string> refused_; ///< not yet written
    bool stopping_ = false;
    std::thread thread_; ///< started by the first refusal
};

} // namespace jigsaw::select
#endif
