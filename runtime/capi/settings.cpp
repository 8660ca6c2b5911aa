// SPDX-License-Identifier: Apache-2.0
// From jigsaw_config_t and the environment to Settings. Rank and size: docs/protocol.md "Rendezvous".
#include "runtime/capi/settings.hpp"

#include "runtime/collective/error.hpp"
#include "runtime/page/wire.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace jigsaw::capi {

namespace {

[[noreturn]] void refuse(const std::string &text)
{
    throw Error(JIGSAW_INVALID_ARGUMENT, "jigsaw_attach: " + text);
}

/// Unsigned number of an environment variable; false when it is not set.
bool read_number(std::uint32_t *ret_value, const char *name, std::uint32_t lowest, std::uint32_t highest)
{
    const char *text = std::getenv(name);
    if (text == nullptr)
        return false;
    std::uint64_t value = 0;
    if (!wire::parse_unsigned(&value, text, lowest, highest))
        refuse(std::string(name) + "=" + text + " in the environment; allowed are " + std::to_string(lowest) + " to " +
               std::to_string(highest));
    *ret_value = static_cast<std::uint32_t>(value);
    return true;
}

constexpr std::uint32_t kMaxRanks = 65536;

/// RANK and WORLD_SIZE win where both are set, else SLURM_PROCID and SLURM_NTASKS.
void read_ranks(Settings *settings, const jigsaw_config_t &config)
{
    const bool launcher = std::getenv("RANK") != nullptr && std::getenv("WORLD_SIZE") != nullptr;
    if (config.world_size >= 0)
        settings->world_size = static_cast<std::uint32_t>(config.world_size);
    else
        read_number(&settings->world_size, launcher ? "WORLD_SIZE" : "SLURM_NTASKS", 1, kMaxRanks);
    if (settings->world_size < 1 || settings->world_size > kMaxRanks)
        refuse("world_size is " + std::to_string(config.world_size) + "; allowed are 1 to " + std::to_string(kMaxRanks));
    if (config.rank >= 0)
        settings->rank = static_cast<std::uint32_t>(config.rank);
    else
        read_number(&settings->rank, launcher ? "RANK" : "SLURM_PROCID", 0, kMaxRanks);
    if (settings->rank >= settings->world_size)
        refuse("rank " + std::to_string(settings->rank) + " is not below the world size " +
               std::to_string(settings->world_size) + "; set both of RANK and WORLD_SIZE, or rank and world_size");
    if (config.local_rank >= 0)
        settings->local_rank = static_cast<std::uint32_t>(config.local_rank);
    else if (!read_number(&settings->local_rank, "LOCAL_RANK", 0, kMaxRanks))
        read_number(&settings->local_rank, "SLURM_LOCALID", 0, kMaxRanks);
}

void read_policy(Settings *settings, const jigsaw_config_t &config)
{
    const std::uint32_t world = settings->world_size;
    settings->policy_given = config.policy != nullptr;
    if (config.policy != nullptr && !plan::parse_policy(&settings->policy, config.policy))
        refuse(std::string("policy is \"") + config.policy +
               "\"; allowed are full, two-level, rotate, shuffle, fixed and uniform");
    if (config.levels > JIGSAW_MAX_LEVELS)
        refuse("levels is " + std::to_string(config.levels) + "; allowed are 0 to " + std::to_string(JIGSAW_MAX_LEVELS));
    const bool uniform = settings->policy == plan::Policy::uniform;
    const std::uint32_t all = uniform ? JIGSAW_UNIFORM_PERIOD : world;
    if (config.full_workers > all)
        refuse("full_workers is " + std::to_string(config.full_workers) + " of " + std::to_string(all) +
               (uniform ? " iterations" : " ranks"));
    settings->levels_asked = config.levels;
    choose_levels(settings);
    settings->full_workers = config.full_workers != 0 ? config.full_workers : std::max(1u, all / 2);
    if (!(config.min_depth_fraction >= 0 && config.min_depth_fraction <= 1))
        refuse("min_depth_fraction is " + std::to_string(config.min_depth_fraction) + "; allowed are 0 to 1");
    settings->min_depth_fraction = config.min_depth_fraction;
    settings->warmup_iterations = config.warmup_iterations;
    settings->seed = config.seed;
    settings->first_iteration = config.first_iteration;
}

sync::Strategy read_strategy(const char *word)
{
    if (word == nullptr)
        return sync::Strategy::automatic;
    for (const sync::Strategy strategy : {sync::Strategy::automatic, sync::Strategy::scatter_gather,
                                          sync::Strategy::chain, sync::Strategy::full_all_reduce})
        if (std::string(word) == sync::strategy_name(strategy))
            return strategy;
    refuse(std::string("sync_strategy is \"") + word + "\"; allowed are default, scatter-gather, chain and full");
}

void read_backend(Settings *settings, const jigsaw_config_t &config)
{
    const std::string backend = config.backend != nullptr ? config.backend : "gloo";
    if (backend != "gloo" && backend != "nccl" && backend != "threads")
        refuse("backend is \"" + backend + "\"; allowed are gloo, nccl and threads");
    settings->nccl = backend == "nccl";
    settings->threads = backend == "threads" || (settings->nccl && config.thread_world != nullptr);
    settings->thread_world = config.thread_world;
    if (config.cuda_device < -1)
        refuse("cuda_device is " + std::to_string(config.cuda_device) + "; allowed are -1 (the current one) and up");
    settings->cuda_device = config.cuda_device;
    if (settings->threads && config.thread_world == nullptr)
        refuse("backend \"threads\" needs thread_world from jigsaw_thread_world_create()");
}

void read_callbacks(Settings *settings, const jigsaw_config_t &config)
{
    if (config.log != nullptr)
        settings->log = [log = config.log, arg = config.log_arg](const std::string &line) { log(arg, line.c_str()); };
    else
        settings->log = [](const std::string &line) { std::fprintf(stderr, "%s\n", line.c_str()); };
    if (config.wake != nullptr)
        settings->on_wake = [wake = config.wake, arg = config.wake_arg] { return wake(arg) == 0; };
}

/// What spank_jigsaw put into the task's environment. Without JIGSAW_SOCKET there is no agent to attach to.
void read_agent(Settings *settings)
{
    const char *socket = std::getenv("JIGSAW_SOCKET");
    if (socket == nullptr || *socket == '\0')
        return;
    page::AttachRequest &agent = settings->agent;
    agent.socket_path = socket;
    read_number(&agent.job_id, "JIGSAW_JOB", 0, UINT32_MAX);
    read_number(&agent.restart, "JIGSAW_RESTART", 0, UINT32_MAX);
    read_number(&agent.step_id, "JIGSAW_STEP", 0, UINT32_MAX);
    const char *token = std::getenv("JIGSAW_TOKEN");
    agent.token = token != nullptr ? token : "";
    const char *gpu = std::getenv("JIGSAW_GPU");
    agent.gpu = gpu != nullptr ? gpu : "";
    agent.rank = settings->rank;
    agent.local_rank = settings->local_rank;
    agent.world_size = settings->world_size;
    settings->agent_given = true;
}

/// Programs built with an older header know fewer fields; the rest have their defaults.
jigsaw_config_t whole_config(const jigsaw_config_t *config)
{
    constexpr std::size_t kFirstVersion = offsetof(jigsaw_config_t, cuda_device);
    if (config == nullptr)
        refuse("config is NULL; start from JIGSAW_CONFIG_INIT");
    if (config->size < kFirstVersion)
        refuse("config->size is " + std::to_string(config->size) + ", less than " + std::to_string(kFirstVersion) +
               "; start from JIGSAW_CONFIG_INIT");
    jigsaw_config_t whole = JIGSAW_CONFIG_INIT;
    std::memcpy(&whole, config, std::min(config->size, sizeof whole));
    return whole;
}

} // namespace

