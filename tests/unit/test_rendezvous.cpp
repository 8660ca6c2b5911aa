// SPDX-License-Identifier: Apache-2.0
// Where ranks meet, from tables of environments.
#include "runtime/collective/rendezvous.hpp"

#include "tests/lib/suite.hpp"

#include <map>

namespace {

using namespace jigsaw::collective;
using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables &variables)
{
    return [&variables](const char *name) -> const char * {
        const auto entry = variables.find(name);
        return entry == variables.end() ? nullptr : entry->second.c_str();
    };
}

struct Row {
    const char *what;
    Variables variables;
    int rank, size; ///< as the caller gives them
    const char *expected; ///< "rank/size address first-port number-of-ports", or the start of the error
};

const Row kRows[] = {
    {"nothing set", {}, -1, -1, "0/1 127.0.0.1 * 8"},
    {"torchrun", {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "29500"}}, -1, -1,
     "2/4 10.0.0.7 29500 4"},
    {"torchrun before Slurm",
     {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "9"}, {"MASTER_PORT", "5"}}, -1, -1,
     "2/4 127.0.0.1 5 4"},
    {"half of torchrun is none",
     {{"RANK", "2"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "9"}, {"MASTER_PORT", "5"}}, -1, -1, "1/9 127.0.0.1 5 4"},
    {"the caller before all", {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "5"}}, 3, 7, "3/7 127.0.0.1 5 4"},
    {"first node of the step",
     {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NODELIST", "gpu[03-04]"},
      {"SLURM_JOB_NODELIST", "gpu[01-04]"}, {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_RESV_PORTS", "12000-12003"}},
     -1, -1, "1/4 gpu03 12000 4"},
    {"one node is this machine",
     {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NODELIST", "gpu03"}, {"SLURM_STEP_NUM_NODES", "1"},
      {"MASTER_PORT", "5"}}, -1, -1, "1/4 127.0.0.1 5 4"},
    {"many nodes on one machine",
     {{"SLURM_STEP_NODELIST", "n[1-2]"}, {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"},
      {"MASTER_PORT", "5"}}, -1, -1, "0/1 127.0.0.1 5 4"},
    {"ours before the node's name",
     {{"SLURM_STEP_NODELIST", "n[1-2]"}, {"JIGSAW_RENDEZVOUS_ADDR", "10.1.1.1"}, {"MASTER_PORT", "5"}}, -1, -1,
     "0/1 10.1.1.1 5 4"},
    {"last ports", {{"MASTER_PORT", "65534"}}, -1, -1, "0/1 127.0.0.1 65534 2"},
    {"bad reserved ports are derived instead", {{"SLURM_STEP_RESV_PORTS", "x"}}, -1, -1, "0/1 127.0.0.1 * 8"},
    {"rank too big", {{"RANK", "4"}, {"WORLD_SIZE", "4"}}, -1, -1, "rank 4 of a world of 4 ranks"},
    {"no number", {{"RANK", "-1"}, {"WORLD_SIZE", "4"}}, -1, -1, "RANK=\"-1\" is not a number of 0.."},
    {"no size", {{"RANK", "0"}, {"WORLD_SIZE", "0"}}, -1, -1, "WORLD_SIZE=\"0\" is not a number of 1.."},
    {"no port", {{"MASTER_PORT", "70000"}}, -1, -1, "MASTER_PORT=\"70000\" is not a number of 1..65535"},
    {"no list", {{"SLURM_STEP_NODELIST", "n[a"}}, -1, -1, "no first node in the step's list of nodes \"n[a\""},
};

std::string describe(const Row &row)
{
    try {
        const Rendezvous where = rendezvous_from_environment(row.rank, row.size, environment_of(row.variables));
        const bool any_port = std::string(row.expected).find('*') != std::string::npos;
        return std::to_string(where.rank) + "/" + std::to_string(where.size) + " " + where.address + " " +
               (any_port ? "*" : std::to_string(where.ports.at(0))) + " " + std::to_string(where.ports.size());
    } catch (const jigsaw::Error &error) {
        ck_assert_int_eq(error.code(), JIGSAW_INVALID_ARGUMENT);
        return std::string(error.what()).substr(0, std::string(row.expected).size());
    }
}

START_TEST(environments)
{
    for (const Row &row : kRows)
        ck_assert_msg(describe(row) == row.expected, "%s: got \"%s\", expected \"%s\"", row.what,
                      describe(row).c_str(), row.expected);
}
END_TEST

START_TEST(a_nameless_node_is_where_srun_runs)
{
    const Variables step = {{"SLURM_STEP_NODELIST", "n[1-2]"}, {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}};
    ck_assert_str_eq(rendezvous_from_environment(0, 4, environment_of(step)).address_without_name.c_str(), "10.0.0.9");
    const Variables given = {{"MASTER_ADDR", "10.0.0.1"}, {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}};
    ck_assert_str_eq(rendezvous_from_environment(0, 4, environment_of(given)).address_without_name.c_str(), "");
}
END_TEST

START_TEST(node_lists)
{
    const std::map<std::string, std::string> rows = {
        {"a", "a"},         {"a,b", "a"},         {"gpu[03-05,9],x1", "gpu03"}, {"r[1-2]n7,z", "r1n7"},
        {"r[2]n[5-6]", "r2n5"}, {"n[7],m", "n7"}, {"", ""},                     {"n[", ""},
        {"n[x]", ""},
    };
    for (const auto &[list, node] : rows)
        ck_assert_msg(first_node_of(list) == node, "\"%s\": got \"%s\", expected \"%s\"", list.c_str(),
                      first_node_of(list).c_str(), node.c_str());
}
END_TEST

START_TEST(port_lists)
{
    ck_assert(parse_ports("12000-12002,9") == (std::vector<std::uint16_t>{12000, 12001, 12002, 9}));
    for (const char *bad : {"", "x", "5-", "-5", "0", "9-8", "70000", "5,,6", "5-7-9"})
        ck_assert_msg(parse_ports(bad).empty(), "\"%s\" was taken for a list of ports", bad);
    ck_assert_uint_eq(parse_ports("1-65535").size(), 64);
}
END_TEST

START_TEST(derived_ports_are_of_the_step)
{
    const Variables one = {{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}};
    const Variables other = {{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}};
    const Rendezvous a = rendezvous_from_environment(0, 2, environment_of(one));
    const Rendezvous b = rendezvous_from_environment(1, 2, environment_of(one));
    const Rendezvous c = rendezvous_from_environment(0, 2, environment_of(other));
    ck_assert(a.ports == b.ports && a.token == b.token);
    ck_assert(a.ports != c.ports && a.token != c.token);
    for (const std::uint16_t port : a.ports)
        ck_assert(port >= 15000 && port < 31000);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("rendezvous");
    jigsaw::tests::add_case(suite, "environment",
                            {environments, a_nameless_node_is_where_srun_runs, node_lists, port_lists, derived_ports_are_of_the_step});
    return jigsaw::tests::run_tap(suite);
}
