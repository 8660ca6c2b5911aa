// SPDX-License-Identifier: Apache-2.0
// What each verb of the socket does. Everything in a message was written by a stranger; the peer's uid is the kernel's.
#include "plugin/agent/agent.hpp"
#include "plugin/agent/status.hpp"
#include "plugin/agent/version.hpp"
#include "runtime/page/arbiter_side.hpp"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace jigsaw::agent {

namespace {

constexpr std::size_t kTraceAnswerBytes = 1 << 20; ///< of one TRACE answer: building more would delay turns

Reply refuse(const Refusal &refusal)
{
    return error_reply(refusal.code, refusal.text);
}

Reply ok()
{
    Reply reply;
    reply.message.verb = "OK";
    return reply;
}

UniqueFd document_of(const std::string &text)
{
    UniqueFd fd(memfd_create("jigsawd-answer", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd)
        throw std::system_error(errno, std::generic_category(), "memfd_create");
    for (std::size_t done = 0; done < text.size();) {
        const ssize_t wrote = write(fd.get(), text.data() + done, text.size() - done);
        if (wrote <= 0)
            throw std::system_error(errno, std::generic_category(), "write to memfd");
        done += static_cast<std::size_t>(wrote);
    }
    lseek(fd.get(), 0, SEEK_SET);
    return fd;
}

/// job=N restart=M of REGISTER and DRAIN.
bool read_key(JobKey *ret_key, const wire::Message &message)
{
    const std::string *job = message.find("job"), *restart = message.find("restart");
    std::uint64_t job_id = 0, count = 0;
    if (job == nullptr || !wire::parse_unsigned(&job_id, *job, 1, UINT32_MAX))
        return false;
    if (restart != nullptr && !wire::parse_unsigned(&count, *restart, 0, UINT32_MAX))
        return false;
    *ret_key = {static_cast<core::JobId>(job_id), static_cast<std::uint32_t>(count)};
    return true;
}

bool parse_weight(double *ret_weight, const std::string &text)
{
    char *end = nullptr;
    const double weight = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(weight >= 0.01 && weight <= 100))
        return false;
    *ret_weight = weight;
    return true;
}

} // namespace

Reply Agent::handle(const Peer &peer, const wire::Message &message)
{
    try {
        const std::string &verb = message.verb;
        if (verb == "ATTACH")
            return attach(peer, message);
        if (verb == "STATUS" || verb == "TRACE" || verb == "METRICS")
            return document(peer, message);
        if (verb == "PING")
            return ping();
        const bool for_root = verb == "REGISTER" || verb == "DRAIN" || verb == "SET";
        if (for_root && peer.uid != geteuid() && peer.uid != 0)
            return error_reply("NOT_ROOT", verb + " is for uid 0");
        if (verb == "REGISTER" || verb == "DRAIN")
            return registered(message, verb == "REGISTER");
        if (verb == "SET")
            return set(message);
        return error_reply("BAD_VERB", verb + " is none of ATTACH REGISTER DRAIN SET STATUS TRACE METRICS PING");
    } catch (const std::exception &error) {
        log_.client(message.verb + " of uid " + std::to_string(peer.uid) + ": " + error.what(),
                    page::monotonic_ns());
        return error_reply("SYSTEM", error.what());
    }
}

Reply Agent::ping() const
{
    Reply reply = ok();
    reply.message.values = {{"proto", std::to_string(wire::kProtocolMax)},
                            {"version", kVersion},
                            {"agent_start", std::to_string(start_number_)}};
    return reply;
}

Reply Agent::registered(const wire::Message &message, bool listed)
{
    JobKey key;
    std::string why;
    if (!read_key(&key, message))
        return error_reply("BAD_VALUE", "job=N restart=M are needed");
    if (!listed) {
        registry_.mark_over(key);
        return ok();
    }
    return registry_.load(&why, key, page::monotonic_ns()) ? ok() : error_reply("BAD_RECORD", why);
}

Reply Agent::set(const wire::Message &message)
{
    JobKey key;
    const std::string *text = message.find("weight");
    double weight = 0;
    if (!read_key(&key, message) || text == nullptr || !parse_weight(&weight, *text))
        return error_reply("BAD_VALUE", "job=N weight=W with W from 0.01 to 100 are needed");
    Job *job = message.find("restart") ? registry_.find(key) : registry_.find(key.first);
    if (job == nullptr)
        return error_reply("NO_JOB", "job " + std::to_string(key.first) + " is not registered on this node");
    job->weight = weight;
    for (const auto &[id, process] : processes_) {
        if (process->job == job->key())
            arbiter_of(process->gpu).set_weight(*process, weight);
    }
    return ok();
}

