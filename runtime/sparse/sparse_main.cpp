// SPDX-License-Identifier: Apache-2.0
// jigsaw-sparse: runs, trains and prunes sparse networks, on one rank or under mpirun or srun --mpi=pmix (jigsaw-sparse(1)).
#include "runtime/sparse/formats.hpp"
#include "runtime/sparse/inference.hpp"
#include "runtime/sparse/partition.hpp"
#include "runtime/sparse/random.hpp"
#include "runtime/sparse/trainer.hpp"

#include "jigsaw_config.h"
#ifdef HAVE_MPI
#include "runtime/sparse/mpi_comm.hpp"
#endif

#include <getopt.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <numeric>

namespace {

using namespace jigsaw::sparse;

constexpr char kUsage[] =
    "usage: jigsaw sparse infer [OPTIONS] --inputs FILE NETWORK\n"
    "       jigsaw sparse infer [OPTIONS] --data FILE MODEL\n"
    "       jigsaw sparse train [OPTIONS] --data FILE (--topology TEXT | --from FILE | --resume MODEL)\n"
    "       jigsaw sparse prune --keep SHARE --output MODEL MODEL\n\n"
    "On several ranks: mpirun -n 4 jigsaw-sparse ..., or srun --mpi=pmix jigsaw-sparse ...\n\n"
    "  infer: what a network of the Graph Challenge's kind leaves of its inputs, or the accuracy of a trained model\n"
    "      --inputs FILE      lines `sample neuron value` (.gz is unpacked)\n"
    "      --samples N        only the first N\n"
    "      --layers N         only the first N layers\n"
    "      --bias X, --clip X instead of the network's own\n"
    "      --categories FILE  what must be left; the exit status is 3 where it is not\n"
    "      --output FILE      write what is left, a category per line\n"
    "      --batch N          samples at a time (default 16384)\n"
    "  train:\n"
    "      --data FILE        lines of numbers joined by commas, the last the label\n"
    "      --test N           the last N samples are for the score only (default: a quarter)\n"
    "      --repeat           repeat the features until there are as many as the network takes\n"
    "      --topology TEXT    64-256-10: dense layers; radix:256x4-10: a RadiX-Net's layers and a dense one\n"
    "      --from FILE        a network's pattern with fresh weights, or a model's weights\n"
    "      --resume MODEL     go on where it was written, on any number of ranks\n"
    "      --model FILE       write the model here when done, and every --every N epochs (default 1)\n"
    "      --epochs N (30), --batch N (64), --optimizer adam|sgd, --rate X (0.001; sgd 0.05), --momentum X (0.9),\n"
    "      --decay X (0), --loss softmax|squared, --clip X (0: none), --seed N\n"
    "  prune: --keep SHARE of each layer's weights, the largest; --keep-last SHARE of the last layer's (default 1)\n"
    "  all:\n"
    "      --partition P      contiguous, random or a file of jigsaw partition (default contiguous)\n"
    "      --threads N        of each rank (default 1)\n"
    "      --patience S       how long a silent rank is waited for (default 120)\n"
    "      --json             one JSON object per epoch or run\n"
    "  -q, --quiet            no progress\n"
    "      --help, --version\n";

struct Request {
    std::string command, file, inputs, categories, output, data, topology, from, resume, model, partition = "contiguous";
    std::uint32_t samples = 0, layers = 0, batch = 0, epochs = 30, every = 1, threads = 1;
    std::int64_t test = -1;
    std::uint64_t seed = 1;
    double bias = NAN, clip = NAN, rate = NAN, momentum = .9, decay = 0, keep = NAN, keep_last = 1, patience = 120;
    Optimizer optimizer = Optimizer::adam;
    Loss loss = Loss::softmax;
    bool repeat = false, json = false, quiet = false, help = false, version = false;
};

/// A request that makes no sense; the exit status is 2.
struct UsageError : Error {
    using Error::Error;
};

[[noreturn]] void refuse(const std::string &what)
{
    throw UsageError(what + "; `jigsaw sparse --help` has the options");
}

template <typename T> T number(const std::string &option, std::string_view text, T least, T most)
{
    T value{};
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || problem != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most)) {
        std::string limits = std::to_string(least) + " to " + std::to_string(most);
        if constexpr (std::is_floating_point_v<T>) {
            char numbers[64];
            std::snprintf(numbers, sizeof numbers, "%g to %g", least, most);
            limits = numbers;
        }
        refuse(option + " takes a number from " + limits + ", not " + quoted(text));
    }
    return value;
}

