// SPDX-License-Identifier: Apache-2.0
// Directives: nothing for a job alone, complementary phases for two, the floors of the job, control runs, and a new
// generation when the iterations of two jobs have moved against each other, but not at once.
#include "plugin/agent/director.hpp"
#include "tests/lib/fake_rank.hpp"
#include "tests/lib/suite.hpp"

#include <algorithm>
#include <list>

namespace {

using namespace jigsaw;
using namespace jigsaw::agent;
using jigsaw::tests::FakeRank;

constexpr std::uint64_t kTenthNs = 100000000;

/// Two jobs of two ranks on GPUs 0 and 1 of this node; their pages, and a director that looks every 100 ms.
struct Ground {
    Log log{Level::error, nullptr};
    Trace trace{log, 1000};
    DirectorSettings settings{true, true, 1, /*cost_factor=*/0}; // no real time in a test
    Director director{settings, trace};
    std::list<Job> jobs;
    std::list<FakeRank> ranks;
    std::uint64_t now = 1000 * kTenthNs;

    Job &add(core::JobId id, int gpu0 = 0, int gpu1 = 1)
    {
        Job &job = jobs.emplace_back();
        job.record.job_id = id;
        job.record.start_s = id;
        job.record.spb.mode = core::SpbMode::automatic;
        job.record.gpus = {gpu0, gpu1};
        for (std::uint32_t rank = 0; rank < 2; ++rank) {
            FakeRank &fake = ranks.emplace_back(ranks.size() + 1, id, rank, 2, rank == 0 ? gpu0 : gpu1);
            fake.report(10);
            fake.process.read_report(now);
        }
        return job;
    }
    FakeRank &rank(core::JobId job, std::uint32_t number)
    {
        for (FakeRank &fake : ranks) {
            if (fake.process.job.first == job && fake.process.rank == number)
                return fake;
        }
        std::abort();
    }
    void look()
    {
        now += kTenthNs;
        std::vector<LocalJob> locals;
        for (Job &job : jobs) {
            LocalJob local;
            local.job = &job;
            for (FakeRank &fake : ranks) {
                fake.process.read_report(now);
                if (fake.process.job == job.key())
                    local.processes.push_back(&fake.process);
            }
            locals.push_back(local);
        }
        director.direct(locals, now);
    }
    void look_for_seconds(int seconds)
    {
        for (int i = 0; i < 10 * seconds; ++i) {
            look();
        }
    }
    plan::Directive on_page(core::JobId job, std::uint32_t number = 0)
    {
        page::DirectiveView view;
        ck_assert(page::read_directive(&view, rank(job, number).own.directive.get()));
        return view.wanted;
    }
    /// The job follows what it is told, from its present iteration on.
    void obey(core::JobId job)
    {
        const plan::Directive wanted = on_page(job);
        for (std::uint32_t number = 0; number < 2; ++number) {
            FakeRank &fake = rank(job, number);
            fake.view.agreed = wanted;
            fake.view.agreed.first_iteration = fake.view.iteration;
            fake.view.agreed.depth_of_level = wanted.policy == plan::Policy::full ? std::vector<std::uint32_t>{4}
                                                                                   : std::vector<std::uint32_t>{1, 4};
            page::publish_report(fake.own.report.get(), fake.view);
        }
    }
    void move(core::JobId job, std::uint64_t iteration)
    {
        for (std::uint32_t number = 0; number < 2; ++number) {
            FakeRank &fake = rank(job, number);
            fake.view.iteration = iteration;
            page::publish_report(fake.own.report.get(), fake.view);
        }
    }
};

START_TEST(a_job_alone_is_told_nothing)
{
    Ground ground;
    ground.add(11);
    ground.look_for_seconds(1);
    ck_assert_uint_eq(ground.on_page(11).generation, 0);
}
END_TEST

START_TEST(two_jobs_complement_each_other)
{
    Ground ground;
    ground.add(11);
    ground.add(12);
    ground.look_for_seconds(2);
    ground.obey(11);
    ground.look_for_seconds(2);
    ground.obey(12);
    ground.look_for_seconds(3);
    const plan::Directive older = ground.on_page(11), younger = ground.on_page(12);
    ck_assert(older.policy == plan::Policy::two_level && younger.policy == plan::Policy::two_level);
    for (std::uint64_t iteration = 10; iteration < 14; ++iteration) {
        for (std::uint32_t rank = 0; rank < 2; ++rank)
            ck_assert_uint_ne(plan::level_of(older, rank, 2, iteration), plan::level_of(younger, rank, 2, iteration));
    }
    // Only rank 0 is told; every rank knows its rivals.
    ck_assert_uint_eq(ground.on_page(11, 1).generation, 0);
    page::DirectiveView view;
    ck_assert(page::read_directive(&view, ground.rank(12, 1).own.directive.get()));
    ck_assert_uint_eq(view.rivals.size(), 1);
    ck_assert_uint_eq(view.rivals[0].job_id, 11);
    ck_assert_uint_eq(view.rivals[0].older, 1);
}
END_TEST

START_TEST(a_settled_pair_is_left_alone)
{
    Ground ground;
    ground.add(11);
    ground.add(12);
    ground.look_for_seconds(2);
    ground.obey(11);
    ground.look_for_seconds(2);
    ground.obey(12);
    ground.look_for_seconds(3);
    ground.obey(12);
    ground.look_for_seconds(1);
    const std::uint64_t generation = ground.on_page(12).generation;
    ground.look_for_seconds(5);
    ck_assert_uint_eq(ground.on_page(12).generation, generation);
}
END_TEST

START_TEST(the_younger_follows_a_shift)
{
    Ground ground;
    ground.add(11);
    ground.add(12);
    ground.look_for_seconds(2);
    ground.obey(11);
    ground.look_for_seconds(2);
    ground.obey(12);
    ground.look_for_seconds(2);
    ground.obey(12);
    ground.look_for_seconds(1);
    const std::uint64_t older = ground.on_page(11).generation, younger = ground.on_page(12).generation;
    ground.move(12, 11); // one iteration ahead of the other: the same levels meet now
    ground.look();
    ck_assert_uint_eq(ground.on_page(12).generation, younger); // not at once
    ground.look_for_seconds(3);
    ck_assert_uint_gt(ground.on_page(12).generation, younger);
    ck_assert_uint_eq(ground.on_page(11).generation, older);
}
END_TEST

START_TEST(full_depth_again_when_the_rival_is_gone)
{
    Ground ground;
    ground.add(11);
    ground.add(12);
    ground.look_for_seconds(2);
    ground.obey(11);
    ck_assert(ground.on_page(11).policy == plan::Policy::two_level);
    ground.jobs.pop_back();
    ground.look();
    ck_assert(ground.on_page(11).policy == plan::Policy::full);
    ck_assert_uint_gt(ground.on_page(11).generation, ground.rank(11, 0).view.agreed.generation);
}
END_TEST

START_TEST(what_keeps_full_depth)
{
    const struct {
        const char *what;
        void (*change)(Ground &);
    } rows[] = {
        {"depth: off", [](Ground &g) { g.director.set_settings({false, true, 1, 0}); }},
        {"mode full", [](Ground &g) { g.jobs.back().record.spb.mode = core::SpbMode::full; }},
        {"warm-up", [](Ground &g) { g.rank(12, 0).view.warmup_left = 100; g.move(12, 10); }},
        {"all workers at full depth", [](Ground &g) { g.rank(12, 0).view.min_full_workers = 2; g.move(12, 10); }},
        {"partial depth does not pay", [](Ground &g) { g.director.set_settings({true, true, 5, 0}); }},
        {"other GPUs", [](Ground &g) { g.rank(12, 0).process.gpu = 2; g.rank(12, 1).process.gpu = 3; }},
        {"no measurements", [](Ground &g) { g.rank(12, 0).process.report_valid = false; g.rank(12, 0).process.report_retry_ns = UINT64_MAX; }},
    };
    for (const auto &row : rows) {
        Ground ground;
        ground.add(11);
        ground.add(12);
        row.change(ground);
        ground.look_for_seconds(2);
        ck_assert_msg(ground.on_page(12).policy == plan::Policy::full, "%s", row.what);
    }
}
END_TEST

START_TEST(control_run_with_the_same_phases)
{
    Ground ground;
    ground.director.set_settings({true, false, 1, 0});
    ground.add(11);
    ground.add(12);
    ground.look_for_seconds(2);
    ground.obey(11);
    ground.look_for_seconds(3);
    ck_assert(ground.on_page(12).policy == plan::Policy::two_level);
    ck_assert_int_eq(ground.on_page(12).phase, 0);
}
END_TEST

START_TEST(a_floor_that_rank_0_keeps_is_respected)
{
    Ground ground;
    ground.add(11);
    ground.add(12);
    ground.look_for_seconds(2);
    ground.obey(11);
    ground.rank(11, 0).view.agreed.full_workers = 2; // raised by rank 0, of the same generation
    ground.move(11, 10);
    const std::uint64_t generation = ground.on_page(11).generation;
    ground.look_for_seconds(4);
    ck_assert_uint_eq(ground.on_page(11).generation, generation);
}
END_TEST

START_TEST(a_new_jigsawd_wants_what_the_job_follows)
{
    Ground ground;
    ground.add(11);
    ground.add(12);
    for (core::JobId job : {11, 12}) {
        page::ReportView &view = ground.rank(job, 0).view;
        view.agreed.generation = 41;
        view.agreed.policy = plan::Policy::two_level;
        view.agreed.levels = 2;
        view.agreed.full_workers = 1;
        view.agreed.phase = job == 11 ? 0 : 1;
        view.agreed.depth_of_level = {1, 4};
        ground.move(job, 10);
    }
    ground.look();
    for (core::JobId job : {11, 12}) {
        ck_assert_uint_eq(ground.on_page(job).generation, 41);
        ck_assert(ground.on_page(job).policy == plan::Policy::two_level);
    }
}
END_TEST

START_TEST(generations_go_on_from_what_ranks_tell)
{
    Ground ground;
    ground.add(11).generation = 41; // told at attach
    ground.add(12);
    ground.look_for_seconds(2);
    ck_assert_uint_eq(ground.on_page(11).generation, 42);
}
END_TEST

START_TEST(pairs_are_counted_at_grants)
{
    Ground ground;
    ground.add(11);
    ground.add(12);
    ground.look_for_seconds(2);
    ground.obey(11);
    ground.look_for_seconds(2);
    ground.obey(12);
    ground.look_for_seconds(2);
    ground.obey(12);
    ground.look_for_seconds(1);
    const std::uint64_t younger = ground.on_page(12).generation;
    // The counters stand as they were, but at its grants the younger one meets the older one's next iteration.
    ground.rank(11, 0).process.report.iteration = 12;
    for (int i = 0; i < 15; ++i)
        ground.director.note_pairing(ground.rank(12, 0).process, ground.rank(11, 0).process);
    ground.look_for_seconds(3);
    ck_assert_uint_gt(ground.on_page(12).generation, younger);
}
END_TEST

/// Rank 1 of job 11 sits on another node, beside rank `rank` of job 12.
jigsaw_elsewhere_t beside_rank_1(std::uint32_t older, jigsaw_policy policy, std::uint32_t rank, std::int32_t offset)
{
    return {1, 12, older, static_cast<std::uint32_t>(policy), 3, 0, 0, {offset, rank, 2, 2, 1, 1}};
}

START_TEST(a_rival_elsewhere_is_a_rival)
{
    Ground ground;
    ground.add(11, 0, -1);
    ground.look_for_seconds(1);
    ck_assert_uint_eq(ground.on_page(11).generation, 0);
    FakeRank &rank0 = ground.rank(11, 0);
    rank0.view.elsewhere = {beside_rank_1(0, JIGSAW_POLICY_FULL, 0, 0)};
    page::publish_report(rank0.own.report.get(), rank0.view);
    ground.look_for_seconds(2);
    ck_assert(ground.on_page(11).policy == plan::Policy::two_level);
    rank0.view.elsewhere.clear();
    page::publish_report(rank0.own.report.get(), rank0.view);
    ground.obey(11);
    ground.look_for_seconds(3);
    ck_assert(ground.on_page(11).policy == plan::Policy::full);
}
END_TEST

START_TEST(phases_complement_an_older_rival_elsewhere)
{
    for (std::uint32_t their_rank = 0; their_rank < 2; ++their_rank) {
        for (std::int32_t offset = -3; offset <= 3; ++offset) {
            Ground ground;
            ground.add(11, 0, -1);
            FakeRank &rank0 = ground.rank(11, 0);
            const jigsaw_elsewhere_t rival = beside_rank_1(1, JIGSAW_POLICY_TWO_LEVEL, their_rank, offset);
            rank0.view.elsewhere = {rival};
            page::publish_report(rank0.own.report.get(), rank0.view);
            ground.look_for_seconds(2);
            plan::Directive theirs;
            theirs.policy = plan::Policy::two_level;
            theirs.levels = 2;
            const plan::Directive ours = ground.on_page(11);
            ck_assert(ours.policy == plan::Policy::two_level);
            for (std::uint64_t iteration = 10; iteration < 14; ++iteration)
                ck_assert_uint_ne(plan::level_of(ours, 1, 2, iteration),
                                  plan::level_of(theirs, their_rank, 2, iteration + static_cast<std::uint64_t>(offset)));
        }
    }
}
END_TEST

START_TEST(a_rival_elsewhere_that_cannot_be_is_left_out)
{
    jigsaw_elsewhere_t bad[4];
    std::fill(std::begin(bad), std::end(bad), beside_rank_1(1, JIGSAW_POLICY_TWO_LEVEL, 0, 0));
    bad[0].own_rank = 2; // of a job of two
    bad[1].role.world_size = 100000;
    bad[2].role.full_workers = 3;
    bad[3].role.world_size = 0, bad[3].role.rank = 0;
    for (const jigsaw_elsewhere_t &rival : bad) {
        Ground ground;
        ground.add(11, 0, -1);
        FakeRank &rank0 = ground.rank(11, 0);
        rank0.view.elsewhere = {rival};
        page::publish_report(rank0.own.report.get(), rank0.view);
        ground.look_for_seconds(2);
        ck_assert_msg(ground.on_page(11).generation == 0, "row %td", &rival - bad);
    }
}
END_TEST

START_TEST(pages_tell_the_roles_of_rivals)
{
    Ground ground;
    ground.add(11);
    ground.add(12, 1, 0); // rank 0 of one beside rank 1 of the other
    ground.look_for_seconds(2);
    ground.obey(11);
    ground.move(12, 7);
    ground.look_for_seconds(2);
    page::DirectiveView view;
    ck_assert(page::read_directive(&view, ground.rank(12, 0).own.directive.get()));
    ck_assert_uint_eq(view.rivals.size(), 1);
    ck_assert_uint_eq(view.roles.size(), 1);
    ck_assert_uint_eq(view.roles[0].rank, 1);
    ck_assert_uint_eq(view.roles[0].world_size, 2);
    ck_assert_uint_eq(view.roles[0].levels, 2);
    ck_assert_int_eq(view.roles[0].offset, 3); // iterations 10 and 7
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("director");
    tests::add_case(suite, "directives",
                    {a_job_alone_is_told_nothing, two_jobs_complement_each_other, a_settled_pair_is_left_alone,
                     the_younger_follows_a_shift, full_depth_again_when_the_rival_is_gone, what_keeps_full_depth,
                     control_run_with_the_same_phases, a_floor_that_rank_0_keeps_is_respected,
                     a_new_jigsawd_wants_what_the_job_follows, generations_go_on_from_what_ranks_tell, pairs_are_counted_at_grants});
    tests::add_case(suite, "other nodes",
                    {a_rival_elsewhere_is_a_rival, phases_complement_an_older_rival_elsewhere,
                     a_rival_elsewhere_that_cannot_be_is_left_out, pages_tell_the_roles_of_rivals});
    return tests::run_tap(suite);
}
