// SPDX-License-Identifier: Apache-2.0
// The engine on 1 to 5 ranks (threads) against slow references in double: inference and which samples survive, gradients
// against differences, training that is the same for every number of ranks, checkpoints across numbers of ranks.
#include "runtime/sparse/formats.hpp"
#include "runtime/sparse/generate.hpp"
#include "runtime/sparse/inference.hpp"
#include "runtime/sparse/partition.hpp"
#include "runtime/sparse/random.hpp"
#include "runtime/sparse/trainer.hpp"

#include "tests/lib/sparse_ranks.hpp"

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <set>

#include "tests/lib/suite.hpp" // last: Check defines a macro `fail`

namespace {

using namespace jigsaw::sparse;
using jigsaw::tests::SparseWorld;

/// Sparse images: most samples die on the way, as in the Graph Challenge.
Samples random_samples(std::uint32_t features, std::uint32_t count, std::uint64_t seed, std::uint32_t classes = 0)
{
    Random random(seed);
    Samples samples;
    samples.features = features;
    for (std::uint32_t s = 0; s < count; ++s) {
        const std::uint32_t share = random.below(100);
        for (std::uint32_t f = 0; f < features; ++f)
            if (random.below(100) < share) {
                samples.feature.push_back(f);
                samples.value.push_back(1);
            }
        samples.start.push_back(samples.feature.size());
        if (classes > 0)
            samples.label.push_back(random.below(classes));
    }
    return samples;
}

std::vector<std::uint32_t> slow_inference(const Network &network, const Samples &samples)
{
    std::vector<std::uint32_t> alive;
    for (std::uint32_t s = 0; s < samples.count(); ++s) {
        std::vector<double> x(network.inputs(), 0);
        for (std::uint64_t i = samples.start[s]; i < samples.start[s + 1]; ++i)
            x[samples.feature[i]] = samples.value[i];
        for (const CsrMatrix &layer : network.layers) {
            std::vector<double> y;
            for (std::uint32_t row = 0; row < layer.rows; ++row) {
                double z = 0;
                for (std::uint64_t k = layer.row_start[row]; k < layer.row_start[row + 1]; ++k)
                    z += static_cast<double>(layer.value[k]) * x[layer.column[k]];
                y.push_back(z == 0 ? 0 : std::min<double>(std::max(0.0, z + network.bias), network.clip));
            }
            x = y;
        }
        if (*std::max_element(x.begin(), x.end()) > 0)
            alive.push_back(s);
    }
    return alive;
}

/// Parts of very uneven sizes; one has nothing where there are many.
Partition uneven_partition(const Network &network, std::uint32_t parts)
{
    Partition partition = random_partition(network, parts, 5);
    for (std::vector<std::uint32_t> &owner : partition.owner)
        for (std::uint32_t &part : owner)
            part = parts > 1 && part + 1 == parts ? 0 : part;
    return partition;
}

START_TEST(inference)
{
    Network mixed = random_regular(96, 5, 6, 3); // then layers of other sizes
    mixed.layers.push_back(prune(std::vector<float>(40 * 96, .02F), 40, 96, .5));
    mixed.layers.push_back(prune(std::vector<float>(70 * 40, .05F), 70, 40, .9));
    mixed.bias = -.3F;
    Network radix = radix_net(64, 12, 2);
    radix.bias = -.6F;
    for (const Network &network : {mixed, radix}) {
        const Samples samples = random_samples(network.inputs(), 150, 4);
        const std::vector<std::uint32_t> wanted = slow_inference(network, samples);
        ck_assert_uint_gt(wanted.size(), 5);
        ck_assert_uint_lt(wanted.size(), 140);
        for (const int ranks : {1, 2, 3, 5})
            for (int way = 0; way < 3; ++way)
                for (const bool drop : {true, false}) {
                    const auto parts = static_cast<std::uint32_t>(ranks);
                    const Partition partition = way == 0   ? contiguous_partition(network, parts)
                                                : way == 1 ? random_partition(network, parts, 1)
                                                           : uneven_partition(network, parts);
                    std::vector<std::uint64_t> bytes(parts), words(parts), done(parts);
                    SparseWorld(ranks).run([&](Comm &comm) {
                        const NetworkShare share = share_of(network, partition, comm.rank());
                        Workers workers(ranks == 1 ? 3 : 1 + static_cast<unsigned>(way) / 2);
                        InferenceOptions options;
                        options.batch = 64 + 16 * static_cast<std::uint32_t>(way);
                        options.widest = 16;
                        options.drop_dead = drop;
                        Inference engine(network, share, comm, workers, options);
                        const InferenceResult first = engine.run(samples), again = engine.run(samples);
                        if (first.alive != wanted || again.alive != wanted)
                            throw std::runtime_error("other samples are left: " + std::to_string(first.alive.size()));
                        const auto rank = static_cast<std::size_t>(comm.rank());
                        bytes[rank] = again.traffic.bytes;
                        words[rank] = share.words_sent();
                        done[rank] = again.multiplications;
                    });
                    // Without dropping, every batch is sent whole: 4 bytes per word and slot.
                    std::uint64_t slots = 0;
                    for (std::uint32_t at = 0, batch = 64 + 16 * static_cast<std::uint32_t>(way); at < 150; at += batch)
                        slots += (std::min(batch, 150 - at) + 15) / 16 * 16;
                    for (std::size_t rank = 0; rank < parts && !drop; ++rank)
                        ck_assert_uint_eq(bytes[rank], 4 * words[rank] * slots);
                    const std::uint64_t all = std::accumulate(done.begin(), done.end(), std::uint64_t{0});
                    if (drop)
                        ck_assert_uint_lt(all, network.nonzeros() * slots);
                    else
                        ck_assert_uint_eq(all, network.nonzeros() * slots);
                }
    }
}
END_TEST

START_TEST(kept_slots)
{
    Workers workers(2);
    for (const std::uint32_t count : {1U, 2U, 5U}) {
        Random random(count);
        Tiles tiles;
        tiles.resize(70, count, 16);
        for (std::uint32_t row = 0; row < 70; ++row)
            for (std::uint32_t slot = 0; slot < 16 * count; ++slot)
                tiles.at(row, slot) = static_cast<float>(1000 * row + slot + 1);
        std::vector<std::uint32_t> keep;
        for (std::uint32_t slot = 0; slot < 16 * count; ++slot)
            if (random.below(2) == 0)
                keep.push_back(slot);
        keep_slots(&tiles, keep, workers);
        ck_assert_uint_eq(tiles.count(), (keep.size() + 15) / 16);
        for (std::uint32_t row = 0; row < 70; ++row)
            for (std::uint32_t slot = 0; slot < 16 * tiles.count(); ++slot)
                ck_assert(tiles.at(row, slot) ==
                          (slot < keep.size() ? static_cast<float>(1000 * row + keep[slot] + 1) : 0.0F));
    }
}
END_TEST

std::vector<std::uint32_t> numbers(std::uint32_t first, std::uint32_t count)
{
    std::vector<std::uint32_t> all(count);
    std::iota(all.begin(), all.end(), first);
    return all;
}

Model small_model()
{
    Network network = random_regular(24, 2, 6, 8);
    network.layers.push_back(dense_layer(5, 24));
    network.bias = 0;
    network.clip = 2; // in reach, so that its slope of 0 counts
    Model model = fresh_model(network, 3);
    Random random(4);
    for (std::vector<float> &bias : model.bias)
        for (float &one : bias)
            one = static_cast<float>(random.below(100)) / 200;
    return model;
}

/// The loss in double, and with it the gradient by differences.
double slow_loss(const Model &model, const Samples &samples, const std::vector<std::uint32_t> &which, Loss loss)
{
    double sum = 0;
    for (const std::uint32_t s : which) {
        std::vector<double> x(model.network.inputs(), 0);
        for (std::uint64_t i = samples.start[s]; i < samples.start[s + 1]; ++i)
            x[samples.feature[i]] = samples.value[i];
        for (std::size_t l = 0; l < model.network.layers.size(); ++l) {
            const CsrMatrix &layer = model.network.layers[l];
            std::vector<double> y;
            for (std::uint32_t row = 0; row < layer.rows; ++row) {
                double z = model.bias[l][row];
                for (std::uint64_t k = layer.row_start[row]; k < layer.row_start[row + 1]; ++k)
                    z += static_cast<double>(layer.value[k]) * x[layer.column[k]];
                y.push_back(l + 1 == model.network.layers.size() ? z : std::min<double>(std::max(z, 0.0), model.network.clip));
            }
            x = y;
        }
        const std::uint32_t label = samples.label[s];
        if (loss == Loss::softmax) {
            double all = 0;
            for (const double z : x)
                all += std::exp(z);
            sum += std::log(all) - x[label];
        } else {
            for (std::size_t c = 0; c < x.size(); ++c)
                sum += (x[c] - (c == label)) * (x[c] - (c == label)) / 2;
        }
    }
    return sum / static_cast<double>(which.size());
}

START_TEST(gradients_by_differences)
{
    const Model model = small_model();
    const Samples samples = random_samples(24, 40, 6, 5);
    const std::vector<std::uint32_t> which = numbers(3, 37);
    for (const Loss loss : {Loss::softmax, Loss::squared})
        for (const int ranks : {1, 3}) {
            Checkpoint from, after;
            from.model = model;
            const Partition partition = uneven_partition(model.network, static_cast<std::uint32_t>(ranks));
            double reported = 0;
            SparseWorld(ranks).run([&](Comm &comm) {
                Workers workers(1 + static_cast<unsigned>(ranks) / 3);
                TrainingOptions options;
                options.optimizer = Optimizer::sgd; // its first step is -rate * gradient
                options.rate = 1;
                options.loss = loss;
                options.widest = 16;
                Trainer trainer(from, partition, comm, workers, options);
                const Score score = trainer.step(samples, which);
                Checkpoint all = trainer.collect();
                if (comm.rank() == 0) {
                    reported = score.loss / static_cast<double>(score.samples);
                    after = std::move(all);
                }
            });
            ck_assert_double_eq_tol(reported, slow_loss(model, samples, which, loss), 1e-5);
            Random random(9);
            for (std::size_t l = 0; l < 3; ++l)
                for (int tries = 0; tries < 25; ++tries) {
                    const std::uint32_t at = random.below(static_cast<std::uint32_t>(model.network.layers[l].nonzeros()));
                    const std::uint32_t row = random.below(model.network.layers[l].rows);
                    const bool bias = tries % 5 == 0;
                    Model more = model, less = model;
                    (bias ? more.bias[l][row] : more.network.layers[l].value[at]) += 1e-3F;
                    (bias ? less.bias[l][row] : less.network.layers[l].value[at]) -= 1e-3F;
                    const double width = bias ? double{more.bias[l][row]} - less.bias[l][row]
                                              : double{more.network.layers[l].value[at]} - less.network.layers[l].value[at];
                    const double slope = (slow_loss(more, samples, which, loss) - slow_loss(less, samples, which, loss)) / width;
                    const double got = bias ? double{model.bias[l][row]} - after.model.bias[l][row]
                                            : double{model.network.layers[l].value[at]} - after.model.network.layers[l].value[at];
                    // A difference over a kink of ReLU is off by as much as one sample gives.
                    ck_assert_msg(std::abs(got - slope) < 2e-3 + .01 * std::abs(slope), "layer %zu: %.6g, by differences %.6g", l,
                                  got, slope);
                }
        }
}
END_TEST

std::vector<double> curve(int ranks, Optimizer optimizer, int way, Checkpoint *last, const Checkpoint *resume, int first, int steps,
                          const std::string &file = "")
{
    Checkpoint from;
    from.model = small_model();
    if (resume != nullptr)
        from = *resume;
    const Samples samples = random_samples(24, 200, 6, 5);
    const auto parts = static_cast<std::uint32_t>(ranks);
    const Partition partition =
        way == 0 ? contiguous_partition(from.model.network, parts) : uneven_partition(from.model.network, parts);
    std::vector<double> losses;
    SparseWorld(ranks).run([&](Comm &comm) {
        Workers workers(1);
        TrainingOptions options;
        options.optimizer = optimizer;
        options.rate = optimizer == Optimizer::adam ? .01F : .05F;
        Trainer trainer(from, partition, comm, workers, options);
        for (int i = first; i < first + steps; ++i) {
            const Score score = trainer.step(samples, numbers(static_cast<std::uint32_t>(i % 5) * 40, i % 5 == 4 ? 33 : 40));
            if (comm.rank() == 0)
                losses.push_back(score.loss / static_cast<double>(score.samples));
        }
        Checkpoint all = trainer.collect();
        if (comm.rank() != 0)
            return;
        if (!file.empty())
            write_checkpoint(file, all);
        if (last != nullptr)
            *last = std::move(all);
    });
    return losses;
}

START_TEST(same_curve)
{
    for (const Optimizer optimizer : {Optimizer::sgd, Optimizer::adam}) {
        const std::vector<double> one = curve(1, optimizer, 0, nullptr, nullptr, 0, 60);
        ck_assert_double_lt(one.back(), .8 * one.front()); // it learns
        for (const int ranks : {2, 3, 4})
            for (int way = 0; way < 2; ++way) {
                const std::vector<double> many = curve(ranks, optimizer, way, nullptr, nullptr, 0, 60);
                for (std::size_t i = 0; i < one.size(); ++i)
                    ck_assert_msg(std::abs(many[i] - one[i]) < (i < 3 ? 1e-6 : 1e-4) * one[i], "%d ranks, step %zu: %.9g and %.9g",
                                  ranks, i, many[i], one[i]);
                ck_assert(many == curve(ranks, optimizer, way, nullptr, nullptr, 0, 60)); // bit for bit
            }
    }
}
END_TEST

START_TEST(checkpoint_on_other_ranks)
{
    char name[] = "/tmp/jigsaw-sparse-XXXXXX";
    const std::string folder = mkdtemp(name), path = folder + "/net.ckpt";
    for (const Optimizer optimizer : {Optimizer::sgd, Optimizer::adam}) {
        const std::vector<double> whole = curve(1, optimizer, 0, nullptr, nullptr, 0, 40);
        Checkpoint half;
        curve(3, optimizer, 1, &half, nullptr, 0, 20, path);
        ck_assert(is_checkpoint(path));
        const Checkpoint read = read_checkpoint(path);
        ck_assert_uint_eq(read.step, 20);
        for (std::size_t l = 0; l < 3; ++l)
            ck_assert(read.model.network.layers[l].value == half.model.network.layers[l].value &&
                      read.model.bias[l] == half.model.bias[l] && read.weights[l].first == half.weights[l].first &&
                      read.weights[l].second == half.weights[l].second && read.biases[l].second == half.biases[l].second);
        const std::vector<double> rest = curve(2, optimizer, 0, nullptr, &read, 20, 20);
        for (std::size_t i = 0; i < rest.size(); ++i)
            ck_assert_msg(std::abs(rest[i] - whole[20 + i]) < 1e-4 * whole[20 + i], "step %zu: %.9g and %.9g", i, rest[i],
                          whole[20 + i]);
    }
    // Each byte that changes is noticed, and each end that comes too early.
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto taken = [](const std::string &text) {
        try {
            parse_checkpoint("f", reinterpret_cast<const unsigned char *>(text.data()), text.size());
            return true;
        } catch (const Error &error) {
            ck_assert_msg(std::strncmp(error.what(), "f: ", 3) == 0, "%s", error.what());
            return false;
        }
    };
    ck_assert(taken(bytes));
    for (std::size_t at = 0; at < bytes.size(); at += at < 128 ? 1 : 97) {
        std::string broken = bytes;
        broken[at] = static_cast<char>(broken[at] ^ 0x10);
        ck_assert_msg(!taken(broken), "byte %zu", at);
        ck_assert(!taken(bytes.substr(0, at)));
    }
    unlink(path.c_str());
    rmdir(folder.c_str());
}
END_TEST

START_TEST(samples_from_text)
{
    const Samples s = parse_graph_challenge_inputs("f", "3 2 1\n1 4 .5\n3 1 2\n", 4, 0);
    ck_assert(s.count() == 3 && s.start == (std::vector<std::uint64_t>{0, 1, 1, 3}) &&
              s.feature == (std::vector<std::uint32_t>{3, 0, 1}) && s.value == (std::vector<float>{.5F, 2, 1}));
    const Samples zero = parse_graph_challenge_inputs("f", "0 1 1\n2 1 1\n", 4, 2);
    ck_assert(zero.count() == 2 && zero.feature.size() == 1);
    const Samples labelled = parse_labelled("f", "0,16,8,1\n4,0,0,0\n");
    ck_assert(labelled.features == 3 && labelled.label == (std::vector<std::uint32_t>{1, 0}) &&
              labelled.value == (std::vector<float>{1, .5F, .25F}) && labelled.feature == (std::vector<std::uint32_t>{1, 2, 0}));
    const Samples wide = repeat_features(labelled, 5);
    ck_assert(wide.feature == (std::vector<std::uint32_t>{1, 2, 4, 0, 3}) && wide.label == labelled.label);
    const struct { char kind; const char *text, *where; } rows[] = {
        {'g', "", "f:1: no samples"},
        {'g', "1 5 1\n", "f:1: the neuron is \"5\""},
        {'g', "1 1 1\n1 1 x\n", "f:2: the value is \"x\""},
        {'g', "1 1 1\n2 1 1\n1 1 2\n", "f:3: the same place as line 1"},
        {'l', "", "f:1: no samples"},
        {'l', "1,2,3\n1,2\n", "f:2: 1 features and a label, but 2"},
        {'l', "1,b,3\n", "f:1: cell 2 is \"b\""},
        {'l', "1,2,.5\n", "f:1: the label must"},
        {'l', "1,,1\n", "f:1: cell 2 is \"\""},
    };
    for (const auto &row : rows) {
        std::string complaint = "(taken)";
        try {
            row.kind == 'g' ? parse_graph_challenge_inputs("f", row.text, 4, 0) : parse_labelled("f", row.text);
        } catch (const Error &error) {
            complaint = error.what();
        }
        ck_assert_msg(complaint.compare(0, std::strlen(row.where), row.where) == 0, "%s: %s", row.text, complaint.c_str());
    }
}
END_TEST

START_TEST(topologies)
{
    const Network dense = parse_topology("64-32-10", 1);
    ck_assert(dense.layers.size() == 2 && dense.nonzeros() == 64 * 32 + 32 * 10);
    const Network radix = parse_topology("radix:256x3-10", 1);
    ck_assert(radix.layers.size() == 4 && radix.nonzeros() == 3 * 256 * 32 + 2560);
    for (const char *bad : {"", "64", "64-", "64-x", "radix:256", "radix:100x2-10", "-1-4", "64-0-10"}) {
        bool taken = true;
        try {
            parse_topology(bad, 1);
        } catch (const Error &) {
            taken = false;
        }
        ck_assert_msg(!taken, "%s", bad);
    }
    const Model cut = pruned(fresh_model(dense, 1), .25, .5);
    ck_assert_uint_eq(cut.network.layers[0].nonzeros(), 64 * 32 / 4);
    ck_assert_uint_eq(cut.network.layers[1].nonzeros(), 160);
    ck_assert_uint_eq(pruned(cut, .5, .5).network.layers[0].nonzeros(), 64 * 32 / 8);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("sparse engine");
    jigsaw::tests::add_case(suite, "inference", {inference, kept_slots});
    jigsaw::tests::add_case(suite, "training", {gradients_by_differences, same_curve, checkpoint_on_other_ranks});
    jigsaw::tests::add_case(suite, "input", {samples_from_text, topologies});
    return jigsaw::tests::run_tap(suite);
}
