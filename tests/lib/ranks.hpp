// SPDX-License-Identifier: Apache-2.0
// Many ranks in one process, and what became of each of them.
#ifndef JIGSAW_TESTS_LIB_RANKS_HPP
#define JIGSAW_TESTS_LIB_RANKS_HPP

#include "runtime/collective/threads.hpp"

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace jigsaw::tests {

/// How a rank's function ended.
struct Outcome {
    jigsaw_result_t code = JIGSAW_SUCCESS;
    std::string text;
};

/// Runs `body` once per rank, each on a thread of its own with its own view of one thread world, and waits for all.
/// A rank that throws leaves the world as a crashed one does: its view is destroyed.
inline std::vector<Outcome> run_ranks(int size, const std::function<void(collective::Collective &)> &body)
{
    const auto world = collective::make_thread_world(size);
    std::vector<Outcome> outcomes(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
        threads.emplace_back([&, rank] {
            Outcome &outcome = outcomes[static_cast<std::size_t>(rank)];
            try {
                const auto view = collective::join(world, rank);
                body(*view);
            } catch (const Error &error) {
                outcome = {error.code(), error.what()};
            } catch (const std::exception &error) {
                outcome = {JIGSAW_INTERNAL_ERROR, error.what()};
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    return outcomes;
}

/// "" when every rank succeeded, else the first failure.
inline std::string first_failure(const std::vector<Outcome> &outcomes)
{
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank)
        if (outcomes[rank].code != JIGSAW_SUCCESS)
            return "rank " + std::to_string(rank) + ": " + outcomes[rank].text;
    return "";
}

} // namespace jigsaw::tests
#endif
