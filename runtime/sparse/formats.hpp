// SPDX-License-Identifier: Apache-2.0
// Networks and partitions in files. Readers check all of a file before they give anything out, and name what is wrong by
// file and line (text) or file and offset (binary); writers leave a whole file or none. docs/sparse.md has the formats.
#ifndef JIGSAW_RUNTIME_SPARSE_FORMATS_HPP
#define JIGSAW_RUNTIME_SPARSE_FORMATS_HPP

#include "runtime/sparse/matrix.hpp"
#include "runtime/sparse/text.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace jigsaw::sparse {

/// More rows or columns than this are taken for a mistake: a few bytes of text must not make us allocate all memory.
constexpr std::uint32_t kMostNeurons = 1U << 28;

// Graph Challenge: one file per layer, lines `input output weight`, counted from 1.
CsrMatrix parse_graph_challenge_layer(const std::string &name, std::string_view text, std::uint32_t neurons);
/// `folder`/neuronN-l1.tsv, -l2.tsv, ... or n1024-l1.tsv, ...; as many as there are, or the first `layers` (0: all).
Network read_graph_challenge(const std::string &folder, std::uint32_t neurons, std::uint32_t layers);
void write_graph_challenge(const std::string &folder, const Network &network);

// Matrix Market, coordinate: real, integer or pattern (weights 1), general or symmetric; rows are output neurons.
CsrMatrix parse_matrix_market(const std::string &name, std::string_view text);
CsrMatrix read_matrix_market(const std::string &path);
void write_matrix_market(const std::string &path, const CsrMatrix &matrix);

/// A layer where it lies in a mapped file.
struct CsrView {
    std::uint32_t rows = 0, columns = 0;
    const std::uint64_t *row_start = nullptr;
    const std::uint32_t *column = nullptr;
    const float *value = nullptr;

    std::uint64_t nonzeros() const { return row_start[rows]; }
    CsrMatrix copy() const;
};

// Our own binary format, version 1.
/// The layers in the bytes of a file, all checked; they point into `data`, which must be aligned to 8 bytes.
std::vector<CsrView> parse_binary(const std::string &name, const unsigned char *data, std::size_t bytes, float *ret_bias,
                                  float *ret_clip);

/// A network in a mapped file: nothing is copied, pages come as they are used.
class MappedNetwork {
public:
    explicit MappedNetwork(const std::string &path)
        : file_(path), layers_(parse_binary(path, file_.data(), file_.size(), &bias_, &clip_))
    {
    }
    const std::vector<CsrView> &layers() const { return layers_; }
    float bias() const { return bias_; }
    float clip() const { return clip_; }
    Network copy() const;

private:
    float bias_ = 0, clip_ = 0;
    MappedFile file_;
    std::vector<CsrView> layers_;
};
void write_binary(const std::string &path, const Network &network);

/// By what the path is: a folder of the Graph Challenge (its neurons are found from the names), a Matrix Market file (one
/// layer; several paths joined by commas: several layers), our binary, or a file of row classes.
Network read_network(const std::string &path, std::uint32_t layers);

Partition parse_partition(const std::string &name, std::string_view text);
Partition read_partition(const std::string &path);
void write_partition(const std::string &path, const Partition &partition);

} // namespace jigsaw::sparse

#endif
