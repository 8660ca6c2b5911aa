// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime's half of fake_gpu.so: streams, events, host functions, and the controls of both halves.
#include "tests/fakes/fake_internal.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace jigsaw::tests::fake {
namespace {

using Clock = std::chrono::steady_clock;
enum Code { success = 0, invalid_value = 1, not_ready = 600, launch_failure = 719 };

struct Controls {
    std::mutex mutex;
    std::map<std::string, int> calls;
    std::map<std::string, std::pair<int, int>> injected; ///< function: calls until it fails, code
    std::string violations;
};
Controls &controls()
{
    static Controls *const all = new Controls; // outlives every stream's thread
    return *all;
}

std::atomic<bool> broken{false};
std::atomic<int> memory_type{2};
thread_local bool in_host_function = false;

/// Runs what is queued, in order, on one thread.
class FakeStream {
  public:
    FakeStream() : thread_([this] { run(); }) {}
    ~FakeStream()
    {
        {
            const std::lock_guard lock(mutex_);
            closing_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    void push(std::function<void()> work)
    {
        {
            const std::lock_guard lock(mutex_);
            queue_.push_back(std::move(work));
        }
        changed_.notify_all();
    }
    bool empty()
    {
        const std::lock_guard lock(mutex_);
        return queue_.empty() && !busy_;
    }

  private:
    void run()
    {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
            if (queue_.empty())
                return;
            const std::function<void()> work = std::move(queue_.front());
            queue_.pop_front();
            busy_ = true;
            lock.unlock();
            if (!broken)
                work();
            lock.lock();
            busy_ = false;
        }
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> queue_;
    bool closing_ = false, busy_ = false;
    std::thread thread_;
};

/// A record is done when all that was queued before it has run. State is shared with what is queued.
struct EventState {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t recorded = 0, done = 0;
    Clock::time_point when;
};
struct FakeEvent {
    std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

FakeStream &stream_of(void *handle)
{
    static FakeStream legacy;
    return handle ? *static_cast<FakeStream *>(handle) : legacy;
}

void wait_for(const std::shared_ptr<EventState> &state, std::uint64_t record)
{
    std::unique_lock lock(state->mutex);
    while (!state->changed.wait_for(lock, std::chrono::milliseconds(20), [&] { return state->done >= record; }))
        if (broken)
            return;
}

} // namespace

int enter(const char *function)
{
    if (in_host_function)
        violation(std::string(function) + " was called inside a host function");
    if (broken && std::string(function).rfind("cuda", 0) == 0)
        return launch_failure;
    Controls &all = controls();
    const std::lock_guard lock(all.mutex);
    ++all.calls[function];
    const auto found = all.injected.find(function);
    if (found == all.injected.end() || --found->second.first > 0)
        return 0;
    const int code = found->second.second;
    all.injected.erase(found);
    return code;
}

void violation(const std::string &text)
{
    const std::lock_guard lock(controls().mutex);
    controls().violations += text + "\n";
}

void enqueue(void *stream, std::function<void()> work) { stream_of(stream).push(std::move(work)); }

bool device_broken() { return broken; }

} // namespace jigsaw::tests::fake

using namespace jigsaw::tests::fake;

FAKE_API void fake_inject(const char *function, int nth, int code)
{
    const std::lock_guard lock(controls().mutex);
    controls().injected[function] = {nth, code};
}
FAKE_API int fake_calls(const char *function)
{
    const std::lock_guard lock(controls().mutex);
    return controls().calls[function];
}
FAKE_API void fake_kernel(void *stream, void (*function)(void *), void *argument)
{
    stream_of(stream).push([function, argument] { function(argument); });
}
FAKE_API void fake_break_device(void) { broken = true; }
FAKE_API void fake_memory_type(int type) { memory_type = type; }
FAKE_API const char *fake_violations(void)
{
    static thread_local std::string copy;
    const std::lock_guard lock(controls().mutex);
    copy = controls().violations;
    return copy.c_str();
}

#define ENTER(name)                                                                                                    \
    if (const int injected_code = enter(name))                                                                         \
    return injected_code

FAKE_API const char *cudaGetErrorString(int error)
{
    switch (error) {
    case success: return "no error";
    case invalid_value: return "invalid argument";
    case not_ready: return "device not ready";
    case launch_failure: return "unspecified launch failure";
    default: return "fake error";
    }
}
FAKE_API int cudaGetDeviceCount(int *ret_count)
{
    ENTER("cudaGetDeviceCount");
    *ret_count = 1;
    return success;
}
FAKE_API int cudaGetDevice(int *ret_device)
{
    ENTER("cudaGetDevice");
    *ret_device = 0;
    return success;
}
FAKE_API int cudaSetDevice(int device)
{
    ENTER("cudaSetDevice");
    return device == 0 ? success : invalid_value;
}
FAKE_API int cudaPointerGetAttributes(void *ret_attributes, const void *pointer)
{
    ENTER("cudaPointerGetAttributes");
    struct Attributes {
        int type, device;
        void *device_pointer, *host_pointer;
    };
    auto *const out = static_cast<Attributes *>(ret_attributes);
    out->type = memory_type;
    out->device = 0;
    out->device_pointer = const_cast<void *>(pointer);
    out->host_pointer = nullptr;
    return success;
}
FAKE_API int cudaDeviceGetStreamPriorityRange(int *ret_least, int *ret_greatest)
{
    ENTER("cudaDeviceGetStreamPriorityRange");
    *ret_least = 0;
    *ret_greatest = -5;
    return success;
}
FAKE_API int cudaStreamCreateWithPriority(void **ret_stream, unsigned, int)
{
    ENTER("cudaStreamCreateWithPriority");
    *ret_stream = new FakeStream;
    return success;
}
FAKE_API int cudaStreamDestroy(void *stream)
{
    delete static_cast<FakeStream *>(stream);
    ENTER("cudaStreamDestroy");
    return success;
}
FAKE_API int cudaStreamQuery(void *stream)
{
    ENTER("cudaStreamQuery");
    return stream_of(stream).empty() ? success : not_ready;
}
FAKE_API int cudaStreamWaitEvent(void *stream, void *event, unsigned)
{
    ENTER("cudaStreamWaitEvent");
    const auto state = static_cast<FakeEvent *>(event)->state;
    std::unique_lock lock(state->mutex);
    const std::uint64_t record = state->recorded;
    lock.unlock();
    stream_of(stream).push([state, record] { wait_for(state, record); });
    return success;
}
FAKE_API int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *argument)
{
    ENTER("cudaLaunchHostFunc");
    stream_of(stream).push([function, argument] {
        in_host_function = true;
        function(argument);
        in_host_function = false;
    });
    return success;
}
FAKE_API int cudaEventCreateWithFlags(void **ret_event, unsigned)
{
    ENTER("cudaEventCreateWithFlags");
    *ret_event = new FakeEvent;
    return success;
}
FAKE_API int cudaEventDestroy(void *event)
{
    delete static_cast<FakeEvent *>(event);
    ENTER("cudaEventDestroy");
    return success;
}
FAKE_API int cudaEventRecord(void *event, void *stream)
{
    ENTER("cudaEventRecord");
    const auto state = static_cast<FakeEvent *>(event)->state;
    std::unique_lock lock(state->mutex);
    const std::uint64_t record = ++state->recorded;
    lock.unlock();
    stream_of(stream).push([state, record] {
        {
            const std::lock_guard done(state->mutex);
            state->done = record;
            state->when = Clock::now();
        }
        state->changed.notify_all();
    });
    return success;
}
FAKE_API int cudaEventQuery(void *event)
{
    ENTER("cudaEventQuery");
    const auto &state = static_cast<FakeEvent *>(event)->state;
    const std::lock_guard lock(state->mutex);
    return state->done == state->recorded ? success : not_ready;
}
FAKE_API int cudaEventElapsedTime(float *ret_ms, void *start, void *end)
{
    ENTER("cudaEventElapsedTime");
    Clock::time_point when[2];
    for (int i = 0; i < 2; ++i) {
        const auto &state = static_cast<FakeEvent *>(i ? end : start)->state;
        const std::lock_guard lock(state->mutex);
        if (state->done != state->recorded)
            return not_ready;
        when[i] = state->when;
    }
    *ret_ms = std::chrono::duration<float, std::milli>(when[1] - when[0]).count();
    return success;
}
