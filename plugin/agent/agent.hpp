// SPDX-License-Identifier: Apache-2.0
// jigsawd without its command line: the parts, put together. One thread calls everything here.
//
//   socket ─ Server ─▶ Agent::handle ─▶ attach ─▶ Process ─▶ Arbiter of its GPU (turns)
//   jobs/  ─ Registry ─▶ jobs                      └──────▶ Director (depth)   ─▶ Trace, status, metrics, Publisher
//
// Tests run an Agent in their own process, step by step.
#ifndef JIGSAW_AGENT_AGENT_HPP
#define JIGSAW_AGENT_AGENT_HPP

#include "plugin/agent/arbiter.hpp"
#include "plugin/agent/attach.hpp"
#include "plugin/agent/director.hpp"
#include "plugin/agent/publisher.hpp"
#include "plugin/agent/server.hpp"
#include "plugin/config/config.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace jigsaw::agent {

struct AgentSettings {
    std::string node;
    std::string run_dir; ///< empty: the configuration's
};

class Agent {
  public:
    static constexpr std::uint64_t kTickNs = 50000000;       ///< heartbeat and checks
    static constexpr std::uint64_t kDirectNs = 100000000;    ///< the director's period
    static constexpr std::uint64_t kSettleNs = 10000000000;  ///< a restart waits so long for ranks to come back
    static constexpr std::uint64_t kForgivenTurns = 100;     ///< given back in time: a mark is taken off
    static constexpr std::uint64_t kProfileIterations = 8;   ///< then the first profile goes up
    static constexpr std::uint64_t kSweepNs = 300000000000;  ///< asks Slurm about jobs without a process

    /// Throws std::system_error.
    Agent(const AgentSettings &settings, std::shared_ptr<const config::Config> config, Log &log);
    ~Agent();
    Agent(const Agent &) = delete;

    /// Serve what comes, for at most timeout_ms; does its periodic work itself.
    void step(int timeout_ms);
    Loop &loop() { return loop_; }
    void reload(std::shared_ptr<const config::Config> config);
    /// Clean end: every waiter is let through, gates open, connections closed by the destructor.
    void end();

    const config::NodePaths &paths() const { return paths_; }
    const std::string &node() const { return settings_.node; }
    const config::Config &configuration() const { return *config_; }
    std::uint64_t start_number() const { return start_number_; }
    const Registry &registry() const { return registry_; }
    const std::map<int, std::unique_ptr<Arbiter>> &arbiters() const { return arbiters_; }
    const std::map<std::uint64_t, std::unique_ptr<Process>> &processes() const { return processes_; }
    const Director &director() const { return director_; }
    const Server &server() const { return *server_; }
    const Publisher *publisher() const { return publisher_.get(); }
    /// May `uid` see the details of a job of `owner`?
    bool may_see(std::uint32_t uid, std::uint32_t owner) const;
    std::string cores_of(int gpu) const; ///< "3" or "" when none stands for it

  private:
    Reply handle(const Peer &peer, const wire::Message &message);
    Reply attach(const Peer &peer, const wire::Message &message);
    std::optional<Refusal> refuse_double(const AttachOrder &order, const Peer &peer);
    Reply seat(const AttachOrder &order, const Peer &peer, Job &job, int gpu, UniqueFd pidfd,
               std::uint64_t start_ticks);
    void watch_process(Process &process);
    Reply registered(const wire::Message &message, bool listed);
    Reply set(const wire::Message &message);
    Reply document(const Peer &peer, const wire::Message &message);
    Reply ping() const;
    void leave(std::uint64_t id, const char *why);
    void pair(Process &process);
    void connection_closed(std::uint64_t connection);
    Arbiter &arbiter_of(int gpu);
    ArbiterSettings arbiter_settings() const;
    Publisher::Settings publisher_settings() const;
    void start_publisher();

    void tick(std::uint64_t now_ns);
    void beat(std::uint64_t now_ns);
    void settle(std::uint64_t now_ns);
    void direct(std::uint64_t now_ns);
    void check_memory(Process &process);
    void lease_outcome(Process &process, bool expired);
    void rogue(Process &process);
    void publish(std::uint64_t now_ns);
    void publish_last(const Process &rank0);
    void ask_about_idle_jobs(std::uint64_t now_ns);
    bool has_process(const JobKey &key) const;

    AgentSettings settings_;
    std::shared_ptr<const config::Config> config_;
    Log &log_;
    config::NodePaths paths_;
    std::uint64_t start_number_, started_ns_;
    Loop loop_;
    Trace trace_;
    Registry registry_;
    ArbiterContext context_;
    std::map<int, std::unique_ptr<Arbiter>> arbiters_;
    std::map<std::uint64_t, std::unique_ptr<Process>> processes_;
    std::map<std::uint64_t, std::uint64_t> process_of_connection_;
    std::map<std::string, int> uuid_indices_;
    Director director_;
    std::unique_ptr<Publisher> publisher_;
    std::mutex publisher_lines_mutex_; ///< guards publisher_lines_, written by its thread
    std::vector<std::string> publisher_lines_;
    std::unique_ptr<Server> server_;
    std::uint64_t next_process_ = 1;
    std::uint64_t next_tick_ns_ = 0, next_direct_ns_ = 0, next_publish_ns_ = 0, next_sweep_ns_ = 0;
    bool settled_ = false, ended_ = false;
};

} // namespace jigsaw::agent
#endif
