// SPDX-License-Identifier: Apache-2.0
// Machines we do not own, from hwloc's XML, and the one we are on.
#include "plugin/topology/topology.hpp"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

// Check last: it defines fail().
#include "tests/lib/same_text.hpp"
#include "tests/lib/suite.hpp"

using namespace jigsaw;
using topology::Topology;

namespace {

std::string data(const std::string &name)
{
    const char *source = std::getenv("top_srcdir");
    return std::string(source ? source : ".") + "/tests/data/" + name;
}

std::string cores(const Topology &machine, int gpu) { return topology::format_cpu_list(machine.cores_of_gpu(gpu)); }

template <class Function> std::string thrown_by(Function function)
{
    try {
        function();
    } catch (const std::runtime_error &error) {
        return error.what();
    }
    return "";
}

} // namespace

START_TEST(gpus_in_pci_order)
{
    // Two packages of 2 cores with 2 threads; GPUs 3b, 5e on the first, af, d8 on the second, written in another order,
    // with a network card and the board's own VGA between them.
    const Topology machine = Topology::from_xml(data("two-sockets-4gpu.xml"));
    ck_assert_int_eq(machine.core_count(), 4);
    ck_assert_uint_eq(machine.gpus().size(), 4);
    assert_same_text(cores(machine, 0), "0-3");
    assert_same_text(cores(machine, 1), "0-3");
    assert_same_text(cores(machine, 2), "4-7");
    assert_same_text(cores(machine, 3), "4-7");
    assert_same_text(cores(machine, 4), "");
    assert_same_text(cores(machine, -1), "");
    ck_assert_uint_eq(machine.gpus()[0].memory_bytes, 40ULL << 30);
    ck_assert_uint_eq(machine.gpus()[2].memory_bytes, 0);
    ck_assert_int_eq(machine.gpus()[0].core, -1);
    const int near[] = {0, 0, 1, 1}; // two on each processor
    for (std::size_t g = 0; g < 4; ++g)
        ck_assert_int_eq(machine.gpus()[g].link_group, near[g]);
}
END_TEST

START_TEST(stand_ins)
{
    const Topology machine = Topology::from_xml(data("two-sockets-4gpu.xml"), {{0, 1}, {2, 3}});
    ck_assert_uint_eq(machine.gpus().size(), 3);
    ck_assert_int_eq(machine.gpus()[0].core, 1);
    ck_assert_int_eq(machine.gpus()[1].core, -1);
    ck_assert_int_eq(machine.gpus()[2].core, 3);
    assert_same_text(cores(machine, 0), "2-3");
    assert_same_text(cores(machine, 1), "");
    assert_same_text(cores(machine, 2), "6-7");
    assert_same_text(thrown_by([] { Topology::from_xml(data("no-gpu.xml"), {{0, 0}, {1, 4}}); }),
                     "core 4 for GPU 1: there are 4 cores, counted from 0; correct gpu_cores");
    assert_has_text(thrown_by([] { Topology::from_xml(data("no-gpu.xml"), {{0, -1}}); }), "core -1 for GPU 0");
}
END_TEST

START_TEST(machine_without_gpu)
{
    const Topology machine = Topology::from_xml(data("no-gpu.xml"));
    ck_assert_int_eq(machine.core_count(), 4);
    ck_assert(machine.gpus().empty());
    ck_assert(machine.cores_of_gpu(0).empty());
}
END_TEST

START_TEST(this_machine)
{
    const Topology machine = Topology::live();
    ck_assert_int_gt(machine.core_count(), 0);
    const Topology with = Topology::live({{0, 0}});
    ck_assert(!with.cores_of_gpu(0).empty());
}
END_TEST

START_TEST(broken_files)
{
    ck_assert(!thrown_by([] { Topology::from_xml("/nonexistent.xml"); }).empty());
    ck_assert(!thrown_by([] { Topology::from_xml(data("../lib/suite.hpp")); }).empty());
}
END_TEST

START_TEST(cpu_lists)
{
    const std::vector<std::pair<std::vector<int>, const char *>> rows = {
        {{}, ""}, {{0}, "0"}, {{0, 1}, "0-1"}, {{0, 2}, "0,2"}, {{0, 1, 2, 3, 8, 10, 11}, "0-3,8,10-11"}};
    for (const auto &[cpus, text] : rows)
        assert_same_text(topology::format_cpu_list(cpus), text);
}
END_TEST

int main()
{
    Suite *suite = suite_create("topology");
    tests::add_case(suite, "xml", {gpus_in_pci_order, stand_ins, machine_without_gpu, broken_files});
    tests::add_case(suite, "live", {this_machine, cpu_lists});
    return tests::run_tap(suite);
}
