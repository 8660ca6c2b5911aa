// SPDX-License-Identifier: Apache-2.0
// jigsaw-partition: reads a network, writes who owns which row, and says what that costs (jigsaw-partition(1)).
#include "runtime/sparse/formats.hpp"
#include "runtime/sparse/generate.hpp"
#include "runtime/sparse/partition.hpp"

#include <getopt.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>

#include "jigsaw_config.h"

namespace {

using namespace jigsaw::sparse;

constexpr char kUsage[] =
    "usage: jigsaw partition --parts N [OPTIONS] NETWORK\n"
    "       jigsaw partition --parts N [OPTIONS] --generate radix:NEURONS:LAYERS | regular:NEURONS:LAYERS:DEGREE\n"
    "       jigsaw partition --measure PARTITION [OPTIONS] NETWORK\n\n"
    "NETWORK is a folder of Graph Challenge layers, Matrix Market files joined by commas (one per layer), a binary network\n"
    "or a file of row classes.\n\n"
    "  -n, --parts N        how many ranks share the network\n"
    "  -o, --output FILE    write the partition here\n"
    "      --layers N       only the first N layers\n"
    "      --imbalance X    a part may hold this share more than the mean of a layer's non-zeros (default 0: as even as\n"
    "                       rows allow)\n"
    "      --backward       count the words of a training step, forward and backward\n"
    "      --seed N         the same seed, the same partition (default 1)\n"
    "      --effort X       twice as much refines for twice as long (default 1)\n"
    "      --one-phase      each phase for itself, in one pass: to see what the sweeps over all phases gain\n"
    "      --no-merge       keep equal columns and rows apart\n"
    "      --measure FILE   report on this partition and make none\n"
    "      --json           the report as one JSON object, with each layer and the matrix of words between parts\n"
    "  -q, --quiet          no progress\n"
    "      --help, --version\n";

struct Request {
    std::string network, generate, output, measure;
    std::uint32_t layers = 0;
    bool parts_given = false, json = false, quiet = false;
    PartitionOptions options;
};

[[noreturn]] void refuse(const std::string &what)
{
    throw std::invalid_argument(what + "; `jigsaw partition --help` has the options");
}

template <typename T> T number(const std::string &option, std::string_view text)
{
    T value{};
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || problem != std::errc() || end != text.data() + text.size())
        refuse(option + " takes a number, not " + quoted(text));
    return value;
}

Request parse(int argc, char **argv)
{
    enum {
        kLayers = 256, kImbalance, kBackward, kSeed, kEffort, kOnePhase, kNoMerge, kMeasure, kJson, kGenerate, kHelp,
        kVersion
    };
    static const option kLong[] = {
        {"parts", required_argument, nullptr, 'n'},         {"output", required_argument, nullptr, 'o'},
        {"layers", required_argument, nullptr, kLayers},    {"imbalance", required_argument, nullptr, kImbalance},
        {"backward", no_argument, nullptr, kBackward},      {"seed", required_argument, nullptr, kSeed},
        {"effort", required_argument, nullptr, kEffort},    {"one-phase", no_argument, nullptr, kOnePhase},
        {"no-merge", no_argument, nullptr, kNoMerge},       {"measure", required_argument, nullptr, kMeasure},
        {"json", no_argument, nullptr, kJson},              {"generate", required_argument, nullptr, kGenerate},
        {"quiet", no_argument, nullptr, 'q'},               {"help", no_argument, nullptr, kHelp},
        {"version", no_argument, nullptr, kVersion},        {nullptr, 0, nullptr, 0}};
    Request request;
    opterr = 0;
    for (int found; (found = getopt_long(argc, argv, ":n:o:qh", kLong, nullptr)) != -1;) {
        const std::string_view value = optarg != nullptr ? optarg : "";
        switch (found) {
        case 'n':
            request.options.parts = number<std::uint32_t>("--parts", value);
            request.parts_given = true;
            break;
        case 'o': request.output = value; break;
        case 'q': request.quiet = true; break;
        case kLayers: request.layers = number<std::uint32_t>("--layers", value); break;
        case kImbalance: request.options.imbalance = number<double>("--imbalance", value); break;
        case kBackward: request.options.backward = true; break;
        case kSeed: request.options.seed = number<std::uint64_t>("--seed", value); break;
        case kEffort: request.options.effort = number<double>("--effort", value); break;
        case kOnePhase: request.options.look_ahead = false; break;
        case kNoMerge: request.options.merge_equal = false; break;
        case kMeasure: request.measure = value; break;
        case kJson: request.json = true; break;
        case kGenerate: request.generate = value; break;
        case 'h':
        case kHelp: std::fputs(kUsage, stdout); std::exit(0);
        case kVersion: std::printf("jigsaw-partition %s\n", PACKAGE_VERSION); std::exit(0);
        case ':': refuse("option " + quoted(argv[optind - 1]) + " needs a value");
        default: refuse("unknown option " + quoted(argv[optind - 1]));
        }
    }
    if (optind < argc)
        request.network = argv[optind++];
    if (optind < argc)
        refuse("one network at a time, but there is also " + quoted(argv[optind]));
    if (request.network.empty() == request.generate.empty())
        refuse(request.network.empty() ? "no network is given" : "a network is given, and --generate");
    if (request.measure.empty() ? !request.parts_given : request.parts_given || !request.output.empty())
        refuse(request.measure.empty() ? "--parts is missing" : "--measure makes no partition: no --parts, no --output");
    return request;
}