Request parse(int argc, char **argv)
{
    enum {
        kInputs = 256, kSamples, kLayers, kBias, kClip, kCategories, kOutput, kBatch, kData, kTest, kRepeat, kTopology, kFrom,
        kResume, kModel, kEvery, kEpochs, kOptimizer, kRate, kMomentum, kDecay, kLoss, kSeed, kKeep, kKeepLast, kPartition, kThreads,
        kPatience, kJson, kHelp, kVersion
    };
    static const option kLong[] = {
        {"inputs", required_argument, nullptr, kInputs},         {"samples", required_argument, nullptr, kSamples},
        {"layers", required_argument, nullptr, kLayers},         {"bias", required_argument, nullptr, kBias},
        {"clip", required_argument, nullptr, kClip},             {"categories", required_argument, nullptr, kCategories},
        {"output", required_argument, nullptr, kOutput},         {"batch", required_argument, nullptr, kBatch},
        {"data", required_argument, nullptr, kData},             {"test", required_argument, nullptr, kTest},
        {"repeat", no_argument, nullptr, kRepeat},               {"topology", required_argument, nullptr, kTopology},
        {"from", required_argument, nullptr, kFrom},             {"resume", required_argument, nullptr, kResume},
        {"model", required_argument, nullptr, kModel},           {"every", required_argument, nullptr, kEvery},
        {"epochs", required_argument, nullptr, kEpochs},         {"optimizer", required_argument, nullptr, kOptimizer},
        {"rate", required_argument, nullptr, kRate},             {"momentum", required_argument, nullptr, kMomentum},
        {"loss", required_argument, nullptr, kLoss},             {"seed", required_argument, nullptr, kSeed},
        {"keep", required_argument, nullptr, kKeep},             {"keep-last", required_argument, nullptr, kKeepLast},
        {"partition", required_argument, nullptr, kPartition},   {"threads", required_argument, nullptr, kThreads},
        {"decay", required_argument, nullptr, kDecay},
        {"patience", required_argument, nullptr, kPatience},     {"json", no_argument, nullptr, kJson},
        {"quiet", no_argument, nullptr, 'q'},                    {"help", no_argument, nullptr, kHelp},
        {"version", no_argument, nullptr, kVersion},             {nullptr, 0, nullptr, 0}};
    constexpr std::uint32_t many = 1U << 30;
    Request r;
    opterr = 0;
    for (int found; (found = getopt_long(argc, argv, ":qh", kLong, nullptr)) != -1;) {
        const std::string value = optarg != nullptr ? optarg : "";
        switch (found) {
        case kInputs: r.inputs = value; break;
        case kSamples: r.samples = number<std::uint32_t>("--samples", value, 1, many); break;
        case kLayers: r.layers = number<std::uint32_t>("--layers", value, 1, many); break;
        case kBias: r.bias = number<double>("--bias", value, -1e6, 1e6); break;
        case kClip: r.clip = number<double>("--clip", value, 0, 1e30); break;
        case kCategories: r.categories = value; break;
        case kOutput: r.output = value; break;
        case kBatch: r.batch = number<std::uint32_t>("--batch", value, 1, many); break;
        case kData: r.data = value; break;
        case kTest: r.test = number<std::int64_t>("--test", value, 0, many); break;
        case kRepeat: r.repeat = true; break;
        case kTopology: r.topology = value; break;
        case kFrom: r.from = value; break;
        case kResume: r.resume = value; break;
        case kModel: r.model = value; break;
        case kEvery: r.every = number<std::uint32_t>("--every", value, 1, many); break;
        case kEpochs: r.epochs = number<std::uint32_t>("--epochs", value, 1, many); break;
        case kOptimizer:
            if (value != "adam" && value != "sgd")
                refuse("--optimizer is adam or sgd, not " + quoted(value));
            r.optimizer = value == "adam" ? Optimizer::adam : Optimizer::sgd;
            break;
        case kRate: r.rate = number<double>("--rate", value, 0, 1e6); break;
        case kMomentum: r.momentum = number<double>("--momentum", value, 0, .999999); break;
        case kDecay: r.decay = number<double>("--decay", value, 0, 1e3); break;
        case kLoss:
            if (value != "softmax" && value != "squared")
                refuse("--loss is softmax or squared, not " + quoted(value));
            r.loss = value == "softmax" ? Loss::softmax : Loss::squared;
            break;
        case kSeed: r.seed = number<std::uint64_t>("--seed", value, 0, ~std::uint64_t{0}); break;
        case kKeep: r.keep = number<double>("--keep", value, 1e-9, 1); break;
        case kKeepLast: r.keep_last = number<double>("--keep-last", value, 1e-9, 1); break;
        case kPartition: r.partition = value; break;
        case kThreads: r.threads = number<std::uint32_t>("--threads", value, 1, 1024); break;
        case kPatience: r.patience = number<double>("--patience", value, 1, 1e6); break;
        case kJson: r.json = true; break;
        case 'q': r.quiet = true; break;
        case 'h':
        case kHelp: r.help = true; return r;
        case kVersion: r.version = true; return r;
        case ':': refuse("option " + quoted(argv[optind - 1]) + " needs a value");
        default: refuse("unknown option " + quoted(argv[optind - 1]));
        }
    }
    if (optind < argc)
        r.command = argv[optind++];
    if (optind < argc)
        r.file = argv[optind++];
    if (optind < argc)
        refuse("one file at a time, but there is also " + quoted(argv[optind]));
    return r;
}

