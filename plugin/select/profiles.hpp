// SPDX-License-Identifier: GPL-2.0-or-later
// What jigsawd measured of a job and wrote into its AdminComment, and what was measured of earlier runs under the same
// --spb-profile key: kept per user in StateSaveLocation, so that a job's second run is placed by numbers.
#ifndef JIGSAW_SELECT_PROFILES_HPP
#define JIGSAW_SELECT_PROFILES_HPP

#include "plugin/core/job.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace jigsaw::select {

struct Measured {
    core::Profile profile;
    double done_s = -1, left_s = -1; ///< isolated seconds of the run at `at_s`; negative: not known
    std::int64_t at_s = 0;           ///< since 1970
    bool misbehaving = false; ///< it keeps its turns or outgrows its claim: nobody else is sent to its GPUs
};
/// From our segment of an AdminComment; nothing measured leaves the defaults.
Measured parse_measured(const std::string &admin_comment);

/// Isolated seconds of a run that has ended well at `end_s`: what was measured, and the time since; 0: not known.
double run_of(const Measured &measured, std::int64_t end_s);

/// Replaces the file as a whole, so that a reader sees the old text or the new. False: errno says why.
bool write_whole(const std::string &path, const std::string &text);

/// `newer` where it has a number, else `older`; the costs of `older`'s levels, where `newer` has only full depth, are
/// scaled to it.
core::Profile merge_profiles(const core::Profile &older, const core::Profile &newer);

/// Thread-safe: slurmctld saves its state without its locks.
class ProfileStore {
  public:
    /// The file is replaced whole. False: *ret_why says what failed.
    bool save(std::string *ret_why, const std::string &folder);
    /// A missing file is an empty store; a line that is not one of ours is left out.
    void load(const std::string &folder);
    void learn(std::uint32_t uid, const std::string &key, const core::Profile &profile);
    core::Profile find(std::uint32_t uid, const std::string &key) const;
    bool unsaved() const;

  private:
    struct Entry {
        core::Profile profile;
        std::uint64_t age = 0; ///< the smaller, the longer ago
    };
    void forget_oldest();
    mutable std::mutex mutex_;
    std::map<std::pair<std::uint32_t, std::string>, Entry> entries_;
    std::uint64_t next_age_ = 0;
    bool unsaved_ = false;
};

} // namespace jigsaw::select
#endif
