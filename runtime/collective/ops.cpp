// SPDX-License-Identifier: Apache-2.0
// Broadcast and mean, written as plain exchanges: they move bytes that are few or seldom.
#include "runtime/collective/ops.hpp"

#include "runtime/collective/tags.hpp"

#include <algorithm>
#include <vector>

namespace jigsaw::collective {
namespace {

using Requests = std::vector<std::unique_ptr<Request>>;

/// All of `requests`, within one time limit.
void wait_all(Requests &requests, std::chrono::milliseconds timeout)
{
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + timeout;
    for (auto &request : requests) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
        request->wait(std::max(left, std::chrono::milliseconds(0)));
    }
}

} // namespace

void broadcast(Collective &world, void *data, std::size_t bytes, int root, std::uint64_t sequence,
               std::chrono::milliseconds timeout)
{
    if (root < 0 || root >= world.size())
        throw Error(JIGSAW_INVALID_ARGUMENT, "broadcast: root " + std::to_string(root) + " is not a rank of 0.." +
                                                 std::to_string(world.size() - 1));
    const std::uint64_t tag = sequence_tag(TagKind::operation, sequence);
    Requests requests;
    if (world.rank() != root)
        requests.push_back(world.receive(root, tag, data, bytes));
    else
        for (int peer = 0; peer < world.size(); ++peer)
            if (peer != root)
                requests.push_back(world.send(peer, tag, data, bytes));
    wait_all(requests, timeout);
}

void mean(Collective &world, double *data, std::size_t count, std::uint64_t sequence,
          std::chrono::milliseconds timeout)
{
    const std::size_t size = static_cast<std::size_t>(world.size());
    const std::uint64_t tag = sequence_tag(TagKind::operation, sequence);
    std::vector<double> all(size * count);
    Requests requests;
    for (int peer = 0; peer < world.size(); ++peer) {
        double *const row = all.data() + static_cast<std::size_t>(peer) * count;
        if (peer == world.rank()) {
            std::copy(data, data + count, row);
            continue;
        }
        requests.push_back(world.receive(peer, tag, row, count * sizeof(double)));
        requests.push_back(world.send(peer, tag, data, count * sizeof(double)));
    }
    wait_all(requests, timeout);
    for (std::size_t i = 0; i < count; ++i) {
        double sum = all[i];
        for (std::size_t rank = 1; rank < size; ++rank)
            sum += all[rank * count + i];
        data[i] = sum / static_cast<double>(size);
    }
}

void barrier(Collective &world, std::uint64_t sequence, std::chrono::milliseconds timeout)
{
    double nothing = 0;
    mean(world, &nothing, 1, sequence, timeout);
}

} // namespace jigsaw::collective
