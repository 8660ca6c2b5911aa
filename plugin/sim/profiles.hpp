// SPDX-License-Identifier: Apache-2.0
// Costs of models by number of GPUs, from a table: what a trace does not say of its jobs.
#ifndef JIGSAW_SIM_PROFILES_HPP
#define JIGSAW_SIM_PROFILES_HPP

#include "plugin/sim/workload.hpp"

#include <string>
#include <vector>

namespace jigsaw::sim {

class ProfileBook {
  public:
    void add(const JobType &type);
    bool empty() const { return types_.empty(); }
    std::vector<std::string> models() const; ///< in the table's order
    /// The row with the fewest GPUs that are not fewer than `gpus`, else the one with the most; renamed to `gpus`.
    /// Throws InputError when the model has none.
    JobType type(const std::string &model, int gpus) const;

  private:
    std::vector<JobType> types_;
};

/// CSV or (a name that ends in .json) JSON. CSV columns: model, num_gpu, iteration_time_ms, resource_time_0_ms (host),
/// _1_ms (GPU), _2_ms (network); or our own: model, num_gpu, iteration_ms, forward_ms, backward_ms (one number, or
/// one per level joined by '/'), network_ms and, where known, cpu_ms, io_ms, host_capacity, restart_s. JSON: an array of
/// objects with those keys, backward_ms a number or an array. jigsaw-sim(1) has an example of each.
ProfileBook read_profiles(const std::string &path);

/// A curve of depth costs: CSV with columns model_batch, suffix_frac_of_bwd_convs, cum_bwd_frac, fwd_ms, bwd_ms.
/// `model`: the rows taken.
DepthCurve read_depth_costs(const std::string &path, const std::string &model);

/// Seconds to start a model again after preemption, as the peer's code has them; 10 where it has none.
double restart_seconds(const std::string &model, int gpus);

} // namespace jigsaw::sim
#endif
