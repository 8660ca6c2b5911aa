// SPDX-License-Identifier: Apache-2.0
// ATTACH: who may, and what is checked before. docs/protocol.md "Registration" 3.
#ifndef JIGSAW_AGENT_ATTACH_HPP
#define JIGSAW_AGENT_ATTACH_HPP

#include "plugin/agent/process.hpp"
#include "plugin/agent/server.hpp"

#include <map>
#include <optional>
#include <string>

namespace jigsaw::agent {

/// What a client asks for, range-checked.
struct AttachOrder {
    JobKey job;
    std::uint32_t step = 0, rank = 0, local_rank = 0, world_size = 1;
    std::string token, gpu;
    std::uint64_t generation = 0;
    std::uint64_t protocol = 1; ///< highest common one
};

struct Refusal {
    std::string code, text;
};

constexpr std::uint64_t kMaxWorld = 65536;

/// The order in an ATTACH message, or why it is none.
std::optional<Refusal> parse_attach(AttachOrder *ret_order, const wire::Message &message);

/// May this user attach to this job with this token? `job` nullptr: not registered here, and why.
std::optional<Refusal> check_right(const AttachOrder &order, const Peer &peer, const Job *job,
                                   const std::string &why_no_job);

/// The GPU that the rank is for: by UUID, by index, or its local rank's share of the job's GPUs; must be the job's.
std::optional<Refusal> choose_gpu(int *ret_gpu, const AttachOrder &order, const Job &job,
                                  const std::map<std::string, int> &uuid_indices);

/// Take hold of the peer's process: pidfd, with its start time read before and after, and older than the connection
/// (so that a recycled pid is not taken for the process that connected).
std::optional<Refusal> identify(UniqueFd *ret_pidfd, std::uint64_t *ret_start_ticks, const Peer &peer);

/// Equal texts? Takes the same time wherever they differ.
bool equal_secret(const std::string &a, const std::string &b);

} // namespace jigsaw::agent
#endif
