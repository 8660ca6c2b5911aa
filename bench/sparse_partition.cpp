// SPDX-License-Identifier: Apache-2.0
// What jigsaw-partition saves: words per forward vector on several networks, beside other ways to part them, and how its
// time and memory grow.
//
//     volume_words            keys net, parts, partitioner; and the imbalance of the worst layer. On the official network:
//                             target, and bound_words: no partition can cost less (see bound(); proven, hence far off)
//     sweep_gain              words of one pass over the phases / words of sweeps over all of them
//     volume_vs_zoltan        ours / Zoltan's
//     partition_cpu_seconds,  of growing RadiX-Nets, at a small effort, each in a process of its own
//     peak_mib
//
// Partitioners: jigsaw; jigsaw-one-phase: the same search, each phase for itself with the layer before it fixed;
// zoltan-one-phase: the same model by Zoltan PHG, one seed, its parts then brought to the same balance (where configure
// found Zoltan); random and contiguous. Nets: radix-official (from the file of row classes, if one is given) or radix (one
// of the same kind), regular: 32 random weights per row and column, pruned: the largest 1/32 of a dense layer whose rows and
// columns have log-normal scales. That last one stands for a trained one: its rows differ in weight, so it is parted at 3 %.
//
// Usage: bench/sparse_partition [ROW-CLASSES-FILE, "" for none] [volume|growth|all] [parts, e.g. 2,8,64] [nets, e.g. regular]
#include "bench/bench.hpp"
#include "runtime/sparse/formats.hpp"
#include "runtime/sparse/generate.hpp"
#include "runtime/sparse/levels.hpp"
#include "runtime/sparse/partition.hpp"
#include "runtime/sparse/refine.hpp"

#include "jigsaw_config.h"
#ifdef HAVE_ZOLTAN
#include <zoltan.h>
#endif

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>

