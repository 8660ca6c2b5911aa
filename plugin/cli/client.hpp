// SPDX-License-Identifier: Apache-2.0
// Finding the jigsawd of this machine and asking it.
#ifndef JIGSAW_CLI_CLIENT_HPP
#define JIGSAW_CLI_CLIENT_HPP

#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::cli {

/// Options that every command which asks jigsawd has.
struct Where {
    std::string socket;  ///< --socket
    std::string run_dir; ///< --run-dir; empty: of the configuration
    std::string node;    ///< --node; empty: all of this machine
    std::string config = "/etc/jigsaw/jigsaw.yaml";
};

struct Endpoint {
    std::string node, socket;
};

/// --socket, else the sockets below run_dir (one per node; a test host has several), else JIGSAW_SOCKET of a job.
/// Empty with one line in *ret_why when there is none.
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
