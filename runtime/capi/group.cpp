// SPDX-License-Identifier: Apache-2.0
// The two operations over all ranks that a training loop needs beside its gradients. They wait for peers, so the turn
// goes back first (docs/protocol.md "No hold and wait"); the next begin_iteration takes it again.
#include "runtime/capi/session.hpp"
#include "runtime/collective/error.hpp"
#include "runtime/collective/ops.hpp"

namespace jigsaw::capi {

void Session::broadcast(void *data, std::size_t bytes, std::uint32_t root)
{
    if (state_ == State::broken)
        expect(State::attached, "jigsaw_broadcast");
    if (root >= world_size())
        throw Error(JIGSAW_INVALID_ARGUMENT, "jigsaw_broadcast: root is " + std::to_string(root) + " of " +
                                                 std::to_string(world_size()) + " ranks");
    turns_->give();
    collective::broadcast(*world_, data, bytes, static_cast<int>(root), group_calls_++, settings_.timeout);
}

void Session::mean(double *data, std::size_t count)
{
    if (state_ == State::broken)
        expect(State::attached, "jigsaw_mean");
    turns_->give();
    collective::mean(*world_, data, count, group_calls_++, settings_.timeout);
}

} // namespace jigsaw::capi
