// SPDX-License-Identifier: Apache-2.0
// The thread that runs scontrol, and the text it writes.
#include "plugin/agent/publisher.hpp"

#include <algorithm>
#include <cctype>
#include <chrono>

namespace jigsaw::agent {

namespace {

constexpr const char *kSegmentStart = "jigsaw:{";

/// End of the object that starts at the brace `at`: behind its closing brace; npos when it has none.
std::size_t end_of_object(const std::string &text, std::size_t at)
{
    int depth = 0;
    bool quoted = false;
    for (std::size_t i = at; i < text.size(); ++i) {
        const char c = text[i];
        if (quoted && c == '\\')
            ++i;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && c == '{')
            ++depth;
        else if (!quoted && c == '}' && --depth == 0)
            return i + 1;
    }
    return std::string::npos;
}

/// "   Word=" starts a new field of scontrol's multi-line form, "JobId=" another record behind a blank line.
bool starts_field(const std::string &line)
{
    std::size_t i = line.find_first_not_of(' ');
    if (i == std::string::npos || line.rfind("JobId=", 0) == 0)
        return true;
    if (i != 3)
        return false; // more of a text with line ends
    while (i < line.size() &&
           (std::isalnum(static_cast<unsigned char>(line[i])) || line[i] == ':' || line[i] == '/'))
        ++i;
    return i < line.size() && line[i] == '=';
}

/// The value of "Key = a,b" or "Key=a,b" in scontrol's output, "" without one.
std::string find_setting(const std::string &text, const std::string &key)
{
    const std::size_t at = text.find(key);
    if (at == std::string::npos)
        return "";
    const std::size_t begin = text.find_first_not_of(" \t=", at + key.size());
    return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
}

std::string first_line(const std::string &text)
{
    return text.substr(0, std::min<std::size_t>(text.find('\n'), 200));
}

} // namespace

std::string merge_segment(const std::string &comment, const std::string &segment)
{
    const std::size_t at = comment.find(kSegmentStart);
    if (at == std::string::npos)
        return comment.empty() ? segment : comment + " " + segment;
    const std::size_t end = end_of_object(comment, at + std::string(kSegmentStart).size() - 1);
    return comment.substr(0, at) + segment + (end == std::string::npos ? "" : comment.substr(end));
}

std::string find_admin_comment(const std::string &show_job)
{
    constexpr const char *kKey = "   AdminComment=";
    const std::size_t at = show_job.find(kKey);
    if (at == std::string::npos)
        return "";
    std::size_t begin = at + std::string(kKey).size();
    std::size_t end = std::min(show_job.find('\n', begin), show_job.size());
    std::string comment = show_job.substr(begin, end - begin);
    // An administrator's text may hold line ends; the record goes on at the next field.
    while (end + 1 < show_job.size()) {
        begin = end + 1;
        end = std::min(show_job.find('\n', begin), show_job.size());
        const std::string line = show_job.substr(begin, end - begin);
        if (starts_field(line))
            break;
        comment += "\n" + line;
    }
    return comment;
}

Publisher::Publisher(const Settings &settings, Line warn)
    : warn_(std::move(warn)), settings_(settings), thread_([this] { run(); })
{
}

Publisher::~Publisher()
{
    {
        const std::lock_guard<std::mutex> guard(mutex_);
        stop_.store(true);
    }
    changed_.notify_all();
    thread_.join();
}

void Publisher::publish(core::JobId job, const std::string &segment)
{
    const std::lock_guard<std::mutex> guard(mutex_);
    segments_[job] = segment;
    changed_.notify_all();
}

void Publisher::ask(core::JobId job)
{
    const std::lock_guard<std::mutex> guard(mutex_);
    questions_.insert(job);
    changed_.notify_all();
}

std::set<core::JobId> Publisher::take_unknown()
{
    const std::lock_guard<std::mutex> guard(mutex_);
    return std::exchange(unknown_, {});
}

void Publisher::ask_private_data()
{
    const std::lock_guard<std::mutex> guard(mutex_);
    private_data_asked_ = true;
    changed_.notify_all();
}

void Publisher::set_settings(const Settings &settings)
{
    const std::lock_guard<std::mutex> guard(mutex_);
    settings_ = settings;
}

