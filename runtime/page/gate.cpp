// SPDX-License-Identifier: Apache-2.0
// begin() and end() of a turn, in a process that trains.
//
//            begin: RUNNING stored, gate read OPEN                       end: IDLE stored, no bell (gate OPEN)
//      idle ------------------------------------------> running ------------------------------------> idle
//        |                                               ^   |   end: IDLE stored, bell (gate CLOSED)
//        | begin: gate read CLOSED:                      |   +----------------------------------------> idle
//        | WAITING stored, want+1 stored, bell           |
//        +--------------> waiting -----------------------+  grant reached want: RUNNING stored
//                            |  ^                        +  gate found OPEN (looked at every 100 ms): begin anew
//                            |  +- 100 ms: on_wake       +  jigsawd silent for 500 ms: RUNNING stored, ungated
//                            +---> idle                     on_wake said stop: IDLE stored, bell: interrupted
//                            +---> no agent                 socket hung up: pages given up, attach again later
//
// The arbiter's half, and why WAITING with grant == want counts as holding, stands in arbiter_side.hpp; both together
// are tests/model/gate.pml. A turn taken while jigsawd is silent is marked RUNNING all the same, so that a jigsawd
// that was only stopped finds its holders when it goes on.
//
// A forked child shares nothing: its pages are gone (MADV_DONTFORK), a word of our own is zero (MADV_WIPEONFORK; sees
// every kind of fork, also those that run no pthread_atfork handler), and every call looks at that word first.
#include "runtime/page/gate.hpp"

#include "runtime/page/attach.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace jigsaw::page {
namespace {

constexpr std::int64_t kSilenceLimitNs = 500 * 1000000;
constexpr long kWakeNs = 100 * 1000000;
constexpr std::uint64_t kFirstBackOffNs = 100 * 1000000ull, kLastBackOffNs = 5000 * 1000000ull;
constexpr int kGlanceMs = 5; ///< what an iteration in the middle of training waits for jigsawd when it attaches again

/// A few nanoseconds, and exact to a clock tick: enough for half a second.
std::uint64_t coarse_ns()
{
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000u + static_cast<std::uint64_t>(now.tv_nsec);
}

/// True in the process that made it, false in every child.
class Birthmark {
  public:
    Birthmark()
    {
        void *memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return;
        word_ = static_cast<std::uint32_t *>(memory);
        *word_ = madvise(memory, kBytes, MADV_WIPEONFORK) == 0;
    }
    ~Birthmark()
    {
        if (word_)
            munmap(word_, kBytes);
    }
    Birthmark(const Birthmark &) = delete;
    bool here() const { return word_ && *word_ != 0; }

  private:
    static constexpr std::size_t kBytes = 4096;
    std::uint32_t *word_ = nullptr;
};

/// Returns when the word changed, was woken, 100 ms passed or a signal came; true for the last two.
bool sleep_on(const std::uint32_t *word, std::uint32_t seen)
{
    const timespec limit = {0, kWakeNs};
    return syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, nullptr, 0) != 0 && errno != EAGAIN;
}

std::string milliseconds(std::int64_t ns) { return std::to_string(ns / 1000000) + " ms"; }

} // namespace

struct Gate::State {
    AttachRequest request;
    Log log;
    Birthmark birthmark;
    std::unique_ptr<Attachment> agent; ///< null: no agent
    std::unique_ptr<AttachAttempt> attempt;
    bool retries = false; ///< an agent is worth looking for
    bool silent = false;  ///< it was, at the last look
    std::uint64_t next_try_ns = 0, back_off_ns = kFirstBackOffNs;
    std::uint32_t want = 0;
    /// Set by begin(), cleared by end() in whatever thread the compute's end is noticed.
    std::atomic<bool> held{false};
    Turn turn = Turn::no_agent;

    ~State() { abandon(); }

