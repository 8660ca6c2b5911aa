// SPDX-License-Identifier: Apache-2.0
// Who runs the independent products of one level. The library starts no threads of its own accord: LibTorch's pool, plain
// threads or nothing is handed in.
#ifndef JIGSAW_SCAN_PARALLEL_HPP
#define JIGSAW_SCAN_PARALLEL_HPP

#include <cstddef>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace jigsaw::scan {

using Task = std::function<void(std::size_t)>;

/// Runs task(0) ... task(count - 1) in any order and returns when all are done.
struct Parallel {
    std::size_t workers = 1; ///< how many tasks can really run at a time
    std::function<void(std::size_t count, const Task &task)> run = [](std::size_t count, const Task &task) {
        for (std::size_t i = 0; i < count; ++i)
            task(i);
    };
};

/// Threads started for each call: for long tasks only (a start costs tens of microseconds). The first exception of a
/// task is thrown again after all have ended.
inline Parallel plain_threads(std::size_t workers)
{
    Parallel parallel;
    parallel.workers = workers < 1 ? 1 : workers;
    parallel.run = [workers = parallel.workers](std::size_t count, const Task &task) {
        const std::size_t used = count < workers ? count : workers;
        std::vector<std::exception_ptr> errors(used);
        const auto share = [&](std::size_t worker) {
            try {
                for (std::size_t i = worker; i < count; i += used)
                    task(i);
            } catch (...) {
                errors[worker] = std::current_exception();
            }
        };
        std::vector<std::thread> threads;
        for (std::size_t worker = 1; worker < used; ++worker)
            threads.emplace_back(share, worker);
        if (used > 0)
            share(0);
        for (std::thread &thread : threads)
            thread.join();
        for (const std::exception_ptr &error : errors)
            if (error)
                std::rethrow_exception(error);
    };
    return parallel;
}

} // namespace jigsaw::scan
#endif
