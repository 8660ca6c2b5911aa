// SPDX-License-Identifier: Apache-2.0
#include "bench/sparse_graphblas.hpp"

#include <chrono>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <stdexcept>

// Release 7.4 declares nothing extern "C" by itself; what it includes was included above.
extern "C" {
#include <GraphBLAS.h>
}

namespace jigsaw::bench {

namespace {

void must(GrB_Info info, const char *doing)
{
    if (info != GrB_SUCCESS)
        throw std::runtime_error(std::string("GraphBLAS: ") + doing + ": " + std::to_string(info));
}

GrB_Matrix built(const std::vector<GrB_Index> &rows, const std::vector<GrB_Index> &columns, const std::vector<float> &values,
                 GrB_Index row_count, GrB_Index column_count)
{
    GrB_Matrix matrix;
    must(GrB_Matrix_new(&matrix, GrB_FP32, row_count, column_count), "new");
    must(GrB_Matrix_build_FP32(matrix, rows.data(), columns.data(), values.data(), values.size(), GrB_PLUS_FP32), "build");
    must(GrB_Matrix_wait(matrix, GrB_MATERIALIZE), "wait");
    return matrix;
}

} // namespace

struct GraphBlas::Matrices {
    GrB_Matrix inputs = nullptr;
    std::vector<GrB_Matrix> layers; ///< inputs x outputs: Y W as the Graph Challenge writes it
    float bias = 0, clip = 0;
};

std::string GraphBlas::version()
{
    return std::to_string(GxB_IMPLEMENTATION_MAJOR) + "." + std::to_string(GxB_IMPLEMENTATION_MINOR) + "." +
           std::to_string(GxB_IMPLEMENTATION_SUB);
}

GraphBlas::GraphBlas(const sparse::Network &network, const sparse::Samples &samples, int threads) : matrices_(std::make_unique<Matrices>())
{
    static const GrB_Info started = GrB_init(GrB_NONBLOCKING); // once in a process, by its standard
    must(started, "init");
    must(GxB_Global_Option_set(GxB_GLOBAL_NTHREADS, threads), "threads");
    matrices_->bias = network.bias;
    matrices_->clip = network.clip;
    std::vector<GrB_Index> rows, columns;
    for (std::uint32_t s = 0; s < samples.count(); ++s)
        for (std::uint64_t i = samples.start[s]; i < samples.start[s + 1]; ++i) {
            rows.push_back(s);
            columns.push_back(samples.feature[i]);
        }
    matrices_->inputs = built(rows, columns, samples.value, samples.count(), samples.features);
    for (const sparse::CsrMatrix &layer : network.layers) {
        rows.clear();
        columns.assign(layer.column.begin(), layer.column.end());
        for (std::uint32_t row = 0; row < layer.rows; ++row)
            rows.insert(rows.end(), layer.row_nonzeros(row), row);
        matrices_->layers.push_back(built(columns, rows, layer.value, layer.columns, layer.rows));
    }
}

GraphBlas::~GraphBlas()
{
    GrB_Matrix_free(&matrices_->inputs);
    for (GrB_Matrix &layer : matrices_->layers)
        GrB_Matrix_free(&layer);
}

GraphBlas::Run GraphBlas::run() const
{
    const auto start = std::chrono::steady_clock::now();
    GrB_Matrix y;
    must(GrB_Matrix_dup(&y, matrices_->inputs), "dup");
    GrB_Index samples = 0;
    must(GrB_Matrix_nrows(&samples, y), "nrows");
    for (GrB_Matrix layer : matrices_->layers) {
        must(GrB_mxm(y, nullptr, nullptr, GrB_PLUS_TIMES_SEMIRING_FP32, y, layer, nullptr), "mxm");
        // What ReLU will not leave goes first: the passes after it are shorter.
        must(GrB_Matrix_select_FP32(y, nullptr, nullptr, GrB_VALUEGT_FP32, y, -matrices_->bias, nullptr), "select");
        must(GrB_Matrix_apply_BinaryOp2nd_FP32(y, nullptr, nullptr, GrB_PLUS_FP32, y, matrices_->bias, nullptr), "bias");
        must(GrB_Matrix_apply_BinaryOp2nd_FP32(y, nullptr, nullptr, GrB_MIN_FP32, y, matrices_->clip, nullptr), "clip");
    }
    GrB_Vector sums;
    must(GrB_Vector_new(&sums, GrB_FP32, samples), "new");
    must(GrB_Matrix_reduce_Monoid(sums, nullptr, nullptr, GrB_MAX_MONOID_FP32, y, nullptr), "reduce");
    must(GrB_Vector_wait(sums, GrB_MATERIALIZE), "wait");
    Run run;
    run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    GrB_Index count = 0;
    must(GrB_Vector_nvals(&count, sums), "nvals");
    std::vector<GrB_Index> at(count);
    std::vector<float> values(count);
    must(GrB_Vector_extractTuples_FP32(at.data(), values.data(), &count, sums), "extract");
    run.alive.assign(at.begin(), at.end());
    GrB_Vector_free(&sums);
    GrB_Matrix_free(&y);
    return run;
}

} // namespace jigsaw::bench
