// SPDX-License-Identifier: Apache-2.0
// What goes up to the controller, by running scontrol in a thread of its own: an update blocks for 10 s when slurmctld is
// gone, and jigsawd must not link libslurm. Kept small: one segment per job in AdminComment, which everyone can read.
#ifndef JIGSAW_AGENT_PUBLISHER_HPP
#define JIGSAW_AGENT_PUBLISHER_HPP

#include "plugin/agent/command.hpp"
#include "plugin/agent/registry.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace jigsaw::agent {

constexpr std::size_t kSegmentBytes = 512;

/// `comment` with our segment "jigsaw:{...}" replaced, or added at its end; the administrator's text stays.
std::string merge_segment(const std::string &comment, const std::string &segment);
/// The AdminComment of `scontrol show job` output; empty when it has none.
std::string find_admin_comment(const std::string &show_job);

class Publisher {
  public:
    using Line = std::function<void(const std::string &)>; ///< called from the thread
    struct Settings {
        std::string scontrol = "scontrol";
        std::string slurm_conf;
        int timeout_ms = 15000;
        std::uint64_t first_backoff_ms = 1000, last_backoff_ms = 300000;
    };

    Publisher(const Settings &settings, Line warn);
    ~Publisher(); ///< ends the running scontrol, drops what waits
    Publisher(const Publisher &) = delete;

    /// Put `segment` into the job's AdminComment; a newer one replaces one that waits.
    void publish(core::JobId job, const std::string &segment);
    /// Ask whether Slurm still knows the job; unknown ones come back from take_unknown().
    void ask(core::JobId job);
    std::set<core::JobId> take_unknown();
    /// Ask for PrivateData again.
    void ask_private_data();
    void set_settings(const Settings &settings);
    /// May a user see other users' jobs? False until the controller said so.
    bool jobs_are_public() const { return jobs_are_public_.load(); }
    std::uint64_t updates() const { return updates_.load(); }
    std::uint64_t failures() const { return failures_.load(); }

  private:
    struct Work {
        bool private_data = false;
        bool update = false, ask = false;
        core::JobId job = 0;
        std::string segment;
    };
    void run();
    bool next_work(Work *ret_work, std::unique_lock<std::mutex> &lock);
    bool perform(const Work &work, const Settings &settings);
    bool update_comment(const Work &work, const Settings &settings);
    bool ask_job(core::JobId job, const Settings &settings);
    bool read_private_data(const Settings &settings);
    CommandResult scontrol(const Settings &settings, std::vector<std::string> arguments);

    Line warn_;
    std::atomic<bool> stop_{false}, jobs_are_public_{false};
    std::atomic<std::uint64_t> updates_{0}, failures_{0};
    std::mutex mutex_; ///< guards the five below
    std::condition_variable changed_;
    Settings settings_;
    std::map<core::JobId, std::string> segments_;
    std::set<core::JobId> questions_, unknown_;
    bool private_data_asked_ = true;
    std::thread thread_; ///< last: everything it uses exists
};

} // namespace jigsaw::agent
#endif