std::vector<sync::BlockBuffer> checked_blocks(const char *call, const jigsaw_block_t *blocks, std::uint32_t num_blocks)
{
    const auto require = [call](bool fine, const std::string &text) {
        if (!fine)
            throw Error(JIGSAW_INVALID_ARGUMENT, call + (": " + text));
    };
    require(num_blocks >= 1 && num_blocks <= JIGSAW_MAX_BLOCKS,
            "num_blocks is " + std::to_string(num_blocks) + "; allowed are 1 to " + std::to_string(JIGSAW_MAX_BLOCKS));
    require(blocks != nullptr, "blocks is NULL; give num_blocks flat gradient buffers");
    std::vector<sync::BlockBuffer> out;
    for (std::uint32_t b = 0; b < num_blocks; ++b) {
        const jigsaw_block_t &block = blocks[b];
        const std::string name = "blocks[" + std::to_string(b) + "]";
        require(block.type <= JIGSAW_BFLOAT16, name + ".type is " + std::to_string(block.type) +
                                                   "; allowed are JIGSAW_FLOAT32, JIGSAW_FLOAT64 and JIGSAW_BFLOAT16");
        require(block.count != 0 && block.data != nullptr,
                name + " is empty; give each block at least one element, or fewer blocks");
        out.push_back({block.data, block.count, static_cast<sync::DataType>(block.type)});
    }
    return out;
}

void choose_levels(Settings *settings)
{
    const std::uint32_t most = std::min<std::uint32_t>({settings->world_size, settings->num_blocks(), JIGSAW_MAX_LEVELS});
    settings->levels = settings->policy == plan::Policy::full ? 1 : settings->levels_asked;
    if (settings->levels == 0)
        settings->levels = plan::has_two_depths(settings->policy) ? 2 : most;
}

Settings make_settings(const jigsaw_config_t *given)
{
    const jigsaw_config_t whole = whole_config(given), *const config = &whole;
    Settings settings;
    read_ranks(&settings, *config);
    settings.blocks = checked_blocks("jigsaw_attach", config->blocks, config->num_blocks);
    read_policy(&settings, *config);
    read_backend(&settings, *config);
    read_callbacks(&settings, *config);
    read_agent(&settings);
    settings.strategy = read_strategy(config->sync_strategy);
    if (config->timeout_ms != 0)
        settings.timeout = std::chrono::milliseconds(config->timeout_ms);
    settings.directive_log = config->directive_log != nullptr ? config->directive_log : "";
    settings.replay_log = config->replay_log != nullptr ? config->replay_log : "";
    return settings;
}

} // namespace jigsaw::capi