void check_request(const Request &r)
{
    if (r.command != "infer" && r.command != "train" && r.command != "prune")
        refuse(r.command.empty() ? "infer, train or prune?" : quoted(r.command) + " is not infer, train or prune");
    if (r.command == "infer") {
        if (r.file.empty())
            refuse("no network is given");
        if (r.inputs.empty() == r.data.empty())
            refuse(r.inputs.empty() ? "--inputs or --data is missing" : "--inputs (of a network) and --data (of a model) exclude each other");
        if (!r.data.empty() && (!r.categories.empty() || !r.output.empty()))
            refuse("--categories and --output are for --inputs");
    } else if (r.command == "train") {
        if (!r.file.empty())
            refuse("train takes --topology, --from or --resume, not " + quoted(r.file));
        if (r.data.empty())
            refuse("--data is missing");
        if ((r.topology.empty() ? 0 : 1) + (r.from.empty() ? 0 : 1) + (r.resume.empty() ? 0 : 1) != 1)
            refuse("one of --topology, --from and --resume says what to train");
    } else {
        if (r.file.empty() || r.output.empty() || std::isnan(r.keep))
            refuse("prune needs --keep, --output and a model");
    }
}

/// Told before the work, not after it: that a result would have no place.
void check_place(const std::string &path)
{
    if (path.empty())
        return;
    const std::size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
    struct stat about {};
    if (stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode))
        throw Error(path + ": is a folder");
    if (access(folder.c_str(), W_OK | X_OK) != 0)
        throw Error(path + ": cannot be created: " + std::strerror(errno));
}

Partition partition_for(const Request &r, const Network &network, int ranks)
{
    const auto parts = static_cast<std::uint32_t>(ranks);
    if (r.partition == "contiguous")
        return contiguous_partition(network, parts);
    if (r.partition == "random")
        return random_partition(network, parts, r.seed);
    const Partition partition = read_partition(r.partition);
    if (partition.parts != parts)
        throw Error(r.partition + ": for " + std::to_string(partition.parts) + " ranks, but there are " + std::to_string(parts));
    try {
        check(partition, network);
    } catch (const Error &error) {
        throw Error(r.partition + ": does not fit the network: " + error.what());
    }
    return partition;
}

/// What each rank counted, known to all.
std::vector<double> of_all_ranks(Comm &comm, double mine)
{
    std::vector<double> all(static_cast<std::size_t>(comm.size()), 0.0);
    all[static_cast<std::size_t>(comm.rank())] = mine;
    comm.sum(all.data(), all.size());
    return all;
}

std::string json_list(const std::vector<double> &values)
{
    std::string text = "[";
    for (const double value : values)
        text += (text.size() == 1 ? "" : ",") + std::to_string(static_cast<std::uint64_t>(value));
    return text + "]";
}

/// Everything that may be wrong with options and files shows in the constructors, before ranks wait for each other.
class Job {
public:
    virtual ~Job() = default;
    virtual int run(Comm &comm) = 0;
};

