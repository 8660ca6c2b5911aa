// SPDX-License-Identifier: Apache-2.0
// What jigsawd answers to STATUS and METRICS. Built from an Agent's public side; docs/agent.md names the keys.
#ifndef JIGSAW_AGENT_STATUS_HPP
#define JIGSAW_AGENT_STATUS_HPP

#include "plugin/agent/agent.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::agent {

/// The JSON document for `uid`: details of others' jobs only where it may see them.
std::string status_json(const Agent &agent, std::uint32_t uid);
/// Prometheus text (no user's name or loss in it).
std::string metrics_text(const Agent &agent);
/// Our segment of a job's AdminComment: "jigsaw:{...}", at most kSegmentBytes. `wall_s`: seconds since 1970, at now_ns.
std::string comment_segment(const LocalJob &job, std::uint64_t now_ns, std::int64_t wall_s);

/// Jobs with their processes, ordered by rank.
std::vector<LocalJob> local_jobs(const Agent &agent);
/// Time in turns of all processes of the job here, those that left included.
std::uint64_t held_ns(const LocalJob &job);
/// Share of the turn time given on the job's GPUs here, 0..1; 1 while gates are open.
double turn_share(const Agent &agent, const LocalJob &job);

} // namespace jigsaw::agent
#endif
