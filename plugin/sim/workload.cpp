// SPDX-License-Identifier: Apache-2.0
// Types of jobs and what the deciding code is told of them.
#include "plugin/sim/workload.hpp"

#include <algorithm>

namespace jigsaw::sim {

namespace {

constexpr int kMostLevels = 4;
// Orion's kernel traces (MIT), resnet50, batch 32: cumulative backward time of the last conv layers.
const std::vector<DepthCurve::Point> kResNet50 = {{0.25, 0.2088}, {0.5, 0.3905}, {0.75, 0.6252}};

bool same(const Stages &a, const Stages &b)
{
    return a.iteration_ms == b.iteration_ms && a.host_ms == b.host_ms && a.gpu_ms == b.gpu_ms &&
           a.network_ms == b.network_ms && a.host_capacity == b.host_capacity &&
           a.forward_share == b.forward_share && a.backward_ms_of_level == b.backward_ms_of_level;
}

} // namespace

DepthCurve::DepthCurve() : DepthCurve(kResNet50) {}

DepthCurve::DepthCurve(std::vector<Point> points) : points_(std::move(points))
{
    points_.insert(points_.begin(), {0, 0});
    points_.emplace_back(1, 1);
}

double DepthCurve::share(double blocks) const
{
    for (std::size_t i = 1; i < points_.size(); ++i) {
        const auto &[x0, y0] = points_[i - 1];
        const auto &[x1, y1] = points_[i];
        if (blocks <= x1)
            return x1 > x0 ? y0 + (y1 - y0) * (std::max(blocks, x0) - x0) / (x1 - x0) : y1;
    }
    return 1;
}

int Workload::type_of(const JobType &type)
{
    const auto found = std::find_if(types.begin(), types.end(), [&](const JobType &known) {
        return known.model == type.model && known.gpus == type.gpus && known.restart_s == type.restart_s &&
               same(known.stages, type.stages);
    });
    if (found != types.end())
        return static_cast<int>(found - types.begin());
    types.push_back(type);
    return static_cast<int>(types.size()) - 1;
}

int levels_of(int workers) { return std::min(workers, kMostLevels); }

core::Profile profile_of(const JobType &type, const DepthCurve &curve)
{
    const Stages &stages = type.stages;
    core::Profile profile;
    profile.forward_ms = stages.gpu_ms * stages.forward_share;
    profile.network_ms = stages.network_ms;
    profile.iteration_ms = stages.iteration_ms;
    // The deciding code takes two host resources; one that is measured with another capacity is scaled to that.
    profile.cpu_ms = stages.host_ms * 2 / stages.host_capacity;
    profile.backward_ms_of_level = stages.backward_ms_of_level;
    const double backward_ms = stages.gpu_ms - profile.forward_ms;
    const int levels = levels_of(type.gpus);
    for (int level = 1; level <= levels && stages.backward_ms_of_level.empty(); ++level)
        profile.backward_ms_of_level.push_back(backward_ms * curve.share(static_cast<double>(level) / levels));
    return profile;
}

} // namespace jigsaw::sim
