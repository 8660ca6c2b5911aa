// SPDX-License-Identifier: Apache-2.0
// What the engine needs of a group of ranks. MPI stands behind it (mpi_comm.hpp), one process alone (here), or threads in
// the tests.
#ifndef JIGSAW_RUNTIME_SPARSE_COMM_HPP
#define JIGSAW_RUNTIME_SPARSE_COMM_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace jigsaw::sparse {

/// One message: `blocks` runs of `block` floats, `stride` floats from start to start.
struct Channel {
    int peer = 0;
    float *data = nullptr;
    std::size_t block = 0, stride = 0, blocks = 1;

    std::size_t floats() const { return block * blocks; }
};

/// Messages that are sent again and again between the same places of memory. A round: receive(), send() when what goes out
/// is in place, poll() as often as convenient, finish(). Throws sparse::Error where a peer is silent for too long.
class Exchange {
public:
    virtual ~Exchange() = default;
    virtual void receive() = 0;
    virtual void send() = 0;
    virtual void poll() = 0;
    virtual void finish() = 0;
};

/// Of a rank, since it began: messages between pairs (not those of sum(), any() and gather()).
struct SentTraffic {
    std::uint64_t messages = 0, bytes = 0; ///< sent
};

class Comm {
public:
    virtual ~Comm() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual SentTraffic traffic() const = 0;
    /// The same `tag` on both sides. At most one message per pair, tag and round.
    virtual std::unique_ptr<Exchange> exchange(std::vector<Channel> sends, std::vector<Channel> receives, int tag) = 0;

    // Collective: every rank calls them in the same order.
    virtual void sum(float *values, std::size_t count) = 0;  ///< the same bits on every rank
    virtual void sum(double *values, std::size_t count) = 0;
    /// Bitwise or, begun and finished apart; `bits` stays untouched meanwhile.
    virtual void begin_any(std::uint64_t *bits, std::size_t count) = 0;
    virtual void finish_any() = 0;
    /// At rank 0 what each rank gave, by rank; elsewhere nothing.
    virtual std::vector<std::vector<float>> gather(const std::vector<float> &mine) = 0;
};

/// A process that is all there is.
class AloneComm : public Comm {
public:
    int rank() const override { return 0; }
    int size() const override { return 1; }
    SentTraffic traffic() const override { return {}; }
    std::unique_ptr<Exchange> exchange(std::vector<Channel>, std::vector<Channel>, int) override { return std::make_unique<Nothing>(); }
    void sum(float *, std::size_t) override {}
    void sum(double *, std::size_t) override {}
    void begin_any(std::uint64_t *, std::size_t) override {}
    void finish_any() override {}
    std::vector<std::vector<float>> gather(const std::vector<float> &mine) override { return {mine}; }

private:
    struct Nothing : Exchange {
        void receive() override {}
        void send() override {}
        void poll() override {}
        void finish() override {}
    };
};

} // namespace jigsaw::sparse

#endif