class Infer : public Job {
public:
    Infer(const Request &r, int ranks) : r_(r)
    {
        check_place(r.output);
        network_ = read_network(r.file, r.layers);
        if (!std::isnan(r.bias))
            network_.bias = static_cast<float>(r.bias);
        if (!std::isnan(r.clip))
            network_.clip = static_cast<float>(r.clip);
        if (network_.bias > 0)
            throw Error("a bias above 0 would wake dead neurons; this engine takes the Graph Challenge's, below 0");
        samples_ = read_graph_challenge_inputs(r.inputs, network_.inputs(), r.samples);
        if (!r.categories.empty()) {
            wanted_ = read_categories(r.categories);
            wanted_.erase(std::upper_bound(wanted_.begin(), wanted_.end(), samples_.count()), wanted_.end());
        }
        partition_ = partition_for(r, network_, ranks);
    }

    int run(Comm &comm) override
    {
        const NetworkShare share = share_of(network_, partition_, comm.rank());
        Workers workers(r_.threads);
        InferenceOptions options;
        if (r_.batch > 0)
            options.batch = r_.batch;
        const bool draw = comm.rank() == 0 && !r_.quiet && isatty(STDERR_FILENO) != 0;
        if (draw)
            options.progress = [&](std::size_t layer, std::uint32_t alive) {
                std::fprintf(stderr, "\rlayer %zu of %zu: %u alive   ", layer, network_.layers.size(), alive);
            };
        Inference engine(network_, share, comm, workers, options);
        const InferenceResult result = engine.run(samples_);
        if (draw)
            std::fputs("\r\033[K", stderr);
        const std::vector<double> bytes = of_all_ranks(comm, static_cast<double>(result.traffic.bytes)),
                                  messages = of_all_ranks(comm, static_cast<double>(result.traffic.messages)),
                                  done = of_all_ranks(comm, static_cast<double>(result.multiplications));
        std::vector<std::uint32_t> categories;
        for (const std::uint32_t sample : result.alive)
            categories.push_back(sample + 1);
        const bool match = categories == wanted_;
        if (comm.rank() == 0)
            report(comm, result, categories, match, bytes, messages, done);
        return r_.categories.empty() || match ? 0 : 3;
    }

private:
    void report(Comm &comm, const InferenceResult &result, const std::vector<std::uint32_t> &categories, bool match,
                const std::vector<double> &bytes, const std::vector<double> &messages, const std::vector<double> &done) const
    {
        const double edges = static_cast<double>(samples_.count()) * static_cast<double>(network_.nonzeros());
        if (!r_.output.empty()) {
            std::string text;
            for (const std::uint32_t category : categories)
                text += std::to_string(category) + "\n";
            NewFile file(r_.output);
            file.write(text);
            file.commit();
        }
        const double multiplied = std::accumulate(done.begin(), done.end(), 0.0);
        if (r_.json) {
            std::printf("{\"ranks\":%d,\"threads\":%u,\"samples\":%u,\"layers\":%zu,\"alive\":%zu,", comm.size(), r_.threads,
                        samples_.count(), network_.layers.size(), categories.size());
            if (!r_.categories.empty())
                std::printf("\"categories_match\":%s,", match ? "true" : "false");
            std::printf("\"seconds\":%.6g,\"edges_per_s\":%.6g,\"multiplications\":%.0f,\"bytes\":%s,\"messages\":%s}\n",
                        result.seconds, edges / result.seconds, multiplied, json_list(bytes).c_str(), json_list(messages).c_str());
            return;
        }
        std::printf("%u samples, %zu layers, %d ranks of %u threads: %zu left in %.3f s\n", samples_.count(), network_.layers.size(),
                    comm.size(), r_.threads, categories.size(), result.seconds);
        std::printf("%.4g edges/s as the Graph Challenge counts; %.3g of all products done, %.4g/s\n", edges / result.seconds,
                    multiplied / edges, multiplied / result.seconds);
        if (comm.size() > 1)
            std::printf("bytes sent by each rank %s, messages %s\n", json_list(bytes).c_str(), json_list(messages).c_str());
        if (!r_.categories.empty())
            std::printf("categories %s (%zu wanted)\n", match ? "match" : "DO NOT MATCH", wanted_.size());
    }

    Request r_;
    Network network_;
    Samples samples_;
    std::vector<std::uint32_t> wanted_;
    Partition partition_;
};

