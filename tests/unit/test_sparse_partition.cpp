// SPDX-License-Identifier: Apache-2.0
// The partitioner: its own count of words against the definition's, small networks whose optimum is known, balance,
// seeds.
#include "runtime/sparse/generate.hpp"
#include "runtime/sparse/levels.hpp"
#include "runtime/sparse/partition.hpp"
#include "runtime/sparse/refine.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "tests/lib/suite.hpp" // last: Check defines a macro `fail`

namespace {

using namespace jigsaw::sparse;

/// From the columns of each row.
CsrMatrix matrix_of(const std::vector<std::set<std::uint32_t>> &rows, std::uint32_t columns)
{
    CsrMatrix m;
    m.rows = static_cast<std::uint32_t>(rows.size());
    m.columns = columns;
    for (const auto &row : rows) {
        m.column.insert(m.column.end(), row.begin(), row.end());
        m.row_start.push_back(m.column.size());
    }
    m.value.assign(m.column.size(), 1);
    return m;
}

/// Rows and columns in any order, so that no order helps: the i-th row is called a[i], the j-th column b[j].
Network scrambled(std::uint32_t neurons, std::uint32_t layers, std::uint64_t seed,
                  const std::function<std::set<std::uint32_t>(std::uint32_t)> &columns_of)
{
    Random random(seed);
    std::vector<std::uint32_t> before(neurons), after(neurons);
    for (std::uint32_t i = 0; i < neurons; ++i)
        before[i] = after[i] = i;
    random.shuffle(before);
    Network network;
    for (std::uint32_t k = 0; k < layers; ++k) {
        random.shuffle(after);
        std::vector<std::set<std::uint32_t>> rows(neurons);
        for (std::uint32_t i = 0; i < neurons; ++i)
            for (std::uint32_t j : columns_of(i))
                rows[after[i]].insert(before[j]);
        network.layers.push_back(matrix_of(rows, neurons));
        before = after;
    }
    return network;
}

/// Rows of many different weights; one of them empty.
Network uneven(std::uint32_t inputs, std::uint32_t neurons, std::uint32_t layers, std::uint64_t seed)
{
    Random random(seed);
    Network network;
    for (std::uint32_t k = 0; k < layers; ++k) {
        const std::uint32_t columns = k == 0 ? inputs : neurons;
        std::vector<std::set<std::uint32_t>> rows(neurons);
        for (std::uint32_t i = 1; i < neurons; ++i)
            for (std::uint32_t left = 1 + random.below(columns / 2); left > 0; --left)
                rows[i].insert(random.below(columns));
        network.layers.push_back(matrix_of(rows, columns));
    }
    return network;
}

Partition parted(const Network &network, std::uint32_t parts, const std::function<void(PartitionOptions &)> &change = {})
{
    PartitionOptions options;
    options.parts = parts;
    options.effort = .05;
    if (change)
        change(options);
    Partition partition = partition_network(network, options);
    check(partition, network);
    return partition;
}

std::uint64_t words(const Network &network, const Partition &partition)
{
    return measure_traffic(network, partition).words;
}

/// The definition, slowly: the messages as sets of columns.
START_TEST(traffic_is_the_definition)
{
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        const Network net = uneven(9, 14, 3, seed);
        const Partition part = random_partition(net, 4, seed);
        const Traffic traffic = measure_traffic(net, part);
        std::uint64_t sum = 0, count = 0, largest = 0, back = 0;
        std::vector<std::uint64_t> matrix(16, 0);
        for (std::size_t k = 0; k < net.layers.size(); ++k) {
            std::map<std::pair<std::uint32_t, std::uint32_t>, std::set<std::uint32_t>> sent;
            std::vector<double> load(4, 0);
            for (std::uint32_t i = 0; i < net.layers[k].rows; ++i)
                for (std::uint64_t at = net.layers[k].row_start[i]; at < net.layers[k].row_start[i + 1]; ++at) {
                    const std::uint32_t j = net.layers[k].column[at], from = part.owner[k][j], to = part.owner[k + 1][i];
                    ++load[to];
                    if (from != to)
                        sent[{from, to}].insert(j);
                }
            std::uint64_t here = 0;
            for (const auto &[pair, columns] : sent) {
                here += columns.size();
                largest = std::max<std::uint64_t>(largest, columns.size());
                matrix[pair.first * 4 + pair.second] += columns.size();
            }
            ck_assert_uint_eq(traffic.layers[k].words, here);
            ck_assert_uint_eq(traffic.layers[k].messages, sent.size());
            const double fullest_part = *std::max_element(load.begin(), load.end());
            ck_assert_double_eq_tol(traffic.layers[k].imbalance,
                                    fullest_part * 4 / static_cast<double>(net.layers[k].nonzeros()) - 1, 1e-9);
            sum += here;
            back += k > 0 ? here : 0;
            count += sent.size();
        }
        ck_assert_uint_eq(traffic.words, sum);
        ck_assert_uint_eq(traffic.backward_words, back);
        ck_assert_uint_eq(traffic.messages, count);
        ck_assert_uint_eq(traffic.largest_message, largest);
        ck_assert(traffic.matrix == matrix);
    }
}
END_TEST

