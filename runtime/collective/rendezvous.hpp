// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a step meet: a pure function of the environment. docs/protocol.md "Rendezvous".
//
//   rank, size  as given (0 or more), else RANK and WORLD_SIZE if both are set, else SLURM_PROCID and SLURM_NTASKS
//   address     MASTER_ADDR, else JIGSAW_RENDEZVOUS_ADDR, else 127.0.0.1 for a step of one node (or no Slurm at all),
//               else the first node of the step by name, or, if that name has no address, the node that srun runs on
//               (SLURM_LAUNCH_NODE_IPADDR: in a batch job the same node, on a machine of several slurmds this machine)
//   ports       MASTER_PORT and the three after it, else those of SLURM_STEP_RESV_PORTS, else eight derived from job
//               and step; rank 0 takes the first free one, the others try all in turn
//   token       JIGSAW_RENDEZVOUS_TOKEN, else job, step and restart count: two jobs on one port never mix
#ifndef JIGSAW_COLLECTIVE_RENDEZVOUS_HPP
#define JIGSAW_COLLECTIVE_RENDEZVOUS_HPP

#include "runtime/collective/error.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace jigsaw::collective {

struct Rendezvous {
    int rank = 0;
    int size = 1;
    std::string address;              ///< of rank 0: a number or a name
    std::string address_without_name; ///< taken when `address` is a name that has no address; may be empty
    std::vector<std::uint16_t> ports; ///< of rank 0, in the order of trying
    std::string token;
    std::chrono::milliseconds timeout{60000};
    std::function<void(const std::string &)> log; ///< progress lines; empty: none
};

/// A variable of the environment or nullptr; std::getenv for programs, a table for tests.
using Environment = std::function<const char *(const char *name)>;

/// -1 for rank or size: look. Throws JIGSAW_INVALID_ARGUMENT naming the variable, its value and the remedy.
Rendezvous rendezvous_from_environment(int rank, int size, const Environment &environment);
Rendezvous rendezvous_from_environment(int rank = -1, int size = -1);

/// "gpu[03-05,9],x1" -> "gpu03"; "a" -> "a"; "" for what is no list of nodes.
std::string first_node_of(const std::string &node_list);

/// "12000-12003,12010" -> {12000, 12001, 12002, 12003, 12010}; empty for what is no list of ports 1..65535.
std::vector<std::uint16_t> parse_ports(const std::string &list);

} // namespace jigsaw::collective
#endif
