// SPDX-License-Identifier: Apache-2.0
// Handles of the CUDA runtime with an owner.
#include "runtime/collective/nccl/device.hpp"

#include <mutex>
#include <unordered_map>

namespace jigsaw::nccl {
namespace {

const abi::CudaFunctions &cuda() { return libraries().cuda; }

/// Functions on their way through a stream. CUDA carries a number, not a pointer: what a broken device never runs stays ours.
class Pending {
  public:
    void *add(std::function<void()> function)
    {
        const std::lock_guard lock(mutex_);
        waiting_.emplace(++last_, std::move(function));
        return reinterpret_cast<void *>(last_);
    }
    std::function<void()> take(void *key)
    {
        const std::lock_guard lock(mutex_);
        const auto found = waiting_.find(reinterpret_cast<std::uintptr_t>(key));
        std::function<void()> function = std::move(found->second);
        waiting_.erase(found);
        return function;
    }

  private:
    std::mutex mutex_;
    std::uintptr_t last_ = 0;
    std::unordered_map<std::uintptr_t, std::function<void()>> waiting_;
};
Pending &pending()
{
    static Pending *const all = new Pending; // outlives CUDA's threads
    return *all;
}

void call_and_forget(void *key) { pending().take(key)(); }

} // namespace

Device::Device(int index) : index_(index)
{
    const int devices = libraries().devices;
    if (index_ < 0)
        check_cuda(cuda().cudaGetDevice(&index_), "cudaGetDevice");
    if (index_ >= devices)
        throw Error(JIGSAW_INVALID_ARGUMENT, "cuda_device is " + std::to_string(index_) + "; this process sees " +
                                                 std::to_string(devices) + " (CUDA_VISIBLE_DEVICES)");
    use();
}

void Device::use() const { check_cuda(cuda().cudaSetDevice(index_), "cudaSetDevice"); }

void Device::require_here(const void *data, const std::string &what) const
{
    abi::PointerAttributes attributes{};
    check_cuda(cuda().cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
    if (attributes.type != abi::kCudaMemoryDevice && attributes.type != abi::kCudaMemoryManaged)
        throw Error(JIGSAW_INVALID_ARGUMENT,
                    what + " is host memory; backend \"nccl\" takes memory of the GPU, backend \"gloo\" takes this");
    if (attributes.device != index_)
        throw Error(JIGSAW_INVALID_ARGUMENT, what + " lies on GPU " + std::to_string(attributes.device) +
                                                 " and this rank uses GPU " + std::to_string(index_) +
                                                 "; set cuda_device, or the current device before attach");
}

OnDevice::OnDevice(const Device &device)
{
    check_cuda(cuda().cudaGetDevice(&before_), "cudaGetDevice");
    changed_ = before_ != device.index();
    if (changed_)
        device.use();
}

OnDevice::~OnDevice()
{
    if (changed_)
        cuda().cudaSetDevice(before_);
}

Event::Event() { check_cuda(cuda().cudaEventCreateWithFlags(&handle_, 0), "cudaEventCreateWithFlags"); }

Event::~Event() { cuda().cudaEventDestroy(handle_); }

void Event::record(abi::Stream stream)
{
    check_cuda(cuda().cudaEventRecord(handle_, stream), "cudaEventRecord");
    recorded_ = true;
}

bool Event::done() const
{
    const int code = cuda().cudaEventQuery(handle_);
    if (code == abi::kCudaNotReady)
        return false;
    check_cuda(code, "cudaEventQuery");
    return true;
}

std::uint64_t Event::ns_since(const Event &start) const
{
    float ms = 0;
    if (!recorded_ || !start.recorded_ ||
        cuda().cudaEventElapsedTime(&ms, start.handle_, handle_) != abi::kCudaSuccess || !(ms > 0))
        return 0;
    return static_cast<std::uint64_t>(static_cast<double>(ms) * 1e6);
}

Stream::Stream()
{
    int least = 0, greatest = 0;
    check_cuda(cuda().cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    check_cuda(cuda().cudaStreamCreateWithPriority(&handle_, abi::kCudaStreamNonBlocking, greatest),
               "cudaStreamCreateWithPriority");
}

Stream::~Stream() { cuda().cudaStreamDestroy(handle_); }

void Stream::wait(const Event &event)
{
    check_cuda(cuda().cudaStreamWaitEvent(handle_, event.handle(), 0), "cudaStreamWaitEvent");
}

void run_behind(abi::Stream stream, std::function<void()> function)
{
    void *const key = pending().add(std::move(function));
    const int code = cuda().cudaLaunchHostFunc(stream, call_and_forget, key);
    if (code != abi::kCudaSuccess)
        pending().take(key);
    check_cuda(code, "cudaLaunchHostFunc");
}

void check(abi::Stream stream)
{
    const int code = cuda().cudaStreamQuery(stream);
    if (code != abi::kCudaNotReady)
        check_cuda(code, "cudaStreamQuery");
}

bool failed(abi::Stream stream)
{
    const int code = cuda().cudaStreamQuery(stream);
    return code != abi::kCudaSuccess && code != abi::kCudaNotReady;
}

} // namespace jigsaw::nccl
