// SPDX-License-Identifier: Apache-2.0
// Which way is cheapest here: a model of time from a handful of operator costs that were measured on this machine.
//
//     serial    T (s + v B G h^2)
//     split     T (s + v ceil(B/P) G h^2) + f
//     chunked   j + C chunks on P workers: 2 ceil(T/C) vectors, ceil(T/C) matrices, C vectors in series, 2 f
//     tree      j + every level's products on P workers, f for each level
//
// s: a step's fixed cost; v: one multiplication of the fused step; m, a: one multiplication of a product of two Jacobians,
// and of a Jacobian and a vector; j = T (B G h^2 e) / P: making the Jacobians; f: waking the workers.
#ifndef JIGSAW_SCAN_COST_HPP
#define JIGSAW_SCAN_COST_HPP

#include "runtime/scan/cell_scan.hpp"

#include <string>

namespace jigsaw::scan {

/// Nanoseconds.
struct Costs {
    double step = 0, fused = 0, matrix = 0, vector = 0, jacobian = 0, fork = 0;
};

struct Job {
    Cell cell = Cell::rnn_tanh;
    std::size_t steps = 0, batch = 0, hidden = 0;
    std::size_t workers = 1;
    bool packed = false;
};

struct Estimate {
    Plan plan;
    double microseconds = 0;
};

struct Decision {
    Plan plan;
    Estimate serial, split, chunked, tree;
};

/// Pure. The scan is taken only where it is clearly ahead (by a fifth), since a wrong guess must not lose to serial.
Decision decide(const Costs &costs, const Job &job);
/// One line per way, the choice and why, for --explain.
std::string explain(const Decision &decision, const Job &job);

/// Measures on this machine, some 20 ms.
Costs measure_costs(const Parallel &parallel);
/// Those of this process: from the file if it was written for the same kernels and workers, else measured and written
/// there. The file: $XDG_CACHE_HOME or $HOME/.cache, jigsaw/scan-costs; one that cannot be read or written is no error.
const Costs &machine_costs(const Parallel &parallel);

std::string to_text(const Costs &costs, std::size_t workers);
/// False, and `costs` untouched, unless the text is to_text()'s for the same kernels and workers.
bool from_text(const std::string &text, std::size_t workers, Costs *costs);

} // namespace jigsaw::scan
#endif