Samples data_for(const Request &r, const Network &network)
{
    Samples samples = read_labelled(r.data);
    if (samples.features != network.inputs()) {
        if (!r.repeat || samples.features > network.inputs())
            throw Error(r.data + ": " + std::to_string(samples.features) + " features, but the network takes " +
                        std::to_string(network.inputs()) + (samples.features < network.inputs() ? "; --repeat repeats them" : ""));
        samples = repeat_features(samples, network.inputs());
    }
    for (std::uint32_t s = 0; s < samples.count(); ++s)
        if (samples.label[s] >= network.outputs())
            throw Error(r.data + ":" + std::to_string(s + 1) + ": label " + std::to_string(samples.label[s]) +
                        ", but the network has " + std::to_string(network.outputs()) + " outputs");
    return samples;
}

std::vector<std::uint32_t> numbers(std::uint32_t first, std::uint32_t last)
{
    std::vector<std::uint32_t> all(last - first);
    std::iota(all.begin(), all.end(), first);
    return all;
}

double percent(const Score &score) { return 100.0 * static_cast<double>(score.right) / static_cast<double>(std::max<std::uint64_t>(score.samples, 1)); }
double mean_loss(const Score &score) { return score.loss / static_cast<double>(std::max<std::uint64_t>(score.samples, 1)); }

class Train : public Job {
public:
    Train(const Request &r, int ranks) : r_(r)
    {
        check_place(r.model);
        if (!r.resume.empty()) {
            from_ = read_checkpoint(r.resume);
            if (from_.optimizer == Optimizer::none)
                throw Error(r.resume + ": has no training to resume; --from starts one with its weights");
            r_.optimizer = from_.optimizer;
            r_.seed = from_.seed;
        } else if (!r.from.empty() && is_model(r.from)) {
            from_.model = read_checkpoint(r.from).model;
        } else {
            Network network = r.topology.empty() ? read_network(r.from, 0) : parse_topology(r.topology, r.seed);
            network.clip = 0;
            from_.model = fresh_model(std::move(network), r.seed);
        }
        Network &network = from_.model.network;
        if (!std::isnan(r.clip))
            network.clip = static_cast<float>(r.clip);
        samples_ = data_for(r, network);
        const std::uint32_t test = r.test < 0 ? samples_.count() / 4 : static_cast<std::uint32_t>(std::min<std::int64_t>(r.test, samples_.count()));
        if (test >= samples_.count())
            throw Error(r.data + ": " + std::to_string(samples_.count()) + " samples, and --test takes them all");
        train_ = numbers(0, samples_.count() - test);
        test_ = numbers(samples_.count() - test, samples_.count());
        partition_ = partition_for(r, network, ranks);
    }