/// Waits for work; false when jigsawd ends.
bool Publisher::next_work(Work *ret_work, std::unique_lock<std::mutex> &lock)
{
    changed_.wait(lock, [this] {
        return stop_.load() || private_data_asked_ || !segments_.empty() || !questions_.empty();
    });
    if (stop_.load())
        return false;
    Work work;
    if (private_data_asked_) {
        private_data_asked_ = false;
        work.private_data = true;
    } else if (!segments_.empty()) {
        work.update = true;
        work.job = segments_.begin()->first;
        work.segment = segments_.begin()->second;
        segments_.erase(segments_.begin());
    } else {
        work.ask = true;
        work.job = *questions_.begin();
        questions_.erase(questions_.begin());
    }
    *ret_work = work;
    return true;
}

void Publisher::run()
{
    std::uint64_t backoff_ms = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    Work work;
    while (next_work(&work, lock)) {
        const Settings settings = settings_;
        lock.unlock();
        const bool done = perform(work, settings);
        lock.lock();
        if (done) {
            backoff_ms = 0;
            continue;
        }
        // The controller does not answer. What failed is dropped (a newer one comes), except the question that decides
        // what users may see.
        private_data_asked_ = private_data_asked_ || work.private_data;
        backoff_ms = std::clamp(2 * backoff_ms, settings.first_backoff_ms, settings.last_backoff_ms);
        changed_.wait_for(lock, std::chrono::milliseconds(backoff_ms), [this] { return stop_.load(); });
    }
}

bool Publisher::perform(const Work &work, const Settings &settings)
{
    if (work.private_data)
        return read_private_data(settings);
    return work.update ? update_comment(work, settings) : ask_job(work.job, settings);
}

CommandResult Publisher::scontrol(const Settings &settings, std::vector<std::string> arguments)
{
    arguments.insert(arguments.begin(), settings.scontrol);
    std::vector<std::string> environment;
    if (!settings.slurm_conf.empty())
        environment.push_back("SLURM_CONF=" + settings.slurm_conf);
    CommandResult result = run_command(arguments, environment, settings.timeout_ms, stop_);
    if (result.status != 0) {
        failures_.fetch_add(1);
        if (!stop_.load())
            warn_(settings.scontrol + " " + arguments[1] + " " + arguments[2] + ": " + first_line(result.output));
    }
    return result;
}

bool Publisher::update_comment(const Work &work, const Settings &settings)
{
    const std::string job = std::to_string(work.job);
    const CommandResult shown = scontrol(settings, {"show", "job", job});
    if (shown.status != 0)
        return shown.output.find("Invalid job id") != std::string::npos;
    const std::string comment = merge_segment(find_admin_comment(shown.output), work.segment);
    const CommandResult updated = scontrol(settings, {"update", "jobid=" + job, "admincomment=" + comment});
    if (updated.status == 0)
        updates_.fetch_add(1);
    return updated.status == 0;
}

bool Publisher::ask_job(core::JobId job, const Settings &settings)
{
    const CommandResult shown = scontrol(settings, {"show", "job", std::to_string(job)});
    if (shown.status != 0 && shown.output.find("Invalid job id") == std::string::npos)
        return false;
    const std::string state = find_setting(shown.output, "JobState");
    const bool alive = shown.status == 0 && (state.rfind("RUNNING", 0) == 0 || state.rfind("SUSPENDED", 0) == 0 ||
                                             state.rfind("COMPLETING", 0) == 0 ||
                                             state.rfind("CONFIGURING", 0) == 0 || state.rfind("PENDING", 0) == 0);
    if (!alive) {
        const std::lock_guard<std::mutex> guard(mutex_);
        unknown_.insert(job);
    }
    return true;
}

bool Publisher::read_private_data(const Settings &settings)
{
    const CommandResult shown = scontrol(settings, {"show", "config"});
    if (shown.status != 0)
        return false;
    const std::string value = "," + find_setting(shown.output, "PrivateData") + ",";
    jobs_are_public_.store(shown.output.find("PrivateData") != std::string::npos &&
                           value.find(",jobs") == std::string::npos && value.find(",all") == std::string::npos);
    return true;
}

} // namespace jigsaw::agent
