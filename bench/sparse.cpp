// SPDX-License-Identifier: Apache-2.0
// Sparse networks: what jigsaw-sparse and its kernels do on this machine. One JSON object per line.
//
//     categories_match                 1 if the official 1024 x 120 network leaves exactly the official categories of the
//                                      first 10,000 official inputs; `ranks` (under mpirun)
//     inference_speedup_vs_graphblas   time of SuiteSparse:GraphBLAS over ours: medians of interleaved runs, the same cores,
//                                      dead samples cost neither anything; both must leave the same categories
//     inference_seconds                the two times of it; `best`, `of_best`: of the quickest runs, on a machine with others on it
//     edges_per_s_per_core             as the Graph Challenge counts: inputs * weights / time / cores
//     multiplications_per_s_per_core   those that were done
//     peak_share                       of what one core multiplies from registers; cache_read_share: of what it reads from a
//                                      tile's worth of cache, 4 bytes per multiplication (what bounds this kernel);
//                                      memory_share: of the measured triad, for what a run moves at least
//     step_seconds, step_bytes,        of a training step on that network: mean over an epoch, and what the busiest rank
//     step_messages                    sends; `partition` contiguous, random or jigsaw, `link` shared-memory or 1gbit (loopback in
//                                      a network namespace of its own, throttled by tc; needs root)
//     step_bytes_random_over_jigsaw    and the same of the time
//     accuracy_percent                 of digits by writers not seen in training, mean over seeds; `net` dense, pruned, radix
//     curve_gap                        largest relative difference of an epoch's loss between `ranks` and one rank
//
// Usage: bench/sparse [--data FOLDER] [--quick] [match|speed|roofline|train|digits]...
// FOLDER: neuron1024-rowclass.txt, neuron1024-l120-categories.tsv, inputs-first-10000.tsv.gz. Default: $JIGSAW_GRAPHCHALLENGE, else
// ../shared/data/graphchallenge beside the source tree. Without them generated ones stand in, and `official` is false.
#include "bench/bench.hpp"
#include "bench/sparse_graphblas.hpp"
#include "bench/sparse_machine.hpp"
#include "runtime/sparse/formats.hpp"
#include "runtime/sparse/generate.hpp"
#include "runtime/sparse/inference.hpp"
#include "runtime/sparse/partition.hpp"
#include "runtime/sparse/random.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

namespace {

using namespace jigsaw::sparse;
using jigsaw::bench::Line;

bool quick = false;
std::string data_folder, source, build, scratch;

double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

bool exists(const std::string &path) { return access(path.c_str(), R_OK) == 0; }

std::string from_environment(const char *name, const std::string &otherwise)
{
    const char *value = std::getenv(name);
    return value != nullptr ? value : otherwise;
}

/// The network and its inputs in files: the official ones, or generated ones in our scratch folder.
struct Challenge {
    bool official = false;
    std::string network, inputs, categories;
};

Challenge find_challenge()
{
    Challenge files;
    files.network = data_folder + "/neuron1024-rowclass.txt";
    files.inputs = data_folder + "/inputs-first-10000.tsv.gz";
    files.categories = data_folder + "/neuron1024-l120-categories.tsv";
    files.official = exists(files.network) && exists(files.inputs) && exists(files.categories);
    if (files.official)
        return files;
    std::fprintf(stderr, "bench/sparse: no Graph Challenge data in %s: a generated network and inputs stand in\n", data_folder.c_str());
    files.network = scratch + "/network";
    files.inputs = scratch + "/inputs";
    files.categories = "";
    write_binary(files.network, radix_net(1024, 120, 1));
    Random random(7);
    std::string text;
    for (std::uint32_t s = 1; s <= 10000; ++s) {
        const std::uint32_t share = 60 + random.below(300); // of 1024; above 0.3 they live on, and few do
        for (std::uint32_t n = 1; n <= 1024; ++n)
            if (random.below(1024) < share)
                text += std::to_string(s) + " " + std::to_string(n) + " 1\n";
    }
    NewFile file(files.inputs);
    file.write(text);
    file.commit();
    return files;
}

/// What a command prints; "" where it fails. Its complaints go to our stderr.
std::string output_of(const std::string &command)
{
    std::string text;
    std::FILE *pipe = popen(command.c_str(), "r");
    if (pipe == nullptr)
        return "";
    char room[4096];
    for (std::size_t got; (got = fread(room, 1, sizeof room, pipe)) > 0;)
        text.append(room, got);
    const int status = pclose(pipe);
    if (status != 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 3)) {
        std::fprintf(stderr, "bench/sparse: status %d: %s\n", status, command.c_str());
        return "";
    }
    return text;
}

