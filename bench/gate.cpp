// SPDX-License-Identifier: Apache-2.0
// What a turn costs: without jigsawd, with one and no rival, and when a real jigsawd passes it from a process of one job to
// one of another. With the small arbiter of tests/lib (arbiter_side.hpp, first come first served) it is the cost of the
// protocol alone; jigsawd adds its choice and its log. Beside them, in the same run: a process-shared mutex and pipes, which know no arbiter, and
// pipes through a third process, which is the same number of wake-ups as ours.
//
//     bench/gate [TURNS]        turns of each process and method and round, default 400; jigsawd of the build folder in
//                               top_builddir (scripts/bench sets it), else .
#include "bench/bench.hpp"
#include "runtime/page/gate.hpp"
#include "tests/lib/mini_agent.hpp"
#ifdef JIGSAW_BENCH_JIGSAWD
#include "tests/lib/daemon.hpp"
#endif

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <vector>

namespace {

using namespace jigsaw;
using bench::Line;
using page::monotonic_ns;
using page::Turn;

constexpr int kRounds = 5;
constexpr long kTurnUs = 200, kPauseUs = 50; ///< asleep: the other process and the arbiter find idle cores

template <class T> T *shared(std::size_t count = 1)
{
    void *memory = mmap(nullptr, sizeof(T) * count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        std::abort();
    return new (memory) T[count]();
}

void sleep_us(long us)
{
    const timespec span = {0, us * 1000};
    nanosleep(&span, nullptr);
}

/// Nanoseconds of one call, the best of many short runs: what is slower was disturbed.
template <class Call> double best_ns(int calls, Call call)
{
    double best = 1e18;
    for (int run = 0; run < 50; ++run) {
        const std::uint64_t start = monotonic_ns();
        for (int i = 0; i < calls; ++i)
            call();
        best = std::min(best, static_cast<double>(monotonic_ns() - start) / calls);
    }
    return best;
}

std::string socket_path() { return "/tmp/jigsaw-bench-gate-" + std::to_string(getpid()); }

page::AttachRequest request_for(const std::string &path, int rank)
{
    page::AttachRequest request;
    request.socket_path = path;
    request.rank = static_cast<std::uint32_t>(rank);
    request.world_size = 2;
    return request;
}

void attach(page::Gate &gate, const std::string &path, int rank)
{
    std::string why;
    if (gate.attach(&why, request_for(path, rank), nullptr))
        return;
    std::fprintf(stderr, "bench/gate: %s\n", why.c_str());
    std::exit(1);
}

/// One of the ways in which two processes may take turns. Made before the fork.
class Method {
  public:
    virtual ~Method() = default;
    virtual void enter(int) {} ///< in the child, once
    virtual void ask(int me) = 0;
    virtual void give(int me) = 0;
    virtual void leave(int) {} ///< in the child, at its end
};

class GateMethod : public Method {
  public:
    explicit GateMethod(std::string path) : path_(std::move(path)) {}
    void enter(int me) override
    {
        gate_ = std::make_unique<page::Gate>();
        attach(*gate_, path_, me);
    }
    void ask(int) override { gate_->begin(); }
    void give(int) override { gate_->end(); }
    void leave(int) override { gate_.reset(); }

  private:
    std::string path_;
    std::unique_ptr<page::Gate> gate_;
};

#ifdef JIGSAW_BENCH_JIGSAWD
/// Two jobs of one rank on one GPU of a real jigsawd.
class JigsawdMethod : public Method {
  public:
    explicit JigsawdMethod(const tests::Daemon &daemon) : socket_(daemon.paths().socket)
    {
        for (int me = 0; me < 2; ++me)
            daemon.register_job(job_of(me));
    }
    void enter(int me) override
    {
        page::AttachRequest request = request_for(socket_, 0);
        request.world_size = 1;
        request.job_id = job_of(me);
        request.token = tests::Daemon::token(job_of(me));
        gate_ = std::make_unique<page::Gate>();
        std::string why;
        if (!gate_->attach(&why, request, nullptr)) {
            std::fprintf(stderr, "bench/gate: %s\n", why.c_str());
            std::exit(1);
        }
    }
    void ask(int) override { gate_->begin(); }
    void give(int) override { gate_->end(); }
    void leave(int) override { gate_.reset(); }

  private:
    static core::JobId job_of(int me) { return 11 + static_cast<core::JobId>(me); }
    std::string socket_;
    std::unique_ptr<page::Gate> gate_;
};
#endif

class MutexMethod : public Method {
  public:
    MutexMethod() : mutex_(shared<pthread_mutex_t>())
    {
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_mutex_init(mutex_, &attributes);
    }
    void ask(int) override { pthread_mutex_lock(mutex_); }
    void give(int) override { pthread_mutex_unlock(mutex_); }

  private:
    pthread_mutex_t *mutex_;
};

class Pipe {
  public:
    Pipe()
    {
        int ends[2];
        if (pipe(ends) != 0)
            std::abort();
        read_ = UniqueFd(ends[0]);
        write_ = UniqueFd(ends[1]);
    }
    char take() const
    {
        char byte = 0;
        return read(read_.get(), &byte, 1) == 1 ? byte : '\0';
    }
    void put(char byte) const
    {
        if (write(write_.get(), &byte, 1) != 1)
            std::abort();
    }

  private:
    UniqueFd read_, write_;
};

/// The token goes straight to the other.
class PipeMethod : public Method {
  public:
    PipeMethod() { token_[0].put('t'); }
    void ask(int me) override { token_[me].take(); }
    void give(int me) override { token_[1 - me].put('t'); }

  private:
    Pipe token_[2];
};

/// The token goes to a third process, which passes it on.
class ArbiterPipeMethod : public Method {
  public:
    ArbiterPipeMethod()
    {
        token_[0].put('t');
        arbiter_ = fork();
        if (arbiter_ != 0)
            return;
        for (char from = back_.take(); from != 'q'; from = back_.take())
            token_[from == '0' ? 1 : 0].put('t');
        _exit(0);
    }
    ~ArbiterPipeMethod() override
    {
        back_.put('q');
        waitpid(arbiter_, nullptr, 0);
    }
    void ask(int me) override { token_[me].take(); }
    void give(int me) override { back_.put(me == 0 ? '0' : '1'); }

  private:
    Pipe token_[2], back_;
    pid_t arbiter_ = -1;
};

struct Scene {
    std::atomic<int> ready;
    std::atomic<std::uint64_t> given_ns[2];
};

/// From the moment the other gave to the moment this one has the turn, for turns that it was already waiting for.
int take_turns(Method &method, int me, Scene &scene, double *samples_us, int turns)
{
    method.enter(me);
    for (++scene.ready; scene.ready < 2;)
        sched_yield();
    int count = 0;
    for (int i = 0; i < turns; ++i) {
        const std::uint64_t asked_ns = monotonic_ns();
        method.ask(me);
        const std::uint64_t now_ns = monotonic_ns(), given_ns = scene.given_ns[1 - me];
        if (given_ns > asked_ns && now_ns > given_ns)
            samples_us[count++] = static_cast<double>(now_ns - given_ns) / 1000;
        sleep_us(kTurnUs);
        scene.given_ns[me] = monotonic_ns();
        method.give(me);
        sleep_us(kPauseUs);
    }
    method.leave(me);
    return count;
}

void hand_over(std::vector<double> *samples_us, Method &method, int turns)
{
    Scene *scene = shared<Scene>();
    double *samples = shared<double>(2 * static_cast<std::size_t>(turns));
    int *counts = shared<int>(2);
    pid_t children[2];
    for (int me = 0; me < 2; ++me) {
        children[me] = fork();
        if (children[me] == 0) {
            counts[me] = take_turns(method, me, *scene, samples + me * turns, turns);
            _exit(0);
        }
    }
    for (int me = 0; me < 2; ++me) {
        waitpid(children[me], nullptr, 0);
        samples_us->insert(samples_us->end(), samples + me * turns, samples + me * turns + counts[me]);
    }
    munmap(scene, sizeof *scene);
    munmap(samples, sizeof *samples * 2 * static_cast<std::size_t>(turns));
    munmap(counts, sizeof *counts * 2);
}

double percentile(std::vector<double> &samples, double share)
{
    if (samples.empty())
        return 0;
    const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(samples.size() - 1));
    std::nth_element(samples.begin(), samples.begin() + at, samples.end());
    return samples[static_cast<std::size_t>(at)];
}

void bench_alone()
{
    page::Gate none;
    Line("gate", "begin_end_no_agent_ns", best_ns(200000, [&] { none.begin(), none.end(); }), "ns").headline();

    MutexMethod mutex;
    Line("gate", "mutex_lock_unlock_ns", best_ns(200000, [&] { mutex.ask(0), mutex.give(0); }), "ns");

    for (const bool closed : {false, true}) {
        tests::MiniAgent::Options options;
        options.always_closed = closed;
        options.keeps_log = false;
        tests::MiniAgent agent(socket_path(), options);
        agent.start();
        page::Gate gate;
        attach(gate, socket_path(), 0);
        const double us = best_ns(closed ? 1000 : 100000, [&] { gate.begin(), gate.end(); }) / 1000;
        if (closed)
            Line("gate", "begin_end_through_arbiter_us", us, "us");
        else
            Line("gate", "begin_end_alone_us", us, "us").headline();
        unlink(socket_path().c_str());
    }
}

void bench_hand_over(int turns)
{
    std::vector<double> jigsawd_us, gate_us, mutex_us, pipe_us, third_us;
    for (int round = 0; round < kRounds; ++round) {
        {
            tests::MiniAgent::Options options;
            options.always_closed = true;
            options.keeps_log = false;
            const std::string path = socket_path();
            tests::MiniAgent agent(path, options);
            agent.start();
            GateMethod method(path);
            hand_over(&gate_us, method, turns);
            unlink(path.c_str());
        }
#ifdef JIGSAW_BENCH_JIGSAWD
        {
            const char *folder = std::getenv("top_builddir");
            tests::Daemon daemon(folder ? folder : ".");
            JigsawdMethod method(daemon);
            hand_over(&jigsawd_us, method, turns);
        }
#endif
        MutexMethod mutex;
        hand_over(&mutex_us, mutex, turns);
        PipeMethod direct;
        hand_over(&pipe_us, direct, turns);
        ArbiterPipeMethod third;
        hand_over(&third_us, third, turns);
    }
    const auto samples = gate_us.size();
    const double p50 = percentile(gate_us, 0.5), third_p50 = percentile(third_us, 0.5);
    if (!jigsawd_us.empty()) {
        Line("gate", "handover_p50_us", percentile(jigsawd_us, 0.5), "us").with("samples", jigsawd_us.size()).headline();
        Line("gate", "handover_p99_us", percentile(jigsawd_us, 0.99), "us").with("samples", jigsawd_us.size());
    }
    Line("gate", "handover_small_arbiter_p50_us", p50, "us").with("samples", samples);
    Line("gate", "handover_small_arbiter_p99_us", percentile(gate_us, 0.99), "us").with("samples", samples);
    Line("gate", "handover_mutex_p50_us", percentile(mutex_us, 0.5), "us").with("samples", mutex_us.size());
    Line("gate", "handover_pipe_p50_us", percentile(pipe_us, 0.5), "us").with("samples", pipe_us.size());
    Line("gate", "handover_pipe_arbiter_p50_us", third_p50, "us").with("samples", third_us.size());
    Line("gate", "handover_pipe_arbiter_p99_us", percentile(third_us, 0.99), "us").with("samples", third_us.size());
    Line("gate", "handover_ratio_to_pipe_arbiter", third_p50 > 0 ? p50 / third_p50 : 0, "1");
}

} // namespace

int main(int argc, char **argv)
{
    const auto turns = static_cast<int>(bench::whole_argument(argc, argv, 1, "gate: TURNS", 400, 1, 1000000));
    bench_alone();
    bench_hand_over(turns);
    return 0;
}
