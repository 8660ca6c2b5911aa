// SPDX-License-Identifier: Apache-2.0
// The same inference by SuiteSparse:GraphBLAS, as a user of it would write it.
#ifndef JIGSAW_BENCH_SPARSE_GRAPHBLAS_HPP
#define JIGSAW_BENCH_SPARSE_GRAPHBLAS_HPP

#include "runtime/sparse/matrix.hpp"
#include "runtime/sparse/samples.hpp"

#include <memory>
#include <string>
#include <vector>

namespace jigsaw::bench {

class GraphBlas {
public:
    /// Builds its matrices; not timed.
    GraphBlas(const sparse::Network &network, const sparse::Samples &samples, int threads);
    ~GraphBlas();
    struct Run {
        double seconds;
        std::vector<std::uint32_t> alive;
    };
    Run run() const;
    static std::string version();

private:
    struct Matrices;
    std::unique_ptr<Matrices> matrices_;
};

} // namespace jigsaw::bench

#endif
