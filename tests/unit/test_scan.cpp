// SPDX-License-Identifier: Apache-2.0
// The scan over every kind of operator, against plain dense matrices multiplied one after the other.
#include "runtime/scan/cost.hpp"
#include "runtime/scan/diagonal.hpp"
#include "runtime/scan/scan.hpp"
#include "tests/lib/suite.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>

namespace {

using namespace jigsaw::scan;
using Chain64 = Stages<double>;

std::vector<double> random_values(std::mt19937 &random, std::size_t count)
{
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<double> out(count);
    for (double &value : out)
        value = uniform(random);
    return out;
}

PatternPtr random_pattern(std::mt19937 &random, std::size_t rows, std::size_t cols)
{
    auto pattern = std::make_shared<Pattern>();
    pattern->rows = rows;
    pattern->cols = cols;
    pattern->row_start.push_back(0);
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < cols; ++c)
            if (random() % 3 == 0)
                pattern->column.push_back(static_cast<std::uint32_t>(c));
        pattern->row_start.push_back(pattern->column.size());
    }
    return pattern;
}

/// A stage of the kind wanted; `cols` must be a multiple of 4 unless the kind is dense or CSR.
Operator<double> random_operator(std::mt19937 &random, Kind kind, std::size_t rows, std::size_t cols,
                                 std::size_t matrices)
{
    switch (kind) {
    case Kind::diagonal: return make_diagonal(cols, matrices, random_values(random, matrices * cols));
    case Kind::block_diagonal: {
        const std::size_t block = random() % 2 ? 2 : 4;
        return make_block_diagonal(cols, block, matrices, random_values(random, matrices * cols * block));
    }
    case Kind::csr: {
        const PatternPtr pattern = random_pattern(random, rows, cols);
        return make_csr(pattern, matrices, random_values(random, matrices * pattern->entries()));
    }
    case Kind::dense: break;
    }
    return make_dense(rows, cols, matrices, random_values(random, matrices * rows * cols));
}

/// n stages; kind < 0 mixes all of them, with widths that change at dense and CSR stages.
Chain64 random_chain(unsigned seed, std::size_t n, int kind, std::size_t batch, bool affine)
{
    std::mt19937 random(seed);
    Chain64 chain;
    chain.batch = batch;
    std::size_t width = 8;
    chain.seed = random_values(random, batch * width);
    for (std::size_t i = 0; i < n; ++i) {
        const Kind wanted = kind < 0 ? static_cast<Kind>(random() % 4) : static_cast<Kind>(kind);
        const std::size_t rows = kind < 0 ? 4 * (1 + random() % 3) : width;
        chain.operators.push_back(random_operator(random, wanted, rows, width, random() % 2 ? 1 : batch));
        width = chain.operators.back().rows;
        if (affine)
            chain.operators.back().offset = random_values(random, batch * width);
    }
    return chain;
}

/// Slow and obvious.
Gradients<double> reference(const Chain64 &chain)
{
    Gradients<double> out{chain.seed};
    for (const Operator<double> &sparse : chain.operators) {
        const Operator<double> op = to_dense(sparse);
        std::vector<double> next(chain.batch * op.rows);
        for (std::size_t b = 0; b < chain.batch; ++b)
            for (std::size_t r = 0; r < op.rows; ++r) {
                double sum = op.offset.empty() ? 0 : op.offset[b * op.rows + r];
                for (std::size_t c = 0; c < op.cols; ++c)
                    sum += op.values[(op.matrices == 1 ? 0 : b * op.rows * op.cols) + r * op.cols + c] *
                           out.back()[b * op.cols + c];
                next[b * op.rows + r] = sum;
            }
        out.push_back(next);
    }
    return out;
}

double norm(const std::vector<double> &values)
{
    double sum = 0;
    for (const double value : values)
        sum += value * value;
    return std::sqrt(sum);
}

