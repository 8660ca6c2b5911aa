// SPDX-License-Identifier: Apache-2.0
// Loads and slow-downs; constants and their source: docs/decisions/0001-placement.md.
#include "plugin/core/load.hpp"

#include <algorithm>
#include <numeric>

namespace jigsaw::core {

namespace {

constexpr double kHostCapacity = 2; // CPU and input are two resources (scheduling-study 1, "Muri-S sharing")

bool partial_allowed(const SpbRequest &spb, std::uint32_t workers)
{
    const bool asked = spb.mode == SpbMode::automatic || spb.mode == SpbMode::levels;
    return asked && spb.policy != plan::Policy::full && (workers >= 2 || spb.policy == plan::Policy::uniform);
}

/// Mean backward time over workers and iterations at the depth that the request allows.
double mean_backward_ms(const SpbRequest &spb, const std::vector<double> &backward_ms, std::uint32_t workers)
{
    const double full_ms = backward_ms.back();
    if (!partial_allowed(spb, workers))
        return full_ms;
    double mean_ms =
        std::accumulate(backward_ms.begin(), backward_ms.end(), 0.0) / static_cast<double>(backward_ms.size());
    if (spb.policy == plan::Policy::two_level)
        mean_ms = (full_ms + (workers - 1) * backward_ms.front()) / workers;
    if (spb.policy == plan::Policy::uniform)
        mean_ms = (full_ms + backward_ms.front()) / 2;
    return std::min(full_ms, std::max(mean_ms, spb.min_depth_fraction * full_ms));
}

/// Share of the bytes that belong to levels up to l of `levels`, counted from the loss.
double bytes_up_to(const Profile &profile, std::size_t level, std::size_t levels)
{
    const std::vector<double> &known = profile.sync_share_of_level;
    return known.size() == levels ? known[level - 1] : static_cast<double>(level) / static_cast<double>(levels);
}

/// Ranks whose depth reaches level l, one rank of `workers` at each of `levels` depths, or at two.
double contributors(const SpbRequest &spb, std::size_t level, std::size_t levels, std::uint32_t workers)
{
    if (level == 1)
        return workers;
    if (spb.policy == plan::Policy::two_level)
        return 1;
    return std::max(1.0, static_cast<double>((levels - level + 1) * workers) / static_cast<double>(levels));
}

} // namespace

double partial_sync_share(const SpbRequest &spb, const Profile &profile, std::uint32_t workers)
{
    const std::size_t levels = std::max<std::size_t>(2, profile.backward_ms_of_level.size());
    if (!partial_allowed(spb, workers) || workers < 2)
        return 1;
    if (spb.policy == plan::Policy::uniform) // the last block always, the others in half of the iterations
        return (1 + bytes_up_to(profile, 1, levels)) / 2;
    double share = 0, before = 0;
    for (std::size_t level = 1; level <= levels; ++level) {
        const double bytes = bytes_up_to(profile, level, levels);
        share += (bytes - before) * (contributors(spb, level, levels, workers) + workers - 2) / (2.0 * (workers - 1));
        before = bytes;
    }
    return std::clamp(share, 0.0, 1.0);
}

Load load_of(const SpbRequest &spb, const Profile &profile, std::uint32_t workers)
{
    Load load;
    const double turn_ms = profile.full_turn_ms();
    const double stages_ms = turn_ms + profile.network_ms + profile.cpu_ms + profile.io_ms;
    const double alone_ms = profile.iteration_ms > 0 ? profile.iteration_ms : stages_ms;
    if (!profile.known() || !(turn_ms > 0))
        return load;
    const auto share = [&](double ms) { return std::min(1.0, ms / alone_ms); };
    load.known = true;
    load.gpu = share(turn_ms);
    load.network = share(profile.network_ms);
    load.host = share(profile.cpu_ms + profile.io_ms);
    const double backward_ms = mean_backward_ms(spb, profile.backward_ms_of_level, workers);
    load.gpu_partial = load.gpu * (profile.forward_ms + backward_ms) / turn_ms;
    load.partial = load.gpu_partial < load.gpu;
    load.network_partial = load.partial ? load.network * partial_sync_share(spb, profile, workers) : load.network;
    return load;
}

double SharingCosts::of(std::size_t jobs) const
{
    if (jobs < 2)
        return 1;
    const double known = jobs <= share_slowdown_of.size() ? share_slowdown_of[jobs - 1] : share_slowdown;
    return std::max(1.0, known);
}

void LoadSum::add(const Load &load)
{
    ++jobs_;
    all_partial_ = all_partial_ && load.partial;
    gpu_ += load.gpu;
    gpu_partial_ += load.gpu_partial;
    network_ += load.network;
    network_partial_ += load.network_partial;
    host_ += load.host / kHostCapacity;
}

Slowdown LoadSum::slowdown(const SharingCosts &costs) const
{
    if (jobs_ < 2)
        return {};
    const double q = gpu_partial_ < gpu_ ? std::max(1.0, costs.extra_iterations) : 1;
    const double full = std::max({1.0, gpu_, network_, host_});
    const double partial = q * std::max({1.0, gpu_partial_, network_partial_, host_});
    return {costs.of(jobs_) * std::min(full, partial), all_partial_ && partial < full};
}

} // namespace jigsaw::core
