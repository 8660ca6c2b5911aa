// SPDX-License-Identifier: Apache-2.0
// Reading and watching the jobs folder.
#include "plugin/agent/registry.hpp"

#include "plugin/agent/proc.hpp"
#include "plugin/config/options.hpp"
#include "runtime/page/page.hpp"

#include <dirent.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>
#include <system_error>

namespace jigsaw::agent {

namespace {

[[noreturn]] void fail(const std::string &what)
{
    throw std::system_error(errno, std::generic_category(), what);
}

void make_folder(const std::string &path, mode_t mode)
{
    if (mkdir(path.c_str(), mode) != 0 && errno != EEXIST)
        fail("mkdir " + path);
    struct stat status{};
    if (lstat(path.c_str(), &status) != 0)
        fail("stat " + path);
    if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid()) {
        errno = EPERM;
        fail(path + " is no folder of uid " + std::to_string(geteuid()) + ": remove it");
    }
    if ((status.st_mode & 07777) != mode && chmod(path.c_str(), mode) != 0)
        fail("chmod " + path);
}

/// Only root (or, in tests, the user jigsawd runs as) may leave records.
bool trustworthy(std::string *ret_why, const std::string &path)
{
    struct stat status{};
    if (lstat(path.c_str(), &status) != 0)
        *ret_why = "no such record";
    else if (!S_ISREG(status.st_mode))
        *ret_why = "not a regular file";
    else if (status.st_uid != geteuid() || (status.st_mode & 022) != 0)
        *ret_why = "owned by uid " + std::to_string(status.st_uid) + " or writable by others; must be ours alone";
    else
        return true;
    return false;
}

} // namespace

std::vector<std::string> Marks::sentences(std::uint64_t claim_bytes) const
{
    std::vector<std::string> list;
    if (never_gives_back)
        list.push_back("never gives turns back (" + std::to_string(leases_expired) + " leases expired)");
    if (computes_without_turn)
        list.push_back("computes without a turn");
    if (memory_beyond_claim > 0)
        list.push_back("uses " + config::format_size(memory_beyond_claim) + " of GPU memory, claimed " +
                       config::format_size(claim_bytes) + " (--spb-mem)");
    return list;
}

bool Job::has_gpu(int gpu) const
{
    return std::find(record.gpus.begin(), record.gpus.end(), gpu) != record.gpus.end();
}

bool Job::older_than(const Job &other) const
{
    return std::make_pair(record.start_s, record.job_id) <
           std::make_pair(other.record.start_s, other.record.job_id);
}

void make_folders(const config::NodePaths &paths)
{
    const std::size_t slash = paths.base.rfind('/');
    if (slash != std::string::npos && slash > 0 && mkdir(paths.base.substr(0, slash).c_str(), 0755) != 0 &&
        errno != EEXIST)
        fail("mkdir " + paths.base.substr(0, slash));
    make_folder(paths.base, 0755);
    make_folder(paths.jobs, 0700);
}

Registry::Registry(Loop &loop, Log &log, const config::NodePaths &paths) : loop_(loop), log_(log), paths_(paths)
{
    make_folders(paths);
    inotify_.reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!inotify_)
        fail("inotify_init1");
    if (inotify_add_watch(inotify_.get(), paths.jobs.c_str(),
                          IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_FROM) < 0)
        fail("inotify_add_watch " + paths.jobs);
    loop_.watch(inotify_.get(), EPOLLIN, Loop::Priority::client, [this](std::uint32_t) { read_events(); });
}

Registry::~Registry()
{
    loop_.forget(inotify_.get());
}

void Registry::read_events()
{
    alignas(inotify_event) char buffer[8192];
    std::set<std::string> names;
    bool overflow = false;
    ssize_t got = 0;
    while ((got = read(inotify_.get(), buffer, sizeof buffer)) > 0) {
        for (ssize_t at = 0; at < got;) {
            const auto *event = reinterpret_cast<const inotify_event *>(buffer + at);
            overflow = overflow || (event->mask & IN_Q_OVERFLOW) != 0;
            if (event->len > 0)
                names.insert(event->name);
            at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
        }
    }
    const std::uint64_t now = page::monotonic_ns();
    if (overflow)
        scan(now);
    else
        for (const std::string &name : names)
            load_file(name, now);
}

void Registry::load_file(const std::string &name, std::uint64_t now_ns)
{
    JobKey key;
    std::string why;
    if (!config::parse_registration_file_name(&key.first, &key.second, name))
        return; // temporary names of prologs
    if (access((paths_.jobs + "/" + name).c_str(), F_OK) != 0)
        mark_over(key);
    else if (!load(&why, key, now_ns))
        log_.warning("record " + name + ": " + why + "; the job gets no turns here");
}

void Registry::scan(std::uint64_t now_ns)
{
    const std::unique_ptr<DIR, int (*)(DIR *)> dir(opendir(paths_.jobs.c_str()), closedir);
    if (!dir) {
        log_.error("cannot read " + paths_.jobs + ": " + std::generic_category().message(errno));
        return;
    }
    std::set<std::string> names;
    while (const dirent *entry = readdir(dir.get()))
        names.insert(entry->d_name);
    for (auto &[key, job] : jobs_) {
        if (names.count(config::registration_file_name(key.first, key.second)) == 0)
            job.listed = false;
    }
    for (const std::string &name : names)
        load_file(name, now_ns);
}

bool Registry::load(std::string *ret_why, const JobKey &key, std::uint64_t now_ns)
{
    const std::string path = paths_.jobs + "/" + config::registration_file_name(key.first, key.second);
    std::string text;
    config::Registration record;
    if (!trustworthy(ret_why, path))
        return false;
    if (!read_file(&text, path)) {
        *ret_why = "cannot be read";
        return false;
    }
    if (!config::parse_registration(&record, ret_why, text))
        return false;
    if (JobKey{record.job_id, record.restart_count} != key) {
        *ret_why = "holds job " + config::registration_file_name(record.job_id, record.restart_count);
        return false;
    }
    const bool known = jobs_.count(key) > 0;
    Job &job = jobs_[key];
    if (!known) {
        job.weight = record.spb.weight;
        job.listed_ns = now_ns;
    }
    job.record = std::move(record);
    job.listed = true;
    return true;
}

Job *Registry::find(const JobKey &key)
{
    const auto found = jobs_.find(key);
    return found == jobs_.end() ? nullptr : &found->second;
}

Job *Registry::find(core::JobId job_id)
{
    auto after = jobs_.upper_bound(JobKey{job_id, UINT32_MAX});
    if (after == jobs_.begin() || (--after)->first.first != job_id)
        return nullptr;
    return &after->second;
}

void Registry::mark_over(const JobKey &key)
{
    if (Job *job = find(key))
        job->listed = false;
}

void Registry::forget_over(const std::function<bool(const JobKey &)> &busy)
{
    for (auto it = jobs_.begin(); it != jobs_.end();)
        it = !it->second.listed && !busy(it->first) ? jobs_.erase(it) : std::next(it);
}

void Registry::mark_all_known_at_start()
{
    for (auto &[key, job] : jobs_)
        job.known_at_start = true;
}

void Registry::sweep(const JobKey &key)
{
    const std::string name = config::registration_file_name(key.first, key.second);
    unlink((paths_.jobs + "/" + name).c_str());
    log_.info("record " + name + ": Slurm no longer knows the job; removed");
    mark_over(key);
}

} // namespace jigsaw::agent