namespace {

using namespace jigsaw;
using namespace jigsaw::sparse;

constexpr char kBench[] = "sparse_partition";
constexpr std::uint32_t kNeurons = 1024, kLayers = 120;

/// Of this process on its processor: the machine may have others.
double seconds_now()
{
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

/// The words that are known to be reachable on the official network, without slack.
std::uint64_t target(std::uint32_t parts)
{
    constexpr std::pair<std::uint32_t, std::uint64_t> kTargets[] = {{2, 56207},   {4, 87972},   {8, 109502},
                                                                    {16, 128608}, {32, 162849}, {64, 222736}};
    for (const auto &[of, words] : kTargets)
        if (of == parts)
            return words;
    return 0;
}

/// A normal deviate (the sum of twelve uniform ones is near enough).
double normal(Random &random)
{
    double sum = -6;
    for (int i = 0; i < 12; ++i)
        sum += static_cast<double>(random.next() >> 11) * 0x1p-53;
    return sum;
}

Network pruned_network()
{
    Random random(1);
    Network network;
    std::vector<float> dense(std::size_t{kNeurons} * kNeurons);
    std::vector<double> row(kNeurons), column(kNeurons);
    for (std::uint32_t k = 0; k < kLayers; ++k) {
        for (std::uint32_t i = 0; i < kNeurons; ++i)
            row[i] = std::exp(.5 * normal(random)), column[i] = std::exp(.5 * normal(random));
        for (std::uint32_t i = 0; i < kNeurons; ++i)
            for (std::uint32_t j = 0; j < kNeurons; ++j)
                dense[std::size_t{i} * kNeurons + j] = static_cast<float>(row[i] * column[j] * normal(random));
        network.layers.push_back(prune(dense, kNeurons, kNeurons, 1. / 32));
    }
    return network;
}

/// The largest singular value of a block's matrix of neurons (by number modulo base, and class as an input) less its mean;
/// from above, by the trace of a high power.
double second_singular_value(const std::vector<double> &counts, std::size_t base, double mean)
{
    std::vector<double> power(base * base, 0), next(base * base);
    for (std::size_t i = 0; i < base; ++i)
        for (std::size_t j = 0; j < base; ++j)
            for (std::size_t l = 0; l < base; ++l)
                power[i * base + j] += (counts[l * base + i] - mean) * (counts[l * base + j] - mean);
    double log_scale = 0; // power is scaled by exp(-log_scale)
    int doublings = 0;
    for (; doublings < 10; ++doublings) {
        const double largest = *std::max_element(power.begin(), power.end());
        if (largest <= 0)
            return 0;
        for (double &x : power)
            x /= largest;
        log_scale = 2 * (log_scale + std::log(largest));
        for (std::size_t i = 0; i < base; ++i)
            for (std::size_t j = 0; j < base; ++j) {
                double sum = 0;
                for (std::size_t l = 0; l < base; ++l)
                    sum += power[i * base + l] * power[l * base + j];
                next[i * base + j] = sum;
            }
        power.swap(next);
    }
    double trace = 0;
    for (std::size_t i = 0; i < base; ++i)
        trace += power[i * base + i];
    return std::sqrt(std::exp((std::log(trace) + log_scale) / std::pow(2, doublings)));
}

/// Words that every even partition of a RadiX-Net needs. A part has w = neurons / parts rows of a layer, whose numbers modulo
/// base lie in some set A of a classes, a >= w / 16; with step t they need the inputs of the classes S = A + {0, t}, s of
/// them: 16 s inputs, where s > a unless A is made of whole cycles of t. Of these it owns at most w, and at most as many as
/// there are rows of the layer before whose number is in A there and whose class as an input is in S, which by the expander
/// mixing lemma are at most 16 a s / base + sigma sqrt(a s (1 - a/base) (1 - s/base)). The cheapest chain of sizes through
/// the layers bounds one part, and so all of them.
double bound(const RowClasses &classes, std::uint32_t layers, std::uint32_t parts)
{
    const std::size_t neurons = classes.front().size(), base = neurons / 16;
    std::uint32_t digits = 0;
    while ((std::size_t{1} << digits) < base)
        ++digits;
    const double w = static_cast<double>(neurons) / parts;
    const auto least = static_cast<std::size_t>(std::ceil(w / 16));
    std::vector<double> sigma;
    for (const auto &block : classes) {
        std::vector<double> counts(base * base, 0);
        for (std::size_t row = 0; row < neurons; ++row)
            ++counts[row % base * base + block[row]];
        sigma.push_back(second_singular_value(counts, base, 16 / static_cast<double>(base)));
    }
    const auto most_classes = [&](std::size_t s, std::uint32_t layer) {
        return s % (base >> (layer % digits)) == 0 ? s : s - 1;
    };
    std::vector<double> cost(base + 1, INFINITY), next(base + 1);
    for (std::size_t s = least; s <= base; ++s)
        if (most_classes(s, 0) >= least)
            cost[s] = std::max(0., 16 * static_cast<double>(s) - w);
    for (std::uint32_t k = 1; k < layers; ++k) {
        const double here = sigma[k / digits];
        std::fill(next.begin(), next.end(), INFINITY);
        for (std::size_t s = least; s <= base; ++s) {
            if (most_classes(s, k) < least)
                continue;
            double reach = 0; // rows in a <= most_classes(t) classes whose class as an input is in S
            std::size_t a = 1;
            for (std::size_t t = least; t <= base; ++t) {
                for (; a <= most_classes(t, k - 1); ++a) {
                    const auto x = static_cast<double>(a), y = static_cast<double>(s), b = static_cast<double>(base);
                    reach = std::max(reach, std::min(16 * std::min(x, y),
                                                     16 * x * y / b + here * std::sqrt(x * y * (1 - x / b) * (1 - y / b))));
                }
                next[s] = std::min(next[s], cost[t] + 16 * static_cast<double>(s) - std::min(w, reach));
            }
        }
        cost.swap(next);
    }
    return parts * *std::min_element(cost.begin(), cost.end());
}

#ifdef HAVE_ZOLTAN
/// One phase for Zoltan: objects are the rows, then one fixed object of no weight per part; edges are the columns.
struct Phased {
    const CsrMatrix *layer;
    CsrMatrix by_column;
    const std::vector<std::uint32_t> *source_owner;
    std::uint32_t parts;
};

const Phased &phased(void *data) { return *static_cast<const Phased *>(data); }

int count_objects(void *data, int *error)
{
    *error = ZOLTAN_OK;
    return static_cast<int>(phased(data).layer->rows + phased(data).parts);
}

void list_objects(void *data, int, int, ZOLTAN_ID_PTR global, ZOLTAN_ID_PTR, int, float *weight, int *error)
{
    const Phased &phase = phased(data);
    for (std::uint32_t i = 0; i < phase.layer->rows + phase.parts; ++i) {
        global[i] = i;
        weight[i] = i < phase.layer->rows ? static_cast<float>(phase.layer->row_nonzeros(i)) : 0;
    }
    *error = ZOLTAN_OK;
}

void size_edges(void *data, int *edges, int *pins, int *format, int *error)
{
    *edges = static_cast<int>(phased(data).layer->columns);
    *pins = static_cast<int>(phased(data).layer->nonzeros() + phased(data).layer->columns);
    *format = ZOLTAN_COMPRESSED_EDGE;
    *error = ZOLTAN_OK;
}

void list_edges(void *data, int, int, int, int, ZOLTAN_ID_PTR edge, int *start, ZOLTAN_ID_PTR pin, int *error)
{
    const Phased &phase = phased(data);
    int at = 0;
    for (std::uint32_t j = 0; j < phase.layer->columns; ++j) {
        edge[j] = j;
        start[j] = at;
        for (std::uint64_t i = phase.by_column.row_start[j]; i < phase.by_column.row_start[j + 1]; ++i)
            pin[at++] = phase.by_column.column[i];
        pin[at++] = phase.layer->rows + (*phase.source_owner)[j];
    }
    *error = ZOLTAN_OK;
}

int count_fixed(void *data, int *error)
{
    *error = ZOLTAN_OK;
    return static_cast<int>(phased(data).parts);
}

void list_fixed(void *data, int, int, ZOLTAN_ID_PTR global, int *part, int *error)
{
    for (std::uint32_t p = 0; p < phased(data).parts; ++p) {
        global[p] = phased(data).layer->rows + p;
        part[p] = static_cast<int>(p);
    }
    *error = ZOLTAN_OK;
}

Partition zoltan_partition(const Network &network, std::uint32_t parts, double imbalance)
{
    Partition partition = contiguous_partition(network, parts);
    for (std::size_t k = 0; k < network.layers.size(); ++k) {
        Phased phase{&network.layers[k], transpose(network.layers[k]), &partition.owner[k], parts};
        Zoltan_Struct *zoltan = Zoltan_Create(MPI_COMM_WORLD);
        const std::string count = std::to_string(parts), tolerance = std::to_string(1 + std::max(imbalance, .001));
        const char *const parameters[][2] = {
            {"DEBUG_LEVEL", "0"}, {"LB_METHOD", "HYPERGRAPH"}, {"HYPERGRAPH_PACKAGE", "PHG"}, {"LB_APPROACH", "PARTITION"},
            {"NUM_GLOBAL_PARTS", count.c_str()}, {"RETURN_LISTS", "PARTS"}, {"OBJ_WEIGHT_DIM", "1"}, {"EDGE_WEIGHT_DIM", "0"},
            {"NUM_GID_ENTRIES", "1"}, {"NUM_LID_ENTRIES", "0"}, {"PHG_EDGE_SIZE_THRESHOLD", "1.0"}, {"SEED", "1"},
            {"IMBALANCE_TOL", tolerance.c_str()}, {"CHECK_HYPERGRAPH", "0"}};
        for (const auto &[name, value] : parameters)
            Zoltan_Set_Param(zoltan, name, value);
        Zoltan_Set_Num_Obj_Fn(zoltan, count_objects, &phase);
        Zoltan_Set_Obj_List_Fn(zoltan, list_objects, &phase);
        Zoltan_Set_HG_Size_CS_Fn(zoltan, size_edges, &phase);
        Zoltan_Set_HG_CS_Fn(zoltan, list_edges, &phase);
        Zoltan_Set_Num_Fixed_Obj_Fn(zoltan, count_fixed, &phase);
        Zoltan_Set_Fixed_Obj_List_Fn(zoltan, list_fixed, &phase);
        int changes, gids, lids, imports, exports, *import_ranks, *import_parts, *export_ranks, *export_parts;
        ZOLTAN_ID_PTR import_gids, import_lids, export_gids, export_lids;
        if (Zoltan_LB_Partition(zoltan, &changes, &gids, &lids, &imports, &import_gids, &import_lids, &import_ranks,
                                &import_parts, &exports, &export_gids, &export_lids, &export_ranks, &export_parts) != ZOLTAN_OK)
            throw Error("Zoltan fails on layer " + std::to_string(k + 1));
        for (int i = 0; i < exports; ++i)
            if (export_gids[i] < network.layers[k].rows)
                partition.owner[k + 1][export_gids[i]] = static_cast<std::uint32_t>(export_parts[i]);
        Zoltan_LB_Free_Part(&import_gids, &import_lids, &import_ranks, &import_parts);
        Zoltan_LB_Free_Part(&export_gids, &export_lids, &export_ranks, &export_parts);
        Zoltan_Destroy(&zoltan);
    }
    const Level level = finest_level(network, false);
    std::vector<std::uint64_t> cap;
    for (const auto &weight : level.weight) {
        std::uint64_t sum = 0;
        for (std::uint64_t one : weight)
            sum += one;
        cap.push_back(std::max(fullest(weight, parts),
                               static_cast<std::uint64_t>(static_cast<double>(sum) / parts * (1 + imbalance))));
    }
    Refiner refiner(level, parts, cap, std::vector<float>(network.layers.size(), 1));
    refiner.assign(partition.owner);
    refiner.mend();
    partition.owner = refiner.owners();
    return partition;
}
#endif

struct Case {
    const char *net;
    const Network *network;
    const RowClasses *classes; ///< of the official network
    double imbalance;
};

std::uint64_t report(const Case &on, std::uint32_t parts, const char *partitioner, const Partition &partition, double seconds)
{
    const Traffic traffic = measure_traffic(*on.network, partition);
    bench::Line line(kBench, "volume_words", static_cast<double>(traffic.words), "words");
    line.with("net", on.net).with("parts", parts).with("partitioner", partitioner).with("cpu_seconds", seconds);
    line.with("imbalance", traffic.imbalance).with("messages", traffic.messages).with("largest_message", traffic.largest_message);
    if (on.classes != nullptr && std::strcmp(partitioner, "jigsaw") == 0)
        line.with("target", target(parts)).with("bound_words", bound(*on.classes, kLayers, parts)).headline();
    return traffic.words;
}

void volumes(const Case &on, std::uint32_t parts)
{
    PartitionOptions options;
    options.parts = parts;
    options.imbalance = on.imbalance;
    double start = seconds_now();
    const auto took = [&] {
        const double seconds = seconds_now() - start;
        start = seconds_now();
        return seconds;
    };
    Partition partition = partition_network(*on.network, options);
    const std::uint64_t words = report(on, parts, "jigsaw", partition, took());
    options.look_ahead = false;
    partition = partition_network(*on.network, options);
    const std::uint64_t one_phase = report(on, parts, "jigsaw-one-phase", partition, took());
    bench::Line(kBench, "sweep_gain", static_cast<double>(one_phase) / static_cast<double>(words), "1")
        .with("net", on.net).with("parts", parts);
#ifdef HAVE_ZOLTAN
    took();
    partition = zoltan_partition(*on.network, parts, on.imbalance);
    const std::uint64_t zoltan = report(on, parts, "zoltan-one-phase", partition, took());
    bench::Line(kBench, "volume_vs_zoltan", static_cast<double>(words) / static_cast<double>(zoltan), "1")
        .with("net", on.net).with("parts", parts);
#endif
    took();
    partition = random_partition(*on.network, parts, 1);
    report(on, parts, "random", partition, took());
    partition = contiguous_partition(*on.network, parts);
    report(on, parts, "contiguous", partition, took());
}

void growth(std::uint32_t neurons, std::uint32_t layers, double effort)
{
    std::fflush(stdout);
    const pid_t child = fork();
    if (child < 0)
        throw Error(std::string("fork: ") + std::strerror(errno));
    if (child > 0) {
        int status = 0;
        waitpid(child, &status, 0);
        if (status != 0)
            throw Error("the process for " + std::to_string(neurons) + " x " + std::to_string(layers) + " failed");
        return;
    }
    const Network network = radix_net(neurons, layers, 1);
    PartitionOptions options;
    options.parts = 8;
    options.effort = effort;
    const double start = seconds_now();
    const Partition partition = partition_network(network, options);
    const double seconds = seconds_now() - start;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const std::uint64_t words = measure_traffic(network, partition).words;
    const std::uint64_t random = measure_traffic(network, random_partition(network, 8, 1)).words;
    bench::Line(kBench, "partition_cpu_seconds", seconds, "s").with("neurons", neurons).with("layers", layers).with("parts", 8)
        .with("effort", effort).with("volume_vs_random", static_cast<double>(words) / static_cast<double>(random));
    bench::Line(kBench, "peak_mib", static_cast<double>(usage.ru_maxrss) / 1024, "MiB").with("neurons", neurons)
        .with("layers", layers).with("network_mib", static_cast<double>(network.nonzeros()) * 8 / 1048576);
    std::fflush(stdout);
    _exit(0);
}

std::vector<std::uint32_t> numbers(const std::string &text)
{
    std::vector<std::uint32_t> found;
    for (std::size_t at = 0; at < text.size(); at = text.find(',', at) == std::string::npos ? text.size() : text.find(',', at) + 1)
        found.push_back(static_cast<std::uint32_t>(std::stoul(text.substr(at))));
    return found;
}

} // namespace

int main(int argc, char **argv)
{
    const std::string file = argc > 1 ? argv[1] : "", what = argc > 2 ? argv[2] : "all";
    const std::vector<std::uint32_t> parts = numbers(argc > 3 ? argv[3] : "2,4,8,16,32,64");
    const std::string nets = argc > 4 ? argv[4] : "radix,regular,pruned";
    try {
        if (what != "volume")
            for (const auto &[neurons, layers] : {std::pair<std::uint32_t, std::uint32_t>{1024, 30}, {1024, 60}, {1024, 120},
                                                  {4096, 120}, {16384, 120}})
                growth(neurons, layers, .05);
        if (what == "growth")
            return 0;
#ifdef HAVE_ZOLTAN
        MPI_Init(&argc, &argv);
        float version = 0;
        Zoltan_Initialize(argc, argv, &version);
#endif
        const RowClasses classes = file.empty() ? RowClasses() : read_row_classes(file);
        const auto run = [&](const char *net, const Network &network, const RowClasses *known, double imbalance) {
            for (std::uint32_t count : parts)
                volumes({net, &network, known, imbalance}, count);
        };
        const auto wanted = [&](const char *net) { return nets.find(net) != std::string::npos; };
        if (wanted("radix") && file.empty())
            run("radix", radix_net(kNeurons, kLayers, 1), nullptr, 0);
        else if (wanted("radix"))
            run("radix-official", radix_net(classes, kLayers), &classes, 0);
        if (wanted("regular"))
            run("regular", random_regular(kNeurons, kLayers, 32, 1), nullptr, 0);
        if (wanted("pruned"))
            run("pruned", pruned_network(), nullptr, .03);
#ifdef HAVE_ZOLTAN
        MPI_Finalize();
#endif
    } catch (const std::exception &error) {
        std::fprintf(stderr, "bench/sparse_partition: %s\n", error.what());
        return 1;
    }
    return 0;
}
