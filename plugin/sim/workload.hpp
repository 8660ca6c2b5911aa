// SPDX-License-Identifier: Apache-2.0
// What a simulation is about: jobs that arrive, and what one iteration of each kind of job costs. Plain values, filled
// by the readers of traces and profiles.
#ifndef JIGSAW_SIM_WORKLOAD_HPP
#define JIGSAW_SIM_WORKLOAD_HPP

#include "plugin/core/job.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace jigsaw::sim {

constexpr int kMaxSharing = 4; ///< jobs on one GPU that the cycle models know, as the peer

/// Share of a full backward pass that the blocks nearest to the loss take, against the share of blocks. Piecewise
/// linear through (0, 0), the points, (1, 1).
class DepthCurve {
  public:
    using Point = std::pair<double, double>; ///< share of blocks, share of backward time
    DepthCurve(); ///< ResNet-50 at batch 32 on a V100: the last 25/50/75 % of conv layers take 20.88/39.05/62.52 %
    explicit DepthCurve(std::vector<Point> points); ///< ascending in both
    double share(double blocks) const;

  private:
    std::vector<Point> points_;
};

/// One iteration of one rank at full depth, alone, in milliseconds.
struct Stages {
    double iteration_ms = 0; ///< wall time; less than the sum of stages where they overlap
    double host_ms = 0;      ///< CPU and input together
    double gpu_ms = 0;
    double network_ms = 0;
    double host_capacity = 2;                      ///< host stages that run beside each other (CPU and input are two)
    double forward_share = 30.429 / (30.429 + 63.333); ///< of gpu_ms; ResNet-50 again
    std::vector<double> backward_ms_of_level;      ///< measured; empty: by the curve
};

/// Jobs of one model on one number of GPUs.
struct JobType {
    std::string model;
    int gpus = 1;
    Stages stages;
    double restart_s = 10; ///< to checkpoint, start again and load
};

struct Job {
    std::string name, user;
    int type = 0; ///< in Workload::types
    double submit_s = 0;
    double iterations = 1, iteration_s = 0; ///< alone; an isolated run is their product
    double limit_s = 0;                     ///< of time, as its user asks for; 0: none

    double isolated_s() const { return iterations * iteration_s; }
};

struct Workload {
    std::string name;
    std::vector<JobType> types;
    std::vector<Job> jobs; ///< by submit time, equal ones in the trace's order
    DepthCurve curve;
    std::size_t bad_lines = 0; ///< left out by --skip-bad
    std::size_t too_large = 0; ///< jobs left out that no node set of the cluster could hold

    int gpus_of(const Job &job) const { return types[static_cast<std::size_t>(job.type)].gpus; }
    /// The type with these values, added where there is none.
    int type_of(const JobType &type);
};

/// Nodes alike.
struct ClusterShape {
    int nodes = 8, gpus_per_node = 8;
    int gpus() const { return nodes * gpus_per_node; }
};

/// Levels of a rotating job: one per worker, at most four (more free little and cost quality).
int levels_of(int workers);
/// What the deciding code knows of a type, its levels priced by the curve.
core::Profile profile_of(const JobType &type, const DepthCurve &curve);

} // namespace jigsaw::sim
#endif
