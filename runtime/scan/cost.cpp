// SPDX-License-Identifier: Apache-2.0
// Deciding, from costs; calibrate.cpp measures them.
#include "runtime/scan/cost.hpp"

#include <algorithm>
#include <cstdio>

namespace jigsaw::scan {

namespace {

double ceil_of(std::size_t count, std::size_t by) { return static_cast<double>((count + by - 1) / by); }

/// Multiplications of one sample's step.
double fused_work(const Job &job)
{
    return static_cast<double>(gates_of(job.cell) * job.hidden) * static_cast<double>(job.hidden);
}

struct Scan {
    double making, matrix, vector; ///< microseconds: all Jacobians on all workers; one product of the whole batch
};

Scan scan_costs(const Costs &costs, const Job &job)
{
    const double width = static_cast<double>(job.cell == Cell::lstm ? 2 * job.hidden : job.hidden);
    const double batch = static_cast<double>(job.batch), steps = static_cast<double>(job.steps);
    const double workers = static_cast<double>(job.workers);
    // Making the Jacobians, and the gates' gradients from the scan's result by the fused kernel.
    const double making = steps * (batch * fused_work(job) * (costs.jacobian + costs.fused) + costs.step) / workers;
    return {making / 1e3, batch * width * width * width * costs.matrix / 1e3,
            batch * width * width * costs.vector / 1e3};
}

double serial_time(const Costs &costs, const Job &job, std::size_t samples)
{
    return static_cast<double>(job.steps) *
           (costs.step + costs.fused * static_cast<double>(samples) * fused_work(job)) / 1e3;
}

double chunked_time(const Scan &cost, const Costs &costs, const Job &job, std::size_t chunks)
{
    const double length = ceil_of(job.steps, chunks), rounds = ceil_of(chunks, job.workers);
    return cost.making + rounds * length * (cost.matrix + cost.vector) + static_cast<double>(chunks) * cost.vector +
           3 * costs.fork / 1e3;
}

double tree_time(const Scan &cost, const Costs &costs, const Job &job, std::size_t up_levels)
{
    double time = cost.making + static_cast<double>(tree_middle(job.steps, up_levels)) * cost.vector + costs.fork / 1e3;
    for (std::size_t level = 0; level < up_levels; ++level) {
        const std::size_t pairs = (job.steps + 1) >> (level + 1);
        time += ceil_of(pairs, job.workers) * (cost.matrix + cost.vector) + 2 * costs.fork / 1e3;
    }
    return time;
}

} // namespace

Decision decide(const Costs &costs, const Job &job)
{
    Decision d;
    d.serial = {{Way::serial, 1, 0}, serial_time(costs, job, job.batch)};
    const std::size_t share = (job.batch + job.workers - 1) / std::max<std::size_t>(1, job.workers);
    d.split = {{Way::split, 1, 0}, serial_time(costs, job, share) + costs.fork / 1e3};
    const Scan scan = scan_costs(costs, job);
    const std::size_t chunks = std::min(std::max<std::size_t>(1, job.steps), job.workers);
    d.chunked = {{Way::chunked, chunks, 0}, chunked_time(scan, costs, job, chunks)};
    d.tree = {{Way::tree, 1, 0}, 0};
    for (std::size_t up = 0; up <= full_up_levels(job.steps); ++up) {
        const double time = tree_time(scan, costs, job, up);
        if (up == 0 || time < d.tree.microseconds)
            d.tree = {{Way::tree, 1, up}, time};
    }
    const Estimate &fused = job.workers > 1 && job.batch > 1 && d.split.microseconds < d.serial.microseconds ? d.split
                                                                                                             : d.serial;
    const Estimate &scanned = d.tree.microseconds < d.chunked.microseconds ? d.tree : d.chunked;
    d.plan = !job.packed && scanned.microseconds < 0.8 * fused.microseconds ? scanned.plan : fused.plan;
    return d;
}

std::string explain(const Decision &decision, const Job &job)
{
    char line[200];
    std::snprintf(line, sizeof line, "%s, %zu steps, batch %zu, h %zu, %zu workers, %s kernels%s:\n", name_of(job.cell),
                  job.steps, job.batch, job.hidden, job.workers, kernel_name(), job.packed ? ", packed (no scan)" : "");
    std::string out = line;
    for (const Estimate *estimate : {&decision.serial, &decision.split, &decision.chunked, &decision.tree}) {
        const Plan &plan = estimate->plan;
        const std::size_t detail = plan.way == Way::chunked ? plan.chunks : plan.up_levels;
        std::snprintf(line, sizeof line, "  %-8s %12.1f us", name_of(plan.way), estimate->microseconds);
        out += line;
        if (plan.way == Way::chunked || plan.way == Way::tree)
            out += plan.way == Way::tree ? ", " + std::to_string(detail) + " levels up"
                                         : ", " + std::to_string(detail) + " chunks";
        out += plan.way == decision.plan.way ? "  <- taken\n" : "\n";
    }
    return out;
}

std::string to_text(const Costs &c, std::size_t workers)
{
    char line[256];
    std::snprintf(line, sizeof line, "jigsaw-scan-costs 1 %s %zu %.9g %.9g %.9g %.9g %.9g %.9g\n", kernel_name(),
                  workers, c.step, c.fused, c.matrix, c.vector, c.jacobian, c.fork);
    return line;
}

bool from_text(const std::string &text, std::size_t workers, Costs *costs)
{
    char kernels[32] = "";
    std::size_t used = 0;
    Costs c;
    const int fields = std::sscanf(text.c_str(), "jigsaw-scan-costs 1 %31s %zu %lg %lg %lg %lg %lg %lg", kernels, &used,
                                   &c.step, &c.fused, &c.matrix, &c.vector, &c.jacobian, &c.fork);
    if (fields != 8 || used != workers || std::string(kernels) != kernel_name())
        return false;
    for (const double value : {c.step, c.fused, c.matrix, c.vector, c.jacobian, c.fork})
        if (!(value >= 0 && value < 1e9)) // also refuses NaN
            return false;
    *costs = c;
    return true;
}

} // namespace jigsaw::scan
