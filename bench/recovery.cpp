// SPDX-License-Identifier: Apache-2.0
// How long a rival waits when something dies: from SIGKILL of a holder, also with a forked child alive, from SIGSTOP of a
// holder, to the next grant (gate log); from SIGKILL of jigsawd to the waiter's going on. Beside each the lease, which is
// what a rival would wait if nothing were noticed.
//
//   bench/recovery [rounds]      programs of the build folder in top_builddir (scripts/bench sets it), else .
#include "bench/bench.hpp"
#include "tests/lib/daemon.hpp"

#include <algorithm>
#include <cstdlib>

namespace {

using namespace jigsaw;
using namespace jigsaw::tests;

constexpr double kLeaseMs = 1000; ///< core::TurnQueue's least; turns here are short

/// Two ranks on one GPU: a holds its turn for ever, b waits.
struct Pair {
    explicit Pair(Daemon &daemon, const std::string &more = "pause_us=0")
    {
        daemon.register_job(11);
        daemon.register_job(12);
        b = daemon.rank(12, {"work_us=200"});
        b->line_with("attached");
        a = daemon.rank(11, {"work_us=200", "hold_at=3", more});
        a->line_with("turn 3 granted");
        if (!eventually([&] { return daemon.status().find("\"waiting\":1") != std::string::npos; }))
            throw std::runtime_error("no pair: " + daemon.log());
    }
    std::unique_ptr<Child> a, b;
};

/// t_ns of the first grant after since_ns; 0: none yet.
std::uint64_t grant_after(const Daemon &daemon, std::uint64_t since_ns)
{
    for (const std::string &line : daemon.trace()) {
        const std::uint64_t t_ns = std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 10);
        if (t_ns >= since_ns && line.find("\"event\":\"grant\"") != std::string::npos)
            return t_ns;
    }
    return 0;
}

double signal_to_grant_ms(const std::string &programs, int signal, const std::string &more)
{
    Daemon daemon(programs);
    Pair pair(daemon, more);
    const std::uint64_t then_ns = page::monotonic_ns();
    pair.a->kill(signal);
    if (!eventually([&] { return grant_after(daemon, then_ns) != 0; }))
        throw std::runtime_error("no grant: " + daemon.log());
    return static_cast<double>(grant_after(daemon, then_ns) - then_ns) / 1e6;
}

double agent_kill_to_go_on_ms(const std::string &programs, int signal)
{
    Daemon daemon(programs);
    Pair pair(daemon);
    const std::uint64_t then_ns = page::monotonic_ns();
    daemon.agent().kill(signal);
    pair.b->line_with(signal == SIGTERM ? "granted" : "no_agent");
    return static_cast<double>(page::monotonic_ns() - then_ns) / 1e6;
}

void report(const std::string &metric, std::vector<double> values_ms, bool headline)
{
    std::sort(values_ms.begin(), values_ms.end());
    for (const auto &[name, at] : {std::make_pair("p50", 0.5), std::make_pair("p95", 0.95)}) {
        const double value = values_ms[static_cast<std::size_t>(at * static_cast<double>(values_ms.size() - 1))];
        bench::Line line("recovery", metric + "_" + name + "_ms", value, "ms");
        line.with("lease_ms", kLeaseMs).with("share_of_lease", value / kLeaseMs).with("rounds", values_ms.size());
        if (headline && at == 0.5)
            line.headline();
    }
}

template <class Measure> void repeat(const std::string &metric, int rounds, bool headline, Measure measure)
{
    std::vector<double> values_ms;
    for (int round = 0; round < rounds; ++round)
        values_ms.push_back(measure());
    report(metric, std::move(values_ms), headline);
}

} // namespace

int main(int argc, char **argv)
{
    const char *folder = std::getenv("top_builddir");
    const std::string programs = folder ? folder : ".";
    const auto rounds = static_cast<int>(bench::whole_argument(argc, argv, 1, "recovery: ROUNDS", 20, 1, 100000));
    try {
        repeat("holder_killed_to_grant", rounds, true,
               [&] { return signal_to_grant_ms(programs, SIGKILL, "pause_us=0"); });
        repeat("holder_with_child_killed_to_grant", rounds, false,
               [&] { return signal_to_grant_ms(programs, SIGKILL, "fork=1"); });
        repeat("holder_stopped_to_grant", rounds, false,
               [&] { return signal_to_grant_ms(programs, SIGSTOP, "pause_us=0"); });
        repeat("agent_killed_to_waiter_on", rounds, false,
               [&] { return agent_kill_to_go_on_ms(programs, SIGKILL); });
        repeat("agent_ended_to_waiter_on", rounds, false,
               [&] { return agent_kill_to_go_on_ms(programs, SIGTERM); });
    } catch (const std::exception &error) {
        std::fprintf(stderr, "recovery: %s\n", error.what());
        return 1;
    }
    return 0;
}