    const jigsaw_directive_page_t &directive() const { return *agent->pages.directive.get(); }
    jigsaw_report_page_t &report() { return *agent->pages.report.get(); }
    void set_state(jigsaw_state state)
    {
        __atomic_store_n(&report().state, static_cast<std::uint32_t>(state), __ATOMIC_SEQ_CST);
    }
    bool gate_open() const { return __atomic_load_n(&directive().gate, __ATOMIC_SEQ_CST) == JIGSAW_GATE_OPEN; }
    std::int64_t silence_ns() const
    {
        const std::uint64_t beat = __atomic_load_n(&directive().heartbeat_ns, __ATOMIC_ACQUIRE);
        return static_cast<std::int64_t>(coarse_ns() - beat);
    }
    bool heard() const { return silence_ns() <= kSilenceLimitNs; }
    bool usable() const { return agent && birthmark.here(); }

    void say(const std::string &text) const;
    void ring() const;
    void adopt();
    void abandon();
    void lose(const std::string &why);
    void try_again_later();
    void look_for_agent();
    bool goes_without_agent();
    bool wait(Turn *ret_turn, const std::function<bool()> &on_wake);
    bool done_waiting(Turn *ret_turn, const std::function<bool()> &on_wake);
    Turn take(const std::function<bool()> &on_wake);
};

void Gate::State::say(const std::string &text) const
{
    if (log)
        log("job " + std::to_string(request.job_id) + " rank " + std::to_string(request.rank) + ": " + text);
}

void Gate::State::ring() const
{
    const std::uint64_t one = 1;
    // Full means rung 2^64 times and never heard: nothing is lost.
    if (write(agent->bell.get(), &one, sizeof one) < 0)
        return;
}

/// The attempt is done: its pages are ours. A new pair of pages starts counting at 0.
void Gate::State::adopt()
{
    agent = std::make_unique<Attachment>(attempt->take());
    attempt.reset();
    want = 0;
    silent = false;
    back_off_ns = kFirstBackOffNs;
}

/// Lets go of pages and socket. In a forked child the addresses may belong to something else by now: they are left.
void Gate::State::abandon()
{
    if (!agent)
        return;
    if (!birthmark.here()) {
        agent.release();
        return;
    }
    set_state(JIGSAW_STATE_IDLE);
    ring();
    agent.reset();
}

void Gate::State::lose(const std::string &why)
{
    say(why + "; going on without turns, attaching again at iterations");
    abandon();
    try_again_later();
}

void Gate::State::try_again_later()
{
    attempt.reset();
    next_try_ns = coarse_ns() + back_off_ns;
    back_off_ns = std::min(2 * back_off_ns, kLastBackOffNs);
}

void Gate::State::look_for_agent()
{
    if (!attempt) {
        if (coarse_ns() < next_try_ns)
            return;
        attempt = std::make_unique<AttachAttempt>(request);
    }
    switch (attempt->advance(kGlanceMs)) {
    case AttachAttempt::Progress::pending:
        return;
    case AttachAttempt::Progress::failed:
        return try_again_later();
    case AttachAttempt::Progress::done:
        adopt();
        say("attached to jigsawd again; taking turns");
    }
}

/// jigsawd is silent or gone: this turn is nobody's business. Says so once for each change.
bool Gate::State::goes_without_agent()
{
    const bool was_silent = std::exchange(silent, !heard());
    if (!silent) {
        if (was_silent)
            say("jigsawd is heard again; taking turns");
        return false;
    }
    if (wire::has_hung_up(agent->socket.get()))
        lose("jigsawd ended");
    else if (!was_silent)
        say("jigsawd is silent for " + milliseconds(silence_ns()) + " (limit " + milliseconds(kSilenceLimitNs) +
            "); going on without turns");
    return true;
}

/// After 100 ms, a signal, or a want that found nobody: is there a reason to wait no longer?
bool Gate::State::done_waiting(Turn *ret_turn, const std::function<bool()> &on_wake)
{
    if (wire::has_hung_up(agent->socket.get())) {
        lose("jigsawd ended");
        *ret_turn = Turn::no_agent;
        return true;
    }
    if (!heard()) {
        set_state(JIGSAW_STATE_RUNNING);
        *ret_turn = Turn::no_agent;
        if (goes_without_agent())
            return true;
        set_state(JIGSAW_STATE_WAITING); // heard in this very moment
    }
    if (on_wake && !on_wake()) {
        set_state(JIGSAW_STATE_IDLE);
        ring();
        *ret_turn = Turn::interrupted;
        return true;
    }
    return false;
}

