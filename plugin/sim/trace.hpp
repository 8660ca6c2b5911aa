// SPDX-License-Identifier: Apache-2.0
// Recorded and generated traces. Each reader stands in a file of its own, trace_X.cpp, which describes its format.
#ifndef JIGSAW_SIM_TRACE_HPP
#define JIGSAW_SIM_TRACE_HPP

#include "plugin/sim/profiles.hpp"
#include "plugin/sim/random.hpp"
#include "plugin/sim/workload.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::sim {

struct TraceOptions {
    std::string path;
    std::string format;              ///< philly, muri, gavel, sacct; "": by the file
    ProfileBook profiles;            ///< for traces that name no costs
    std::vector<std::string> models; ///< draw every job's model from these; empty: the trace's, else any profile's
    std::string throughputs;         ///< Gavel: the table of steps per second, FILE or FILE:GPU
    DepthCurve curve;
    std::uint64_t seed = 1; ///< of the models drawn
    bool skip_bad = false;
};

/// Throws InputError. Jobs by submit time, the first at 0.
Workload read_trace(const TraceOptions &options);

/// One job of a trace as its reader found it.
struct TraceRow {
    std::string name, user, model;
    int gpus = 1;
    double submit_s = 0;
    double iterations = 1, iteration_s = 0;
    double limit_s = 0;
    bool has_stages = false; ///< the trace itself knows the costs
    Stages stages;
};

using TraceRows = std::vector<TraceRow>;
TraceRows read_philly(const TraceOptions &options, std::size_t *ret_bad);
TraceRows read_muri(const TraceOptions &options, std::size_t *ret_bad);
TraceRows read_gavel(const TraceOptions &options, std::size_t *ret_bad);
TraceRows read_sacct(const TraceOptions &options, std::size_t *ret_bad);
/// "2017-10-09 07:01:55" or with a T; seconds since 1970 taken as UTC. Throws InputError.
double parse_time(const std::string &text);

/// Jobs from stated distributions: exponential time between arrivals; log-normal isolated runs with the median and the
/// sigma of its logarithm, within the bounds; a number of GPUs with the weight given.
struct GeneratorOptions {
    std::size_t jobs = 1000;
    double interarrival_s = 60;
    double median_s = 3600, sigma = 1.5, least_s = 30, most_s = 864000;
    std::vector<std::pair<int, double>> gpu_weights = {{1, 0.5}, {2, 0.15}, {4, 0.2}, {8, 0.15}};
    std::uint64_t seed = 1;
};
/// "jobs=1000,interarrival=60,median=3600,sigma=1.5,least=30,most=864000,gpus=1:0.5/4:0.5"; "" is the default.
GeneratorOptions parse_generator(const std::string &text);
TraceRows generate(const GeneratorOptions &options);
/// Types, curve and order for rows from anywhere.
Workload assemble(const TraceRows &rows, const TraceOptions &options);

/// Leaves out jobs that want more GPUs than there are, and counts them.
void drop_too_large(Workload *workload, const ClusterShape &cluster);
/// Every submit time later by up to `most_s`; order and job numbers follow. For means over chaotic schedules.
void perturb(Workload *workload, double most_s, std::uint64_t seed);
/// Limits of `factor` times the true run times exp(sigma * a normal number); factor 0: no limits. `keep_own`: jobs that
/// have one keep it.
void set_limits(Workload *workload, double factor, double sigma, std::uint64_t seed, bool keep_own = false);
/// Arrivals `factor` times as dense.
void scale_load(Workload *workload, double factor);

} // namespace jigsaw::sim
#endif
