// SPDX-License-Identifier: Apache-2.0
#include "runtime/sparse/model.hpp"

#include "runtime/sparse/formats.hpp"
#include "runtime/sparse/generate.hpp"
#include "runtime/sparse/random.hpp"
#include "runtime/sparse/text.hpp"

#include <cmath>
#include <cstring>

namespace jigsaw::sparse {

namespace {

constexpr char kMagic[8] = {'J', 'G', 'S', 'P', 'C', 'K', 'P', 'T'};
constexpr std::uint32_t kVersion = 1, kByteOrder = 0x01020304;

struct Header {
    char magic[8];
    std::uint32_t version, byte_order, layers, optimizer;
    float clip, reserved;
    std::uint64_t epoch, step, seed, bytes, checksum; ///< checksum: of all that follows, then of this with 0 in its place
};
static_assert(sizeof(Header) == 72);

struct LayerHeader {
    std::uint32_t rows, columns;
    std::uint64_t nonzeros;
};

/// FNV's step on words of 8 bytes, then on the bytes that are left.
class Sum {
public:
    void add(const void *data, std::size_t bytes)
    {
        const auto *at = static_cast<const unsigned char *>(data);
        for (; bytes >= 8; bytes -= 8, at += 8) {
            std::uint64_t word;
            std::memcpy(&word, at, 8);
            mix(word);
        }
        for (; bytes > 0; --bytes, ++at)
            mix(*at);
    }
    std::uint64_t value() const { return value_; }

private:
    void mix(std::uint64_t word)
    {
        value_ = (value_ ^ word) * 0x100000001b3u;
        value_ ^= value_ >> 29; // high bytes must reach the low ones
    }
    std::uint64_t value_ = 0xcbf29ce484222325u;
};

/// Arrays of a layer in the order of the file.
template <typename Layer, typename Bias, typename Moment, typename Body>
void each_array(Layer &matrix, Bias &bias, Moment *weight, Moment *biases, Optimizer optimizer, const Body &body)
{
    body(matrix.row_start, std::uint64_t{matrix.rows} + 1);
    body(matrix.column, matrix.column.size());
    body(matrix.value, matrix.column.size());
    body(bias, matrix.rows);
    if (optimizer != Optimizer::none) {
        body(weight->first, matrix.column.size());
        body(biases->first, matrix.rows);
    }
    if (optimizer == Optimizer::adam) {
        body(weight->second, matrix.column.size());
        body(biases->second, matrix.rows);
    }
}

class Reader {
public:
    Reader(const std::string &name, const unsigned char *data, std::size_t bytes) : name_(name), data_(data), bytes_(bytes) {}
    [[noreturn]] void fail(const std::string &what) const
    {
        throw Error(name_ + ": byte " + std::to_string(at_) + ": " + what);
    }
    void take(void *to, std::uint64_t bytes, const char *what)
    {
        if (bytes > bytes_ - at_)
            fail(std::string(what) + ": the file ends too early");
        if (bytes > 0)
            std::memcpy(to, data_ + at_, bytes);
        at_ += bytes;
    }
    std::size_t left() const { return bytes_ - at_; }

private:
    const std::string &name_;
    const unsigned char *data_;
    std::size_t bytes_, at_ = 0;
};

void check_model(const std::string &name, const Checkpoint &checkpoint)
{
    try {
        check(checkpoint.model.network);
    } catch (const Error &error) {
        throw Error(name + ": " + error.what());
    }
}

} // namespace

CsrMatrix dense_layer(std::uint32_t rows, std::uint32_t columns)
{
    CsrMatrix layer;
    layer.rows = rows;
    layer.columns = columns;
    for (std::uint32_t row = 0; row < rows; ++row) {
        for (std::uint32_t column = 0; column < columns; ++column)
            layer.column.push_back(column);
        layer.row_start.push_back(layer.column.size());
    }
    layer.value.assign(layer.column.size(), 0.0F);
    return layer;
}

Model fresh_model(Network network, std::uint64_t seed)
{
    Model model;
    model.network = std::move(network);
    for (std::size_t k = 0; k < model.network.layers.size(); ++k) {
        CsrMatrix &layer = model.network.layers[k];
        Random random(seed, 1000 + k);
        for (std::uint32_t row = 0; row < layer.rows; ++row) {
            const double limit = std::sqrt(6.0 / std::max(1U, layer.row_nonzeros(row)));
            for (std::uint64_t at = layer.row_start[row]; at < layer.row_start[row + 1]; ++at)
                layer.value[at] = static_cast<float>(limit * (static_cast<double>(random.next() >> 11) * 0x1p-52 - 1));
        }
        model.bias.emplace_back(layer.rows, 0.0F);
    }
    return model;
}

Network parse_topology(const std::string &text, std::uint64_t seed)
{
    const auto number = [&](const std::string &word) {
        std::size_t used = 0;
        unsigned long value = 0;
        try {
            value = std::stoul(word, &used);
        } catch (const std::exception &) {
        }
        if (used == 0 || used != word.size() || value == 0 || value > (1U << 20))
            throw Error("topology " + quoted(text) + ": " + quoted(word) + " is no number of neurons; write 64-256-10 or radix:256x4-10");
        return static_cast<std::uint32_t>(value);
    };
    std::string rest = text;
    Network network;
    if (rest.compare(0, 6, "radix:") == 0) {
        const std::size_t by = rest.find('x', 6), dash = rest.find('-', 6);
        if (by == std::string::npos || dash == std::string::npos || by > dash)
            throw Error("topology " + quoted(text) + ": write radix:NEURONSxLAYERS-OUTPUTS");
        const std::uint32_t neurons = number(rest.substr(6, by - 6));
        // The first block of log2(neurons / 16) layers is not permuted: its first layer would join neighbours only.
        const std::uint32_t layers = number(rest.substr(by + 1, dash - by - 1));
        std::uint32_t block = 0;
        while (neurons > 16U << block)
            ++block;
        network = radix_net(neurons, block + layers, seed);
        network.layers.erase(network.layers.begin(), network.layers.begin() + block);
        network.layers.push_back(dense_layer(number(rest.substr(dash + 1)), neurons));
    } else {
        std::vector<std::uint32_t> sizes;
        for (std::size_t from = 0; from <= rest.size();) {
            const std::size_t end = std::min(rest.find('-', from), rest.size());
            sizes.push_back(number(rest.substr(from, end - from)));
            from = end + 1;
        }
        if (sizes.size() < 2)
            throw Error("topology " + quoted(text) + ": at least inputs and outputs, as 64-10");
        for (std::size_t k = 1; k < sizes.size(); ++k)
            network.layers.push_back(dense_layer(sizes[k], sizes[k - 1]));
    }
    network.bias = 0;
    network.clip = 0;
    return network;
}

Model pruned(const Model &model, double keep, double keep_last)
{
    Model result = model;
    for (std::size_t k = 0; k < model.network.layers.size(); ++k) {
        const CsrMatrix &layer = model.network.layers[k];
        const double share = k + 1 == model.network.layers.size() ? std::max(keep, keep_last) : keep;
        // Of the weights there are: a pruned net can be pruned again.
        std::vector<float> dense(std::size_t{layer.rows} * layer.columns, 0.0F);
        for (std::uint32_t row = 0; row < layer.rows; ++row)
            for (std::uint64_t at = layer.row_start[row]; at < layer.row_start[row + 1]; ++at)
                dense[std::size_t{row} * layer.columns + layer.column[at]] = layer.value[at];
        const double of_all = share * static_cast<double>(layer.nonzeros()) / static_cast<double>(dense.size());
        result.network.layers[k] = prune(dense, layer.rows, layer.columns, of_all);
    }
    return result;
}

void write_checkpoint(const std::string &path, const Checkpoint &checkpoint)
{
    const Network &network = checkpoint.model.network;
    Header header{};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.version = kVersion;
    header.byte_order = kByteOrder;
    header.layers = static_cast<std::uint32_t>(network.layers.size());
    header.optimizer = static_cast<std::uint32_t>(checkpoint.optimizer);
    header.clip = network.clip;
    header.epoch = checkpoint.epoch;
    header.step = checkpoint.step;
    header.seed = checkpoint.seed;
    header.bytes = sizeof header;
    NewFile file(path);
    file.write(&header, sizeof header);
    Sum sum;
    const auto put = [&](const void *data, std::size_t bytes) {
        sum.add(data, bytes);
        file.write(data, bytes);
        header.bytes += bytes;
    };
    for (std::size_t k = 0; k < network.layers.size(); ++k) {
        const CsrMatrix &layer = network.layers[k];
        const LayerHeader sizes{layer.rows, layer.columns, layer.nonzeros()};
        put(&sizes, sizeof sizes);
        const bool has = checkpoint.optimizer != Optimizer::none;
        each_array(layer, checkpoint.model.bias[k], has ? &checkpoint.weights[k] : nullptr, has ? &checkpoint.biases[k] : nullptr,
                   checkpoint.optimizer, [&](const auto &array, std::uint64_t) { put(array.data(), array.size() * sizeof array[0]); });
    }
    sum.add(&header, sizeof header);
    header.checksum = sum.value();
    file.rewrite(0, &header, sizeof header);
    file.commit();
}

Checkpoint parse_checkpoint(const std::string &name, const unsigned char *data, std::size_t bytes)
{
    Reader reader(name, data, bytes);
    Header header;
    reader.take(&header, sizeof header, "header");
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
        throw Error(name + ": no checkpoint of jigsaw-sparse");
    if (header.version != kVersion || header.byte_order != kByteOrder)
        throw Error(name + ": a checkpoint of version " + std::to_string(header.version) + " or another byte order; this program reads " +
                    std::to_string(kVersion));
    if (header.bytes != bytes)
        throw Error(name + ": " + std::to_string(bytes) + " bytes, but the header says " + std::to_string(header.bytes));
    if (header.optimizer > static_cast<std::uint32_t>(Optimizer::adam) || !std::isfinite(header.clip) || header.clip < 0)
        throw Error(name + ": optimizer " + std::to_string(header.optimizer) + ", clip " + std::to_string(header.clip));
    Checkpoint checkpoint;
    checkpoint.optimizer = static_cast<Optimizer>(header.optimizer);
    checkpoint.epoch = header.epoch;
    checkpoint.step = header.step;
    checkpoint.seed = header.seed;
    checkpoint.model.network.clip = header.clip;
    Sum pieces; // array by array, as the writer did
    for (std::uint32_t k = 0; k < header.layers; ++k) {
        LayerHeader sizes;
        reader.take(&sizes, sizeof sizes, "layer");
        pieces.add(&sizes, sizeof sizes);
        if (sizes.rows == 0 || sizes.columns == 0 || sizes.rows > kMostNeurons || sizes.columns > kMostNeurons ||
            sizes.nonzeros > reader.left() / 8 || sizes.rows > reader.left() / 12)
            reader.fail("a layer of " + std::to_string(sizes.rows) + " x " + std::to_string(sizes.columns) + " with " +
                        std::to_string(sizes.nonzeros) + " weights");
        CsrMatrix layer;
        layer.rows = sizes.rows;
        layer.columns = sizes.columns;
        layer.column.resize(sizes.nonzeros);
        std::vector<float> bias;
        Moments weight, of_bias;
        each_array(layer, bias, &weight, &of_bias, checkpoint.optimizer, [&](auto &array, std::uint64_t count) {
            array.resize(count);
            reader.take(array.data(), count * sizeof array[0], "layer");
            pieces.add(array.data(), count * sizeof array[0]);
        });
        checkpoint.model.network.layers.push_back(std::move(layer));
        checkpoint.model.bias.push_back(std::move(bias));
        if (checkpoint.optimizer != Optimizer::none) {
            checkpoint.weights.push_back(std::move(weight));
            checkpoint.biases.push_back(std::move(of_bias));
        }
    }
    if (reader.left() != 0)
        reader.fail("the layers end here, the file does not");
    const std::uint64_t wanted = header.checksum;
    header.checksum = 0;
    pieces.add(&header, sizeof header);
    if (pieces.value() != wanted)
        throw Error(name + ": the checksum does not fit: the file is damaged");
    check_model(name, checkpoint);
    return checkpoint;
}

Checkpoint read_checkpoint(const std::string &path)
{
    const MappedFile file(path);
    return parse_checkpoint(path, file.data(), file.size());
}

bool is_checkpoint(const std::string &path)
{
    const MappedFile file(path);
    return file.size() >= sizeof kMagic && std::memcmp(file.data(), kMagic, sizeof kMagic) == 0;
}

} // namespace jigsaw::sparse