/// ||g - g*|| / ||g*|| of the worst stage.
double worst_error(const Gradients<double> &got, const Gradients<double> &wanted)
{
    ck_assert_uint_eq(got.size(), wanted.size());
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        ck_assert_uint_eq(got[i].size(), wanted[i].size());
        std::vector<double> difference = got[i];
        for (std::size_t k = 0; k < difference.size(); ++k)
            difference[k] -= wanted[i][k];
        worst = std::max(worst, norm(difference) / std::max(norm(wanted[i]), 1e-300));
    }
    return worst;
}

constexpr double kClose = 1e-10;

void check_all_ways(const Chain64 &chain, const char *what)
{
    const Gradients<double> wanted = reference(chain);
    const std::size_t n = chain.operators.size();
    const Parallel two = plain_threads(2);
    ck_assert_msg(worst_error(scan_serial(chain), wanted) < kClose, "%s: serial", what);
    for (std::size_t up = 0; up <= full_up_levels(n) + 1; ++up) {
        const double error = worst_error(scan_tree(chain, up, up % 2 ? two : Parallel()), wanted);
        ck_assert_msg(error < kClose, "%s, n %zu: tree of %zu levels is off by %g", what, n, up, error);
    }
    for (const std::size_t chunks : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}, n + 5}) {
        const double error = worst_error(scan_chunked(chain, chunks, chunks == 3 ? two : Parallel()), wanted);
        ck_assert_msg(error < kClose, "%s, n %zu: %zu chunks are off by %g", what, n, chunks, error);
    }
}

START_TEST(every_kind_equals_the_reference)
{
    const struct {
        const char *name;
        int kind;
    } rows[] = {{"dense", 0}, {"diagonal", 1}, {"block-diagonal", 2}, {"csr", 3}, {"mixed", -1}};
    for (const auto &row : rows)
        for (const std::size_t n : {0u, 1u, 2u, 3u, 7u, 8u, 9u, 16u, 29u})
            for (const bool affine : {false, true})
                check_all_ways(random_chain(static_cast<unsigned>(n * 2 + affine), n, row.kind, 3, affine), row.name);
}
END_TEST

START_TEST(one_sample_of_one_element)
{
    Chain64 chain;
    chain.seed = {2};
    for (int i = 1; i <= 5; ++i)
        chain.operators.push_back(make_dense<double>(1, 1, 1, {static_cast<double>(i)}));
    check_all_ways(chain, "1 x 1");
    ck_assert_double_eq(scan_tree(chain, 9).back()[0], 240);
}
END_TEST

START_TEST(levels_are_those_of_the_formula)
{
    for (std::size_t n = 1; n <= 300; ++n)
        for (std::size_t up = 0; up <= full_up_levels(n); ++up) {
            Chain64 chain;
            chain.seed = {1};
            chain.operators.assign(n, make_diagonal<double>(1, 1, {1}));
            Report report;
            scan_tree(chain, up, {}, nullptr, &report);
            ck_assert_msg(report.levels.size() == tree_levels(n, up), "n %zu, %zu up: %zu levels, formula %zu", n, up,
                          report.levels.size(), tree_levels(n, up));
            ck_assert_msg(report.critical_products <= report.levels.size(),
                          "n %zu, %zu up: dependent chain of %zu in %zu", n, up, report.critical_products,
                          report.levels.size());
            const std::size_t log2_n = static_cast<std::size_t>(std::ceil(std::log2(static_cast<double>(n))));
            ck_assert_msg(n == 1 || up < full_up_levels(n) || report.levels.size() <= 2 * log2_n, "n %zu: %zu levels",
                          n, report.levels.size());
        }
}
END_TEST

