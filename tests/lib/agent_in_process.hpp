// SPDX-License-Identifier: Apache-2.0
// An Agent in the test's own process and thread, run step by step; the test talks to its socket between steps.
#ifndef JIGSAW_TESTS_LIB_AGENT_IN_PROCESS_HPP
#define JIGSAW_TESTS_LIB_AGENT_IN_PROCESS_HPP

#include "plugin/agent/agent.hpp"
#include "runtime/page/socket.hpp"
#include "tests/lib/folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace jigsaw::tests {

class AgentInProcess {
  public:
    explicit AgentInProcess(const std::string &scontrol = "/bin/false")
    {
        config.scontrol = scontrol;
        config.admin_comment_period_s = 0;
        start();
    }
    void start()
    {
        agent.reset();
        agent = std::make_unique<agent::Agent>(agent::AgentSettings{"t1", dir},
                                               std::make_shared<config::Config>(config), log);
    }
    std::string record_path(core::JobId job, std::uint32_t restart = 0) const
    {
        return agent->paths().jobs + "/" + config::registration_file_name(job, restart);
    }
    static config::Registration record(core::JobId job)
    {
        config::Registration made;
        made.job_id = job;
        made.uid = getuid();
        made.gpus = {0, 1};
        made.spb.mode = core::SpbMode::automatic;
        made.token_sha256 = config::sha256_hex("token" + std::to_string(job));
        made.start_s = job;
        return made;
    }
    /// As a prolog: written aside, then renamed.
    void register_job(const config::Registration &made, mode_t mode = 0600)
    {
        write(record_path(made.job_id, made.restart_count), config::format_registration(made), mode);
    }
    void write(const std::string &path, const std::string &text, mode_t mode = 0600)
    {
        {
            std::ofstream file(dir + "/new");
            file << text;
        }
        chmod((dir + "/new").c_str(), mode);
        if (rename((dir + "/new").c_str(), path.c_str()) != 0)
            throw std::runtime_error("rename");
    }
    UniqueFd connect() const
    {
        std::string why;
        UniqueFd socket = wire::connect_to(&why, agent->paths().socket, 1000);
        if (!socket)
            throw std::runtime_error(why);
        return socket;
    }
    /// Say it on `socket`, run the agent until it answered. Verb "" when it hung up or said nothing in many steps.
    wire::Message say(const UniqueFd &socket, const wire::Message &message,
                      std::vector<UniqueFd> *ret_fds = nullptr)
    {
        std::string why;
        wire::send_message(&why, socket.get(), message, {}, 0);
        return hear(socket, ret_fds);
    }
    wire::Message hear(const UniqueFd &socket, std::vector<UniqueFd> *ret_fds = nullptr)
    {
        wire::Message answer;
        std::vector<UniqueFd> fds;
        std::string why;
        for (int step = 0; step < 200; ++step) {
            agent->step(1);
            const wire::Received received = wire::receive_message(&answer, &fds, &why, socket.get(), 0);
            if (received == wire::Received::closed)
                return {};
            if (received != wire::Received::message)
                continue;
            if (ret_fds)
                *ret_fds = std::move(fds);
            return answer;
        }
        return {};
    }
    wire::Message ask(const wire::Message &message, std::vector<UniqueFd> *ret_fds = nullptr)
    {
        const UniqueFd socket = connect();
        return say(socket, message, ret_fds);
    }
    static wire::Message attach_message(core::JobId job)
    {
        return {"ATTACH",
                {{"proto", "1-1"}, {"job", std::to_string(job)}, {"token", "token" + std::to_string(job)}}};
    }

    const Folder folder{"agent"};
    const std::string &dir = folder.path();
    config::Config config;
    std::vector<std::string> lines;
    agent::Log log{agent::Level::debug, [this](agent::Level, const std::string &line) { lines.push_back(line); }};
    std::unique_ptr<agent::Agent> agent;
};

} // namespace jigsaw::tests

#endif
