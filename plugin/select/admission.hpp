// SPDX-License-Identifier: GPL-2.0-or-later
// May a job join one GPU once only certain residents are left there? core::Admission's rules, for moments that have not
// come yet: jobs that will end, jobs that would be preempted.
#ifndef JIGSAW_SELECT_ADMISSION_HPP
#define JIGSAW_SELECT_ADMISSION_HPP

#include "plugin/core/placement.hpp"

namespace jigsaw::select {

class FutureAdmission {
  public:
    FutureAdmission(const core::Cluster &cluster, const core::PlacementRequest &job, const core::SharingPolicy &policy)
        : cluster_(cluster), job_(job), policy_(policy)
    {
    }
    bool opens(int node, int gpu, const std::vector<core::JobId> &left) const;

  private:
    const core::Cluster &cluster_;
    const core::PlacementRequest &job_;
    const core::SharingPolicy &policy_;
};

} // namespace jigsaw::select
#endif