START_TEST(work_is_linear_and_mostly_vectors)
{
    const std::size_t n = 1000, h = 8;
    const Chain64 chain = random_chain(3, n, static_cast<int>(Kind::dense), 1, false);
    Report tree, serial;
    scan_tree(chain, 20, {}, nullptr, &tree);
    scan_serial(chain, &serial);
    std::size_t matrix = 0, vector = 0;
    for (const Level &level : tree.levels) {
        matrix += level.matrix_products;
        vector += level.vector_products;
    }
    ck_assert_uint_lt(matrix, n);
    ck_assert_uint_le(vector, n + 20);
    ck_assert_uint_eq(tree.multiplications, matrix * h * h * h + vector * h * h);
    ck_assert_uint_eq(serial.multiplications, n * h * h);
    ck_assert_uint_lt(tree.critical_multiplications, serial.multiplications);
}
END_TEST

START_TEST(symbolic_phase_runs_once)
{
    SymbolicCache cache;
    Chain64 chain = random_chain(5, 20, static_cast<int>(Kind::csr), 2, false);
    scan_tree(chain, 9, {}, &cache, nullptr);
    const std::size_t phases = cache.symbolic_phases();
    ck_assert_uint_gt(phases, 0);
    for (Operator<double> &op : chain.operators)
        for (double &value : op.values)
            value *= 0.5;
    ck_assert(worst_error(scan_tree(chain, 9, {}, &cache, nullptr), reference(chain)) < kClose);
    ck_assert_uint_eq(cache.symbolic_phases(), phases);
}
END_TEST

START_TEST(trouble_stays_where_the_serial_way_has_it)
{
    // Products of these overflow after 77 stages, while the gradient in front of them is zero.
    Chain64 chain;
    chain.seed = {0, 0};
    for (int i = 0; i < 400; ++i)
        chain.operators.push_back(make_dense<double>(2, 2, 1, {1e4, 0, 0, 1e4}));
    Report report;
    for (const std::vector<double> &gradient : scan_tree(chain, 9, {}, nullptr, &report))
        ck_assert(gradient[0] == 0 && gradient[1] == 0);
    ck_assert(report.fell_back);

    chain.operators.resize(9);
    chain.operators[5].values[0] = std::numeric_limits<double>::quiet_NaN();
    chain.seed = {1, 1};
    const Gradients<double> serial = scan_serial(chain), tree = scan_tree(chain, 9), chunked = scan_chunked(chain, 3);
    for (std::size_t i = 0; i < tree.size(); ++i)
        for (std::size_t k = 0; k < 2; ++k) {
            ck_assert_msg(std::isnan(tree[i][k]) == std::isnan(serial[i][k]), "tree, g_%zu", i);
            ck_assert_msg(std::isnan(chunked[i][k]) == std::isnan(serial[i][k]), "chunked, g_%zu", i);
        }
    ck_assert(!std::isnan(tree[5][0]) && std::isnan(tree[6][0]) && !std::isnan(tree[6][1]));
}
END_TEST

std::string complaint(const Chain64 &chain)
{
    try {
        scan_tree(chain, 9);
    } catch (const std::invalid_argument &error) {
        return error.what();
    }
    return "";
}

START_TEST(chains_that_do_not_fit_are_named)
{
    Chain64 chain = random_chain(1, 4, 0, 2, false);
    chain.operators[2] = make_dense<double>(8, 7, 1, std::vector<double>(56));
    ck_assert_str_eq(complaint(chain),
                     "scan: stage 3 (dense) takes gradients of 7 elements, but the stage before gives 8");
    chain.operators[2] = make_diagonal<double>(8, 3, std::vector<double>(24));
    ck_assert_str_eq(complaint(chain),
                     "scan: stage 3 (diagonal) holds 3 matrices for a batch of 2; give 1 or one per sample");
    chain.operators[2] = make_diagonal<double>(8, 1, std::vector<double>(8));
    chain.operators[2].offset = {1};
    ck_assert_str_eq(complaint(chain), "scan: stage 3 (diagonal) adds 1 values to 2 x 8");
    chain.seed.clear();
    ck_assert_str_eq(complaint(chain),
                     "scan: a seed of 0 values for a batch of 2; give at least one value for every sample");
}
END_TEST

template <typename Make> std::string refusal(Make make)
{
    try {
        make();
    } catch (const std::invalid_argument &error) {
        return error.what();
    }
    return "";
}

