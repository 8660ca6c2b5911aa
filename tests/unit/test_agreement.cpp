// SPDX-License-Identifier: Apache-2.0
// What is announced, when it holds, and that ranks which differ all stop before a gradient is used.
#include "runtime/sync/agreement.hpp"

#include "runtime/sync/agreement_record.hpp"
#include "runtime/sync/gradient_sync.hpp"
#include "tests/lib/ranks.hpp"
#include "tests/lib/suite.hpp"

#include <atomic>
#include <mutex>

namespace {

using namespace jigsaw;
using namespace jigsaw::sync;
using namespace std::chrono_literals;
using collective::Collective;
using jigsaw::tests::first_failure;
using jigsaw::tests::Outcome;
using jigsaw::tests::run_ranks;

constexpr auto kLong = 60s;
constexpr std::uint32_t kBlocks = 4;

#define ASSERT_CONTAINS(text, part)                                                                                    \
    ck_assert_msg((text).find(part) != std::string::npos, "\"%s\" is not in \"%s\"", std::string(part).c_str(),       \
                  (text).c_str())

plan::Directive rotating(std::uint64_t generation)
{
    plan::Directive directive;
    directive.generation = generation;
    directive.policy = plan::Policy::rotate;
    directive.levels = 4;
    directive.seed = 0x123456789abcdef0;
    directive.phase = -3;
    directive.direction = -1;
    directive.depth_of_level = {1, 2, 3, 4};
    return directive;
}

AgreementInput announcing(std::uint64_t generation)
{
    AgreementInput input;
    input.announce = rotating(generation);
    return input;
}

AgreementInput leaving()
{
    AgreementInput input;
    input.leave = true;
    return input;
}

bool exchange(Agreement &agreement, std::uint64_t iteration, const AgreementInput &input = {})
{
    agreement.start(iteration, input);
    return agreement.finish(iteration, kLong);
}

const std::vector<std::uint32_t> kFullDepth(4, kBlocks);

START_TEST(records_survive_the_wire)
{
    Record record;
    record.iteration = 1ull << 40;
    record.generation = 7;
    record.hash_next = 0xfedcba9876543210;
    record.hash_after = 5;
    record.depth = 3;
    record.input = announcing(9);
    record.input.leave = true;
    record.input.rival_job = 77;
    record.input.rival_generation = 8;
    record.input.rival_iteration = 1234567890123;
    record.input.rival_phase = -2;
    record.input.rival_offset = -70000;
    record.input.rival_rank = 255, record.input.rival_world = 256, record.input.rival_full_workers = 128;
    record.input.rival_policy = 2, record.input.rival_levels = 16, record.input.rival_direction = -1;
    record.input.rival_older = true;
    record.input.announce.full_workers = 70000;
    Record back;
    ck_assert(decode(&back, encode(record)));
    ck_assert(back.iteration == record.iteration && back.generation == 7 && back.hash_next == record.hash_next);
    ck_assert(back.hash_after == 5 && back.depth == 3 && back.input.leave && back.input.rival_job == 77);
    ck_assert(back.input.rival_generation == 8 && back.input.rival_iteration == 1234567890123);
    ck_assert_int_eq(back.input.rival_phase, -2);
    ck_assert_int_eq(back.input.rival_offset, -70000);
    ck_assert(back.input.rival_rank == 255 && back.input.rival_world == 256 && back.input.rival_full_workers == 128);
    ck_assert(back.input.rival_policy == 2 && back.input.rival_levels == 16 && back.input.rival_direction == -1);
    ck_assert(back.input.rival_older);
    ck_assert(back.input.announce == record.input.announce);
    record.input = AgreementInput();
    ck_assert(decode(&back, encode(record)));
    ck_assert(!back.input.leave && !back.input.rival_older && back.input.announce == plan::Directive());
}
END_TEST

START_TEST(other_bytes_are_no_record)
{
    RecordBytes bytes = encode(Record());
    Record record;
    record.depth = 42;
    for (const std::size_t at : {0, 3, 4, 5}) {
        bytes[at] ^= 1;
        ck_assert(!decode(&record, bytes));
        bytes[at] ^= 1;
    }
    ck_assert_uint_eq(record.depth, 42); // untouched on failure
    ck_assert(decode(&record, bytes));
}
END_TEST

START_TEST(an_announcement_holds_two_iterations_later)
{
    std::atomic<int> agreed{0};
    const auto outcomes = run_ranks(4, [&](Collective &world) {
        Agreement agreement(world, kBlocks);
        agreement.on_agreed([&](const plan::Directive &directive) {
            ck_assert_uint_eq(directive.generation, 6);
            ck_assert_uint_eq(directive.first_iteration, 5);
            ++agreed;
        });
        for (std::uint64_t t = 0; t < 9; ++t) {
            const plan::IterationPlan plan = agreement.plan(t);
            const plan::Directive &directive = agreement.directive(t);
            ck_assert_uint_eq(directive.generation, t < 5 ? 0 : 6);
            ck_assert(plan.depths == (t < 5 ? kFullDepth : plan::depth_vector(directive, 4, kBlocks, t)));
            ck_assert(t < 5 || plan.depths != kFullDepth);
            ck_assert(!exchange(agreement, t, t == 3 ? announcing(6) : AgreementInput()));
            ck_assert_uint_eq(agreement.announcement_pending(), t == 3);
        }
        ck_assert_uint_eq(world.bytes_sent(), 9 * 3 * 128);
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
    ck_assert_int_eq(agreed, 4);
}
END_TEST

START_TEST(the_first_two_iterations_are_full_depth)
{
    for (const std::uint64_t first : {0ull, 1000ull}) {
        const auto outcomes = run_ranks(4, [&](Collective &world) {
            Agreement agreement(world, kBlocks, first);
            for (std::uint64_t t = first; t < first + 4; ++t) {
                ck_assert_uint_eq(agreement.plan(t).depths == kFullDepth, t < first + 2);
                exchange(agreement, t, announcing(1));
            }
        });
        ck_assert_str_eq(first_failure(outcomes).c_str(), "");
    }
}
END_TEST

START_TEST(nothing_new_while_one_is_pending)
{
    // Generations offered at 0..6; one is taken every second iteration, and what is in force already is not announced.
    const std::uint64_t offered[] = {1, 2, 3, 3, 3, 4, 5};
    const std::uint64_t in_force[] = {0, 0, 1, 1, 3, 3, 3, 4, 4};
    const auto outcomes = run_ranks(2, [&](Collective &world) {
        Agreement agreement(world, kBlocks);
        int agreed = 0;
        agreement.on_agreed([&](const plan::Directive &) { ++agreed; });
        for (std::uint64_t t = 0; t < 7; ++t) {
            ck_assert_uint_eq(agreement.directive(t).generation, in_force[t]);
            // Only rank 0 announces, whatever others put in.
            exchange(agreement, t, announcing(world.rank() == 0 ? offered[t] : 99));
        }
        ck_assert_uint_eq(agreement.directive(7).generation, in_force[7]);
        ck_assert_uint_eq(agreement.directive(8).generation, in_force[8]);
        ck_assert_int_eq(agreed, 3);
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
}
END_TEST

START_TEST(hints_reach_everybody)
{
    const auto outcomes = run_ranks(3, [](Collective &world) {
        Agreement agreement(world, kBlocks);
        AgreementInput input;
        input.rival_job = 100 + static_cast<std::uint32_t>(world.rank());
        input.rival_phase = -world.rank();
        exchange(agreement, 0, input);
        for (std::size_t rank = 0; rank < 3; ++rank) {
            ck_assert_uint_eq(agreement.inputs()[rank].rival_job, 100 + rank);
            ck_assert_int_eq(agreement.inputs()[rank].rival_phase, -static_cast<int>(rank));
        }
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
}
END_TEST

/// A training loop without a model: what every iteration of every rank does with agreement and sync.
void train(Collective &world, Agreement &agreement, Strategy strategy, std::uint64_t iterations,
           std::atomic<int> &synced)
{
    std::vector<std::vector<float>> data(kBlocks, std::vector<float>(100));
    std::vector<BlockBuffer> buffers;
    for (auto &block : data)
        buffers.push_back({block.data(), block.size(), DataType::float32});
    GradientSync sync(world, buffers, strategy);
    for (std::uint64_t t = 0; t < iterations; ++t) {
        const plan::IterationPlan plan = agreement.plan(t);
        sync.begin(plan);
        agreement.start(t, announcing(1));
        for (std::uint32_t i = 0; i < plan.depths[static_cast<std::size_t>(world.rank())]; ++i)
            sync.block_ready(kBlocks - 1 - i);
        sync.wait(kLong);
        ++synced;
        agreement.finish(t, kLong);
    }
}

START_TEST(a_flipped_depth_is_an_error_on_all_ranks)
{
    for (const Strategy strategy :
         {Strategy::automatic, Strategy::scatter_gather, Strategy::chain, Strategy::full_all_reduce})
        for (int wrong = 0; wrong < 4; ++wrong) {
            std::atomic<int> synced{0};
            const auto outcomes = run_ranks(4, [&](Collective &world) {
                Agreement agreement(world, kBlocks);
                if (world.rank() == wrong)
                    agreement.corrupt_for_test(7, agreement.directive(7).generation == 0 ? 1 : 2);
                train(world, agreement, strategy, 20, synced);
            });
            // The exchange of 5 carries the plan of 7 already, as it is known then: two iterations ahead.
            ck_assert_int_eq(synced, 4 * 6);
            for (const Outcome &outcome : outcomes) {
                ck_assert_int_eq(outcome.code, JIGSAW_DISAGREE);
                ASSERT_CONTAINS(outcome.text, "agreement of iteration 5: ranks do not agree on the plan: ");
                ASSERT_CONTAINS(outcome.text, "rank " + std::to_string(wrong) + ": iteration 6 of generation 1");
                ASSERT_CONTAINS(outcome.text, "depths ");
            }
        }
}
END_TEST

START_TEST(an_unconfirmed_plan_is_not_given_out)
{
    const auto outcomes = run_ranks(2, [](Collective &world) {
        Agreement agreement(world, kBlocks);
        exchange(agreement, 0);
        agreement.corrupt_for_test(2, static_cast<std::uint32_t>(1 + world.rank()));
        agreement.start(1, {});
        for (int again = 0; again < 2; ++again) {
            try {
                agreement.finish(1, kLong);
                ck_abort_msg("ranks with other plans agreed");
            } catch (const Error &error) {
                ck_assert_int_eq(error.code(), JIGSAW_DISAGREE);
                ASSERT_CONTAINS(std::string(error.what()), "rank 0: iteration 2 of generation 0");
                ASSERT_CONTAINS(std::string(error.what()), "rank 1: iteration 2 of generation 0");
            }
        }
        agreement.plan(1);
        agreement.plan(2);
    });
    for (const Outcome &outcome : outcomes) {
        ck_assert_int_eq(outcome.code, JIGSAW_DISAGREE);
        ASSERT_CONTAINS(outcome.text, "the exchange of iteration 1 has not confirmed its plan");
    }
}
END_TEST

START_TEST(other_iterations_and_other_models_are_found)
{
    for (const bool other_model : {false, true}) {
        const auto outcomes = run_ranks(3, [&](Collective &world) {
            const bool odd = world.rank() == 1;
            Agreement agreement(world, odd && other_model ? kBlocks + 1 : kBlocks, odd && !other_model ? 41 : 40);
            const std::uint64_t first = odd && !other_model ? 41 : 40;
            exchange(agreement, first);
        });
        for (const Outcome &outcome : outcomes) {
            ck_assert_int_eq(outcome.code, JIGSAW_DISAGREE);
            ASSERT_CONTAINS(outcome.text, "ranks 0,2: iteration 41 of generation 0");
            ASSERT_CONTAINS(outcome.text, other_model ? "rank 1: iteration 41" : "rank 1: iteration 42");
        }
    }
}
END_TEST

START_TEST(all_leave_is_a_clean_end)
{
    const auto outcomes = run_ranks(3, [](Collective &world) {
        Agreement agreement(world, kBlocks);
        ck_assert(!exchange(agreement, 0));
        ck_assert(exchange(agreement, 1, leaving()));
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
}
END_TEST

START_TEST(some_leave_and_the_others_hear_it)
{
    const auto outcomes = run_ranks(4, [](Collective &world) {
        Agreement agreement(world, kBlocks, 120);
        const bool leaves = world.rank() == 1 || world.rank() == 3;
        ck_assert(!exchange(agreement, 120, leaves ? leaving() : AgreementInput()));
    });
    for (std::size_t rank = 0; rank < 4; ++rank)
        if (rank % 2) {
            ck_assert_int_eq(outcomes[rank].code, JIGSAW_SUCCESS);
        } else {
            ck_assert_int_eq(outcomes[rank].code, JIGSAW_PEER_LEFT);
            ck_assert_str_eq(outcomes[rank].text.c_str(), "ranks 1,3 left after iteration 120");
        }
}
END_TEST

START_TEST(a_dead_rank_is_named)
{
    const auto outcomes = run_ranks(3, [](Collective &world) {
        Agreement agreement(world, kBlocks);
        exchange(agreement, 0);
        if (world.rank() != 2)
            exchange(agreement, 1);
    });
    for (std::size_t rank = 0; rank < 2; ++rank) {
        ck_assert_int_eq(outcomes[rank].code, JIGSAW_PEER_LEFT);
        ASSERT_CONTAINS(outcomes[rank].text, "agreement of iteration 1: ");
        ASSERT_CONTAINS(outcomes[rank].text, "rank 2 left");
    }
}
END_TEST

START_TEST(a_late_rank_is_named_and_may_still_come)
{
    std::atomic<int> waiting{2};
    const auto outcomes = run_ranks(3, [&](Collective &world) {
        Agreement agreement(world, kBlocks);
        if (world.rank() == 1) {
            while (waiting > 0)
                std::this_thread::yield();
            ck_assert(!exchange(agreement, 0));
            return;
        }
        agreement.start(0, {});
        ck_assert(!agreement.wait_for(0, 10ms));
        try {
            agreement.finish(0, 10ms);
            ck_abort_msg("no time-out");
        } catch (const Error &error) {
            ck_assert_int_eq(error.code(), JIGSAW_TIMEOUT);
            // Another waiting rank may not have taken our record yet; the late one certainly has not.
            ASSERT_CONTAINS(std::string(error.what()), "agreement of iteration 0: no answer from rank");
            ASSERT_CONTAINS(std::string(error.what()), "1");
            ASSERT_CONTAINS(std::string(error.what()), "after 10 ms");
        }
        --waiting;
        ck_assert(!agreement.finish(0, kLong));
        agreement.plan(1);
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
}
END_TEST

START_TEST(wrong_calls_and_directives_are_named)
{
    const auto world = collective::make_thread_world(1);
    const auto view = collective::join(world, 0);
    Agreement agreement(*view, kBlocks, 10);
    AgreementInput bad = announcing(1);
    bad.announce.depth_of_level = {1, 2, 3, 5};
    const struct {
        jigsaw_result_t code;
        std::function<void()> call;
    } rows[] = {
        {JIGSAW_INVALID_STATE, [&] { agreement.start(11, {}); }},
        {JIGSAW_INVALID_STATE, [&] { agreement.finish(10, kLong); }},
        {JIGSAW_DISAGREE, [&] { agreement.plan(11); }},
        {JIGSAW_INVALID_ARGUMENT, [&] { agreement.start(10, bad); }},
    };
    for (const auto &row : rows)
        try {
            row.call();
            ck_abort_msg("a wrong call was taken");
        } catch (const Error &error) {
            ck_assert_int_eq(error.code(), row.code);
        }
    agreement.start(10, {}); // what failed left nothing behind
    try {
        agreement.start(11, {});
        ck_abort_msg("two exchanges at once");
    } catch (const Error &error) {
        ck_assert_int_eq(error.code(), JIGSAW_INVALID_STATE);
    }
    ck_assert(!agreement.finish(10, kLong));
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("agreement");
    jigsaw::tests::add_case(suite, "record", {records_survive_the_wire, other_bytes_are_no_record});
    jigsaw::tests::add_case(suite, "announcing",
                            {an_announcement_holds_two_iterations_later, the_first_two_iterations_are_full_depth,
                             nothing_new_while_one_is_pending, hints_reach_everybody});
    jigsaw::tests::add_case(suite, "disagreeing",
                            {a_flipped_depth_is_an_error_on_all_ranks, an_unconfirmed_plan_is_not_given_out,
                             other_iterations_and_other_models_are_found});
    jigsaw::tests::add_case(suite, "leaving",
                            {all_leave_is_a_clean_end, some_leave_and_the_others_hear_it, a_dead_rank_is_named,
                             a_late_rank_is_named_and_may_still_come, wrong_calls_and_directives_are_named});
    return jigsaw::tests::run_tap(suite);
}
