// SPDX-License-Identifier: Apache-2.0
// Muri's traces (SIGCOMM 2022): Philly's arrivals with models and stage times. A header; of it num_gpu, submit_time
// (ms), iterations, model_name, iteration_time and resource_time_0.._2 (ms: CPU and input, GPU, network). The column
// `duration` is not used: an isolated run is iterations x iteration_time x 1.015, as Muri's simulator has it.
#include "plugin/sim/text.hpp"
#include "plugin/sim/trace.hpp"

namespace jigsaw::sim {

namespace {
constexpr double kIterationOverhead = 1.015; // Muri: monitoring and switching of a job that runs alone
constexpr double kMost = 1e15;
} // namespace

TraceRows read_muri(const TraceOptions &options, std::size_t *ret_bad)
{
    TableReader table(options.path, ',', options.skip_bad);
    table.header({"num_gpu", "submit_time", "iterations", "model_name", "iteration_time", "resource_time_0",
                  "resource_time_1", "resource_time_2"});
    TraceRows rows;
    table.each([&](const std::vector<std::string> &fields) {
        const auto number = [&](const char *column, double least) {
            return table.number(fields, column, least, kMost);
        };
        TraceRow row;
        row.name = table.has("job_id") ? table.field(fields, "job_id") : std::to_string(rows.size());
        row.model = trim(table.field(fields, "model_name"));
        row.gpus = static_cast<int>(table.number(fields, "num_gpu", 1, 1e6));
        row.submit_s = number("submit_time", 0) / 1000;
        row.iterations = number("iterations", 1);
        const double iteration_ms = number("iteration_time", 1e-6);
        row.iteration_s = iteration_ms * kIterationOverhead / 1000;
        row.has_stages = true;
        row.stages.iteration_ms = iteration_ms;
        row.stages.host_ms = number("resource_time_0", 0);
        row.stages.gpu_ms = number("resource_time_1", 0);
        row.stages.network_ms = number("resource_time_2", 0);
        rows.push_back(row);
    });
    *ret_bad = table.bad_lines();
    return rows;
}

} // namespace jigsaw::sim
