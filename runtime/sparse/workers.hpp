// SPDX-License-Identifier: Apache-2.0
// A few threads that share out numbered tasks; the caller is one of them.
#ifndef JIGSAW_RUNTIME_SPARSE_WORKERS_HPP
#define JIGSAW_RUNTIME_SPARSE_WORKERS_HPP

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace jigsaw::sparse {

/// One caller at a time. Tasks must not throw.
class Workers {
public:
    explicit Workers(unsigned threads);
    ~Workers();
    Workers(const Workers &) = delete;
    Workers &operator=(const Workers &) = delete;

    unsigned threads() const { return static_cast<unsigned>(helpers_.size()) + 1; }
    /// task(0) ... task(count - 1), in any order; returns when all are done. `between` runs on the caller after each task
    /// that it did itself: it moves messages along (only the caller may use MPI).
    void run(std::uint32_t count, const std::function<void(std::uint32_t)> &task, const std::function<void()> &between = {});

private:
    void help();

    std::mutex lock_; ///< guards the four below
    std::condition_variable has_work_, is_done_;
    std::uint64_t round_ = 0;
    unsigned busy_ = 0;
    bool stop_ = false;

    // Written by run() under the lock before a round starts, read by the helpers after they saw the round.
    const std::function<void(std::uint32_t)> *task_ = nullptr;
    std::uint32_t count_ = 0;
    std::atomic<std::uint32_t> next_{0};
    std::vector<std::thread> helpers_;
};

} // namespace jigsaw::sparse

#endif