/// Asks and waits. False: the gate was found open, begin anew.
bool Gate::State::wait(Turn *ret_turn, const std::function<bool()> &on_wake)
{
    set_state(JIGSAW_STATE_WAITING);
    __atomic_store_n(&report().want, ++want, __ATOMIC_SEQ_CST);
    ring();
    for (bool look = true;; look = false) {
        const std::uint32_t granted = __atomic_load_n(&directive().grant, __ATOMIC_SEQ_CST);
        if (static_cast<std::int32_t>(granted - want) >= 0) {
            set_state(JIGSAW_STATE_RUNNING);
            *ret_turn = Turn::granted;
            return true;
        }
        if (look && wire::has_hung_up(agent->socket.get()) && done_waiting(ret_turn, nullptr))
            return true;
        if (!sleep_on(&directive().grant, granted))
            continue;
        if (done_waiting(ret_turn, on_wake))
            return true;
        if (gate_open())
            return false;
    }
}

Turn Gate::State::take(const std::function<bool()> &on_wake)
{
    for (;;) {
        set_state(JIGSAW_STATE_RUNNING);
        if (__builtin_expect(silent || !heard(), 0) && goes_without_agent())
            return Turn::no_agent;
        if (gate_open())
            return Turn::open;
        Turn taken = Turn::no_agent;
        if (wait(&taken, on_wake))
            return taken;
    }
}

Gate::Gate() : state_(std::make_unique<State>()) {}

Gate::~Gate() = default;

bool Gate::attach(std::string *ret_why, const AttachRequest &request, Log log)
{
    detach();
    state_ = std::make_unique<State>(); // also a new birthmark: a forked child may attach for itself
    state_->request = request;
    state_->log = std::move(log);
    *ret_why = implausible(request);
    if (!ret_why->empty())
        return false;
    state_->retries = true;
    state_->attempt = std::make_unique<AttachAttempt>(request);
    if (state_->attempt->advance(kStepLimitMs) == AttachAttempt::Progress::done) {
        state_->adopt();
        return true;
    }
    *ret_why = state_->attempt->why().empty() ? "no answer to ATTACH within 1000 ms" : state_->attempt->why();
    state_->try_again_later();
    return false;
}

void Gate::detach()
{
    state_->held.store(false, std::memory_order_release);
    state_->retries = false;
    state_->attempt.reset();
    state_->abandon();
}

Turn Gate::begin(const std::function<bool()> &on_wake)
{
    State &state = *state_;
    if (state.held.load(std::memory_order_acquire) && state.birthmark.here())
        return state.turn;
    if (!state.agent && state.retries && state.birthmark.here())
        state.look_for_agent();
    state.turn = state.usable() ? state.take(on_wake) : Turn::no_agent;
    state.held.store(state.turn != Turn::interrupted, std::memory_order_release);
    return state.turn;
}

void Gate::end()
{
    State &state = *state_;
    if (!state.held.load(std::memory_order_acquire)) // no exchange: one thread at a time, and it costs 8 ns
        return;
    state.held.store(false, std::memory_order_release);
    if (!state.usable())
        return;
    const int saved_errno = errno;
    state.set_state(JIGSAW_STATE_IDLE);
    if (!state.gate_open())
        state.ring();
    errno = saved_errno;
}

bool Gate::holds() const { return state_->held.load(std::memory_order_acquire) && state_->birthmark.here(); }

bool Gate::attached() const { return state_->usable() && state_->heard(); }

int Gate::gpu_index() const { return state_->agent ? state_->agent->gpu : -1; }

const std::vector<int> &Gate::cores() const
{
    static const std::vector<int> kNone;
    return state_->agent ? state_->agent->cores : kNone;
}

bool Gate::read_wanted(DirectiveView *ret_view) const
{
    return attached() && read_directive(ret_view, state_->agent->pages.directive.get());
}

void Gate::publish(const ReportView &view)
{
    state_->request.agreed_generation = view.agreed.generation;
    if (state_->usable())
        publish_report(state_->agent->pages.report.get(), view);
}

} // namespace jigsaw::page
