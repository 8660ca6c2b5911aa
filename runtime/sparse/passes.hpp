// SPDX-License-Identifier: Apache-2.0
// A layer forward and backward on one rank's share: what others need goes out first, the product of what is here runs while
// it travels, what arrived is added last. One message per pair of ranks and layer each way.
#ifndef JIGSAW_RUNTIME_SPARSE_PASSES_HPP
#define JIGSAW_RUNTIME_SPARSE_PASSES_HPP

#include "runtime/sparse/comm.hpp"
#include "runtime/sparse/kernels.hpp"
#include "runtime/sparse/share.hpp"
#include "runtime/sparse/tiles.hpp"
#include "runtime/sparse/workers.hpp"

#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

namespace jigsaw::sparse {

/// All rows of a matrix times a tile. Neurons that are off for the whole tile are left out where that pays.
void multiply_tile(const CsrMatrix &matrix, const float *x, float *y, std::uint32_t width, bool add, const Finish &finish,
                   float *largest, Instructions instructions);

/// A block by columns, to multiply by its transpose.
struct TransposedBlock {
    CsrMatrix matrix;                 ///< a row per column of the block
    std::vector<std::uint64_t> place; ///< of each weight, in the block

    explicit TransposedBlock(const CsrMatrix &block);
    void take_values(const CsrMatrix &block);
};

class Passes {
public:
    /// All three outlive this.
    Passes(const NetworkShare &share, Comm &comm, Workers &workers, Instructions instructions)
        : share_(share), comm_(comm), workers_(workers), instructions_(instructions)
    {
    }

    /// out = finish(W in), for this rank's rows of layer k. `ghost` takes the ghosts' values and may be reused when the call
    /// is over; its room must not move. `largest`: as of Product, by slot of the batch, or null.
    void forward(std::size_t k, const Tiles &in, Tiles *ghost, Tiles *out, const Finish &finish, std::vector<float> *largest);

    /// below = (W^T delta), where the outputs `x` of the layer below have a slope (see mask_by_output). `ghost_sums` takes
    /// what goes to others. `meanwhile` runs while messages travel.
    void backward(std::size_t k, const Tiles &delta, const TransposedBlock &own, const TransposedBlock &ghost, Tiles *ghost_sums,
                  const Tiles &x, float clip, Tiles *below, const std::function<void()> &meanwhile);

    /// Of the weights of one block; by rows on all threads.
    void gradient(const CsrMatrix &block, const Tiles &x, const Tiles &delta, float *gradient);

    std::uint64_t multiplications() const { return multiplications_; } ///< weights times samples, forward and backward

private:
    struct Split {
        std::uint32_t tiles, chunks, rows;
    };
    Split split(std::uint32_t tiles, std::uint32_t rows) const;
    void product(const CsrMatrix &matrix, const Tiles &x, Tiles *y, bool add, const Finish &finish, std::vector<float> *largest,
                 Exchange *exchange);
    void pack(const LayerShare &layer, const Tiles &in);
    Exchange *forward_exchange(std::size_t k, std::uint32_t count, std::uint32_t width, Tiles *ghost);
    Exchange *backward_exchange(std::size_t k, std::uint32_t count, std::uint32_t width, Tiles *ghost_sums);
    float *packed(std::size_t floats);

    const NetworkShare &share_;
    Comm &comm_;
    Workers &workers_;
    Instructions instructions_;
    std::uint64_t multiplications_ = 0;
    Floats packed_; ///< what goes to others, or what came back from them, peer after peer
    /// Kept by layer, direction, shape and place: the requests are made once.
    std::map<std::tuple<std::size_t, int, std::uint32_t, std::uint32_t, const float *>, std::unique_ptr<Exchange>> exchanges_;
    std::vector<float> largest_of_chunks_;
};

} // namespace jigsaw::sparse

#endif