/// What the partitioner believes, at each level, merged or not and after any annealing, is what the definition says.
START_TEST(refiner_counts_right)
{
    const Network nets[] = {radix_net(64, 5, 2), uneven(20, 24, 3, 5), random_regular(32, 3, 4, 1)};
    for (const Network &net : nets)
        for (bool merge : {false, true})
            for (std::uint32_t parts : {2u, 3u, 8u}) {
                Random random(parts);
                const Level fine = finest_level(net, merge);
                const Maps maps = merge_equal_vertices(fine, parts);
                const Level coarse = coarser(fine, maps, merge);
                Owners coarse_owners, fine_owners;
                std::vector<std::uint64_t> cap;
                for (const auto &weight : coarse.weight) {
                    coarse_owners.push_back(spread(weight, parts, &random));
                    cap.push_back(fullest(weight, parts) + 2);
                }
                const auto last = static_cast<std::uint32_t>(net.layers.size());
                const std::vector<float> times(last, 1);
                Refiner refiner(coarse, parts, cap, times);
                refiner.assign(coarse_owners);
                refiner.anneal(0, last, true, {9, 1, 6, 5}, random);
                // Without heat each exchange must be cheaper by the count of the cells, not only by its own reckoning.
                double before = refiner.cost();
                for (int i = 0; i < 20; ++i) {
                    refiner.anneal(0, last, true, {1e-9, 1e-9, 1, 2}, random);
                    ck_assert_double_le(refiner.cost(), before);
                    before = refiner.cost();
                }
                refiner.rename();
                ck_assert_double_le(refiner.cost(), before);
                for (std::size_t k = 0; k < maps.size(); ++k) {
                    std::vector<std::uint32_t> owner;
                    for (std::uint32_t v : maps[k])
                        owner.push_back(refiner.owners()[k][v]);
                    fine_owners.push_back(owner);
                    std::vector<std::uint64_t> load(parts, 0);
                    for (std::size_t v = 0; v < owner.size(); ++v)
                        load[owner[v]] += fine.weight[k][v];
                    ck_assert_uint_le(*std::max_element(load.begin(), load.end()), cap[k]);
                }
                ck_assert_double_eq(refiner.cost(), static_cast<double>(words(net, {parts, fine_owners})));
                // Cells that were kept up to date are those that are counted anew.
                Refiner again(coarse, parts, cap, times);
                again.assign(refiner.owners());
                ck_assert_double_eq(again.cost(), refiner.cost());
            }
}
END_TEST

START_TEST(mends)
{
    const Network net = uneven(30, 40, 2, 3);
    const Level level = finest_level(net, true);
    std::vector<std::uint64_t> cap;
    Owners owners;
    for (const auto &weight : level.weight) {
        cap.push_back(fullest(weight, 5));
        owners.emplace_back(weight.size(), 2); // all in one part
    }
    Refiner refiner(level, 5, cap, {1, 1});
    refiner.assign(owners);
    refiner.mend();
    for (std::size_t k = 0; k < cap.size(); ++k) {
        std::vector<std::uint64_t> load(5, 0);
        for (std::size_t v = 0; v < level.weight[k].size(); ++v)
            load[refiner.owners()[k][v]] += level.weight[k][v];
        ck_assert_uint_le(*std::max_element(load.begin(), load.end()), cap[k]);
    }
    ck_assert_double_eq(refiner.cost(), static_cast<double>(words(net, {5, refiner.owners()})));
}
END_TEST

