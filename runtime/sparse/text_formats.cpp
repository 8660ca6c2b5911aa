// SPDX-License-Identifier: Apache-2.0
// Graph Challenge layers, Matrix Market, partitions: text.
#include "runtime/sparse/formats.hpp"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <memory>
#include <set>

namespace jigsaw::sparse {

namespace {

struct Entry {
    std::uint32_t row, column;
    float value;
    std::uint64_t line;
};

/// Entries in any order become rows; the second of two at one place is named by its line.
CsrMatrix from_entries(const std::string &name, std::vector<Entry> entries, std::uint32_t rows, std::uint32_t columns)
{
    std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) {
        return a.row != b.row ? a.row < b.row : a.column != b.column ? a.column < b.column : a.line < b.line;
    });
    CsrMatrix matrix;
    matrix.rows = rows;
    matrix.columns = columns;
    matrix.row_start.assign(std::size_t{rows} + 1, 0);
    matrix.column.reserve(entries.size());
    matrix.value.reserve(entries.size());
    for (std::size_t at = 0; at < entries.size(); ++at) {
        const Entry &entry = entries[at];
        if (at > 0 && entries[at - 1].row == entry.row && entries[at - 1].column == entry.column)
            throw Error(name + ":" + std::to_string(entry.line) + ": the same place as line " +
                        std::to_string(entries[at - 1].line));
        ++matrix.row_start[entry.row + 1];
        matrix.column.push_back(entry.column);
        matrix.value.push_back(entry.value);
    }
    for (std::uint32_t row = 0; row < rows; ++row)
        matrix.row_start[row + 1] += matrix.row_start[row];
    return matrix;
}

std::string number_text(float value)
{
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, value).ptr}; // the shortest that reads back the same
}

bool exists(const std::string &path)
{
    struct stat about {};
    return stat(path.c_str(), &about) == 0;
}

std::string layer_path(const std::string &folder, std::uint32_t neurons, std::size_t layer)
{
    const std::string tail = std::to_string(neurons) + "-l" + std::to_string(layer) + ".tsv";
    const std::string is_short = folder + "/n" + tail;
    return exists(is_short) ? is_short : folder + "/neuron" + tail;
}

} // namespace

CsrMatrix parse_graph_challenge_layer(const std::string &name, std::string_view text, std::uint32_t neurons)
{
    std::vector<Entry> entries;
    TextLines lines(name, text);
    while (lines.next()) {
        const auto input = lines.unsigned_number("input", 1, neurons), output = lines.unsigned_number("output", 1, neurons);
        const float weight = lines.real_number("weight");
        lines.expect_end();
        entries.push_back({static_cast<std::uint32_t>(output - 1), static_cast<std::uint32_t>(input - 1), weight, lines.number()});
    }
    if (entries.empty())
        throw Error(name + ":1: the layer has no weights");
    return from_entries(name, std::move(entries), neurons, neurons);
}

Network read_graph_challenge(const std::string &folder, std::uint32_t neurons, std::uint32_t layers)
{
    Network network;
    network.bias = neurons == 4096 ? -.35F : neurons == 16384 ? -.4F : neurons == 65536 ? -.45F : -.3F;
    for (std::size_t k = 1; layers == 0 || k <= layers; ++k) {
        const std::string path = layer_path(folder, neurons, k);
        if (layers == 0 && k > 1 && !exists(path))
            break;
        network.layers.push_back(parse_graph_challenge_layer(path, MappedFile(path).text(), neurons));
    }
    // The last that was found must be the last there is: a file missing in between is no shorter network.
    if (layers == 0)
        for (std::size_t k = network.layers.size() + 1; k <= network.layers.size() + 64; ++k)
            if (exists(layer_path(folder, neurons, k)))
                throw Error(layer_path(folder, neurons, network.layers.size() + 1) + ": missing, but layer " + std::to_string(k) +
                            " is there");
    return network;
}

