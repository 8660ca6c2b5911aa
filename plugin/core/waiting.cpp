// SPDX-License-Identifier: Apache-2.0
// See waiting.hpp.
#include "plugin/core/waiting.hpp"

#include "plugin/core/admission.hpp"

#include <algorithm>

namespace jigsaw::core {

namespace {

constexpr double kFairShare = 2;         // of a resident's isolated run: what taking turns by halves would cost it
constexpr double kLongWait = 3;          // own runs; whoever would wait longer is let in for less
constexpr double kTrifle = 0.02;         // of a resident's isolated run: a delay that is let pass beyond any bound
constexpr double kInterlockedGain = 0.1; // capacity gate of two jobs whose partial depths interlock

} // namespace

/// What the job has waited and is to wait for GPUs of its own; where nobody told, until these are free.
double Waiting::wait_s(const Prediction &join) const
{
    return std::max(0.0, job_.waited_s) + (job_.wait_s >= 0 ? job_.wait_s : join.free_in_s);
}

bool Waiting::squeezed(const Prediction &join) const { return wait_s(join) >= kLongWait * join.own_run_s; }

/// Two jobs at partial depth that both end sooner than one after the other would: what their users asked for.
bool Waiting::interlocks(const Prediction &join) const
{
    return join.interlocked && join.most_jobs == 2 && join.own_finish_s < wait_s(join) + join.own_run_s;
}

/// Nobody notices it: else residents that have paid their share would keep a job of a minute waiting for days.
bool Waiting::trifling(const Prediction &join) const { return squeezed(join) && join.worst_delay <= kTrifle; }

double Waiting::allowed_finish(const Prediction &join) const
{
    const double strict = 1 + policy_.pay;
    return interlocks(join) || squeezed(join) ? std::max(strict, kFairShare) : strict;
}

double Waiting::least_gain(const Prediction &join, double own_gpus) const
{
    return own_gpus * (interlocks(join) ? std::min(policy_.least_gain, kInterlockedGain) : policy_.least_gain);
}

Waiting::Why Waiting::why(const Prediction &join, double own_gpus) const
{
    if (!join.known)
        return Why::no;
    if (join.worst_finish > allowed_finish(join) && !trifling(join))
        return Why::pay;
    if (join.gain < least_gain(join, own_gpus) && !join.short_visit && !squeezed(join))
        return Why::gate;
    const bool weighed = job_.wait_s >= 0 && (job_.time_limit_s > 0 || job_.run_s > 0 || policy_.unknown_run_s > 0);
    return weighed && join.score <= 0 && !trifling(join) ? Why::score : Why::no;
}

std::string Waiting::explain(const Prediction &join, double own_gpus, const std::string &place,
                             const std::string &others) const
{
    switch (why(join, own_gpus)) {
    case Why::no:
        break;
    case Why::pay:
        return "job " + std::to_string(join.worst_job) + " on " + place + " would run " +
               decimal(join.worst_finish, 2) + " times its time alone, at most " + decimal(allowed_finish(join), 2) +
               " allowed: wait for it or lower --time";
    case Why::gate:
        return "sharing " + place + " with " + others + " would gain the work of " + decimal(join.gain, 2) +
               " GPUs, at least " + decimal(least_gain(join, own_gpus), 2) + " needed: wait or lower --time";
    case Why::score:
        return "sharing " + place + " with " + others + " would cost " + decimal(-join.score, 0) +
               " s more than waiting " + decimal(job_.wait_s, 0) + " s: wait";
    }
    return {};
}

} // namespace jigsaw::core
