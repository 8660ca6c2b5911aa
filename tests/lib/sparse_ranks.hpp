// SPDX-License-Identifier: Apache-2.0
// Sparse networks on several ranks in one process: each a thread, messages copied through boxes. Checks what MPI would only
// suffer in silence: that a message has the length its receiver waits for, and that none is left over.
#ifndef JIGSAW_TESTS_LIB_SPARSE_RANKS_HPP
#define JIGSAW_TESTS_LIB_SPARSE_RANKS_HPP

#include "runtime/sparse/comm.hpp"
#include "runtime/sparse/matrix.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>

namespace jigsaw::tests {

class SparseWorld {
public:
    explicit SparseWorld(int size) : size_(size) {}

    /// Runs `body` once per rank on a thread of its own; throws the first trouble of any of them.
    void run(const std::function<void(sparse::Comm &)> &body)
    {
        std::vector<std::thread> threads;
        for (int rank = 0; rank < size_; ++rank)
            threads.emplace_back([this, rank, &body] {
                try {
                    View view(*this, rank);
                    body(view);
                } catch (const std::exception &error) {
                    const std::lock_guard<std::mutex> held(lock_);
                    if (trouble_.empty())
                        trouble_ = "rank " + std::to_string(rank) + ": " + error.what();
                    changed_.notify_all();
                }
            });
        for (std::thread &thread : threads)
            thread.join();
        for (const auto &[key, box] : boxes_)
            if (trouble_.empty() && !box.empty())
                trouble_ = "a message from rank " + std::to_string(std::get<0>(key)) + " was never received";
        if (!trouble_.empty())
            throw std::runtime_error(trouble_);
    }

private:
    using Message = std::vector<float>;
    using Key = std::tuple<int, int, int>; // from, to, tag

    void put(const Key &key, Message message)
    {
        const std::lock_guard<std::mutex> held(lock_);
        boxes_[key].push_back(std::move(message));
        changed_.notify_all();
    }
    Message take(const Key &key)
    {
        std::unique_lock<std::mutex> held(lock_);
        changed_.wait(held, [&] { return !boxes_[key].empty() || !trouble_.empty(); });
        if (boxes_[key].empty())
            throw std::runtime_error("another rank failed: " + trouble_);
        Message message = std::move(boxes_[key].front());
        boxes_[key].pop_front();
        return message;
    }

    class Round : public sparse::Exchange {
    public:
        Round(SparseWorld &world, int rank, std::vector<sparse::Channel> sends, std::vector<sparse::Channel> receives, int tag,
              sparse::SentTraffic *traffic)
            : world_(world), rank_(rank), sends_(std::move(sends)), receives_(std::move(receives)), tag_(tag), traffic_(traffic)
        {
        }
        void receive() override { posted_ = true; }
        void send() override
        {
            for (const sparse::Channel &channel : sends_) {
                Message message;
                for (std::size_t b = 0; b < channel.blocks; ++b)
                    message.insert(message.end(), channel.data + b * channel.stride, channel.data + b * channel.stride + channel.block);
                ++traffic_->messages;
                traffic_->bytes += message.size() * sizeof(float);
                world_.put({rank_, channel.peer, tag_}, std::move(message));
            }
        }
        void poll() override {}
        void finish() override
        {
            if (!posted_)
                throw std::runtime_error("finish() without receive()");
            posted_ = false;
            for (const sparse::Channel &channel : receives_) {
                const Message message = world_.take({channel.peer, rank_, tag_});
                if (message.size() != channel.floats())
                    throw std::runtime_error("a message of " + std::to_string(message.size()) + " floats where " +
                                             std::to_string(channel.floats()) + " were expected");
                for (std::size_t b = 0; b < channel.blocks; ++b)
                    std::copy_n(message.begin() + static_cast<std::ptrdiff_t>(b * channel.block), channel.block,
                                channel.data + b * channel.stride);
            }
        }

    private:
        SparseWorld &world_;
        int rank_;
        std::vector<sparse::Channel> sends_, receives_;
        int tag_;
        sparse::SentTraffic *traffic_;
        bool posted_ = false;
    };

    class View : public sparse::Comm {
    public:
        View(SparseWorld &world, int rank) : world_(world), rank_(rank) {}
        int rank() const override { return rank_; }
        int size() const override { return world_.size_; }
        sparse::SentTraffic traffic() const override { return traffic_; }
        std::unique_ptr<sparse::Exchange> exchange(std::vector<sparse::Channel> sends, std::vector<sparse::Channel> receives,
                                                   int tag) override
        {
            return std::make_unique<Round>(world_, rank_, std::move(sends), std::move(receives), tag, &traffic_);
        }
        void sum(float *values, std::size_t count) override { sum_all(values, count); }
        void sum(double *values, std::size_t count) override { sum_all(values, count); }
        void begin_any(std::uint64_t *bits, std::size_t count) override
        {
            bits_ = bits;
            // 16 bits to a float, which holds them exactly.
            any_.clear();
            for (std::size_t i = 0; i < 4 * count; ++i)
                any_.push_back(static_cast<float>(bits[i / 4] >> (16 * (i % 4)) & 0xffff));
        }
        void finish_any() override
        {
            if (bits_ == nullptr)
                throw std::runtime_error("finish_any() without begin_any()");
            for (const Message &message : all(any_))
                for (std::size_t i = 0; i < message.size(); ++i)
                    bits_[i / 4] |= static_cast<std::uint64_t>(message[i]) << (16 * (i % 4));
            bits_ = nullptr;
        }
        std::vector<std::vector<float>> gather(const std::vector<float> &mine) override
        {
            std::vector<Message> messages = all(mine);
            if (rank_ != 0)
                messages.clear();
            return messages;
        }

    private:
        std::vector<Message> all(const Message &mine)
        {
            for (int peer = 0; peer < world_.size_; ++peer)
                world_.put({rank_, peer, -1}, mine);
            std::vector<Message> messages;
            for (int peer = 0; peer < world_.size_; ++peer)
                messages.push_back(world_.take({peer, rank_, -1}));
            return messages;
        }
        template <typename T> void sum_all(T *values, std::size_t count)
        {
            Message mine(count * sizeof(T) / sizeof(float));
            std::memcpy(mine.data(), values, count * sizeof(T));
            std::fill_n(values, count, T{});
            for (const Message &message : all(mine))
                for (std::size_t i = 0; i < count; ++i) {
                    T one;
                    std::memcpy(&one, reinterpret_cast<const char *>(message.data()) + i * sizeof(T), sizeof(T));
                    values[i] += one;
                }
        }

        SparseWorld &world_;
        int rank_;
        sparse::SentTraffic traffic_;
        std::uint64_t *bits_ = nullptr;
        Message any_;
    };

    int size_;
    std::mutex lock_; ///< guards the three below
    std::condition_variable changed_;
    std::map<Key, std::deque<Message>> boxes_;
    std::string trouble_;
};

} // namespace jigsaw::tests

#endif