    int run(Comm &comm) override
    {
        Workers workers(r_.threads);
        TrainingOptions options;
        options.optimizer = r_.optimizer;
        options.loss = r_.loss;
        options.rate = static_cast<float>(!std::isnan(r_.rate) ? r_.rate : r_.optimizer == Optimizer::adam ? 1e-3 : .05);
        options.momentum = static_cast<float>(r_.momentum);
        options.decay = static_cast<float>(r_.decay);
        Trainer trainer(from_, partition_, comm, workers, options);
        for (std::uint64_t epoch = from_.epoch; epoch < r_.epochs; ++epoch) {
            run_epoch(comm, trainer, epoch);
            if (!r_.model.empty() && ((epoch + 1) % r_.every == 0 || epoch + 1 == r_.epochs))
                save(comm, trainer, epoch + 1);
        }
        return 0;
    }

private:
    static bool is_model(const std::string &path)
    {
        struct stat about {};
        return path.find(',') == std::string::npos && stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode) && is_checkpoint(path);
    }

    void run_epoch(Comm &comm, Trainer &trainer, std::uint64_t epoch)
    {
        const auto start = std::chrono::steady_clock::now();
        const SentTraffic before = comm.traffic();
        std::vector<std::uint32_t> order = train_;
        Random random(r_.seed, epoch + 1); // each epoch by itself: a resumed one sees the same order
        random.shuffle(order);
        const std::size_t batch = r_.batch > 0 ? r_.batch : 64;
        Score sum;
        std::uint64_t steps = 0;
        for (std::size_t at = 0; at < order.size(); at += batch, ++steps) {
            const std::vector<std::uint32_t> which(order.begin() + static_cast<std::ptrdiff_t>(at),
                                                   order.begin() + static_cast<std::ptrdiff_t>(std::min(at + batch, order.size())));
            const Score one = trainer.step(samples_, which);
            sum.loss += one.loss;
            sum.right += one.right;
            sum.samples += one.samples;
        }
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        const SentTraffic after = comm.traffic();
        const std::vector<double> bytes = of_all_ranks(comm, static_cast<double>(after.bytes - before.bytes) / static_cast<double>(steps)),
                                  messages = of_all_ranks(comm, static_cast<double>(after.messages - before.messages) / static_cast<double>(steps));
        const Score test = trainer.evaluate(samples_, test_);
        if (!std::isfinite(sum.loss))
            throw Error("the loss is no longer finite in epoch " + std::to_string(epoch + 1) + "; try a smaller --rate");
        if (comm.rank() != 0)
            return;
        if (r_.json)
            std::printf("{\"epoch\":%llu,\"ranks\":%d,\"nonzeros\":%llu,\"loss\":%.9g,\"train_percent\":%.4f,\"test_loss\":%.9g,"
                        "\"test_percent\":%.4f,\"seconds\":%.6g,\"step_seconds\":%.6g,\"step_bytes\":%s,\"step_messages\":%s}\n",
                        static_cast<unsigned long long>(epoch + 1), comm.size(),
                        static_cast<unsigned long long>(from_.model.network.nonzeros()), mean_loss(sum), percent(sum), mean_loss(test),
                        percent(test), seconds, seconds / static_cast<double>(steps), json_list(bytes).c_str(), json_list(messages).c_str());
        else if (!r_.quiet || epoch + 1 == r_.epochs)
            std::printf("epoch %llu: loss %.5f, train %.2f %%, test %.2f %%, %.2f s\n", static_cast<unsigned long long>(epoch + 1),
                        mean_loss(sum), percent(sum), percent(test), seconds);
        std::fflush(stdout);
    }

    void save(Comm &comm, Trainer &trainer, std::uint64_t epoch)
    {
        Checkpoint all = trainer.collect();
        all.epoch = epoch;
        all.seed = r_.seed;
        if (comm.rank() == 0)
            write_checkpoint(r_.model, all);
    }

    Request r_;
    Checkpoint from_;
    Samples samples_;
    std::vector<std::uint32_t> train_, test_;
    Partition partition_;
};

class Evaluate : public Job {
public:
    Evaluate(const Request &r, int ranks) : r_(r)
    {
        from_.model = read_checkpoint(r.file).model;
        samples_ = data_for(r, from_.model.network);
        const std::uint32_t test = r.test < 0 ? samples_.count() : static_cast<std::uint32_t>(std::min<std::int64_t>(r.test, samples_.count()));
        test_ = numbers(samples_.count() - test, samples_.count());
        partition_ = partition_for(r, from_.model.network, ranks);
    }

    int run(Comm &comm) override
    {
        Workers workers(r_.threads);
        TrainingOptions options;
        options.optimizer = Optimizer::none;
        options.loss = r_.loss;
        Trainer trainer(from_, partition_, comm, workers, options);
        const Score score = trainer.evaluate(samples_, test_);
        if (comm.rank() != 0)
            return 0;
        const auto nonzeros = static_cast<unsigned long long>(from_.model.network.nonzeros());
        if (r_.json)
            std::printf("{\"ranks\":%d,\"samples\":%llu,\"nonzeros\":%llu,\"loss\":%.9g,\"percent\":%.4f}\n", comm.size(),
                        static_cast<unsigned long long>(score.samples), nonzeros, mean_loss(score), percent(score));
        else
            std::printf("%llu samples, %llu weights: loss %.5f, %.2f %% right\n", static_cast<unsigned long long>(score.samples),
                        nonzeros, mean_loss(score), percent(score));
        return 0;
    }

private:
    Request r_;
    Checkpoint from_;
    Samples samples_;
    std::vector<std::uint32_t> test_;
    Partition partition_;
};

class Prune : public Job {
public:
    Prune(const Request &r, int ranks) : r_(r)
    {
        if (ranks > 1)
            throw Error("prune runs on one rank");
        check_place(r.output);
        model_ = read_checkpoint(r.file).model;
    }

