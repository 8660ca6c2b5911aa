// SPDX-License-Identifier: Apache-2.0
// Finding the jigsawd of this machine and asking it.
#ifndef JIGSAW_CLI_CLIENT_HPP
#define JIGSAW_CLI_CLIENT_HPP

#include "plugin/config/config.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace jigsaw::cli {

/// Options that every command which asks jigsawd has.
struct Where {
    std::string socket;  ///< --socket
    std::string run_dir; ///< --run-dir; empty: of the configuration
    std::string node;    ///< --node; empty: all of this machine
    std::string config;  ///< --config; empty: /etc/jigsaw/jigsaw.yaml, which may be missing

    const std::string &config_path() const;
};

/// The configuration; one that --config names must be there. nullptr with one line in *ret_why.
std::shared_ptr<const config::Config> load_config(std::string *ret_why, const Where &where);

struct Endpoint {
    std::string node; ///< empty: only the socket is known
    std::string socket;

    std::string title() const { return node.empty() ? "socket " + socket : "node " + node; }
    /// What went wrong with it, as one line; what comes from the socket names it already.
    std::string line(const std::string &why) const { return node.empty() ? why : "node " + node + ": " + why; }
};

/// --socket, else the sockets below run_dir (one per node; a test host has several), else JIGSAW_SOCKET of a job.
/// Empty with one line in *ret_why when there is none, or --config names a file that does not tell.
std::vector<Endpoint> find_endpoints(std::string *ret_why, const Where &where);

/// Ask for a document: "STATUS", "METRICS". False with one line in *ret_why.
bool fetch(std::string *ret_text, std::string *ret_why, const Endpoint &endpoint, const std::string &verb);
/// The whole gate log since a time, however many answers it takes.
bool fetch_trace(std::string *ret_lines, std::string *ret_why, const Endpoint &endpoint, std::uint64_t since_ns);
/// version= of PING.
bool fetch_version(std::string *ret_version, std::string *ret_why, const Endpoint &endpoint);

constexpr int kTimeoutMs = 3000;

} // namespace jigsaw::cli
#endif