Reply Agent::document(const Peer &peer, const wire::Message &message)
{
    std::uint64_t since_ns = 0;
    const std::string *since = message.find("since_ns");
    if (since != nullptr && !wire::parse_unsigned(&since_ns, *since, 0, UINT64_MAX))
        return error_reply("BAD_VALUE", "since_ns=" + *since + ": nanoseconds are needed");
    bool more = false;
    std::string text;
    if (message.verb == "TRACE")
        text = trace_.lines_since(&more, since_ns, kTraceAnswerBytes, peer.uid, publisher_->jobs_are_public());
    else
        text = message.verb == "STATUS" ? status_json(*this, peer.uid) : metrics_text(*this);
    Reply reply = ok();
    reply.document = document_of(text);
    reply.message.values = {{"bytes", std::to_string(text.size())}};
    if (more)
        reply.message.values["more"] = "1";
    return reply;
}

/// A second living process of the same rank is refused. The same process may attach anew: it saw our heartbeat stand
/// still, or its connection broke, and its old seat goes.
std::optional<Refusal> Agent::refuse_double(const AttachOrder &order, const Peer &peer)
{
    for (const auto &[id, process] : processes_) {
        if (process->job != order.job || process->step != order.step)
            continue;
        if (process->pid == peer.pid) {
            leave(id, "attaches anew");
            return std::nullopt;
        }
        if (process->rank == order.rank)
            return Refusal{"ALREADY", "rank " + std::to_string(order.rank) + " of job " +
                                          std::to_string(order.job.first) + " is attached already: pid " +
                                          std::to_string(process->pid)};
        if (process->world_size != order.world_size)
            return Refusal{"BAD_VALUE", "world=" + std::to_string(order.world_size) + ": rank " +
                                            std::to_string(process->rank) + " said " +
                                            std::to_string(process->world_size)};
    }
    return std::nullopt;
}

Reply Agent::attach(const Peer &peer, const wire::Message &message)
{
    const std::uint64_t now = page::monotonic_ns();
    AttachOrder order;
    std::optional<Refusal> refusal = parse_attach(&order, message);
    if (process_of_connection_.count(peer.connection) > 0)
        refusal = Refusal{"ALREADY", "this connection is attached; connect anew"};
    if (refusal)
        return refuse(*refusal);
    std::string why;
    if (registry_.find(order.job) == nullptr)
        registry_.load(&why, order.job, now); // its event may not have been read yet
    Job *job = registry_.find(order.job);
    int gpu = -1;
    UniqueFd pidfd;
    std::uint64_t start_ticks = 0;
    refusal = check_right(order, peer, job, why);
    if (!refusal)
        refusal = choose_gpu(&gpu, order, *job, uuid_indices_);
    if (!refusal)
        refusal = identify(&pidfd, &start_ticks, peer);
    if (!refusal)
        refusal = refuse_double(order, peer);
    if (refusal) {
        log_.client("uid " + std::to_string(peer.uid) + " pid " + std::to_string(peer.pid) + " may not attach: " +
                        refusal->text, now);
        return refuse(*refusal);
    }
    return seat(order, peer, *job, gpu, std::move(pidfd), start_ticks);
}

Reply Agent::seat(const AttachOrder &order, const Peer &peer, Job &job, int gpu, UniqueFd pidfd,
                  std::uint64_t start_ticks)
{
    const std::uint64_t now = page::monotonic_ns();
    auto owned = std::make_unique<Process>();
    Process &process = *owned;
    process.id = next_process_++;
    process.job = order.job;
    process.job_start_ns = job.start_ns();
    process.weight = job.weight;
    process.step = order.step;
    process.rank = order.rank;
    process.local_rank = order.local_rank;
    process.world_size = order.world_size;
    process.uid = peer.uid;
    process.pid = peer.pid;
    process.start_ticks = start_ticks;
    process.gpu = gpu;
    process.connection = peer.connection;
    process.told_generation = order.generation;
    process.attached_ns = now;
    process.pidfd = std::move(pidfd);
    process.bell.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!process.bell)
        throw std::system_error(errno, std::generic_category(), "eventfd");
    process.pages = page::create_pages();
    process.pages.directive->agent_start = start_number_;
    page::beat(process.pages, now);
    job.generation = std::max(job.generation, order.generation);
    watch_process(process);
    processes_.emplace(process.id, std::move(owned));
    process_of_connection_[peer.connection] = process.id;
    arbiter_of(gpu).add(process, now);
    settle(now);
    next_direct_ns_ = 0;
    log_.info("job " + std::to_string(order.job.first) + " rank " + std::to_string(order.rank) + " pid " +
              std::to_string(peer.pid) + " attached to GPU " + std::to_string(gpu));
    Reply reply = ok();
    reply.attached = true;
    reply.message.values = {{"proto", std::to_string(order.protocol)}, {"gpu", std::to_string(gpu)},
                            {"job_start", std::to_string(job.start_ns())}, {"pages", "2"}, {"bell", "1"}};
    if (const std::string cores = cores_of(gpu); !cores.empty())
        reply.message.values["cores"] = cores;
    reply.borrowed_fds = {process.pages.directive_fd.get(), process.pages.report_fd.get(), process.bell.get()};
    return reply;
}

} // namespace jigsaw::agent
