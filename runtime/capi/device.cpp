// SPDX-License-Identifier: Apache-2.0
// A session whose blocks are on a GPU: where its turns end, when its collectives may be launched, and what GPU time its
// compute took. docs/protocol.md "Gate".
#include "runtime/capi/session.hpp"

#include <algorithm>

namespace jigsaw::capi {

void Session::make_gradients()
{
    if (!settings_.nccl) {
        gradients_ = std::make_unique<sync::GradientSync>(*world_, settings_.blocks, settings_.strategy);
        return;
    }
    sync::DeviceSync::Options options;
    options.device = settings_.cuda_device;
    options.timeout = settings_.timeout;
    options.waits_for_turn = [this] { return turns_->waiting(); };
    auto sync = std::make_unique<sync::DeviceSync>(*world_, settings_.blocks, options);
    device_ = sync.get();
    gradients_ = std::move(sync);
}

/// Without an agent there is nobody to give a turn to, and no reason to wait for the GPU.
Turns::Queue Session::queue()
{
    if (!settings_.nccl || !settings_.agent_given)
        return {};
    return {[this](std::function<void()> function) { device_->run_behind(std::move(function)); },
            [this] { return device_->device_failed(); }};
}

void Session::set_stream(void *cuda_stream)
{
    if (device_)
        device_->set_stream(cuda_stream);
}

/// The same on every rank: all have the records of the last exchange. Before the first one nobody knows: carefully.
bool Session::lockstep() const
{
    const std::vector<sync::AgreementInput> &inputs = agreement_->inputs();
    return next_ == settings_.first_iteration ||
           std::any_of(inputs.begin(), inputs.end(), [](const sync::AgreementInput &input) { return input.shares; });
}

/// In place of the host's clock, which only says when work was queued.
void Session::take_device_times()
{
    constexpr std::uint64_t kOrigin = 1; // BlockTimes takes a start of 0 for unknown
    const sync::DeviceTimes times = device_->times();
    const std::uint32_t blocks = settings_.num_blocks(), first = blocks - plan_.depths[rank()];
    bool known = times.forward_end_ns != 0;
    for (std::uint32_t block = first; block < blocks; ++block)
        known = known && times.ready_ns[block] != 0;
    if (known) {
        block_times_.start(kOrigin + times.forward_end_ns);
        for (std::uint32_t block = first; block < blocks; ++block)
            block_times_.stamp(block, kOrigin + times.ready_ns[block]);
        forward_end_ns_ = begun_ns_ + times.forward_end_ns;
        compute_end_ns_ = begun_ns_ + std::max(times.compute_end_ns, times.ready_ns[first]);
    }
    note_compute_end();
}

} // namespace jigsaw::capi