void write_graph_challenge(const std::string &folder, const Network &network)
{
    check(network);
    const std::uint32_t neurons = network.inputs();
    for (const CsrMatrix &layer : network.layers)
        if (layer.rows != neurons || layer.columns != neurons)
            throw Error(folder + ": the Graph Challenge's format needs layers of one size, not " + std::to_string(layer.rows) +
                        " x " + std::to_string(layer.columns) + " beside " + std::to_string(neurons));
    // All of them, then their names.
    std::vector<std::unique_ptr<NewFile>> files;
    for (std::size_t k = 0; k < network.layers.size(); ++k) {
        const CsrMatrix by_input = transpose(network.layers[k]);
        files.push_back(std::make_unique<NewFile>(folder + "/neuron" + std::to_string(neurons) + "-l" + std::to_string(k + 1) + ".tsv"));
        std::string text;
        for (std::uint32_t input = 0; input < neurons; ++input)
            for (std::uint64_t at = by_input.row_start[input]; at < by_input.row_start[input + 1]; ++at)
                text += std::to_string(input + 1) + '\t' + std::to_string(by_input.column[at] + 1) + '\t' +
                        number_text(by_input.value[at]) + '\n';
        files.back()->write(text);
    }
    for (const std::unique_ptr<NewFile> &file : files)
        file->commit();
}

CsrMatrix parse_matrix_market(const std::string &name, std::string_view text)
{
    TextLines lines(name, text);
    if (!lines.next())
        throw Error(name + ":1: empty; a Matrix Market file starts with %%MatrixMarket");
    const auto keyword = [&](const char *what) {
        std::string word(lines.word(what));
        std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
        return word;
    };
    if (keyword("banner") != "%%matrixmarket")
        lines.fail("a Matrix Market file starts with %%MatrixMarket");
    const std::string object = keyword("object"), form = keyword("format"), field = keyword("field"),
                      symmetry = keyword("symmetry");
    lines.expect_end();
    if (object != "matrix" || form != "coordinate")
        lines.fail("only `matrix coordinate` is read, not " + quoted(object + " " + form));
    if (field != "real" && field != "integer" && field != "pattern")
        lines.fail("the field is " + quoted(field) + ", not real, integer or pattern");
    if (symmetry != "general" && symmetry != "symmetric")
        lines.fail("the symmetry is " + quoted(symmetry) + ", not general or symmetric");

    bool has_size = false;
    std::uint32_t rows = 0, columns = 0;
    std::uint64_t wanted = 0, listed = 0;
    std::vector<Entry> entries;
    while (lines.next()) {
        if (lines.at_end() || lines.rest().front() == '%')
            continue;
        if (!has_size) {
            rows = static_cast<std::uint32_t>(lines.unsigned_number("number of rows", 1, kMostNeurons));
            columns = static_cast<std::uint32_t>(lines.unsigned_number("number of columns", 1, kMostNeurons));
            wanted = lines.unsigned_number("number of entries", 1, std::uint64_t{rows} * columns);
            lines.expect_end();
            if (symmetry == "symmetric" && rows != columns)
                lines.fail("a symmetric matrix is square, not " + std::to_string(rows) + " x " + std::to_string(columns));
            // The text that is there bounds what is believed of it: an entry takes four bytes.
            if (wanted > text.size() / 4 || rows > 64 * text.size() + 1024 || columns > 1024 * text.size() + 1024)
                lines.fail(std::to_string(wanted) + " entries of " + std::to_string(rows) + " x " + std::to_string(columns) +
                           " do not fit the file's " + std::to_string(text.size()) + " bytes");
            entries.reserve(wanted);
            has_size = true;
            continue;
        }
        if (++listed > wanted)
            lines.fail("an entry more than the " + std::to_string(wanted) + " announced");
        const auto row = static_cast<std::uint32_t>(lines.unsigned_number("row", 1, rows) - 1);
        const auto column = static_cast<std::uint32_t>(lines.unsigned_number("column", 1, columns) - 1);
        const float value = field == "pattern" ? 1.0F : lines.real_number("value");
        lines.expect_end();
        entries.push_back({row, column, value, lines.number()});
        if (symmetry == "symmetric" && row != column)
            entries.push_back({column, row, value, lines.number()});
    }
    if (!has_size)
        throw Error(name + ":" + std::to_string(lines.number()) + ": the line of sizes is missing");
    if (listed < wanted)
        throw Error(name + ":" + std::to_string(lines.number()) + ": ends after " + std::to_string(listed) + " of " +
                    std::to_string(wanted) + " entries");
    return from_entries(name, std::move(entries), rows, columns);
}