std::string shell_quoted(const std::string &word) { return "'" + word + "'"; }

std::string mpirun(int ranks, bool throttled, const std::string &arguments)
{
    const std::string launch = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 300 mpirun --oversubscribe -n " +
                               std::to_string(ranks) + " --mca plm isolated --mca oob_tcp_if_include lo " +
                               (throttled ? "--mca btl self,tcp --mca btl_tcp_if_include lo "
                                          : "--mca btl self,vader --mca btl_vader_single_copy_mechanism none ") +
                               shell_quoted(build + "/runtime/sparse/jigsaw-sparse") + " " + arguments;
    if (!throttled)
        return launch;
    return "unshare -n sh -c \"ip link set lo up && tc qdisc add dev lo root tbf rate 1gbit burst 256kb latency 50ms && " + launch + "\"";
}

bool can_throttle()
{
    return std::system("unshare -n sh -c 'ip link set lo up && tc qdisc add dev lo root tbf rate 1gbit burst 256kb latency 50ms' "
                       ">/dev/null 2>&1") == 0;
}

bool has_mpirun() { return std::system("command -v mpirun >/dev/null 2>&1") == 0; }

/// The numbers behind a key of a JSON object, a list or one alone.
std::vector<double> numbers_of(const std::string &json, const std::string &key)
{
    std::vector<double> values;
    std::size_t at = json.find("\"" + key + "\":");
    if (at == std::string::npos)
        return values;
    at += key.size() + 3;
    const bool list = json[at] == '[';
    at += list ? 1 : 0;
    for (;;) {
        char *end = nullptr;
        values.push_back(std::strtod(json.c_str() + at, &end));
        at = static_cast<std::size_t>(end - json.c_str());
        if (!list || json[at] != ',')
            return values;
        ++at;
    }
}

double number_of(const std::string &json, const std::string &key)
{
    const std::vector<double> values = numbers_of(json, key);
    return values.empty() ? NAN : values[0];
}

void run_match(const Challenge &files)
{
    std::string expected = files.categories;
    if (expected.empty()) {
        expected = scratch + "/categories";
        if (output_of(build + "/runtime/sparse/jigsaw-sparse infer -q --samples 10000 --output " + shell_quoted(expected) + " --inputs " +
                      shell_quoted(files.inputs) + " " + shell_quoted(files.network))
                .empty())
            return;
    }
    for (const int ranks : {1, 2, 4, 8}) {
        if (ranks > 1 && !has_mpirun()) {
            std::fputs("bench/sparse: no mpirun: one rank only\n", stderr);
            return;
        }
        const std::string json =
            output_of(mpirun(ranks, false, "infer --json --samples 10000 --inputs " + shell_quoted(files.inputs) + " --categories " +
                                               shell_quoted(expected) + " " + shell_quoted(files.network)));
        Line("sparse", "categories_match", json.find("\"categories_match\":true") != std::string::npos ? 1 : 0, "1")
            .with("official", files.official)
            .with("ranks", ranks)
            .with("alive", number_of(json, "alive"))
            .with("seconds", number_of(json, "seconds"))
            .headline();
    }
}

struct Loaded {
    Network network;
    Samples samples;
};

Loaded load(const Challenge &files)
{
    Loaded loaded{read_network(files.network, 0), {}};
    loaded.samples = read_graph_challenge_inputs(files.inputs, loaded.network.inputs(), 10000);
    return loaded;
}

unsigned cores() { return std::max(1U, std::thread::hardware_concurrency()); }

/// Ours, in this process; the engine as jigsaw-sparse sets it up.
struct Ours {
    Ours(const Loaded &loaded, unsigned threads)
        : workers(threads), share(share_of(loaded.network, contiguous_partition(loaded.network, 1), 0)),
          engine(loaded.network, share, comm, workers, {})
    {
    }
    AloneComm comm;
    Workers workers;
    NetworkShare share;
    Inference engine;
};

