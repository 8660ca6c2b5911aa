// SPDX-License-Identifier: Apache-2.0
// One level's vertices in parts, what that costs, and how it gets cheaper: annealing by swaps and moves, layer by layer.
#ifndef JIGSAW_RUNTIME_SPARSE_REFINE_HPP
#define JIGSAW_RUNTIME_SPARSE_REFINE_HPP

#include "runtime/sparse/levels.hpp"
#include "runtime/sparse/random.hpp"

namespace jigsaw::sparse {

using Owners = std::vector<std::vector<std::uint32_t>>; ///< [layer 0..L][vertex]

/// How an annealing cools: `steps` sweeps over the layers, forth and back in turn, from `hot` to `cold` (words), with
/// `tries` proposals per vertex in each.
struct Cooling {
    double hot = 1, cold = 1;
    std::uint32_t steps = 1;
    double tries = 1;
    double blur = 0; ///< to begin with
};

/// Each vertex to the emptiest part, heavy ones first, in a random order among equals: loads differ by at most one
/// vertex.
std::vector<std::uint32_t> spread(const std::vector<std::uint64_t> &weight, std::uint32_t parts, Random *random);
/// What the fullest part of spread() weighs.
std::uint64_t fullest(const std::vector<std::uint64_t> &weight, std::uint32_t parts);

class Refiner {
public:
    /// `cap[layer]`: what a part may weigh there. `times[phase]`: how often a word of the phase counts.
    Refiner(const Level &level, std::uint32_t parts, std::vector<std::uint64_t> cap, std::vector<float> times);

    void assign(Owners owners);
    const Owners &owners() const { return owners_; }
    double vertices() const { return static_cast<double>(level_.vertices()); }
    double cost() const; ///< counted anew

    /// Brings each part of each layer under its cap, as cheaply as single moves and swaps can.
    void mend();
    void tighten(std::vector<std::uint64_t> cap)
    {
        cap_ = std::move(cap);
        mend();
    }
    /// Layers first..last only. Not `ahead`: a layer is judged by the phase that leads to it, blind for the next one.
    void anneal(std::uint32_t first, std::uint32_t last, bool ahead, const Cooling &cooling, Random &random);
    /// Names the parts of each layer anew, so that they own most of what they need: the layers on one side of a phase keep
    /// all that they have, whatever the parts are called.
    void rename();
    /// The mean cost of a random swap that costs something: where to begin to cool.
    double typical_change(Random &random) const;

    void blur(double share);

private:
    struct Cell { ///< of a net and a part
        std::uint32_t pins; ///< in the part
        float missing;      ///< columns of the net that it does not own; whole numbers, exact up to 2^24
    };

    std::uint32_t layers() const { return static_cast<std::uint32_t>(level_.weight.size()); }
    float enter(std::uint32_t layer, std::uint32_t v, std::uint32_t from, std::uint32_t to, bool ahead) const;
    float feed(std::uint32_t layer, std::uint32_t v, std::uint32_t from, std::uint32_t to) const;
    float exchange(std::uint32_t layer, std::uint32_t v, std::uint32_t u, bool ahead) const;
    void move(std::uint32_t layer, std::uint32_t v, std::uint32_t to);
    void sweep(std::uint32_t layer, bool ahead, float heat, double tries, Random &random);
    bool mend_one(std::uint32_t layer);
    bool deal_again(std::uint32_t layer, double share);

    const Level &level_;
    std::uint32_t parts_;
    std::vector<std::uint64_t> cap_;
    std::vector<float> times_;
    Owners owners_;
    std::vector<std::vector<Cell>> cells_;         ///< [phase][net * parts + part]
    std::vector<std::vector<std::uint64_t>> load_; ///< [layer][part]
    mutable std::vector<std::uint64_t> mark_;      ///< [net]: the last exchange() that met it
    mutable std::uint64_t stamp_ = 0;
    /// A net that has i pins in a part needs its columns there: need_[i] = 1 for i > 0; blurred, 1 - blur^i, so that a search
    /// sees that a net is about to leave a part. step_[i] = need_[i + 1] - need_[i].
    std::vector<float> need_, step_;
    std::vector<float> patience_; ///< of a random number: what may be lost at heat 1
};

} // namespace jigsaw::sparse

#endif
