// SPDX-License-Identifier: Apache-2.0
// What all three ways share: the check of a chain, and of a result.
#ifndef JIGSAW_SCAN_CHAIN_CHECK_HPP
#define JIGSAW_SCAN_CHAIN_CHECK_HPP

#include "runtime/scan/scan.hpp"

#include <cmath>
#include <stdexcept>
#include <string>

namespace jigsaw::scan {

template <typename T> void check_stage(const Operator<T> &op, std::size_t index, std::size_t width, std::size_t batch)
{
    const std::string stage = "scan: stage " + std::to_string(index + 1) + " (" + name_of(op.kind) + ")";
    if (op.cols != width)
        throw std::invalid_argument(stage + " takes gradients of " + std::to_string(op.cols) +
                                    " elements, but the stage before gives " + std::to_string(width));
    if (op.matrices != 1 && op.matrices != batch)
        throw std::invalid_argument(stage + " holds " + std::to_string(op.matrices) + " matrices for a batch of " +
                                    std::to_string(batch) + "; give 1 or one per sample");
    if (!op.offset.empty() && op.offset.size() != batch * op.rows)
        throw std::invalid_argument(stage + " adds " + std::to_string(op.offset.size()) + " values to " +
                                    std::to_string(batch) + " x " + std::to_string(op.rows));
}

template <typename T> void check_chain(const Stages<T> &chain)
{
    if (chain.batch == 0 || chain.seed.empty() || chain.seed.size() % chain.batch != 0)
        throw std::invalid_argument("scan: a seed of " + std::to_string(chain.seed.size()) + " values for a batch of " +
                                    std::to_string(chain.batch) + "; give at least one value for every sample");
    std::size_t width = chain.seed.size() / chain.batch;
    for (std::size_t i = 0; i < chain.operators.size(); ++i) {
        check_stage(chain.operators[i], i, width, chain.batch);
        width = chain.operators[i].rows;
    }
}

/// A product matrix may overflow, or meet 0 times infinity, where the vectors of the serial way do not: then the result
/// holds a value that is not finite, and the serial way decides whether it belongs there.
template <typename T> Gradients<T> serial_unless_finite(Gradients<T> gradients, const Stages<T> &chain, Report *report)
{
    for (const std::vector<T> &gradient : gradients)
        for (const T value : gradient)
            if (!std::isfinite(value)) {
                if (report)
                    report->fell_back = true;
                return scan_serial(chain);
            }
    return gradients;
}

} // namespace jigsaw::scan
#endif