START_TEST(operators_that_cannot_be_are_named)
{
    ck_assert_str_eq(refusal([] {
                         make_dense<double>(2, 2, 1, {1, 2, 3});
                     }),
                     "scan: a dense operator of 2 x 2 for 1 samples needs 4 values, got 3");
    ck_assert_str_eq(refusal([] { make_diagonal<double>(0, 1, {}); }),
                     "scan: a diagonal operator of 0 x 0 for 1 samples; each must be at least 1");
    ck_assert_str_eq(refusal([] { make_block_diagonal<double>(6, 4, 1, {}); }),
                     "scan: 6 rows cannot be cut into blocks of 4; the side must divide the rows");
    auto pattern = std::make_shared<Pattern>(Pattern{1, 2, {0, 2}, {1, 1}});
    ck_assert_str_eq(refusal([&] {
                         make_csr<double>(pattern, 1, {1, 2});
                     }),
                     "scan: row 0 of a CSR pattern names column 1; columns must ascend and stay below 2");
}
END_TEST

START_TEST(diagonal_recurrences)
{
    std::mt19937 random(4);
    for (const std::size_t steps : {0u, 1u, 2u, 5u, 100u})
        for (const std::size_t width : {1u, 3u, 16u, 40u}) {
            const std::vector<double> factor = random_values(random, steps * width),
                                      add = random_values(random, steps * width);
            std::vector<double> wanted(steps * width);
            for (std::size_t i = 0; i < steps * width; ++i)
                wanted[i] = (i < width ? 0 : factor[i] * wanted[i - width]) + add[i];
            for (const std::size_t workers : {1u, 2u, 3u, 5u}) {
                std::vector<double> got(steps * width);
                diagonal_recurrence(steps, width, factor.data(), add.data(), got.data(), plain_threads(workers));
                for (std::size_t i = 0; i < got.size(); ++i)
                    ck_assert_msg(std::fabs(got[i] - wanted[i]) < 1e-12, "%zu steps, width %zu, %zu workers", steps,
                                  width, workers);
            }
        }
}
END_TEST

/// Every element with the strides of both operands swapped or not, a bias, and what was there before.
START_TEST(products_over_all_steps)
{
    struct Size {
        std::size_t rows, inner, width;
    };
    std::mt19937 random(6);
    for (const Size &size : {Size{1, 1, 1}, Size{5, 300, 7}, Size{130, 3, 17}, Size{200, 600, 33}, Size{3, 0, 4}})
        for (const int variant : {0, 1, 2, 3}) {
            const std::vector<double> left = random_values(random, size.rows * size.inner);
            const std::vector<double> right = random_values(random, size.inner * size.width);
            const std::vector<double> bias = random_values(random, size.width);
            std::vector<double> out = random_values(random, size.rows * size.width);
            const std::vector<double> before = out;
            Product<double> p{out.data(), size.rows,    size.inner, size.width, left.data(), size.inner,
                              1,          right.data(), size.width, 1,          nullptr,     false};
            if (variant == 1)
                p.left_row = 1, p.left_inner = size.rows, p.right_row = 1, p.right_column = size.inner;
            p.bias = variant == 2 ? bias.data() : nullptr;
            p.add = variant == 3;
            multiply(p);
            for (std::size_t r = 0; r < size.rows; ++r)
                for (std::size_t j = 0; j < size.width; ++j) {
                    double sum = variant == 2 ? bias[j] : variant == 3 ? before[r * size.width + j] : 0;
                    for (std::size_t k = 0; k < size.inner; ++k)
                        sum += left[r * p.left_row + k * p.left_inner] * right[k * p.right_row + j * p.right_column];
                    ck_assert_msg(std::fabs(out[r * size.width + j] - sum) < 1e-11, "%zu x %zu x %zu, variant %d",
                                  size.rows, size.inner, size.width, variant);
                }
        }
}
END_TEST

