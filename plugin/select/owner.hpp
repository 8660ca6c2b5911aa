// SPDX-License-Identifier: GPL-2.0-or-later
// One owner per GPU while cons_tres simulates that jobs end.
//
// For backfill (WILL_RUN) and preemption cons_tres takes jobs one by one out of copies of the node records. The first of
// two residents to be taken out would clear the GPU's bit, and the second would make the counts underflow: starts too
// early, "GRES count underflow" in the log. So for the time of the call every taken GPU belongs to exactly one resident:
// the one whose leaving opens it to the job in question. Destructor: every bit as it was.
#ifndef JIGSAW_SELECT_OWNER_HPP
#define JIGSAW_SELECT_OWNER_HPP

#include "plugin/select/occupancy.hpp"

namespace jigsaw::select {

/// In which order jobs are taken out: preemption candidates as listed, then (WILL_RUN) the others as they end.
class Departures {
  public:
    /// `others_end`: jobs that are no candidates leave, too, by end time (WILL_RUN); else they stay (RUN_NOW).
    Departures(ListPtr candidates, bool others_end);
    /// Sorts jobs: first to leave, first.
    void sort(std::vector<job_record_t *> *jobs) const;

  private:
    std::pair<double, double> key(const job_record_t *job) const;
    std::map<core::JobId, int> position_; ///< among the candidates; components of a het job leave with their leader
    bool others_end_;
};

class OneOwner {
  public:
    /// Is the GPU open to the newcomer when only these residents are left?
    using Opens = std::function<bool(int node, int gpu, const std::vector<core::JobId> &left)>;

    OneOwner(const Occupancy &occupancy, const std::vector<int> &nodes, const Departures &departures, const Opens &opens);
    ~OneOwner();
    OneOwner(const OneOwner &) = delete;
    OneOwner &operator=(const OneOwner &) = delete;

  private:
    struct Edited {
        bitstr_t *live, *copy;
        uint64_t *count, old_count;
    };
    void guard_node(const Occupancy &occupancy, int node, const Departures &departures, const Opens &opens);
    void disown(job_record_t *job, int node, const std::vector<bool> &keep);
    std::vector<Edited> edited_;
};

} // namespace jigsaw::select
#endif