CsrMatrix read_matrix_market(const std::string &path)
{
    return parse_matrix_market(path, MappedFile(path).text());
}

void write_matrix_market(const std::string &path, const CsrMatrix &matrix)
{
    check(matrix, path);
    NewFile file(path);
    file.write("%%MatrixMarket matrix coordinate real general\n" + std::to_string(matrix.rows) + ' ' +
               std::to_string(matrix.columns) + ' ' + std::to_string(matrix.nonzeros()) + '\n');
    for (std::uint32_t row = 0; row < matrix.rows; ++row) {
        std::string text;
        for (std::uint64_t at = matrix.row_start[row]; at < matrix.row_start[row + 1]; ++at)
            text += std::to_string(row + 1) + ' ' + std::to_string(matrix.column[at] + 1) + ' ' + number_text(matrix.value[at]) + '\n';
        file.write(text);
    }
    file.commit();
}

Partition parse_partition(const std::string &name, std::string_view text)
{
    TextLines lines(name, text);
    if (!lines.next() || lines.word("banner") != "%jigsaw-partition")
        throw Error(name + ":1: a partition starts with %jigsaw-partition");
    lines.unsigned_number("version", 1, 1);
    lines.expect_end();
    if (!lines.next())
        throw Error(name + ":2: the line `parts layers` is missing");
    Partition partition;
    partition.parts = static_cast<std::uint32_t>(lines.unsigned_number("number of parts", 1, 1U << 20));
    const std::uint64_t layers = lines.unsigned_number("number of layers", 2, 1U << 24);
    lines.expect_end();
    while (lines.next()) {
        if (partition.owner.size() == layers)
            lines.fail("a line more than the " + std::to_string(layers) + " layers announced");
        // Two bytes per owner are the least.
        const std::uint64_t neurons = lines.unsigned_number("number of neurons", 1, (lines.rest().size() + 1) / 2);
        std::vector<std::uint32_t> owner;
        owner.reserve(neurons);
        for (std::uint64_t at = 0; at < neurons; ++at)
            owner.push_back(static_cast<std::uint32_t>(lines.unsigned_number("owner", 0, partition.parts - 1)));
        lines.expect_end();
        partition.owner.push_back(std::move(owner));
    }
    if (partition.owner.size() < layers)
        throw Error(name + ":" + std::to_string(lines.number()) + ": ends after " + std::to_string(partition.owner.size()) + " of " +
                    std::to_string(layers) + " layers");
    return partition;
}

Partition read_partition(const std::string &path)
{
    return parse_partition(path, MappedFile(path).text());
}

void write_partition(const std::string &path, const Partition &partition)
{
    NewFile file(path);
    file.write("%jigsaw-partition 1\n" + std::to_string(partition.parts) + ' ' + std::to_string(partition.owner.size()) + '\n');
    for (const std::vector<std::uint32_t> &owners : partition.owner) {
        std::string text = std::to_string(owners.size());
        for (std::uint32_t owner : owners)
            text += ' ' + std::to_string(owner);
        file.write(text + '\n');
    }
    file.commit();
}

} // namespace jigsaw::sparse
