// SPDX-License-Identifier: Apache-2.0
// Phases: two jobs interlock from any difference of iterations; every choice is as good as an exhaustive search of the
// slow kind; what is optimal is kept; floors, warm-up and being alone decide over depth.
#include "plugin/core/depth.hpp"
#include "tests/lib/suite.hpp"

#include <algorithm>
#include <random>
#include <string>

namespace {

using namespace jigsaw::core;
using jigsaw::plan::Directive;
using jigsaw::plan::Policy;

Directive directive_of(Policy policy, std::uint32_t levels, std::uint64_t generation)
{
    Directive directive;
    directive.policy = policy;
    directive.levels = levels;
    directive.generation = generation;
    return directive;
}

/// A job with one rank on each of `gpus`, forward 1, backward `full_backward` in even levels.
GroupJob job_on(std::vector<int> gpus, Policy policy, std::uint32_t levels, std::uint64_t iteration,
                std::uint64_t generation = 1, double full_backward = 2)
{
    GroupJob job;
    job.world_size = static_cast<std::uint32_t>(gpus.size());
    job.gpu_of_rank = std::move(gpus);
    job.iteration = iteration;
    job.directive = directive_of(policy, levels, generation);
    for (std::uint32_t level = 1; level <= levels; ++level)
        job.backward_ms_of_level.push_back(full_backward * level / levels);
    return job;
}

double load_of_rank(const GroupJob &job, std::uint32_t rank, std::uint64_t step)
{
    const bool full = job.directive.generation == 0 || job.directive.policy == Policy::full;
    const std::uint32_t level =
        full ? job.directive.levels
             : jigsaw::plan::level_of(job.directive, rank, job.world_size, job.iteration + step);
    return job.forward_ms + job.backward_ms_of_level.at(level - 1);
}

/// The slow, obvious way: the busiest of the job's GPUs in every iteration of a period that certainly is one.
double mean_busiest(const GroupJob &job, const std::vector<GroupJob> &others, double *ret_worst = nullptr)
{
    std::uint64_t period = job.world_size;
    for (const GroupJob &other : others)
        period *= other.world_size;
    std::vector<GroupJob> all = others;
    all.push_back(job);
    double sum = 0, worst = 0;
    for (std::uint64_t step = 0; step < period; ++step) {
        double busiest = 0;
        for (int gpu : job.gpu_of_rank) {
            double load = 0;
            for (const GroupJob &one : all)
                for (std::uint32_t rank = 0; rank < one.world_size; ++rank)
                    load += one.gpu_of_rank[rank] == gpu ? load_of_rank(one, rank, step) : 0;
            busiest = std::max(busiest, load);
        }
        sum += busiest;
        worst = std::max(worst, busiest);
    }
    if (ret_worst)
        *ret_worst = worst;
    return sum / static_cast<double>(period);
}

double best_by_search(GroupJob job, const std::vector<GroupJob> &others)
{
    double best = 1e300;
    job.directive.generation = 1; // as if it were agreed: what is not is at full depth
    for (std::uint32_t phase = 0; phase < job.world_size; ++phase)
        for (int direction : {1, -1}) {
            job.directive.phase = static_cast<std::int32_t>(phase);
            job.directive.direction = direction;
            best = std::min(best, mean_busiest(job, others));
        }
    return best;
}

GroupJob placed(GroupJob job, const PhaseChoice &choice)
{
    job.directive.phase = choice.phase;
    job.directive.direction = choice.direction;
    job.directive.generation = 1;
    return job;
}

// One full and one shallow worker on each GPU in each iteration: 2f + b(1 + 1/2) = 5 instead of 6.
START_TEST(two_workers_interlock_from_any_difference)
{
    for (std::uint64_t a = 0; a < 5; ++a)
        for (std::uint64_t b = 0; b < 5; ++b)
            for (int phase = -3; phase < 3; ++phase) {
                GroupJob older = job_on({0, 1}, Policy::two_level, 2, a);
                older.directive.phase = phase;
                const GroupJob newcomer = job_on({0, 1}, Policy::two_level, 2, b, 0);
                const PhaseChoice choice = choose_phase(newcomer, {older});
                ck_assert_double_eq_tol(choice.cycle_ms, 5, 1e-9);
                ck_assert_double_eq_tol(choice.worst_ms, 5, 1e-9);
                for (std::uint64_t step = 0; step < 6; ++step)
                    for (std::uint32_t rank = 0; rank < 2; ++rank)
                        ck_assert_double_eq_tol(load_of_rank(older, rank, step) +
                                                    load_of_rank(placed(newcomer, choice), rank, step),
                                                5, 1e-9);
            }
}
END_TEST

// algorithms A: f = 1, b = 2, N = 4, levels 1..4. Mirrored directions make 1+4, 2+3, 3+2, 4+1 (load 4.5) in every other
// iteration and 1+2, 2+1, 3+4, 4+3 (5.5) between; no phase does better, and the same direction does worse.
START_TEST(four_rotating_workers_reach_the_best)
{
    for (std::uint64_t difference = 0; difference < 8; ++difference) {
        const GroupJob older = job_on({0, 1, 2, 3}, Policy::rotate, 4, 100);
        const GroupJob newcomer = job_on({0, 1, 2, 3}, Policy::rotate, 4, 100 + difference, 0);
        const PhaseChoice choice = choose_phase(newcomer, {older});
        ck_assert_double_eq_tol(choice.cycle_ms, best_by_search(newcomer, {older}), 1e-9);
        ck_assert_double_eq_tol(choice.cycle_ms, 5, 1e-9);
    }
}
END_TEST

struct Row {
    const char *name;
    GroupJob job;
    std::vector<GroupJob> others;
};

std::vector<Row> rows()
{
    return {
        {"partly overlapping GPUs", job_on({1, 2, 3}, Policy::two_level, 2, 3, 0),
         {job_on({0, 1}, Policy::two_level, 2, 8), job_on({3, 4}, Policy::two_level, 2, 1)}},
        {"numbers of workers 2 and 3", job_on({0, 1, 2}, Policy::rotate, 3, 0, 0),
         {job_on({0, 1}, Policy::two_level, 2, 5)}},
        {"numbers of workers 4 and 2", job_on({0, 1, 2, 3}, Policy::two_level, 2, 7, 0),
         {job_on({2, 3}, Policy::two_level, 2, 4)}},
        {"three jobs", job_on({0, 1, 2}, Policy::two_level, 2, 2, 0),
         {job_on({0, 1, 2}, Policy::two_level, 2, 0), job_on({0, 1, 2}, Policy::two_level, 2, 1)}},
        {"beside a job at full depth", job_on({0, 1}, Policy::two_level, 2, 2, 0),
         {job_on({0, 1}, Policy::full, 2, 0)}},
        {"beside an undirected job", job_on({0, 1}, Policy::two_level, 2, 2, 0),
         {job_on({0, 1}, Policy::two_level, 2, 0, 0)}},
        {"ranks in another order", job_on({2, 0, 3, 1}, Policy::rotate, 4, 1, 0),
         {job_on({0, 1, 2, 3}, Policy::rotate, 4, 0)}},
        {"fixed roles", job_on({0, 1, 2, 3}, Policy::fixed, 4, 1, 0), {job_on({0, 1, 2, 3}, Policy::fixed, 4, 0)}},
        {"a rank of unknown place", job_on({0, -1, 1}, Policy::rotate, 3, 1, 0),
         {job_on({0, 1}, Policy::two_level, 2, 0)}},
        {"other costs", job_on({0, 1}, Policy::two_level, 2, 1, 0, 7), {job_on({0, 1}, Policy::rotate, 2, 0, 1, 3)}},
    };
}

void check_against_search(const std::string &name, const GroupJob &job, const std::vector<GroupJob> &others)
{
    const PhaseChoice choice = choose_phase(job, others);
    double worst = 0;
    const double reached = mean_busiest(placed(job, choice), others, &worst);
    const double best = best_by_search(job, others);
    ck_assert_msg(reached < best + 1e-9, "%s: phase %d direction %d costs %.6f, the search found %.6f", name.c_str(),
                  choice.phase, choice.direction, reached, best);
    ck_assert_msg(std::abs(choice.cycle_ms - reached) < 1e-6, "%s: predicted %.6f, costs %.6f", name.c_str(),
                  choice.cycle_ms, reached);
    ck_assert_msg(std::abs(choice.worst_ms - worst) < 1e-6, "%s: predicted worst %.6f, is %.6f", name.c_str(),
                  choice.worst_ms, worst);
}

START_TEST(every_choice_equals_an_exhaustive_search)
{
    for (const Row &row : rows())
        check_against_search(row.name, row.job, row.others);
}
END_TEST

GroupJob random_job(std::mt19937 &random, std::uint64_t generation)
{
    const Policy policies[] = {Policy::full, Policy::two_level, Policy::rotate, Policy::fixed};
    std::vector<int> gpus{0, 1, 2, 3, 4};
    std::shuffle(gpus.begin(), gpus.end(), random);
    gpus.resize(1 + random() % 4);
    const auto levels = static_cast<std::uint32_t>(1 + random() % 4);
    GroupJob job = job_on(gpus, policies[random() % 4], levels, random() % 50, generation,
                           1 + static_cast<double>(random() % 5));
    job.directive.phase = static_cast<std::int32_t>(random() % 9) - 4;
    job.directive.direction = random() % 2 ? 1 : -1;
    job.directive.full_workers = 1 + static_cast<std::uint32_t>(random() % job.world_size);
    return job;
}

START_TEST(random_groups_equal_an_exhaustive_search)
{
    std::mt19937 random(20211110);
    for (int i = 0; i < 300; ++i) {
        std::vector<GroupJob> others(1 + random() % 2);
        std::generate(others.begin(), others.end(), [&] { return random_job(random, random() % 4 ? 1 : 0); });
        GroupJob job = random_job(random, 0);
        // Only what shares a GPU with the job counts, for the search too.
        const bool near = std::any_of(others.begin(), others.end(), [&](const GroupJob &other) {
            return std::find_first_of(other.gpu_of_rank.begin(), other.gpu_of_rank.end(), job.gpu_of_rank.begin(),
                                      job.gpu_of_rank.end()) != other.gpu_of_rank.end();
        });
        if (near && job.directive.policy != Policy::full)
            check_against_search("random group " + std::to_string(i), job, others);
    }
}
END_TEST

START_TEST(an_optimal_phase_is_kept)
{
    const GroupJob older = job_on({0, 1, 2, 3}, Policy::rotate, 4, 0);
    int kept = 0;
    for (std::uint64_t later = 0; later < 12; ++later) {
        GroupJob job = job_on({0, 1, 2, 3}, Policy::rotate, 4, later);
        for (int phase = 0; phase < 4; ++phase)
            for (int direction : {1, -1}) {
                job.directive.phase = phase;
                job.directive.direction = direction;
                if (mean_busiest(job, {older}) > best_by_search(job, {older}) + 1e-9)
                    continue;
                const PhaseChoice choice = choose_phase(job, {older});
                ck_assert_int_eq(choice.phase, phase);
                ck_assert_int_eq(choice.direction, direction);
                ++kept;
            }
    }
    ck_assert_int_gt(kept, 12); // several phases are equally good, or the test shows nothing
}
END_TEST

START_TEST(choosing_again_changes_nothing)
{
    std::mt19937 random(7);
    for (int i = 0; i < 200; ++i) {
        const std::vector<GroupJob> others{random_job(random, 1), random_job(random, 1)};
        GroupJob job = placed(random_job(random, 1), {});
        job = placed(job, choose_phase(job, others));
        const PhaseChoice again = choose_phase(job, others);
        ck_assert_int_eq(again.phase, job.directive.phase);
        ck_assert_int_eq(again.direction, job.directive.direction);
    }
}
END_TEST

START_TEST(noise_below_one_per_cent_moves_nobody)
{
    const GroupJob older = job_on({0, 1, 2}, Policy::two_level, 2, 0);
    GroupJob job = job_on({0, 1, 2}, Policy::two_level, 2, 0);
    job = placed(job, choose_phase(job, {older}));
    GroupJob noisy = older;
    noisy.backward_ms_of_level = {1.005, 1.99};
    const PhaseChoice again = choose_phase(job, {noisy});
    ck_assert_int_eq(again.phase, job.directive.phase);
    ck_assert_int_eq(again.direction, job.directive.direction);
}
END_TEST

START_TEST(the_older_job_stays_put)
{
    GroupJob younger = job_on({0, 1}, Policy::two_level, 2, 0);
    younger.younger = true;
    GroupJob older = job_on({0, 1}, Policy::two_level, 2, 0);
    older.directive.phase = younger.directive.phase = 1; // they clash: the younger one has to move
    ck_assert_int_eq(choose_phase(older, {younger}).phase, 1);
    ck_assert_double_eq_tol(choose_phase(older, {younger}).cycle_ms, 6, 1e-9);
    older.younger = younger.younger = false;
    ck_assert_int_eq(choose_phase(younger, {older}).phase, 0);
}
END_TEST

START_TEST(many_workers_are_bounded)
{
    std::vector<int> gpus(3000, -1);
    gpus[0] = 0;
    gpus[1] = 1;
    const GroupJob wide = job_on(gpus, Policy::two_level, 2, 5, 0);
    const PhaseChoice choice = choose_phase(wide, {job_on({0, 1}, Policy::two_level, 2, 0)});
    ck_assert_double_le(choice.cycle_ms, 6);
    ck_assert_double_ge(choice.cycle_ms, 4);
}
END_TEST

START_TEST(shuffled_roles_are_sampled)
{
    const GroupJob older = job_on({0, 1, 2}, Policy::shuffle, 3, 0);
    const PhaseChoice choice = choose_phase(job_on({0, 1, 2}, Policy::shuffle, 3, 0, 0), {older});
    ck_assert_double_lt(choice.cycle_ms, 6);
}
END_TEST

START_TEST(depth_pays_where_it_frees_time)
{
    const GroupJob full = job_on({0, 1}, Policy::full, 2, 0), partial = job_on({0, 1}, Policy::two_level, 2, 1);
    const GroupJob elsewhere = job_on({7, 8}, Policy::full, 2, 0);
    const GroupJob single = job_on({0}, Policy::two_level, 2, 0);
    const auto pays = [](const GroupJob &job, const std::vector<GroupJob> &others, double q) {
        return depth_pays(job, others, choose_phase(job, others), q);
    };
    ck_assert(pays(partial, {job_on({0, 1}, Policy::two_level, 2, 0)}, 1));
    ck_assert(pays(partial, {full}, 1)); // else two jobs at full depth would wait for each other for ever
    ck_assert(!pays(partial, {}, 1));
    ck_assert(!pays(partial, {elsewhere}, 1));
    ck_assert(!pays(full, {partial}, 1));
    ck_assert(!pays(single, {full}, 1)); // a single worker always runs full depth
    // Loads 5 against 5.5 on each GPU: worth 1.1 times the iterations, not more.
    ck_assert(pays(partial, {job_on({0, 1}, Policy::two_level, 2, 0)}, 1.09));
    ck_assert(!pays(partial, {job_on({0, 1}, Policy::two_level, 2, 0)}, 1.11));
}
END_TEST

SpbRequest request_of(SpbMode mode, Policy policy = Policy::two_level, std::uint32_t levels = 0)
{
    SpbRequest request;
    request.mode = mode;
    request.policy = policy;
    request.levels = levels;
    return request;
}

bool is_full(const Directive &directive) { return directive.policy == Policy::full; }

START_TEST(full_depth_where_partial_has_no_place)
{
    const GroupJob job = job_on({0, 1}, Policy::two_level, 2, 10);
    const std::vector<GroupJob> rival{job_on({0, 1}, Policy::two_level, 2, 0)};
    SpbRequest request = request_of(SpbMode::automatic);
    ck_assert(!is_full(wanted_directive(request, job, rival, 1, 9)));
    ck_assert_uint_eq(wanted_directive(request, job, rival, 1, 9).generation, 9);
    ck_assert(is_full(wanted_directive(request, job, {}, 1, 9)));
    ck_assert(is_full(wanted_directive(request_of(SpbMode::full), job, rival, 1, 9)));
    ck_assert(is_full(wanted_directive(request_of(SpbMode::off), job, rival, 1, 9)));
    ck_assert(is_full(wanted_directive(request_of(SpbMode::automatic, Policy::full), job, rival, 1, 9)));
    ck_assert(is_full(wanted_directive(request, job_on({0}, Policy::two_level, 2, 10), rival, 1, 9)));
    ck_assert(is_full(wanted_directive(request, job, rival, 2, 9))); // all workers must be full now
    request.warmup_iterations = 11;
    ck_assert(is_full(wanted_directive(request, job, rival, 1, 9)));
    request.warmup_iterations = 10;
    ck_assert(!is_full(wanted_directive(request, job, rival, 1, 9)));
}
END_TEST

/// Full in `full` of 8 iterations, for whatever reason.
std::uint32_t full_iterations(const Directive &wanted)
{
    std::uint32_t full = 0;
    for (std::uint64_t step = 0; step < JIGSAW_UNIFORM_PERIOD; ++step)
        full += jigsaw::plan::level_of(wanted, 0, 1, step) == wanted.levels;
    return full;
}

START_TEST(uniform_is_followed_alone_and_beside_others)
{
    const GroupJob lone = job_on({0}, Policy::uniform, 2, 5);
    SpbRequest request = request_of(SpbMode::automatic, Policy::uniform);
    const Directive alone = wanted_directive(request, lone, {}, 1, 3);
    ck_assert(alone.policy == Policy::uniform);
    ck_assert_uint_eq(alone.generation, 3);
    ck_assert_uint_eq(full_iterations(alone), 4);
    request.min_depth_fraction = 0.8; // half of the backward time at level 1
    ck_assert_uint_eq(full_iterations(wanted_directive(request, lone, {}, 1, 3)), 5);
    request.min_depth_fraction = 1;
    ck_assert(is_full(wanted_directive(request, lone, {}, 1, 3)));
    request.min_depth_fraction = 0;
    request.warmup_iterations = 6;
    ck_assert(is_full(wanted_directive(request, lone, {}, 1, 3)));
    request.warmup_iterations = 0;
    // One of two is full while the other is shallow, whatever the difference of their iterations: 1 + 2 + 1 + 1.
    for (std::uint64_t iteration = 0; iteration < 8; ++iteration) {
        GroupJob older = job_on({0}, Policy::uniform, 2, iteration);
        older.directive.full_workers = 4;
        const Directive beside = wanted_directive(request, lone, {older}, 1, 3);
        for (std::uint64_t step = 0; step < 8; ++step) {
            const std::uint32_t mine = jigsaw::plan::level_of(beside, 0, 1, lone.iteration + step);
            const std::uint32_t its = jigsaw::plan::level_of(older.directive, 0, 1, iteration + step);
            ck_assert_uint_eq(mine + its, 3);
        }
    }
}
END_TEST

START_TEST(floors_are_kept)
{
    const std::vector<GroupJob> rival{job_on({0, 1, 2, 3}, Policy::two_level, 2, 0)};
    struct {
        Policy policy;
        double floor;
        std::uint32_t min_full, levels, full_workers;
        bool full;
    } const table[] = {
        {Policy::two_level, 0, 1, 2, 1, false},    // (1 + 3 x .5) / 4 = .625
        {Policy::two_level, 0.625, 1, 2, 1, false},
        {Policy::two_level, 0.63, 1, 2, 2, false}, // .75
        {Policy::two_level, 0.8, 1, 2, 3, false},  // .875
        {Policy::two_level, 0.9, 1, 2, 4, true},
        {Policy::two_level, 0, 3, 2, 3, false},
        {Policy::two_level, 0.63, 3, 2, 3, false},
        {Policy::rotate, 0, 1, 4, 1, false},       // .625
        {Policy::rotate, 0.63, 1, 3, 1, false},    // levels 1 1 2 3 of 3: .583: too little, 2 levels: .75
        {Policy::rotate, 0.76, 1, 1, 1, true},
        {Policy::rotate, 0, 2, 2, 1, false},       // two of four at full depth takes two levels
    };
    for (const auto &row : table) {
        SpbRequest request = request_of(SpbMode::automatic, row.policy);
        request.min_depth_fraction = row.floor;
        const GroupJob job = job_on({0, 1, 2, 3}, row.policy, 2, 0);
        const Directive wanted = wanted_directive(request, job, rival, row.min_full, 1);
        ck_assert_msg(is_full(wanted) == row.full, "floor %.3f min_full %u", row.floor, row.min_full);
        if (row.full)
            continue;
        const bool two_level = row.policy == Policy::two_level;
        if (two_level)
            ck_assert_uint_eq(wanted.full_workers, row.full_workers);
        double sum = 0;
        std::uint32_t full = 0;
        for (std::uint32_t rank = 0; rank < 4; ++rank) {
            const std::uint32_t level = jigsaw::plan::level_of(wanted, rank, 4, 0);
            sum += static_cast<double>(level) / wanted.levels;
            full += level == wanted.levels;
        }
        ck_assert_msg(sum / 4 >= row.floor - 1e-9, "policy %u floor %.3f: mean %.3f", unsigned(row.policy), row.floor,
                      sum / 4);
        ck_assert_uint_ge(full, row.min_full);
    }
}
END_TEST

START_TEST(stated_levels_are_used)
{
    const std::vector<GroupJob> rival{job_on({0, 1, 2, 3}, Policy::rotate, 4, 0)};
    const GroupJob job = job_on({0, 1, 2, 3}, Policy::rotate, 4, 0);
    const auto levels = [&](SpbMode mode, Policy policy, std::uint32_t stated) {
        return wanted_directive(request_of(mode, policy, stated), job, rival, 1, 1).levels;
    };
    ck_assert_uint_eq(levels(SpbMode::levels, Policy::rotate, 3), 3);
    ck_assert_uint_eq(levels(SpbMode::levels, Policy::two_level, 3), 3);
    ck_assert_uint_eq(levels(SpbMode::automatic, Policy::rotate, 0), 4);
    ck_assert_uint_eq(levels(SpbMode::automatic, Policy::two_level, 0), 2);
}
END_TEST

START_TEST(a_wanted_directive_is_stable_and_whole)
{
    const GroupJob older = job_on({0, 1}, Policy::two_level, 2, 4);
    GroupJob job = job_on({0, 1}, Policy::two_level, 2, 9);
    job.id = 77;
    const SpbRequest request = request_of(SpbMode::automatic);
    Directive wanted = wanted_directive(request, job, {older}, 1, 3);
    ck_assert_uint_eq(wanted.first_iteration, 0);
    ck_assert(wanted.depth_of_level.empty());
    job.directive = wanted;
    ck_assert(wanted_directive(request, job, {older}, 1, 3) == wanted);
    // Three full workers of four were needed; when the learning rate has fallen, one is again enough.
    GroupJob deep = job_on({0, 1, 2, 3}, Policy::two_level, 2, 9);
    deep.directive.full_workers = 3;
    const GroupJob rival = job_on({0, 1, 2, 3}, Policy::two_level, 2, 0);
    ck_assert_uint_eq(wanted_directive(request, deep, {rival}, 1, 3).full_workers, 1);
    const SpbRequest shuffled = request_of(SpbMode::automatic, Policy::shuffle);
    ck_assert_uint_eq(wanted_directive(shuffled, job, {older}, 1, 3).seed, 77);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("depth");
    jigsaw::tests::add_case(suite, "phases",
                            {two_workers_interlock_from_any_difference, four_rotating_workers_reach_the_best,
                             every_choice_equals_an_exhaustive_search, random_groups_equal_an_exhaustive_search,
                             many_workers_are_bounded, shuffled_roles_are_sampled});
    jigsaw::tests::add_case(suite, "stability",
                            {an_optimal_phase_is_kept, choosing_again_changes_nothing,
                             noise_below_one_per_cent_moves_nobody, the_older_job_stays_put});
    jigsaw::tests::add_case(suite, "directives",
                            {depth_pays_where_it_frees_time, full_depth_where_partial_has_no_place, uniform_is_followed_alone_and_beside_others, floors_are_kept,
                             stated_levels_are_used, a_wanted_directive_is_stable_and_whole});
    return jigsaw::tests::run_tap(suite);
}
