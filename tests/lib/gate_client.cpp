// SPDX-License-Identifier: Apache-2.0
// A process with a gate and nothing else: attaches to a jigsawd, takes turns, computes for a while in each, and says on
// standard output what happened. Tests and bench/recovery run it as the ranks of jobs.
//
//   gate_client SOCKET JOB TOKEN [key=value]...
//     rank=0 world=1 local_rank=0 step=0 restart=0 gpu= generation=0
//     turns=N (0: for ever)   work_us=N  in a turn   pause_us=N  between turns
//     hold_at=N   in turn N sleep for ever          fork=1   leave a child behind that keeps every descriptor
//     stay=1      keep attached behind the last turn memory=N   reported bytes        blocks=N  reported blocks
//     uid=N       become that user first
//
//   attached gpu=G | refused WHY | turn N KIND WAIT_US | gone | back
#include "runtime/page/gate.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace {

using namespace jigsaw;

std::map<std::string, std::string> g_options;

std::uint64_t number(const std::string &key, std::uint64_t fallback)
{
    const auto found = g_options.find(key);
    return found == g_options.end() ? fallback : std::strtoull(found->second.c_str(), nullptr, 10);
}

void sleep_us(std::uint64_t us)
{
    timespec left{static_cast<time_t>(us / 1000000), static_cast<long>(us % 1000000) * 1000};
    while (nanosleep(&left, &left) != 0) {
    }
}

/// Says what a test waits for, at once.
void say(const std::string &line)
{
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

const char *kind_of(page::Turn turn)
{
    static constexpr const char *kKinds[] = {"no_agent", "open", "granted", "interrupted"};
    return kKinds[static_cast<int>(turn)];
}

page::AttachRequest request_of(char **argv)
{
    page::AttachRequest request;
    request.socket_path = argv[1];
    request.job_id = static_cast<std::uint32_t>(std::strtoul(argv[2], nullptr, 10));
    request.token = argv[3];
    request.restart = static_cast<std::uint32_t>(number("restart", 0));
    request.step_id = static_cast<std::uint32_t>(number("step", 0));
    request.rank = static_cast<std::uint32_t>(number("rank", 0));
    request.local_rank = static_cast<std::uint32_t>(number("local_rank", 0));
    request.world_size = static_cast<std::uint32_t>(number("world", 1));
    request.gpu = g_options["gpu"];
    request.agreed_generation = number("generation", 0);
    return request;
}

page::ReportView report_of(std::uint64_t iteration)
{
    page::ReportView view;
    view.num_blocks = static_cast<std::uint32_t>(number("blocks", 4));
    view.iteration = iteration;
    view.depth = view.last_depth = view.num_blocks;
    view.forward_ns = number("work_us", 0) * 333;
    view.backward_ns = number("work_us", 0) * 667;
    view.memory_bytes = view.memory_peak_bytes = number("memory", 0);
    view.loss = view.progress = std::nan("");
    view.block_backward_ns.assign(view.num_blocks, view.backward_ns / view.num_blocks);
    return view;
}

void take_turns(page::Gate &gate)
{
    const std::uint64_t turns = number("turns", 0), hold_at = number("hold_at", UINT64_MAX);
    bool attached = true;
    for (std::uint64_t turn = 0; turns == 0 || turn < turns; ++turn) {
        const std::uint64_t asked_ns = page::monotonic_ns();
        const page::Turn kind = gate.begin();
        gate.publish(report_of(turn));
        if (gate.attached() != attached) {
            attached = !attached;
            say(attached ? "back" : "gone");
        }
        say("turn " + std::to_string(turn) + " " + kind_of(kind) + " " +
            std::to_string((page::monotonic_ns() - asked_ns) / 1000));
        while (turn == hold_at)
            pause();
        sleep_us(number("work_us", 1000));
        gate.end();
        sleep_us(number("pause_us", 0));
    }
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 4) {
        std::fprintf(stderr, "usage: gate_client SOCKET JOB TOKEN [key=value]...\n");
        return 2;
    }
    for (int i = 4; i < argc; ++i) {
        const std::string word = argv[i];
        g_options[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    }
    const auto uid = static_cast<uid_t>(number("uid", getuid()));
    if (uid != getuid() && (setgid(uid) != 0 || setuid(uid) != 0))
        return 2;
    page::Gate gate;
    std::string why;
    if (!gate.attach(&why, request_of(argv), [](const std::string &line) { std::fprintf(stderr, "%s\n", line.c_str()); })) {
        say("refused " + why);
        return 1;
    }
    say("attached gpu=" + std::to_string(gate.gpu_index()));
    if (number("fork", 0) != 0 && fork() == 0) {
        alarm(300); // nobody waits for it
        for (;;)
            pause();
    }
    take_turns(gate);
    while (number("stay", 0) != 0)
        pause();
    return 0;
}
