// SPDX-License-Identifier: Apache-2.0
// Our binary format, version 1 (docs/sparse.md): a header, a table of layers, and their arrays, each aligned to 64 bytes
// from the start of the file, in the byte order of the machine that wrote it; a reader of the other order refuses it.
#include "runtime/sparse/formats.hpp"
#include "runtime/sparse/generate.hpp"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <set>

namespace jigsaw::sparse {

namespace {

constexpr char kMagic[8] = {'J', 'I', 'G', 'S', 'P', 'N', 'E', 'T'};
constexpr std::uint32_t kVersion = 1, kByteOrder = 0x01020304;
constexpr std::uint64_t kAlign = 64;

struct Header {
    char magic[8];
    std::uint32_t version, byte_order;
    std::uint32_t layers, reserved;
    float bias, clip;
    std::uint64_t bytes;    ///< of the whole file
    std::uint64_t checksum; ///< of everything behind the header
    std::uint64_t spare[2]; ///< zero
};
static_assert(sizeof(Header) == 64);

struct LayerEntry {
    std::uint32_t rows, columns;
    std::uint64_t nonzeros;
    std::uint64_t row_start, column, value; ///< where the arrays begin, from the start of the file
};
static_assert(sizeof(LayerEntry) == 40);

std::uint64_t aligned(std::uint64_t at) { return (at + kAlign - 1) / kAlign * kAlign; }

/// FNV-1a over 8-byte words with a turn, so that high bits reach low ones. Tells accidents, not forgery.
class Checksum {
public:
    void add(const unsigned char *data, std::size_t bytes) // bytes: a multiple of 8
    {
        for (std::size_t at = 0; at < bytes; at += 8) {
            std::uint64_t word;
            std::memcpy(&word, data + at, 8);
            sum_ = (sum_ ^ word) * 0x100000001b3u;
            sum_ = (sum_ << 29) | (sum_ >> 35);
        }
    }
    std::uint64_t sum() const { return sum_; }

private:
    std::uint64_t sum_ = 0xcbf29ce484222325u;
};

[[noreturn]] void fail(const std::string &name, std::uint64_t offset, const std::string &what)
{
    throw Error(name + ": offset " + std::to_string(offset) + ": " + what);
}

Header checked_header(const std::string &name, const unsigned char *data, std::size_t bytes)
{
    Header header;
    if (bytes < sizeof header)
        fail(name, bytes, "ends within the header of " + std::to_string(sizeof header) + " bytes");
    std::memcpy(&header, data, sizeof header);
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
        fail(name, 0, "no sparse network of JigSaw starts like this");
    if (header.byte_order != kByteOrder)
        fail(name, offsetof(Header, byte_order), "written on a machine of another byte order");
    if (header.version != kVersion)
        fail(name, offsetof(Header, version), "version " + std::to_string(header.version) + ", this program reads " +
                                                  std::to_string(kVersion));
    if (header.layers == 0 || header.layers > (bytes - sizeof header) / sizeof(LayerEntry))
        fail(name, offsetof(Header, layers), std::to_string(header.layers) + " layers in a file of " + std::to_string(bytes) + " bytes");
    if (!std::isfinite(header.bias) || !(header.clip >= 0) || !std::isfinite(header.clip))
        fail(name, offsetof(Header, bias), "bias and clip must be finite, clip not negative");
    if (header.reserved != 0 || header.spare[0] != 0 || header.spare[1] != 0)
        fail(name, offsetof(Header, reserved), "reserved fields must be zero");
    if (header.bytes != bytes)
        fail(name, offsetof(Header, bytes), "the file has " + std::to_string(bytes) + " bytes, its header says " +
                                                std::to_string(header.bytes));
    if (bytes % 8 != 0)
        fail(name, bytes, "its length is no multiple of 8");
    Checksum checksum;
    checksum.add(data + sizeof header, bytes - sizeof header);
    if (checksum.sum() != header.checksum)
        fail(name, offsetof(Header, checksum), "the checksum does not fit the data: the file was damaged");
    return header;
}

/// Where an array must begin, and behind it.
std::uint64_t checked_array(const std::string &name, std::uint64_t entry_at, std::uint64_t stated, std::uint64_t expected,
                            std::uint64_t count, std::uint64_t size, std::uint64_t bytes)
{
    if (stated != expected || stated > bytes || count > (bytes - stated) / size)
        fail(name, entry_at, "an array of " + std::to_string(count) + " x " + std::to_string(size) + " bytes at " +
                                 std::to_string(stated) + ": it must begin at " + std::to_string(expected) +
                                 " and end within " + std::to_string(bytes));
    return aligned(stated + count * size);
}

void check_layer(const std::string &name, const CsrView &layer, const LayerEntry &entry)
{
    if (layer.row_start[0] != 0)
        fail(name, entry.row_start, "the first row must start at 0");
    for (std::uint32_t row = 0; row < layer.rows; ++row)
        if (layer.row_start[row + 1] < layer.row_start[row] || layer.row_start[row + 1] > entry.nonzeros)
            fail(name, entry.row_start + 8 * (row + 1), "row " + std::to_string(row) + " ends outside its layer");
    if (layer.row_start[layer.rows] != entry.nonzeros)
        fail(name, entry.row_start + 8 * std::uint64_t{layer.rows}, "the last row must end at " + std::to_string(entry.nonzeros));
    for (std::uint32_t row = 0; row < layer.rows; ++row)
        for (std::uint64_t at = layer.row_start[row]; at < layer.row_start[row + 1]; ++at) {
            if (layer.column[at] >= layer.columns || (at > layer.row_start[row] && layer.column[at] <= layer.column[at - 1]))
                fail(name, entry.column + 4 * at, "row " + std::to_string(row) + ": columns must rise and stay below " +
                                                      std::to_string(layer.columns));
            if (!std::isfinite(layer.value[at]))
                fail(name, entry.value + 4 * at, "a weight is not finite");
        }
}

/// Writes and sums at once; pads to the alignment of the next array.
struct Body {
    NewFile &file;
    Checksum checksum;
    std::uint64_t at = sizeof(Header);
    std::string held; ///< less than 8 bytes