    int run(Comm &) override
    {
        Checkpoint result;
        result.model = pruned(model_, r_.keep, r_.keep_last);
        write_checkpoint(r_.output, result);
        const auto before = static_cast<unsigned long long>(model_.network.nonzeros()),
                   after = static_cast<unsigned long long>(result.model.network.nonzeros());
        if (r_.json)
            std::printf("{\"nonzeros_before\":%llu,\"nonzeros\":%llu}\n", before, after);
        else
            std::printf("%llu of %llu weights kept\n", after, before);
        return 0;
    }

private:
    Request r_;
    Model model_;
};

std::unique_ptr<Job> make_job(const Request &r, int ranks)
{
    check_request(r);
    if (r.command == "infer" && !r.inputs.empty())
        return std::make_unique<Infer>(r, ranks);
    if (r.command == "infer")
        return std::make_unique<Evaluate>(r, ranks);
    if (r.command == "train")
        return std::make_unique<Train>(r, ranks);
    return std::make_unique<Prune>(r, ranks);
}

int answer(const Request &r)
{
    if (r.help)
        std::fputs(kUsage, stdout);
    else
        std::printf("jigsaw-sparse %s\n", PACKAGE_VERSION);
    return 0;
}

/// What is wrong with the request or its files, as text for all ranks; the status goes in front.
template <typename Body> std::string complaint_of(const Body &body)
{
    try {
        body();
        return "";
    } catch (const UsageError &error) {
        return std::string("2") + error.what();
    } catch (const std::bad_alloc &) {
        return "1not enough memory";
    } catch (const std::exception &error) {
        return std::string("1") + error.what();
    }
}

int complain(const std::string &complaint)
{
    std::fprintf(stderr, "jigsaw-sparse: %s\n", complaint.c_str() + 1);
    return complaint[0] - '0';
}

bool launched_by_mpi() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr; }

int run_alone(int argc, char **argv)
{
    Request request;
    std::unique_ptr<Job> job;
    int status = 0;
    const std::string complaint = complaint_of([&] {
        const char *tasks = std::getenv("SLURM_STEP_NUM_TASKS");
        if (tasks != nullptr && std::strcmp(tasks, "1") != 0 && std::getenv("SLURM_STEP_ID") != nullptr)
            throw Error("srun started " + std::string(tasks) + " tasks that do not know of each other; use srun --mpi=pmix");
        request = parse(argc, argv);
        if (request.help || request.version)
            return;
        job = make_job(request, 1);
        AloneComm comm;
        status = job->run(comm);
    });
    if (!complaint.empty())
        return complain(complaint);
    return job == nullptr ? answer(request) : status;
}

#ifdef HAVE_MPI
int run_ranks(int argc, char **argv)
{
    Mpi mpi(&argc, &argv);
    Request request;
    std::unique_ptr<Job> job;
    std::unique_ptr<Comm> comm;
    const std::string mine = complaint_of([&] {
        request = parse(argc, argv);
        if (request.help || request.version)
            return;
        job = make_job(request, mpi.size());
        comm = make_mpi_comm(request.patience);
    });
    // One rank speaks where all have the same trouble, and none waits for one that stopped.
    int who = 0;
    const std::string complaint = mpi.first_complaint(mine, &who);
    if (!complaint.empty())
        return mpi.rank() == who ? complain(complaint) : complaint[0] - '0';
    if (job == nullptr)
        return mpi.rank() == 0 ? answer(request) : 0;
    int status = 0;
    const std::string trouble = complaint_of([&] { status = job->run(*comm); });
    if (!trouble.empty()) {
        std::fprintf(stderr, "jigsaw-sparse: rank %d: %s; ending all ranks\n", mpi.rank(), trouble.c_str() + 1);
        mpi.abort(1);
    }
    job.reset();
    comm.reset();
    return status;
}
#endif

} // namespace

int main(int argc, char **argv)
{
    std::signal(SIGPIPE, SIG_IGN);
#ifdef HAVE_MPI
    if (launched_by_mpi())
        return run_ranks(argc, argv);
#else
    if (launched_by_mpi() && std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr && std::strcmp(std::getenv("OMPI_COMM_WORLD_SIZE"), "1") != 0) {
        std::fputs("jigsaw-sparse: built without MPI (see configure's table): one rank only\n", stderr);
        return 1;
    }
#endif
    return run_alone(argc, argv);
}
