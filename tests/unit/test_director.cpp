// SPDX-License-Identifier: Apache-2.0
// What rank 0 announces: sources, floors, generations; and the directive log, written and read back.
#include "runtime/capi/block_times.hpp"
#include "runtime/capi/directive_log.hpp"
#include "runtime/capi/director.hpp"
#include "runtime/collective/error.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <unistd.h>

#include "tests/lib/suite.hpp" // last: Check defines a macro `fail`

using namespace jigsaw;
using capi::Director;
using capi::Outlook;
using plan::Directive;
using plan::Policy;

namespace {

capi::Settings settings_of(std::uint32_t world_size, Policy policy, bool given = true)
{
    static float element;
    capi::Settings settings;
    settings.world_size = world_size;
    settings.blocks.assign(4, {&element, 1, sync::DataType::float32});
    settings.policy_given = given;
    settings.policy = policy;
    settings.levels = policy == Policy::full ? 1 : policy == Policy::two_level ? 2 : 4;
    settings.full_workers = std::max(1u, world_size / 2);
    return settings;
}

Outlook at(std::uint64_t iteration)
{
    Outlook outlook;
    outlook.iteration = iteration;
    outlook.measured = 5;
    outlook.backward_ns = {100, 100, 100, 100};
    return outlook;
}

Outlook with_agent(std::uint64_t iteration, std::uint64_t generation, Policy policy, std::uint32_t full_workers)
{
    Outlook outlook = at(iteration);
    outlook.agent = true;
    outlook.wanted.generation = generation;
    outlook.wanted.policy = policy;
    outlook.wanted.levels = policy == Policy::full ? 1 : 2;
    outlook.wanted.full_workers = full_workers;
    return outlook;
}

START_TEST(announces_the_policy_of_the_code_once)
{
    Director director(settings_of(4, Policy::two_level));
    const Directive first = director.next(at(0));
    ck_assert_uint_eq(first.generation, 1);
    ck_assert(first.policy == Policy::two_level);
    ck_assert_uint_eq(first.full_workers, 2);
    ck_assert(first.depth_of_level == std::vector<std::uint32_t>({1, 4}));
    ck_assert_uint_eq(director.next(at(1)).generation, 0);
}
END_TEST

START_TEST(says_nothing_at_full_depth)
{
    Director director(settings_of(4, Policy::full, false));
    for (std::uint64_t t = 0; t < 5; ++t)
        ck_assert_uint_eq(director.next(at(t)).generation, 0);
}
END_TEST

START_TEST(waits_for_the_warm_up)
{
    capi::Settings settings = settings_of(4, Policy::two_level);
    settings.warmup_iterations = 10;
    Director director(settings);
    // An exchange decides over the iteration two later: 10 is the first one that may be shallow.
    ck_assert_uint_eq(director.next(at(7)).generation, 0);
    ck_assert_uint_eq(director.next(at(8)).generation, 1);
    ck_assert_uint_eq(director.warmup_left(4), 6);
    ck_assert_uint_eq(director.min_full_workers(9, NAN), 4);
    ck_assert_uint_eq(director.min_full_workers(10, NAN), 1);
}
END_TEST

START_TEST(waits_for_measured_blocks_where_the_table_needs_them)
{
    Director director(settings_of(4, Policy::rotate));
    Outlook outlook = at(0);
    outlook.measured = 1;
    ck_assert_uint_eq(director.next(outlook).generation, 0);
    outlook.measured = 2;
    outlook.backward_ns = {10, 10, 10, 70}; // the last block is most of the work
    const Directive directive = director.next(outlook);
    ck_assert_uint_eq(directive.generation, 1);
    ck_assert(directive.depth_of_level == std::vector<std::uint32_t>({1, 1, 2, 4}));
}
END_TEST

START_TEST(follows_the_agent)
{
    Director director(settings_of(4, Policy::full, false));
    ck_assert_uint_eq(director.next(with_agent(0, 0, Policy::full, 1)).generation, 0);
    Outlook wants = with_agent(1, 7, Policy::two_level, 1);
    wants.wanted.phase = 3;
    const Directive directive = director.next(wants);
    ck_assert_uint_eq(directive.generation, 7);
    ck_assert_int_eq(directive.phase, 3);
    ck_assert_uint_eq(directive.full_workers, 1);
    ck_assert_uint_eq(director.next(wants).generation, 0);
    // A new number is answered even when nothing else is new: jigsawd sees that it was heard.
    wants.wanted.generation = 8;
    ck_assert_uint_eq(director.next(wants).generation, 8);
    // The agent is alone again and wants nothing.
    const Directive full = director.next(with_agent(5, 0, Policy::full, 1));
    ck_assert(full.policy == Policy::full);
    ck_assert_uint_eq(full.generation, 9);
}
END_TEST

START_TEST(goes_to_full_depth_when_the_agent_is_lost)
{
    Director director(settings_of(4, Policy::full, false));
    director.next(with_agent(1, 3, Policy::two_level, 1));
    const Directive lost = director.next(at(2));
    ck_assert(lost.policy == Policy::full);
    ck_assert_uint_eq(lost.generation, 4);
    ck_assert(director.take_message().find("full depth") != std::string::npos);
    ck_assert_uint_eq(director.next(at(3)).generation, 0);
    ck_assert_str_eq(director.take_message().c_str(), "");
    // An agent that starts anew counts from where it likes; the job's generations only rise.
    const Directive back = director.next(with_agent(9, 1, Policy::two_level, 1));
    ck_assert_uint_eq(back.generation, 5);
    ck_assert(director.take_message().find("back") != std::string::npos);
}
END_TEST

START_TEST(refuses_what_is_out_of_range)
{
    struct Row {
        const char *name;
        void (*spoil)(Directive *);
    } rows[] = {
        {"levels", [](Directive *d) { d->levels = 4000000000u; }},
        {"no levels", [](Directive *d) { d->levels = 0; }},
        {"full_workers", [](Directive *d) { d->full_workers = 5; }},
        {"no full_workers", [](Directive *d) { d->full_workers = 0; }},
        {"direction", [](Directive *d) { d->direction = 7; }},
        {"policy", [](Directive *d) { d->policy = static_cast<Policy>(99); }},
    };
    for (const Row &row : rows) {
        Director director(settings_of(4, Policy::full, false));
        Outlook outlook = with_agent(0, 3, Policy::two_level, 2);
        row.spoil(&outlook.wanted);
        ck_assert_msg(director.next(outlook).generation == 0 || director.next(outlook).policy == Policy::full, "%s", row.name);
        ck_assert_msg(director.take_message().find("refused") != std::string::npos, "%s", row.name);
    }
}
END_TEST

START_TEST(raises_to_the_floor_of_the_job)
{
    struct Row {
        Policy policy;
        double min_depth, lr_over_peak;
        std::uint32_t full_workers;
        std::vector<std::uint32_t> table;
    } rows[] = {
        {Policy::two_level, 0, NAN, 1, {1, 4}},
        {Policy::two_level, 0, 0.5, 3, {1, 4}},  // ceil(4 * 1.25 * 0.5)
        {Policy::two_level, 0, 0.01, 1, {1, 4}},
        {Policy::two_level, 0, 1.0, 4, {1, 4}},
        {Policy::two_level, 0.6, NAN, 2, {1, 4}}, // (2 * 1 + 2 * 0.25) / 4 = 0.625
        {Policy::two_level, 1, NAN, 4, {1, 4}},
        {Policy::rotate, 0, NAN, 1, {1, 2, 3, 4}}, // 0.625
        {Policy::rotate, 0.7, NAN, 1, {3, 3, 3, 4}},
        {Policy::rotate, 1, NAN, 1, {4, 4, 4, 4}},
    };
    for (const Row &row : rows) {
        capi::Settings settings = settings_of(4, row.policy);
        settings.full_workers = 1;
        settings.min_depth_fraction = row.min_depth;
        Director director(settings);
        Outlook outlook = at(0);
        outlook.lr_over_peak = row.lr_over_peak;
        const Directive directive = director.next(outlook);
        const std::string name = std::to_string(row.min_depth) + " " + std::to_string(row.lr_over_peak);
        ck_assert_msg(directive.generation == 1, "%s", name.c_str());
        if (row.policy == Policy::two_level)
            ck_assert_msg(directive.full_workers == row.full_workers, "%s: %u", name.c_str(), directive.full_workers);
        ck_assert_msg(directive.depth_of_level == row.table, "%s", name.c_str());
    }
}
END_TEST

START_TEST(measures_full_depth_only)
{
    capi::BlockTimes times(3);
    ck_assert(times.depth_fraction(1) > 0.33 && times.depth_fraction(1) < 0.34);
    times.start(1000);
    times.stamp(2, 1100);
    times.finish(1);
    ck_assert_uint_eq(times.measured(), 0);
    for (int i = 0; i < 2; ++i) {
        times.start(1000);
        times.stamp(2, 1100);
        times.stamp(1, 1300);
        times.stamp(0, 2000);
        times.finish(3);
    }
    ck_assert_uint_eq(times.measured(), 2);
    ck_assert(times.backward_ns() == std::vector<std::uint64_t>({700, 200, 100}));
    ck_assert(times.depth_fraction(1) == 0.1 && times.depth_fraction(2) == 0.3 && times.depth_fraction(3) == 1.0);
    times.stamp(0, 9000); // no start: forward's end is not known
    times.finish(3);
    ck_assert_uint_eq(times.measured(), 2);
}
END_TEST

std::string scratch_file(const char *name)
{
    return "/tmp/jigsaw-test-" + std::to_string(getpid()) + "-" + name;
}

Directive example(std::uint64_t generation, std::uint64_t first)
{
    Directive directive;
    directive.generation = generation;
    directive.first_iteration = first;
    directive.policy = Policy::rotate;
    directive.phase = -3;
    directive.direction = -1;
    directive.seed = 77;
    directive.levels = 3;
    directive.depth_of_level = {1, 2, 4};
    return directive;
}

START_TEST(log_reads_back)
{
    const std::string path = scratch_file("log");
    {
        capi::DirectiveLog log(path, 4);
        ck_assert(log.append(example(1, 12)) && log.append(example(2, 20)));
        capi::DirectiveLog resumed(path, 4); // at 15: its generations start again
        ck_assert(resumed.append(example(1, 17)));
    }
    const capi::Replay replay(path, 4, 4);
    ck_assert(replay.at(12) == example(1, 12));
    ck_assert(replay.at(17) == example(1, 17));
    ck_assert_uint_eq(replay.at(20).generation, 0);
    std::remove(path.c_str());
}
END_TEST

START_TEST(log_lines_that_are_wrong)
{
    const std::string good = capi::format_directive(example(1, 12), 4);
    const auto replaced = [&](const std::string &what, const std::string &by) {
        std::string out = good;
        return out.replace(out.find(what), what.size(), by);
    };
    const struct {
        std::string line, says;
    } rows[] = {
        {replaced("\"world_size\":4", "\"world_size\":8"), "world_size was 8"},
        {replaced("rotate", "dance"), "policy"},
        {replaced("[1,2,4]", "[1,2,5]"), "depth_of_level"},
        {replaced("[1,2,4]", "[1,x,4]"), "whole number"},
        {replaced("\"levels\":3,", ""), "no \"levels\""},
        {replaced("}", ""), "too early"},
        {good + "x", "after the object"},
        {"", "expected '{'"},
        {good + "\n" + capi::format_directive(example(2, 11), 4), "does not rise"},
    };
    const std::string path = scratch_file("bad");
    for (const auto &row : rows) {
        std::ofstream(path) << row.line << "\n";
        std::string said;
        try {
            capi::Replay replay(path, 4, 4);
        } catch (const Error &error) {
            ck_assert_int_eq(error.code(), JIGSAW_INVALID_ARGUMENT);
            said = error.what();
        }
        ck_assert_msg(said.find(row.says) != std::string::npos, "%s: %s", row.line.c_str(), said.c_str());
        ck_assert_msg(said.find(path + ":") != std::string::npos, "%s", said.c_str());
    }
    std::remove(path.c_str());
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("director");
    tests::add_case(suite, "announces",
                    {announces_the_policy_of_the_code_once, says_nothing_at_full_depth, waits_for_the_warm_up,
                     waits_for_measured_blocks_where_the_table_needs_them, follows_the_agent,
                     goes_to_full_depth_when_the_agent_is_lost, refuses_what_is_out_of_range, raises_to_the_floor_of_the_job});
    tests::add_case(suite, "measures", {measures_full_depth_only});
    tests::add_case(suite, "log", {log_reads_back, log_lines_that_are_wrong});
    return tests::run_tap(suite);
}