    void add(const void *data, std::size_t bytes)
    {
        file.write(data, bytes);
        at += bytes;
        const auto *from = static_cast<const unsigned char *>(data);
        while (bytes > 0 && (!held.empty() || bytes < 8)) {
            held += static_cast<char>(*from++);
            --bytes;
            if (held.size() == 8) {
                checksum.add(reinterpret_cast<const unsigned char *>(held.data()), 8);
                held.clear();
            }
        }
        checksum.add(from, bytes / 8 * 8);
        held.append(reinterpret_cast<const char *>(from) + bytes / 8 * 8, bytes % 8);
    }
    void pad()
    {
        static const char kZeros[kAlign] = {};
        add(kZeros, aligned(at) - at);
    }
};

bool is_folder(const std::string &path)
{
    struct stat about {};
    return stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
}

/// N of the files neuronN-l1.tsv or nN-l1.tsv in a folder.
std::uint32_t neurons_of_folder(const std::string &folder)
{
    std::set<std::uint32_t> found;
    if (DIR *stream = opendir(folder.c_str())) {
        while (const dirent *entry = readdir(stream)) {
            const std::string name = entry->d_name;
            const std::size_t digits = name.rfind("neuron", 0) == 0 ? 6 : 1, end = name.find("-l1.tsv");
            if (name[0] == 'n' && end != std::string::npos && end > digits && end - digits < 9 && end + 7 == name.size() &&
                name.find_first_not_of("0123456789", digits) == end)
                found.insert(static_cast<std::uint32_t>(std::stoul(name.substr(digits, end - digits))));
        }
        closedir(stream);
    }
    if (found.size() != 1 || *found.begin() == 0 || *found.begin() > kMostNeurons)
        throw Error(folder + ": " + (found.empty() ? "no file neuronN-l1.tsv" : "networks of several sizes") +
                    "; a folder must hold one network of the Graph Challenge");
    return *found.begin();
}

} // namespace

CsrMatrix CsrView::copy() const
{
    CsrMatrix matrix;
    matrix.rows = rows;
    matrix.columns = columns;
    matrix.row_start.assign(row_start, row_start + rows + 1);
    matrix.column.assign(column, column + nonzeros());
    matrix.value.assign(value, value + nonzeros());
    return matrix;
}

std::vector<CsrView> parse_binary(const std::string &name, const unsigned char *data, std::size_t bytes, float *ret_bias,
                                  float *ret_clip)
{
    const Header header = checked_header(name, data, bytes);
    std::vector<CsrView> layers;
    std::uint64_t at = aligned(sizeof header + header.layers * sizeof(LayerEntry));
    for (std::uint32_t k = 0; k < header.layers; ++k) {
        const std::uint64_t entry_at = sizeof header + k * sizeof(LayerEntry);
        LayerEntry entry;
        std::memcpy(&entry, data + entry_at, sizeof entry);
        if (entry.rows == 0 || entry.columns == 0 || entry.rows > kMostNeurons || entry.columns > kMostNeurons)
            fail(name, entry_at, "a layer of " + std::to_string(entry.rows) + " x " + std::to_string(entry.columns));
        if (k > 0 && entry.columns != layers.back().rows)
            fail(name, entry_at, "layer " + std::to_string(k + 1) + " takes " + std::to_string(entry.columns) + " inputs of " +
                                     std::to_string(layers.back().rows));
        at = checked_array(name, entry_at + 16, entry.row_start, at, std::uint64_t{entry.rows} + 1, 8, bytes);
        at = checked_array(name, entry_at + 24, entry.column, at, entry.nonzeros, 4, bytes);
        at = checked_array(name, entry_at + 32, entry.value, at, entry.nonzeros, 4, bytes);
        const CsrView layer{entry.rows, entry.columns, reinterpret_cast<const std::uint64_t *>(data + entry.row_start),
                            reinterpret_cast<const std::uint32_t *>(data + entry.column),
                            reinterpret_cast<const float *>(data + entry.value)};
        check_layer(name, layer, entry);
        layers.push_back(layer);
    }
    if (at != bytes)
        fail(name, at, "the layers end here, the file at " + std::to_string(bytes));
    *ret_bias = header.bias;
    *ret_clip = header.clip;
    return layers;
}

Network MappedNetwork::copy() const
{
    Network network;
    network.bias = bias_;
    network.clip = clip_;
    for (const CsrView &layer : layers_)
        network.layers.push_back(layer.copy());
    return network;
}

void write_binary(const std::string &path, const Network &network)
{
    check(network);
    std::vector<LayerEntry> table;
    std::uint64_t at = aligned(sizeof(Header) + network.layers.size() * sizeof(LayerEntry));
    for (const CsrMatrix &layer : network.layers) {
        LayerEntry entry{layer.rows, layer.columns, layer.nonzeros(), at, 0, 0};
        entry.column = aligned(entry.row_start + 8 * (std::uint64_t{layer.rows} + 1));
        entry.value = aligned(entry.column + 4 * entry.nonzeros);
        at = aligned(entry.value + 4 * entry.nonzeros);
        table.push_back(entry);
    }
    Checksum checksum;
    Header header{};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.version = kVersion;
    header.byte_order = kByteOrder;
    header.layers = static_cast<std::uint32_t>(network.layers.size());
    header.bias = network.bias;
    header.clip = network.clip;
    header.bytes = at;
    NewFile file(path);
    file.write(&header, sizeof header);
    Body body{file, {}, sizeof header, {}};
    body.add(table.data(), table.size() * sizeof(LayerEntry));
    body.pad();
    for (const CsrMatrix &layer : network.layers) {
        body.add(layer.row_start.data(), layer.row_start.size() * 8);
        body.pad();
        body.add(layer.column.data(), layer.column.size() * 4);
        body.pad();
        body.add(layer.value.data(), layer.value.size() * 4);
        body.pad();
    }
    header.checksum = body.checksum.sum();
    file.rewrite(0, &header, sizeof header);
    file.commit();
}

Network read_network(const std::string &path, std::uint32_t layers)
{
    Network network;
    if (is_folder(path)) {
        network = read_graph_challenge(path, neurons_of_folder(path), layers);
    } else if (path.find(',') != std::string::npos) {
        for (std::size_t from = 0; from <= path.size();) {
            const std::size_t end = std::min(path.find(',', from), path.size());
            network.layers.push_back(read_matrix_market(path.substr(from, end - from)));
            from = end + 1;
        }
    } else {
        const MappedFile file(path);
        const std::string_view text = file.text();
        if (text.substr(0, sizeof kMagic) == std::string_view(kMagic, sizeof kMagic))
            network = MappedNetwork(path).copy();
        else if (text.substr(0, 2) == "%%")
            network.layers.push_back(parse_matrix_market(path, text));
        else
            network = radix_net(read_row_classes(path), layers);
    }
    if (layers > network.layers.size())
        throw Error(path + ": " + std::to_string(network.layers.size()) + " layers, but " + std::to_string(layers) + " wanted");
    if (layers > 0)
        network.layers.resize(layers);
    check(network);
    return network;
}

} // namespace jigsaw::sparse