Network generate(const std::string &text, std::uint64_t seed)
{
    std::vector<std::string> words{""};
    for (char c : text)
        c == ':' ? (void)words.emplace_back() : words.back().push_back(c);
    const auto at = [&](std::size_t i) { return number<std::uint32_t>("--generate " + words[0], words[i]); };
    if (words[0] == "radix" && words.size() == 3)
        return radix_net(at(1), at(2), seed);
    if (words[0] == "regular" && words.size() == 4)
        return random_regular(at(1), at(2), at(3), seed);
    refuse("--generate takes radix:NEURONS:LAYERS or regular:NEURONS:LAYERS:DEGREE, not " + quoted(text));
}

/// Told before the work, not after it: that the result would have no place.
void check_place(const std::string &path)
{
    if (path.empty())
        return;
    const std::size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
    struct stat status {};
    if (stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
        throw Error(path + ": is a folder");
    if (access(folder.c_str(), W_OK | X_OK) != 0)
        throw Error(path + ": cannot be created: " + std::strerror(errno));
}

std::string json(const Traffic &traffic, bool whole, std::uint32_t parts)
{
    const auto real = [](double value) {
        char text[32];
        std::snprintf(text, sizeof text, "%.6g", value);
        return std::string(text);
    };
    std::string text = "{\"volume_words\":" + std::to_string(traffic.words) +
                       ",\"backward_words\":" + std::to_string(traffic.backward_words) +
                       ",\"messages\":" + std::to_string(traffic.messages) +
                       ",\"largest_message\":" + std::to_string(traffic.largest_message) +
                       ",\"imbalance\":" + real(traffic.imbalance);
    if (whole) {
        text += ",\"layers\":[";
        for (const LayerTraffic &layer : traffic.layers)
            text += std::string(&layer == traffic.layers.data() ? "" : ",") +
                    "{\"volume_words\":" + std::to_string(layer.words) + ",\"messages\":" + std::to_string(layer.messages) +
                    ",\"largest_message\":" + std::to_string(layer.largest_message) +
                    ",\"imbalance\":" + real(layer.imbalance) + "}";
        text += "],\"matrix\":[";
        for (std::uint32_t from = 0; from < parts; ++from) {
            text += from == 0 ? "[" : ",[";
            for (std::uint32_t to = 0; to < parts; ++to)
                text += (to == 0 ? "" : ",") + std::to_string(traffic.matrix[std::size_t{from} * parts + to]);
            text += "]";
        }
        text += "]";
    }
    return text + "}";
}

void print_row(const char *name, const Traffic &traffic, const Traffic &whole)
{
    using Wide = unsigned long long;
    const double share =
        whole.words > 0 ? 100.0 * static_cast<double>(traffic.words) / static_cast<double>(whole.words) : 100;
    std::printf("%-12s %12llu %7.1f %12llu %10llu %10llu %9.2f\n", name, Wide{traffic.words}, share,
                Wide{traffic.backward_words}, Wide{traffic.messages}, Wide{traffic.largest_message},
                100 * traffic.imbalance);
}

void run(const Request &request)
{
    check_place(request.output);
    Network network = request.generate.empty() ? read_network(request.network, request.layers)
                                               : generate(request.generate, request.options.seed);
    if (request.layers > 0 && network.layers.size() > request.layers)
        network.layers.resize(request.layers);
    PartitionOptions options = request.options;
    const bool draw = !request.quiet && isatty(STDERR_FILENO) != 0;
    int drawn = -1;
    options.progress = [&](const char *stage, double share) {
        const int percent = static_cast<int>(100 * share);
        if (draw && percent != drawn)
            std::fprintf(stderr, "\r%s: %3d %%", stage, drawn = percent);
    };
    const auto start = std::chrono::steady_clock::now();
    const Partition partition =
        request.measure.empty() ? partition_network(network, options) : read_partition(request.measure);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (drawn >= 0)
        std::fputs("\r\033[K", stderr);
    const std::uint32_t parts = partition.parts;
    const Traffic traffic = measure_traffic(network, partition);
    const Traffic random = measure_traffic(network, random_partition(network, parts, request.options.seed));
    const Traffic contiguous = measure_traffic(network, contiguous_partition(network, parts));
    if (!request.output.empty())
        write_partition(request.output, partition);
    if (request.json) {
        std::printf("{\"parts\":%u,\"inputs\":%u,\"outputs\":%u,\"num_layers\":%zu,\"nonzeros\":%llu,\"seed\":%llu,"
                    "\"seconds\":%.3f,\n\"partition\":%s,\n\"random\":%s,\n\"contiguous\":%s}\n",
                    parts, network.inputs(), network.outputs(), network.layers.size(),
                    static_cast<unsigned long long>(network.nonzeros()),
                    static_cast<unsigned long long>(request.options.seed), seconds, json(traffic, true, parts).c_str(),
                    json(random, false, parts).c_str(), json(contiguous, false, parts).c_str());
        return;
    }
    std::printf("%u inputs, %zu layers, %llu non-zeros, %u parts", network.inputs(), network.layers.size(),
                static_cast<unsigned long long>(network.nonzeros()), parts);
    if (request.measure.empty())
        std::printf(", %.1f s", seconds);
    std::printf("\n\n%-12s %12s %7s %12s %10s %10s %9s\n", "partition", "words", "%", "backward", "messages", "largest",
                "uneven %");
    print_row(request.measure.empty() ? "jigsaw" : "measured", traffic, random);
    print_row("random", random, random);
    print_row("contiguous", contiguous, random);
    std::puts("\nwords: numbers sent per vector forward; backward: the same back, in training; messages: pairs of parts\n"
              "and layers that send, per pass; largest: words of the largest of these; uneven: the fullest part over the\n"
              "mean.");
}

} // namespace

int main(int argc, char **argv)
{
    try {
        const Request request = parse(argc, argv);
        run(request);
        if (std::fflush(stdout) != 0)
            throw Error(std::string("standard output: ") + std::strerror(errno));
        return 0;
    } catch (const std::invalid_argument &error) {
        std::fprintf(stderr, "jigsaw-partition: %s\n", error.what());
        return 2;
    } catch (const std::bad_alloc &) {
        std::fputs("jigsaw-partition: not enough memory for this network\n", stderr);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "jigsaw-partition: %s\n", error.what());
    }
    return 1;
}