void run_speed(const Challenge &files)
{
    const Loaded loaded = load(files);
    const double edges = static_cast<double>(loaded.samples.count()) * static_cast<double>(loaded.network.nonzeros());
    for (const unsigned threads : std::set<unsigned>{1, cores()}) {
        Ours ours(loaded, threads);
        ours.engine.run(loaded.samples);
        std::vector<double> our_times, their_times, done;
        std::vector<std::uint32_t> our_alive, their_alive;
#ifdef HAVE_GRAPHBLAS
        const jigsaw::bench::GraphBlas theirs(loaded.network, loaded.samples, static_cast<int>(threads));
        theirs.run();
#endif
        for (int pair = 0; pair < (quick ? 3 : 7); ++pair) {
            const InferenceResult result = ours.engine.run(loaded.samples);
            our_times.push_back(result.seconds);
            done.push_back(static_cast<double>(result.multiplications) / result.seconds);
            our_alive = result.alive;
#ifdef HAVE_GRAPHBLAS
            const auto run = theirs.run();
            their_times.push_back(run.seconds);
            their_alive = run.alive;
#endif
        }
        const double seconds = median(our_times);
        const double best = *std::min_element(our_times.begin(), our_times.end());
        Line("sparse", "inference_seconds", seconds, "s")
            .with("official", files.official)
            .with("engine", "jigsaw")
            .with("threads", threads)
            .with("best", best);
        Line("sparse", "edges_per_s_per_core", edges / seconds / threads, "1/s").with("official", files.official).with("threads", threads);
        Line("sparse", "multiplications_per_s_per_core", median(done) / threads, "1/s")
            .with("threads", threads)
            .with("instructions", name_of(best_instructions()));
        if (their_times.empty()) {
            std::fputs("bench/sparse: built without GraphBLAS (libgraphblas-dev): no comparison\n", stderr);
            continue;
        }
#ifdef HAVE_GRAPHBLAS
        const std::string version = jigsaw::bench::GraphBlas::version();
#else
        const std::string version;
#endif
        Line("sparse", "inference_seconds", median(their_times), "s")
            .with("official", files.official)
            .with("engine", "graphblas")
            .with("version", version)
            .with("threads", threads)
            .with("best", *std::min_element(their_times.begin(), their_times.end()));
        // A network cannot be run wrongly and count as fast.
        const bool same = our_alive == their_alive;
        Line line("sparse", "inference_speedup_vs_graphblas", same ? median(their_times) / seconds : 0, "1");
        line.with("official", files.official).with("threads", threads).with("same_categories", same).with("alive", our_alive.size());
        line.with("of_best", *std::min_element(their_times.begin(), their_times.end()) / best);
        if (threads == cores())
            line.headline();
    }
}

void run_roofline(const Challenge &files)
{
    const Loaded loaded = load(files);
    const Instructions instructions = best_instructions();
    const double peak = jigsaw::bench::peak_multiplications(instructions);
    // The tile that a layer reads: as many samples as inference takes for 1024 neurons.
    const double cache = jigsaw::bench::read_bandwidth(std::size_t{1024} * 32 * sizeof(float), instructions);
    const double memory = jigsaw::bench::memory_bandwidth(1);
    Ours ours(loaded, 1);
    ours.engine.run(loaded.samples);
    std::vector<double> rates, bytes;
    for (int i = 0; i < (quick ? 3 : 7); ++i) {
        const InferenceResult result = ours.engine.run(loaded.samples);
        const double done = static_cast<double>(result.multiplications);
        rates.push_back(done / result.seconds);
        // At least: activations in and out once per four layers (inference.cpp), 4 bytes each, read, written and fetched to be
        // written; per sample and layer there are 1024 of them for every nonzeros / layers multiplications.
        const double per_layer = static_cast<double>(loaded.network.nonzeros()) / static_cast<double>(loaded.network.layers.size());
        bytes.push_back(done / per_layer * 1024 * 12 / 4 / result.seconds);
    }
    const double rate = median(rates);
    Line("sparse", "peak_multiplications_per_s", peak, "1/s").with("instructions", name_of(instructions)).with("cores", 1);
    Line("sparse", "cache_read_bytes_per_s", cache, "B/s").with("array_bytes", 1024 * 32 * 4).with("cores", 1);
    Line("sparse", "memory_bytes_per_s", memory, "B/s").with("cores", 1);
    Line("sparse", "peak_share", rate / peak, "1").with("multiplications_per_s", rate).with("cores", 1);
    Line("sparse", "cache_read_share", 4 * rate / cache, "1").with("cores", 1);
    Line("sparse", "memory_share", median(bytes) / memory, "1").with("cores", 1).with("bytes_per_s", median(bytes));
}