START_TEST(single_precision_too)
{
    Stages<float> chain;
    chain.seed = {1, 2};
    for (int i = 0; i < 37; ++i)
        chain.operators.push_back(make_dense<float>(2, 2, 1, {0.9f, -0.2f, 0.1f * static_cast<float>(i % 3), 0.8f}));
    const Gradients<float> serial = scan_serial(chain), tree = scan_tree(chain, 9), chunked = scan_chunked(chain, 4);
    for (std::size_t i = 0; i < serial.size(); ++i)
        for (std::size_t k = 0; k < 2; ++k) {
            ck_assert(std::fabs(tree[i][k] - serial[i][k]) < 1e-4f);
            ck_assert(std::fabs(chunked[i][k] - serial[i][k]) < 1e-4f);
        }
}
END_TEST

START_TEST(the_cheapest_way_is_taken)
{
    // A step costs 10 ns, a multiplication 1 ns whatever it is for, waking the workers 1 us.
    const Costs costs{10, 1, 1, 1, 1, 1000};
    const struct {
        const char *name;
        Job job;
        Way way;
    } rows[] = {
        {"one worker", {Cell::gru, 1000, 16, 20, 1, false}, Way::serial},
        {"samples for all", {Cell::gru, 1000, 16, 20, 2, false}, Way::split},
        {"too little to share", {Cell::rnn_tanh, 2, 2, 4, 2, false}, Way::serial},
        {"one sample, few workers", {Cell::rnn_tanh, 1000, 1, 20, 2, false}, Way::serial},
        {"one sample, narrow, many workers", {Cell::rnn_tanh, 100000, 1, 2, 64, false}, Way::chunked},
        {"the same, packed", {Cell::rnn_tanh, 100000, 1, 2, 64, true}, Way::serial},
    };
    for (const auto &row : rows) {
        const Decision decision = decide(costs, row.job);
        ck_assert_msg(decision.plan.way == row.way, "%s: %s", row.name, explain(decision, row.job).c_str());
    }
    ck_assert(explain(decide(costs, rows[0].job), rows[0].job).find("<- taken") != std::string::npos);
}
END_TEST

START_TEST(costs_are_kept_as_text)
{
    const Costs costs{1.5, 0.25, 0.5, 0.75, 2, 1000};
    Costs read;
    ck_assert(from_text(to_text(costs, 2), 2, &read));
    ck_assert(read.step == costs.step && read.fork == costs.fork && read.jacobian == costs.jacobian);
    ck_assert(!from_text(to_text(costs, 2), 4, &read));
    for (const char *bad : {"", "jigsaw-scan-costs 1", "jigsaw-scan-costs 1 other 2 1 1 1 1 1 1"})
        ck_assert_msg(!from_text(bad, 2, &read), "%s", bad);
    const std::string kernels = kernel_name();
    ck_assert(!from_text("jigsaw-scan-costs 1 " + kernels + " 2 nan 1 1 1 1 1", 2, &read));
    ck_assert(!from_text("jigsaw-scan-costs 1 " + kernels + " 2 -1 1 1 1 1 1", 2, &read));
    ck_assert_double_eq(read.step, 1.5);
    const Costs measured = measure_costs({});
    ck_assert(measured.matrix > 0 && measured.vector > 0 && measured.jacobian > 0);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("scan");
    jigsaw::tests::add_case(suite, "exactness",
                            {every_kind_equals_the_reference, one_sample_of_one_element, diagonal_recurrences,
                             products_over_all_steps, single_precision_too});
    jigsaw::tests::add_case(
        suite, "levels",
        {levels_are_those_of_the_formula, work_is_linear_and_mostly_vectors, symbolic_phase_runs_once});
    jigsaw::tests::add_case(suite, "trouble",
                            {trouble_stays_where_the_serial_way_has_it, chains_that_do_not_fit_are_named,
                             operators_that_cannot_be_are_named});
    jigsaw::tests::add_case(suite, "cost", {the_cheapest_way_is_taken, costs_are_kept_as_text});
    return jigsaw::tests::run_tap(suite);
}
