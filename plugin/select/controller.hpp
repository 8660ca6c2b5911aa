// SPDX-License-Identifier: GPL-2.0-or-later
// The plugin's one state and what each overridden entry point does with it. slurmctld calls under its job and node locks,
// so one thread at a time is here. Nothing here throws: trouble of ours is logged once and from then on everything is
// left to cons_tres.
#ifndef JIGSAW_SELECT_CONTROLLER_HPP
#define JIGSAW_SELECT_CONTROLLER_HPP

#include "plugin/select/decide.hpp"
#include "plugin/select/view.hpp"

namespace jigsaw::select {

class Controller {
  public:
    /// Lives until the process ends, as slurmctld's own data do.
    static Controller &instance();

    int node_init();
    int reconfigure();
    int job_test(const JobTest &test);
    int nodeinfo_set(job_record_t *job);
    int job_fini(job_record_t *job);
    int job_resized(job_record_t *job, node_record_t *node);
    int job_expand(job_record_t *from, job_record_t *to);
    int job_suspend(job_record_t *job, bool indefinitely);
    int job_resume(job_record_t *job, bool indefinitely);
    /// What was learned since the last time goes to StateSaveLocation.
    void save_profiles();

  private:
    enum class Trust { unknown, good, lost };

    /// Runs `work`; an exception ends our part of the plugin's life.
    template <class Work> void guarded(const char *what, Work work) noexcept;
    void lose_trust(const std::string &why) noexcept;
    /// May we read Slurm's records? Decided at the first job.
    bool trusted(const job_record_t *job) noexcept;
    bool may_share(const job_record_t *job) const;
    void read_configuration();
    void audit_sometimes();
    void refresh_measurements();
    int decide(const JobTest &test);
    void show_for_start(View *view, const job_record_t *job) const;
    void note_start(job_record_t *job, bool fresh);
    void note_change(job_record_t *job);

    Occupancy occupancy_;
    Accepted accepted_; ///< of the last RUN_NOW that succeeded; select_nodes() charges that job under the same locks
    Trust trust_ = Trust::unknown;
    bool prolog_at_allocation_ = false;
    bool configured_ = false;
    time_t next_audit_ = 0;
};

} // namespace jigsaw::select
#endif
