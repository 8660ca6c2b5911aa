// SPDX-License-Identifier: GPL-2.0-or-later
// May a job join a GPU once only some of its residents are left?
#include "plugin/select/admission.hpp"

#include <string>
#include <vector>

#include "tests/lib/suite.hpp"

using namespace jigsaw;
using select::FutureAdmission;

namespace {

constexpr std::uint64_t kGib = 1ULL << 30;

core::Resident resident(core::JobId id, std::uint64_t gib, bool shares = true)
{
    core::Resident job;
    job.id = id;
    job.uid = 1000;
    job.spb.mode = shares ? core::SpbMode::automatic : core::SpbMode::off;
    job.spb.memory_bytes = gib * kGib;
    job.where = {{0, {0}}};
    return job;
}

struct Row {
    const char *what;
    std::uint64_t claim_gib;
    std::vector<core::JobId> left;
    bool opens;
};
// Residents: 1 claims 4 GiB, 2 claims 14 GiB, 3 does not share, 9 is not known. The GPU has 20 GiB.
const Row kRows[] = {
    {"an idle GPU", 30, {}, true},
    {"beside the small one", 10, {1}, true},
    {"too large beside the large one", 10, {2}, false},
    {"small enough beside the large one", 4, {2}, true},
    {"two residents are the limit", 1, {1, 2}, false},
    {"one that does not share", 1, {3}, false},
    {"a stranger to our books", 1, {9}, false},
};

START_TEST(opens_when_enough_have_left)
{
    core::Cluster cluster;
    cluster.set_node(0, "n1", {core::Gpu{"", 20 * kGib, -1, {}}});
    for (const core::Resident &job : {resident(1, 4), resident(2, 14), resident(3, 1, false)})
        ck_assert(cluster.add(job));
    core::SharingPolicy policy;
    policy.memory_headroom = 0;
    for (const Row &row : kRows) {
        core::PlacementRequest job;
        job.id = 5;
        job.uid = 1000;
        job.spb.mode = core::SpbMode::automatic;
        job.spb.memory_bytes = row.claim_gib * kGib;
        const FutureAdmission admission(cluster, job, policy);
        ck_assert_msg(admission.opens(0, 0, row.left) == row.opens, "%s", row.what);
    }
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("future admission");
    jigsaw::tests::add_case(suite, "moments", {opens_when_enough_have_left});
    return jigsaw::tests::run_tap(suite);
}
