// SPDX-License-Identifier: Apache-2.0
#include "runtime/sparse/workers.hpp"

namespace jigsaw::sparse {

Workers::Workers(unsigned threads)
{
    for (unsigned i = 1; i < threads; ++i)
        helpers_.emplace_back([this] { help(); });
}

Workers::~Workers()
{
    {
        const std::lock_guard<std::mutex> held(lock_);
        stop_ = true;
    }
    has_work_.notify_all();
    for (std::thread &helper : helpers_)
        helper.join();
}

void Workers::run(std::uint32_t count, const std::function<void(std::uint32_t)> &task, const std::function<void()> &between)
{
    const bool alone = helpers_.empty() || count < 2;
    if (!alone) {
        const std::lock_guard<std::mutex> held(lock_);
        task_ = &task;
        count_ = count;
        next_ = 0;
        busy_ = static_cast<unsigned>(helpers_.size());
        ++round_;
        has_work_.notify_all();
    }
    if (alone)
        next_ = 0;
    for (std::uint32_t i = next_++; i < count; i = next_++) {
        task(i);
        if (between)
            between();
    }
    if (!alone) {
        std::unique_lock<std::mutex> held(lock_);
        is_done_.wait(held, [this] { return busy_ == 0; });
    }
}

void Workers::help()
{
    std::uint64_t seen = 0;
    for (;;) {
        {
            std::unique_lock<std::mutex> held(lock_);
            has_work_.wait(held, [&] { return stop_ || round_ != seen; });
            if (stop_)
                return;
            seen = round_;
        }
        for (std::uint32_t i = next_++; i < count_; i = next_++)
            (*task_)(i);
        const std::lock_guard<std::mutex> held(lock_);
        if (--busy_ == 0)
            is_done_.notify_one();
    }
}

} // namespace jigsaw::sparse
