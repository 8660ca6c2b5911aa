// SPDX-License-Identifier: Apache-2.0
// Sparse kernels, of every instruction set that this machine has, against slow sums in double.
#include "runtime/sparse/generate.hpp"
#include "runtime/sparse/kernels.hpp"
#include "runtime/sparse/passes.hpp"
#include "runtime/sparse/random.hpp"

#include <cmath>

#include "tests/lib/suite.hpp"

namespace {

using namespace jigsaw::sparse;

float random_value(Random *random) { return static_cast<float>(random->below(2001)) / 1000.0F - 1; }

/// Uneven: empty rows, full rows, anything between.
CsrMatrix random_matrix(std::uint32_t rows, std::uint32_t columns, std::uint64_t seed)
{
    Random random(seed);
    CsrMatrix m;
    m.rows = rows;
    m.columns = columns;
    for (std::uint32_t row = 0; row < rows; ++row) {
        const std::uint32_t share = random.below(5);
        for (std::uint32_t column = 0; column < columns; ++column)
            if (random.below(4) < share) {
                m.column.push_back(column);
                m.value.push_back(random_value(&random));
            }
        m.row_start.push_back(m.column.size());
    }
    return m;
}

Tiles random_tiles(std::uint32_t rows, std::uint32_t count, std::uint32_t width, std::uint64_t seed)
{
    Random random(seed);
    Tiles tiles;
    tiles.resize(rows, count, width);
    for (std::size_t i = 0; i < tiles.tile_floats() * count; ++i)
        tiles.tile(0)[i] = random.below(3) == 0 ? 0 : random_value(&random);
    return tiles;
}

double finished(double z, const Finish &finish, std::uint32_t row)
{
    const double row_bias = finish.row_bias != nullptr ? finish.row_bias[row] : 0;
    const auto cut = [&](double v) { return v < 0 ? 0 : finish.clip > 0 && v > finish.clip ? finish.clip : v; };
    switch (finish.kind) {
    case Finish::sum: return z;
    case Finish::linear: return z + row_bias;
    case Finish::relu: return cut(z + row_bias);
    default: return z == 0 ? 0 : cut(z + finish.bias);
    }
}

/// Each of n additions of numbers up to `size` rounds by eps / 2 of a partial sum.
void near(double got, double wanted, std::uint64_t n, double size, const char *what)
{
    ck_assert_msg(std::abs(got - wanted) <= 6e-8 * static_cast<double>(n + 2) * (size + 1), "%s: %.9g, not %.9g", what, got, wanted);
}

START_TEST(products)
{
    const CsrMatrix m = random_matrix(70, 50, 1);
    std::vector<float> row_bias;
    Random random(5);
    for (std::uint32_t row = 0; row < m.rows; ++row)
        row_bias.push_back(random_value(&random));
    for (const Instructions instructions : supported_instructions())
        for (const std::uint32_t width : {16U, 32U, 64U, 128U})
            for (int kind = 0; kind < 4; ++kind)
                for (int how = 0; how < 4; ++how) {
                    const bool add = how % 2 == 1, skip = how >= 2;
                    Tiles x = random_tiles(m.columns, 2, width, width);
                    std::vector<std::uint8_t> live(m.columns, 1);
                    for (std::uint32_t column = 0; column < m.columns; column += 3)
                        for (std::uint32_t s = width; s < 2 * width; ++s)
                            x.at(column, s) = 0;
                    ck_assert_uint_eq(find_live_rows(x.tile(1), m.columns, width, live.data(), instructions), m.columns - 17);
                    Tiles y = random_tiles(m.rows, 2, width, 9), before = random_tiles(m.rows, 2, width, 9);
                    Finish finish{static_cast<Finish::Kind>(kind), -.25F, row_bias.data(), kind % 2 == 1 ? .75F : 0};
                    std::vector<float> largest(width, 0.0F);
                    // Rows in two parts, as threads do; the second tile.
                    for (const auto &[first, last] : {std::pair{0U, 33U}, std::pair{33U, 70U}})
                        multiply({&m, first, last, width, x.tile(1), y.tile(1), add, finish, skip ? live.data() : nullptr,
                                  largest.data()},
                                 instructions);
                    for (std::uint32_t s = 0; s < width; ++s) {
                        double most = 0;
                        for (std::uint32_t row = 0; row < m.rows; ++row) {
                            double z = add ? before.at(row, width + s) : 0;
                            for (std::uint64_t k = m.row_start[row]; k < m.row_start[row + 1]; ++k)
                                z += static_cast<double>(m.value[k]) * x.at(m.column[k], width + s);
                            near(y.at(row, width + s), finished(z, finish, row), m.row_nonzeros(row), 10, name_of(instructions));
                            most = std::max<double>(most, y.at(row, width + s));
                            ck_assert(y.at(row, s) == before.at(row, s)); // the other tile is left alone
                        }
                        ck_assert(largest[s] == static_cast<float>(most));
                    }
                }
}
END_TEST

START_TEST(bias_only_where_not_zero)
{
    CsrMatrix m;
    m.rows = 3;
    m.columns = 1;
    m.column = {0, 0};
    m.value = {2, -1};
    m.row_start = {0, 1, 2, 2};
    for (const Instructions instructions : supported_instructions()) {
        Tiles x = random_tiles(1, 1, 16, 1), y;
        y.resize(3, 1, 16);
        for (std::uint32_t s = 0; s < 16; ++s)
            x.at(0, s) = s == 0 ? 0 : static_cast<float>(s);
        Finish finish{Finish::graph_challenge, .5F, nullptr, 10};
        multiply({&m, 0, 3, 16, x.tile(0), y.tile(0), false, finish, nullptr, nullptr}, instructions);
        ck_assert(y.at(0, 0) == 0 && y.at(0, 1) == 2.5F && y.at(0, 15) == 10);
        ck_assert(y.at(1, 1) == 0 && y.at(2, 0) == 0 && y.at(2, 7) == 0);
    }
}
END_TEST

START_TEST(transposed)
{
    CsrMatrix m = random_matrix(40, 60, 3);
    TransposedBlock t(m);
    for (float &value : m.value)
        value *= 2; // an optimizer's step
    t.take_values(m);
    check(t.matrix, "transposed");
    const CsrMatrix slow = transpose(m);
    ck_assert(t.matrix.row_start == slow.row_start && t.matrix.column == slow.column && t.matrix.value == slow.value);
}
END_TEST

START_TEST(gradients)
{
    const CsrMatrix m = random_matrix(30, 20, 7);
    for (const Instructions instructions : supported_instructions())
        for (const std::uint32_t width : {16U, 32U, 64U, 128U}) {
            const Tiles x = random_tiles(m.columns, 3, width, 1);
            Tiles delta = random_tiles(m.rows, 3, width, 2);
            for (std::uint32_t s = 0; s < 3 * width; ++s) {
                delta.at(4, s) = 0;                           // off for the whole batch
                delta.at(5, s) = s == width + 1 ? 1e-30F : 0; // nearly
            }
            std::vector<float> gradient(m.nonzeros(), 99.0F), sums(m.rows, 99.0F);
            for (const auto &[first, last] : {std::pair{0U, 7U}, std::pair{7U, 30U}}) {
                weight_gradient({&m, first, last, width, 3, x.tile(0), delta.tile(0), x.tile_floats(), delta.tile_floats(),
                                 gradient.data()},
                                instructions);
                row_sums(delta.tile(0), delta.tile_floats(), 3, width, first, last, sums.data());
            }
            for (std::uint32_t row = 0; row < m.rows; ++row) {
                double sum = 0;
                for (std::uint32_t s = 0; s < 3 * width; ++s)
                    sum += delta.at(row, s);
                near(sums[row], sum, 3 * width, 10, "bias");
                for (std::uint64_t k = m.row_start[row]; k < m.row_start[row + 1]; ++k) {
                    double wanted = 0;
                    for (std::uint32_t s = 0; s < 3 * width; ++s)
                        wanted += static_cast<double>(delta.at(row, s)) * x.at(m.column[k], s);
                    near(gradient[k], wanted, 3 * width, 10, name_of(instructions));
                    ck_assert_msg(row != 5 || (gradient[k] == 0) == (x.at(m.column[k], width + 1) == 0), "a tiny gradient is lost");
                }
            }
        }
}
END_TEST

START_TEST(slopes)
{
    float s[5] = {1, 2, 3, 4, 5};
    const float x[5] = {0, 1, 31.9F, 32, 0};
    mask_by_output(s, x, 5, 32);
    ck_assert(s[0] == 0 && s[1] == 2 && s[2] == 3 && s[3] == 0 && s[4] == 0);
    float t[1] = {7};
    const float far[1] = {1e9F};
    mask_by_output(t, far, 1, 0);
    ck_assert(t[0] == 7);
}
END_TEST

START_TEST(workers)
{
    for (const unsigned threads : {1U, 2U, 5U}) {
        Workers workers(threads);
        for (std::uint32_t count = 0; count < 40; ++count) {
            std::vector<std::atomic<int>> done(40);
            unsigned between = 0;
            workers.run(count, [&](std::uint32_t i) { ++done[i]; }, [&] { ++between; });
            for (std::uint32_t i = 0; i < 40; ++i)
                ck_assert_int_eq(done[i], i < count);
            ck_assert_uint_le(between, count);
        }
    }
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("sparse kernels");
    jigsaw::tests::add_case(suite, "kernels", {products, bias_only_where_not_zero, transposed, gradients, slopes});
    jigsaw::tests::add_case(suite, "workers", {workers});
    return jigsaw::tests::run_tap(suite);
}
