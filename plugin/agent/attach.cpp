// SPDX-License-Identifier: Apache-2.0
// The checks of ATTACH, one function each.
#include "plugin/agent/attach.hpp"

#include "plugin/agent/proc.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace jigsaw::agent {

namespace {

struct NumberField {
    const char *key;
    std::uint64_t lowest, highest, fallback;
    bool required;
};

/// A number of the message; false with *ret_refusal when it is missing or out of range.
bool read_number(std::uint64_t *ret_value, std::optional<Refusal> *ret_refusal, const wire::Message &message,
                 const NumberField &field)
{
    const std::string *text = message.find(field.key);
    if (text == nullptr && !field.required) {
        *ret_value = field.fallback;
        return true;
    }
    if (text != nullptr && wire::parse_unsigned(ret_value, *text, field.lowest, field.highest))
        return true;
    *ret_refusal = Refusal{"BAD_VALUE", std::string(field.key) + "=" + (text ? *text : "") + ": a number from " +
                                            std::to_string(field.lowest) + " to " + std::to_string(field.highest) +
                                            " is needed"};
    return false;
}

/// Highest protocol that both speak; 0: none. "A-B".
std::uint64_t common_protocol(const std::string &range)
{
    const std::size_t dash = range.find('-');
    std::uint64_t low = 0, high = 0;
    if (dash == std::string::npos || !wire::parse_unsigned(&low, range.substr(0, dash), 1, UINT32_MAX) ||
        !wire::parse_unsigned(&high, range.substr(dash + 1), low, UINT32_MAX))
        return 0;
    const std::uint64_t highest = std::min<std::uint64_t>(high, wire::kProtocolMax);
    return highest >= std::max<std::uint64_t>(low, wire::kProtocolMin) ? highest : 0;
}

} // namespace

std::optional<Refusal> parse_attach(AttachOrder *ret_order, const wire::Message &message)
{
    AttachOrder order;
    const std::string *proto = message.find("proto");
    order.protocol = common_protocol(proto ? *proto : "");
    if (order.protocol == 0)
        return Refusal{"VERSION", "proto=" + (proto ? *proto : "") + ": this jigsawd speaks " +
                                      std::to_string(wire::kProtocolMin) + "-" +
                                      std::to_string(wire::kProtocolMax)};
    const NumberField fields[] = {{"job", 1, UINT32_MAX, 0, true},
                                  {"restart", 0, UINT32_MAX, 0, false},
                                  {"step", 0, UINT32_MAX, 0, false},
                                  {"world", 1, kMaxWorld, 1, false},
                                  {"rank", 0, kMaxWorld - 1, 0, false},
                                  {"local_rank", 0, kMaxWorld - 1, 0, false},
                                  {"generation", 0, UINT64_MAX / 2, 0, false}};
    std::uint64_t values[std::size(fields)] = {};
    std::optional<Refusal> refusal;
    for (std::size_t i = 0; i < std::size(fields); ++i) {
        if (!read_number(&values[i], &refusal, message, fields[i]))
            return refusal;
    }
    order.job = {static_cast<core::JobId>(values[0]), static_cast<std::uint32_t>(values[1])};
    order.step = static_cast<std::uint32_t>(values[2]);
    order.world_size = static_cast<std::uint32_t>(values[3]);
    order.rank = static_cast<std::uint32_t>(values[4]);
    order.local_rank = static_cast<std::uint32_t>(values[5]);
    order.generation = values[6];
    if (order.rank >= order.world_size)
        return Refusal{"BAD_VALUE", "rank=" + std::to_string(order.rank) + ": must be below world=" +
                                        std::to_string(order.world_size)};
    if (const std::string *token = message.find("token"))
        order.token = *token;
    if (const std::string *gpu = message.find("gpu"))
        order.gpu = *gpu;
    *ret_order = std::move(order);
    return std::nullopt;
}

bool equal_secret(const std::string &a, const std::string &b)
{
    unsigned different = a.size() == b.size() ? 0 : 1;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
        different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
    return different == 0;
}

std::optional<Refusal> check_right(const AttachOrder &order, const Peer &peer, const Job *job,
                                   const std::string &why_no_job)
{
    const std::string name = config::registration_file_name(order.job.first, order.job.second);
    if (job == nullptr || !job->listed)
        return Refusal{"NO_JOB", "job " + name + " is not registered on this node (" +
                                     (why_no_job.empty() ? "its record is gone" : why_no_job) +
                                     "): is spank_jigsaw in plugstack.conf and PrologFlags=Alloc in slurm.conf?"};
    if (job->record.uid != peer.uid)
        return Refusal{"NOT_YOURS", "job " + name + " is not a job of uid " + std::to_string(peer.uid)};
    if (job->record.token_sha256.empty() ||
        !equal_secret(config::sha256_hex(order.token), job->record.token_sha256))
        return Refusal{"BAD_TOKEN",
                       "job " + name + ": the token is not the job's; JIGSAW_TOKEN is set by spank_jigsaw"};
    return std::nullopt;
}

std::optional<Refusal> choose_gpu(int *ret_gpu, const AttachOrder &order, const Job &job,
                                  const std::map<std::string, int> &uuid_indices)
{
    const std::vector<int> &gpus = job.record.gpus;
    if (gpus.empty())
        return Refusal{"NO_GPU", "the job has no GPU on this node"};
    int gpu = gpus[order.local_rank % gpus.size()];
    std::uint64_t index = 0;
    if (const auto uuid = uuid_indices.find(order.gpu); uuid != uuid_indices.end())
        gpu = uuid->second;
    else if (wire::parse_unsigned(&index, order.gpu, 0, 4095))
        gpu = static_cast<int>(index);
    else if (!order.gpu.empty() && !uuid_indices.empty())
        return Refusal{"NO_GPU", "gpu=" + order.gpu + ": no GPU of this node has this UUID"};
    if (!job.has_gpu(gpu))
        return Refusal{"NO_GPU", "gpu=" + std::to_string(gpu) + ": not one of the job's GPUs on this node"};
    *ret_gpu = gpu;
    return std::nullopt;
}

std::optional<Refusal> identify(UniqueFd *ret_pidfd, std::uint64_t *ret_start_ticks, const Peer &peer)
{
    const Refusal gone{"GONE", "process " + std::to_string(peer.pid) + " is gone"};
    ProcStat before, after;
    if (peer.pid <= 0 || !read_proc_stat(&before, peer.pid))
        return gone;
    UniqueFd pidfd = open_pidfd(peer.pid);
    if (!pidfd)
        return errno == ESRCH ? gone : Refusal{"SYSTEM", std::string("pidfd_open: ") + std::strerror(errno)};
    if (!read_proc_stat(&after, peer.pid) || after.start_ticks != before.start_ticks)
        return gone;
    pollfd dead{pidfd.get(), POLLIN, 0};
    if (poll(&dead, 1, 0) != 0)
        return gone;
    // A tick's rounding apart, whoever connected was there before the connection.
    const auto ticks_per_s = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
    if (before.start_ticks > peer.accepted_ns / (1000000000u / ticks_per_s) + 2)
        return gone;
    *ret_pidfd = std::move(pidfd);
    *ret_start_ticks = before.start_ticks;
    return std::nullopt;
}

} // namespace jigsaw::agent