/// Blocks: a part per block sends nothing; two parts per block each lack half of its inputs. Rings: a run of rows lacks
/// one input. Dense: each part lacks all that it does not own.
START_TEST(known_optimum)
{
    const Network blocks = scrambled(16, 3, 4, [](std::uint32_t i) {
        std::set<std::uint32_t> columns;
        for (std::uint32_t j = 0; j < 8; ++j)
            columns.insert(i / 8 * 8 + j);
        return columns;
    });
    const Network ring = scrambled(16, 3, 5, [](std::uint32_t i) { return std::set<std::uint32_t>{i, (i + 1) % 16}; });
    const Network dense =
        scrambled(8, 2, 6, [](std::uint32_t) { return std::set<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7}; });
    for (bool merge : {true, false}) {
        const auto set = [&](PartitionOptions &options) { options.merge_equal = merge, options.effort = .2; };
        ck_assert_uint_eq(words(blocks, parted(blocks, 2, set)), 0);
        ck_assert_uint_eq(words(blocks, parted(blocks, 4, set)), 3 * 4 * 4);
        ck_assert_uint_eq(words(ring, parted(ring, 4, set)), 3 * 4);
        ck_assert_uint_eq(words(dense, parted(dense, 4, set)), 2 * 8 * 3);
    }
}
END_TEST

/// All even partitions of tiny networks, tried one by one.
START_TEST(brute_force_optimum)
{
    std::vector<std::vector<std::uint32_t>> halves;
    for (std::uint32_t bits = 0; bits < 64; ++bits)
        if (__builtin_popcount(bits) == 3) {
            halves.emplace_back();
            for (std::uint32_t i = 0; i < 6; ++i)
                halves.back().push_back(bits >> i & 1);
        }
    for (std::uint64_t seed = 1; seed <= 6; ++seed)
        for (bool backward : {false, true}) {
            const Network net = random_regular(6, 2, 2 + seed % 2, seed);
            const auto price = [&](const Partition &partition) {
                const Traffic traffic = measure_traffic(net, partition);
                return traffic.words + (backward ? traffic.backward_words : 0);
            };
            std::uint64_t best = UINT64_MAX;
            for (const auto &a : halves)
                for (const auto &b : halves)
                    for (const auto &c : halves)
                        best = std::min(best, price({2, {a, b, c}}));
            const Partition found = parted(net, 2, [&](PartitionOptions &options) {
                options.backward = backward, options.effort = .2;
            });
            ck_assert_uint_eq(price(found), best);
        }
}
END_TEST

START_TEST(balance)
{
    const Network even = random_regular(48, 3, 6, 2);
    for (std::uint32_t parts : {1u, 2u, 3u, 16u, 48u})
        ck_assert_double_eq_tol(measure_traffic(even, parted(even, parts)).imbalance, 0, 1e-12);
    ck_assert_uint_eq(words(even, parted(even, 1)), 0);
    for (std::uint32_t parts : {5u, 64u}) // 48 rows: ten of six for the fullest; a row for some and none for others
        ck_assert_double_eq_tol(measure_traffic(even, parted(even, parts)).imbalance,
                                std::ceil(48. / parts) * parts / 48 - 1, 1e-9);
    // 16 equal rows per class do not divide among 3 parts, nor does a bundle of 16 fit 96 parts.
    const Network radix = radix_net(256, 4, 1);
    ck_assert_double_eq_tol(measure_traffic(radix, parted(radix, 3)).imbalance, 86. * 3 / 256 - 1, 1e-9);
    ck_assert_double_eq_tol(measure_traffic(radix, parted(radix, 96)).imbalance, 3. * 96 / 256 - 1, 1e-9);

    const Network odd = uneven(30, 60, 3, 7);
    const Traffic tight = measure_traffic(odd, parted(odd, 4));
    const Traffic loose = measure_traffic(odd, parted(odd, 4, [](PartitionOptions &options) { options.imbalance = .2; }));
    for (std::size_t k = 0; k < odd.layers.size(); ++k) {
        const Level level = finest_level(odd, true);
        const double most =
            static_cast<double>(fullest(level.weight[k + 1], 4)) * 4 / static_cast<double>(odd.layers[k].nonzeros());
        ck_assert_double_le(tight.layers[k].imbalance, most - 1 + 1e-9);
    }
    ck_assert_double_le(loose.imbalance, .2 + 1e-9);
    ck_assert_uint_lt(loose.words, tight.words);
}
END_TEST

