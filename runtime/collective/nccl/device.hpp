// SPDX-License-Identifier: Apache-2.0
// One GPU as this process uses it: streams, events, and functions of ours that run behind queued work.
#ifndef JIGSAW_COLLECTIVE_NCCL_DEVICE_HPP
#define JIGSAW_COLLECTIVE_NCCL_DEVICE_HPP

#include "runtime/collective/nccl/libraries.hpp"

#include <cstdint>
#include <functional>

namespace jigsaw::nccl {

class Device {
  public:
    /// -1: the calling thread's current device. Throws JIGSAW_NO_BACKEND, JIGSAW_INVALID_ARGUMENT.
    explicit Device(int index);
    int index() const { return index_; }
    /// Every thread of ours that calls CUDA says so first.
    void use() const;
    /// Throws JIGSAW_INVALID_ARGUMENT unless `data` lies on this device; `what` names it.
    void require_here(const void *data, const std::string &what) const;

  private:
    int index_;
};

/// The calling thread's current device is this one while it lives: a stream of NULL means the current device's.
class OnDevice {
  public:
    explicit OnDevice(const Device &device);
    ~OnDevice();
    OnDevice(const OnDevice &) = delete;

  private:
    int before_ = 0;
    bool changed_ = false;
};

class Event {
  public:
    Event();
    ~Event();
    Event(const Event &) = delete;
    void record(abi::Stream stream);
    bool done() const;
    /// Nanoseconds of GPU time from `start` to this; 0 unless both were recorded and are done.
    std::uint64_t ns_since(const Event &start) const;
    abi::Event handle() const { return handle_; }

  private:
    abi::Event handle_ = nullptr;
    bool recorded_ = false;
};

/// A stream beside the framework's, of the highest priority: a few blocks of a collective should not queue behind compute.
class Stream {
  public:
    Stream();
    ~Stream();
    Stream(const Stream &) = delete;
    void wait(const Event &event);
    abi::Stream handle() const { return handle_; }

  private:
    abi::Stream handle_ = nullptr;
};

/// Runs `function` on a thread of CUDA's when everything queued on `stream` so far has run. It must not call CUDA and
/// must not block. After an error of the device it never runs: whoever waits for it must also look at the stream.
void run_behind(abi::Stream stream, std::function<void()> function);

/// Throws JIGSAW_SYSTEM_ERROR when the device failed, so that nothing on `stream` will ever run.
void check(abi::Stream stream);
/// True when check() would throw.
bool failed(abi::Stream stream);

} // namespace jigsaw::nccl
#endif
