// SPDX-License-Identifier: Apache-2.0
// jigsaw_config_t after validation: strings owned, environment read, defaults filled in.
#ifndef JIGSAW_CAPI_SETTINGS_HPP
#define JIGSAW_CAPI_SETTINGS_HPP

#include "runtime/page/gate.hpp"
#include "runtime/plan/roles.hpp"
#include "runtime/sync/gradient_sync.hpp"

#include <jigsaw/jigsaw.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace jigsaw::capi {

using Log = std::function<void(const std::string &)>;

struct Settings {
    std::vector<sync::BlockBuffer> blocks; ///< [0] nearest the input
    std::uint32_t rank = 0, world_size = 1, local_rank = 0;
    std::chrono::milliseconds timeout{60000};
    bool threads = false;         ///< ranks are threads of this process: backend "threads", or the host side of "nccl"
    bool nccl = false;            ///< blocks are on GPUs
    int cuda_device = -1;         ///< -1: the current one
    void *thread_world = nullptr; ///< borrowed
    bool policy_given = false;    ///< config.policy was not NULL
    plan::Policy policy = plan::Policy::full;
    std::uint32_t levels_asked = 0; ///< 0: by the policy
    std::uint32_t levels = 1, full_workers = 1;
    std::uint64_t warmup_iterations = 0, seed = 0, first_iteration = 0;
    double min_depth_fraction = 0;
    sync::Strategy strategy = sync::Strategy::automatic;
    std::string directive_log, replay_log; ///< empty: none
    Log log;
    std::function<bool()> on_wake; ///< empty: none; false ends the wait

    bool agent_given = false; ///< JIGSAW_SOCKET is set
    page::AttachRequest agent;

    std::uint32_t num_blocks() const { return static_cast<std::uint32_t>(blocks.size()); }
};

/// Reads the configuration and the environment. Throws jigsaw::Error {JIGSAW_INVALID_ARGUMENT} with one line that names
/// the field, its value and the limit.
Settings make_settings(const jigsaw_config_t *config);

/// Throws as make_settings() does, in the name of `call`.
std::vector<sync::BlockBuffer> checked_blocks(const char *call, const jigsaw_block_t *blocks, std::uint32_t num_blocks);
/// `levels` from what was asked for, the policy and the number of blocks.
void choose_levels(Settings *settings);

} // namespace jigsaw::capi
#endif