/// A file for --partition; "" where there is no jigsaw-partition in the build.
std::string made_partition(const Challenge &files, int ranks)
{
    const std::string program = build + "/runtime/sparse/jigsaw-partition", path = scratch + "/partition-" + std::to_string(ranks);
    if (access(program.c_str(), X_OK) != 0)
        return "";
    return std::system((shell_quoted(program) + " --quiet --backward --parts " + std::to_string(ranks) + " --output " + shell_quoted(path) + " " +
                        shell_quoted(files.network) + " >/dev/null")
                           .c_str()) == 0
               ? path
               : "";
}

void run_train(const Challenge &files)
{
    if (!has_mpirun()) {
        std::fputs("bench/sparse: no mpirun: no training steps on several ranks\n", stderr);
        return;
    }
    const bool throttle = can_throttle();
    if (!throttle)
        std::fputs("bench/sparse: no namespace or no tc: no throttled link\n", stderr);
    const std::string digits = source + "/runtime/examples/data/optdigits.csv";
    for (const int ranks : {1, 2, 4}) {
        const std::string made = ranks == 1 ? "" : made_partition(files, ranks);
        if (ranks > 1 && made.empty())
            std::fputs("bench/sparse: no jigsaw-partition in the build: contiguous and random partitions only\n", stderr);
        for (const bool throttled : {false, true}) {
            if (throttled && (!throttle || ranks == 1))
                continue;
            double random_bytes = NAN, random_seconds = NAN;
            for (const std::string &partition : {std::string("random"), std::string("contiguous"), made}) {
                if (partition.empty() || (ranks == 1 && partition != "contiguous"))
                    continue;
                const std::string json = output_of(
                    mpirun(ranks, throttled, "train --json --epochs 1 --test 1000 --repeat --data " + shell_quoted(digits) + " --from " +
                                                 shell_quoted(files.network) + " --partition " + shell_quoted(partition)));
                const std::vector<double> bytes = numbers_of(json, "step_bytes"), messages = numbers_of(json, "step_messages");
                if (bytes.empty())
                    continue;
                const double most = *std::max_element(bytes.begin(), bytes.end()), seconds = number_of(json, "step_seconds");
                const char *name = partition == made ? "jigsaw" : partition.c_str();
                const char *link = throttled ? "1gbit" : "shared-memory";
                const auto line = [&](const char *metric, double value, const char *unit) {
                    Line(std::string("sparse"), metric, value, unit)
                        .with("ranks", ranks)
                        .with("partition", name)
                        .with("link", link)
                        .with("official", files.official)
                        .with("batch", 64);
                };
                line("step_seconds", seconds, "s");
                line("step_bytes", most, "B");
                line("step_messages", *std::max_element(messages.begin(), messages.end()), "1");
                if (partition == "random") {
                    random_bytes = most;
                    random_seconds = seconds;
                } else if (partition == made) {
                    line("step_bytes_random_over_jigsaw", random_bytes / most, "1");
                    line("step_seconds_random_over_jigsaw", random_seconds / seconds, "1");
                }
            }
        }
    }
}

std::vector<double> losses_of(const std::string &lines)
{
    std::vector<double> losses;
    for (std::size_t from = 0; from < lines.size();) {
        const std::size_t end = std::min(lines.find('\n', from), lines.size());
        losses.push_back(number_of(lines.substr(from, end - from), "loss"));
        from = end + 1;
    }
    return losses;
}

double last_accuracy(const std::string &lines)
{
    const std::size_t last = lines.rfind("\"test_percent\"");
    return last == std::string::npos ? NAN : number_of(lines.substr(last), "test_percent");
}

