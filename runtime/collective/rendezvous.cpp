// SPDX-License-Identifier: Apache-2.0
// Reads the variables of torchrun and of Slurm.
#include "runtime/collective/rendezvous.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>

namespace jigsaw::collective {
namespace {

constexpr int kMaxRanks = 65536;
constexpr std::size_t kMaxPorts = 64;
constexpr int kPortsAfterMaster = 3;
/// Derived ports stay below the range that the kernel gives to outgoing connections (32768-60999).
constexpr std::uint32_t kFirstDerivedPort = 15000, kDerivedPorts = 16000, kDerivedTries = 8;

bool all_digits(const std::string &text)
{
    return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

/// A whole decimal number of at most `most`.
std::optional<long> parse_number(const std::string &text, long most)
{
    if (!all_digits(text) || text.size() > 9)
        return std::nullopt;
    const long value = std::stol(text);
    return value <= most ? std::optional<long>(value) : std::nullopt;
}

class Reader {
  public:
    explicit Reader(const Environment &environment) : environment_(environment) {}

    std::string text(const char *name) const
    {
        const char *value = environment_(name);
        return value ? value : "";
    }
    bool has(const char *name) const { return !text(name).empty(); }
    int number(const char *name, int least, int most) const
    {
        const std::string value = text(name);
        const std::optional<long> parsed = parse_number(value, most);
        if (!parsed || *parsed < least)
            throw Error(JIGSAW_INVALID_ARGUMENT, std::string(name) + "=\"" + value + "\" is not a number of " +
                                                     std::to_string(least) + ".." + std::to_string(most));
        return static_cast<int>(*parsed);
    }

  private:
    const Environment &environment_;
};

void read_ranks(Rendezvous &where, int rank, int size, const Reader &reader)
{
    const bool torchrun = reader.has("RANK") && reader.has("WORLD_SIZE");
    const char *const rank_name = torchrun ? "RANK" : "SLURM_PROCID";
    const char *const size_name = torchrun ? "WORLD_SIZE" : "SLURM_NTASKS";
    where.size = size >= 0 ? size : reader.has(size_name) ? reader.number(size_name, 1, kMaxRanks) : 1;
    where.rank = rank >= 0 ? rank : reader.has(rank_name) ? reader.number(rank_name, 0, kMaxRanks - 1) : 0;
    if (where.size < 1 || where.size > kMaxRanks || where.rank >= where.size)
        throw Error(JIGSAW_INVALID_ARGUMENT, "rank " + std::to_string(where.rank) + " of a world of " +
                                                 std::to_string(where.size) + " ranks; set " + rank_name + " below " +
                                                 size_name);
}

/// Several slurmds may run on one machine; then the node that srun was started on has a loopback address for all.
bool everything_is_here(const Reader &reader)
{
    const std::string nodes = reader.has("SLURM_STEP_NUM_NODES") ? reader.text("SLURM_STEP_NUM_NODES")
                                                                 : reader.text("SLURM_NNODES");
    return nodes == "1" || reader.text("SLURM_LAUNCH_NODE_IPADDR").rfind("127.", 0) == 0;
}

void read_address(Rendezvous &where, const Reader &reader)
{
    for (const char *name : {"MASTER_ADDR", "JIGSAW_RENDEZVOUS_ADDR"})
        if (where.address.empty())
            where.address = reader.text(name);
    if (!where.address.empty())
        return;
    std::string list;
    for (const char *name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"})
        if (list.empty())
            list = reader.text(name);
    where.address = list.empty() || everything_is_here(reader) ? "127.0.0.1" : first_node_of(list);
    where.address_without_name = reader.text("SLURM_LAUNCH_NODE_IPADDR");
    if (where.address.empty())
        throw Error(JIGSAW_INVALID_ARGUMENT,
                    "no first node in the step's list of nodes \"" + list + "\"; set MASTER_ADDR to rank 0's address");
}

/// FNV-1a: spreads the jobs of a machine over the ports, nothing more.
std::uint32_t hash_of(const std::string &text)
{
    std::uint32_t hash = 2166136261u;
    for (const unsigned char c : text)
        hash = (hash ^ c) * 16777619u;
    return hash;
}

std::string step_identity(const Reader &reader)
{
    return reader.text("SLURM_JOB_ID") + "." + reader.text("SLURM_STEP_ID") + "." +
           reader.text("SLURM_RESTART_COUNT");
}

std::vector<std::uint16_t> read_ports(const Reader &reader)
{
    std::vector<std::uint16_t> ports;
    if (reader.has("MASTER_PORT")) {
        const int first = reader.number("MASTER_PORT", 1, 65535);
        for (int port = first; port <= std::min(first + kPortsAfterMaster, 65535); ++port)
            ports.push_back(static_cast<std::uint16_t>(port));
        return ports;
    }
    ports = parse_ports(reader.text("SLURM_STEP_RESV_PORTS"));
    if (!ports.empty())
        return ports;
    const std::uint32_t start = hash_of(step_identity(reader));
    for (std::uint32_t i = 0; i < kDerivedTries; ++i)
        ports.push_back(static_cast<std::uint16_t>(kFirstDerivedPort + (start + i * 211) % kDerivedPorts));
    return ports;
}

/// "03-05" -> "03": the first number of a bracket, zeros kept.
std::string first_of_bracket(const std::string &inside)
{
    const std::string first = inside.substr(0, inside.find_first_of(",-"));
    return all_digits(first) ? first : "";
}

} // namespace

std::string first_node_of(const std::string &node_list)
{
    const std::size_t end = node_list.find_first_of("[,");
    std::string node = node_list.substr(0, end);
    if (end == std::string::npos || node_list[end] == ',')
        return node;
    const std::size_t close = node_list.find(']', end);
    if (close == std::string::npos)
        return "";
    const std::string number = first_of_bracket(node_list.substr(end + 1, close - end - 1));
    if (number.empty())
        return "";
    // What follows the bracket up to the next comma belongs to the name: "rack[1-2]n7", and a second bracket as well.
    const std::string rest = first_node_of(node_list.substr(close + 1));
    return node + number + (close + 1 < node_list.size() && node_list[close + 1] != ',' ? rest : "");
}

std::vector<std::uint16_t> parse_ports(const std::string &list)
{
    std::vector<std::uint16_t> ports;
    std::size_t begin = 0;
    while (begin < list.size()) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        const std::string range = list.substr(begin, end - begin);
        const std::size_t dash = range.find('-');
        const std::optional<long> low = parse_number(range.substr(0, dash), 65535);
        const std::optional<long> high =
            dash == std::string::npos ? low : parse_number(range.substr(dash + 1), 65535);
        if (!low || !high || *low < 1 || *high < *low)
            return {};
        for (long port = *low; port <= *high && ports.size() < kMaxPorts; ++port)
            ports.push_back(static_cast<std::uint16_t>(port));
        begin = end + 1;
    }
    return ports;
}

Rendezvous rendezvous_from_environment(int rank, int size, const Environment &environment)
{
    const Reader reader(environment);
    Rendezvous where;
    read_ranks(where, rank, size, reader);
    read_address(where, reader);
    where.ports = read_ports(reader);
    where.token = reader.has("JIGSAW_RENDEZVOUS_TOKEN") ? reader.text("JIGSAW_RENDEZVOUS_TOKEN")
                                                        : step_identity(reader);
    return where;
}

Rendezvous rendezvous_from_environment(int rank, int size)
{
    return rendezvous_from_environment(rank, size, [](const char *name) -> const char * { return std::getenv(name); });
}

} // namespace jigsaw::collective
