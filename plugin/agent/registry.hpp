// SPDX-License-Identifier: Apache-2.0
// The jobs of this node: records that prologs leave in <run_dir>/<node>/jobs. They outlive jigsawd, so a late start or a
// restart loses nothing. A record that is gone makes a job "over"; it is forgotten when its last process is gone too
// (a killed slurmstepd leaves processes behind that still compute).
#ifndef JIGSAW_AGENT_REGISTRY_HPP
#define JIGSAW_AGENT_REGISTRY_HPP

#include "plugin/agent/log.hpp"
#include "plugin/agent/loop.hpp"
#include "plugin/config/registration.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace jigsaw::agent {

using JobKey = std::pair<core::JobId, std::uint32_t>; ///< job id, restart count

/// What jigsawd saw a job do that it should not; kept with numbers for the reader.
struct Marks {
    std::uint64_t leases_expired = 0;  ///< turns taken away because their lease ended
    std::uint64_t turns_since_expiry = 0;
    bool never_gives_back = false;
    bool computes_without_turn = false;
    std::uint64_t memory_beyond_claim = 0; ///< bytes in use when the claim was broken, 0: never

    /// One sentence each, for status, metrics and the controller.
    std::vector<std::string> sentences(std::uint64_t claim_bytes) const;
    bool any() const { return never_gives_back || computes_without_turn || memory_beyond_claim > 0; }
};

struct Job {
    config::Registration record;
    bool listed = true;            ///< its record exists
    bool known_at_start = false;   ///< was there when jigsawd started: its ranks may be out there, ungated
    double weight = 1;             ///< of turns; SET may change it
    Marks marks;
    std::uint64_t generation = 0;  ///< greatest seen, told or published
    std::uint64_t held_ns = 0;     ///< turns of processes that have left
    bool profile_told = false;     ///< the controller was told a first profile
    std::uint64_t listed_ns = 0;   ///< when jigsawd read the record

    JobKey key() const { return {record.job_id, record.restart_count}; }
    std::uint64_t start_ns() const { return static_cast<std::uint64_t>(record.start_s) * 1000000000u; }
    bool has_gpu(int gpu) const;
    /// Older first; ties by job id. docs/protocol.md: the younger job adapts to the older ones.
    bool older_than(const Job &other) const;
};

class Registry {
  public:
    /// Makes the folders of `paths` and watches jobs/. Throws std::system_error.
    Registry(Loop &loop, Log &log, const config::NodePaths &paths);
    ~Registry();
    Registry(const Registry &) = delete;

    void scan(std::uint64_t now_ns); ///< read the whole folder
    /// Read one record again; false with a line in *ret_why when there is none or it is bad.
    bool load(std::string *ret_why, const JobKey &key, std::uint64_t now_ns);
    Job *find(const JobKey &key);
    /// The job's newest restart.
    Job *find(core::JobId job_id);
    void mark_over(const JobKey &key);
    /// Erase jobs that are over and have no process, by `busy`.
    void forget_over(const std::function<bool(const JobKey &)> &busy);
    void mark_all_known_at_start();
    /// Remove the record of a job that Slurm no longer knows.
    void sweep(const JobKey &key);
    const std::map<JobKey, Job> &jobs() const { return jobs_; }
    std::map<JobKey, Job> &jobs() { return jobs_; }

  private:
    void read_events();
    void load_file(const std::string &name, std::uint64_t now_ns);

    Loop &loop_;
    Log &log_;
    config::NodePaths paths_;
    UniqueFd inotify_;
    std::map<JobKey, Job> jobs_;
};

/// Make <run_dir>/<node> (0755) and jobs/ (0700); refuses folders that another user owns.
void make_folders(const config::NodePaths &paths);

} // namespace jigsaw::agent
#endif