void run_digits()
{
    const std::string program = shell_quoted(build + "/runtime/sparse/jigsaw-sparse") + " ";
    const std::string data = " --json --data " + shell_quoted(source + "/runtime/examples/data/optdigits.csv") + " --epochs " +
                             (quick ? "10" : "40");
    const int seeds = quick ? 1 : 3;
    const std::string dense = scratch + "/dense.model", cut = scratch + "/pruned.model";
    std::vector<double> dense_right, pruned_right, radix_right, reference_right;
    std::string from_pruned, radix = "train --topology radix:512x2-10 --repeat";
    double pruned_weights = 0, radix_weights = 0, dense_weights = 0, reference_weights = 0;
    for (int seed = 1; seed <= seeds; ++seed) {
        const std::string with_seed = data + " --seed " + std::to_string(seed);
        const std::string whole = output_of(program + "train --topology 64-512-512-10 --model " + shell_quoted(dense) + with_seed);
        dense_right.push_back(last_accuracy(whole));
        dense_weights = number_of(whole, "nonzeros");
        output_of(program + "prune --keep 0.3 --output " + shell_quoted(cut) + " " + shell_quoted(dense));
        from_pruned = "train --from " + shell_quoted(cut);
        const std::string pruned = output_of(program + from_pruned + with_seed);
        pruned_right.push_back(last_accuracy(pruned));
        pruned_weights = number_of(pruned, "nonzeros");
        const std::string small = output_of(program + "train --topology 64-256-256-10" + with_seed);
        reference_right.push_back(last_accuracy(small));
        reference_weights = number_of(small, "nonzeros");
        const std::string net = output_of(program + radix + with_seed);
        radix_right.push_back(last_accuracy(net));
        radix_weights = number_of(net, "nonzeros");
    }
    const auto line = [&](const char *net, const std::vector<double> &right, double weights) {
        Line("sparse", "accuracy_percent", std::accumulate(right.begin(), right.end(), 0.0) / static_cast<double>(right.size()), "%")
            .with("net", net)
            .with("weights", weights)
            .with("seeds", seeds)
            .with("least", *std::min_element(right.begin(), right.end()))
            .with("most", *std::max_element(right.begin(), right.end()))
            .with("images", 449);
    };
    line("dense 64-512-512-10", dense_right, dense_weights);
    line("pruned 64-512-512-10", pruned_right, pruned_weights);
    line("dense 64-256-256-10", reference_right, reference_weights);
    line("radix 512x2-10", radix_right, radix_weights);
    if (!has_mpirun())
        return;
    const std::string last_seed = data + " --seed " + std::to_string(seeds);
    for (const auto &[net, arguments] : {std::pair<std::string, std::string>{"pruned", from_pruned}, {"radix", radix}}) {
        const std::vector<double> one = losses_of(output_of(program + arguments + last_seed));
        for (const int ranks : {2, 4}) {
            const std::vector<double> many = losses_of(output_of(mpirun(ranks, false, arguments + last_seed)));
            double gap = many.size() == one.size() && !one.empty() ? 0 : NAN;
            for (std::size_t i = 0; i < std::min(one.size(), many.size()); ++i)
                gap = std::max(gap, std::abs(one[i] - many[i]) / one[i]);
            Line("sparse", "curve_gap", gap, "1").with("net", net).with("ranks", ranks).with("epochs", one.size());
        }
    }
}

} // namespace

int main(int argc, char **argv)
{
    source = from_environment("top_srcdir", ".");
    build = from_environment("top_builddir", source + "/build");
    data_folder = from_environment("JIGSAW_GRAPHCHALLENGE", source + "/../shared/data/graphchallenge");
    std::set<std::string> parts;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument == "--quick") {
            quick = true;
        } else if (argument == "--data" && i + 1 < argc) {
            data_folder = argv[++i];
        } else if (std::set<std::string>{"match", "speed", "roofline", "train", "digits"}.count(argument) > 0) {
            parts.insert(argument);
        } else {
            std::fprintf(stderr, "bench/sparse: %s? usage: bench/sparse [--data FOLDER] [--quick] [match|speed|roofline|train|digits]...\n",
                         argument.c_str());
            return 2;
        }
    }
    const auto wanted = [&](const char *part) { return parts.empty() || parts.count(part) > 0; };
    char name[] = "/tmp/jigsaw-bench-sparse-XXXXXX";
    if (mkdtemp(name) == nullptr) {
        std::perror("bench/sparse: mkdtemp");
        return 1;
    }
    scratch = name;
    int status = 0;
    try {
        const Challenge files = find_challenge();
        if (wanted("match"))
            run_match(files);
        if (wanted("speed"))
            run_speed(files);
        if (wanted("roofline"))
            run_roofline(files);
        if (wanted("train"))
            run_train(files);
        if (wanted("digits"))
            run_digits();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "bench/sparse: %s\n", error.what());
        status = 1;
    }
    if (std::system(("rm -rf " + shell_quoted(scratch)).c_str()) != 0)
        status = 1;
    return status;
}