/// Two blocks whose rows all differ in weight, and in sum do not: exactly even, and no words.
START_TEST(uneven_rows)
{
    std::vector<std::set<std::uint32_t>> rows(24);
    for (std::uint32_t i = 0; i < 24; ++i)
        for (std::uint32_t j = 0; j < i / 2 + 1; ++j)
            rows[i].insert(i % 2 * 12 + j);
    Network net;
    net.layers.push_back(matrix_of(rows, 24));
    const Partition found = parted(net, 2, [](PartitionOptions &options) { options.effort = .2; });
    ck_assert_uint_eq(words(net, found), 0);
    ck_assert_double_eq_tol(measure_traffic(net, found).imbalance, 0, 1e-12);
}
END_TEST

START_TEST(same_seed_same_answer)
{
    const Network net = radix_net(256, 5, 3);
    const auto seeded = [&](std::uint64_t seed) {
        return parted(net, 8, [&](PartitionOptions &options) { options.seed = seed; }).owner;
    };
    ck_assert(seeded(1) == seeded(1));
    ck_assert(seeded(1) != seeded(2));
}
END_TEST

/// Merging finds what a search among single rows does not; sweeps forth and back find what one pass does not.
START_TEST(gains)
{
    const Network net = radix_net(256, 8, 3);
    const std::uint64_t ours = words(net, parted(net, 8));
    const std::uint64_t one_phase =
        words(net, parted(net, 8, [](PartitionOptions &options) { options.look_ahead = false; }));
    const std::uint64_t contiguous = words(net, contiguous_partition(net, 8));
    ck_assert_uint_lt(ours * 51, one_phase * 50);
    ck_assert_uint_lt(ours * 3, contiguous);
}
END_TEST

START_TEST(progress_rises)
{
    std::vector<double> seen;
    const Network net = radix_net(64, 3, 1);
    parted(net, 2, [&](PartitionOptions &options) {
        options.progress = [&](const char *, double share) { seen.push_back(share); };
    });
    ck_assert_uint_gt(seen.size(), 1);
    for (double share : seen)
        ck_assert(share > 0 && share <= 1);
    ck_assert_double_eq(seen.back(), 1);
}
END_TEST

START_TEST(refusals)
{
    const Network net = radix_net(64, 2, 1);
    const struct { std::function<void(PartitionOptions &)> change; const char *what; } rows[] = {
        {[](PartitionOptions &o) { o.parts = 0; }, "the number of parts is 0"},
        {[](PartitionOptions &o) { o.parts = kMostParts + 1; }, "the number of parts is 65537"},
        {[](PartitionOptions &o) { o.imbalance = -.1; }, "the imbalance is -0.1"},
        {[](PartitionOptions &o) { o.imbalance = NAN; }, "the imbalance is nan"},
        {[](PartitionOptions &o) { o.effort = 0; }, "the effort is 0"},
        {[](PartitionOptions &o) { o.effort = INFINITY; }, "the effort is inf"},
    };
    const auto complaint = [](const Network &network, const std::function<void(PartitionOptions &)> &change) {
        try {
            parted(network, 2, change);
        } catch (const Error &error) {
            return std::string(error.what());
        }
        return std::string("(taken)");
    };
    for (const auto &row : rows) {
        const std::string got = complaint(net, row.change);
        ck_assert_msg(got.find(row.what) == 0, "wanted %s, got %s", row.what, got.c_str());
    }
    ck_assert(complaint({}, {}) != "(taken)");
    Network broken = net;
    broken.layers[1].column[0] = 64;
    ck_assert(complaint(broken, {}).find("layer 2: row 0 has column 64 of 64") == 0);
    ck_assert_str_eq(complaint(net, {}).c_str(), "(taken)");
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("sparse_partition");
    jigsaw::tests::add_case(suite, "count", {traffic_is_the_definition, refiner_counts_right, mends});
    jigsaw::tests::add_case(suite, "partition",
                            {known_optimum, brute_force_optimum, balance, uneven_rows, same_seed_same_answer, gains, progress_rises,
                             refusals});
    return jigsaw::tests::run_tap(suite);
}
