// SPDX-License-Identifier: Apache-2.0
// A collective that breaks on purpose: the n-th operation of a rank is dropped, delayed, refused, or its last.
#ifndef JIGSAW_TESTS_LIB_FAULTY_COLLECTIVE_HPP
#define JIGSAW_TESTS_LIB_FAULTY_COLLECTIVE_HPP

#include "runtime/collective/collective.hpp"

#include <atomic>
#include <thread>

namespace jigsaw::tests {

struct Fault {
    enum class Kind {
        none,
        drop,  ///< a send that says it is complete and never arrives; a receive that never completes
        delay, ///< every operation is late by up to 300 us, in a pattern that `at` seeds
        fail,  ///< the operation throws
        kill   ///< the rank is gone: this operation and all later ones fail, and its peers hear that it died
    };
    Kind kind = Kind::none;
    std::uint64_t at = 0; ///< number of the operation, sends and receives of all threads together, from 0
};

class FaultyCollective final : public collective::Collective {
  public:
    FaultyCollective(collective::Collective &inner, Fault fault) : inner_(inner), fault_(fault) {}

    int rank() const override { return inner_.rank(); }
    int size() const override { return inner_.size(); }
    std::unique_ptr<collective::Request> send(int peer, std::uint64_t tag, const void *data, std::size_t bytes) override
    {
        return hit() ? std::make_unique<Dropped>() : inner_.send(peer, tag, data, bytes);
    }
    std::unique_ptr<collective::Request> receive(int peer, std::uint64_t tag, void *data, std::size_t bytes) override
    {
        return inner_.receive(peer, hit() ? kNobodysTag : tag, data, bytes);
    }
    void abort(const std::string &why) override { inner_.abort(why); }
    std::uint64_t bytes_sent() const override { return inner_.bytes_sent(); }
    const char *name() const override { return "faulty"; }

    std::uint64_t operations() const { return operations_; }

  private:
    static constexpr std::uint64_t kNobodysTag = ~std::uint64_t{0};

    struct Dropped final : collective::Request {
        bool wait_for(std::chrono::milliseconds) override { return true; }
        void wait(std::chrono::milliseconds) override {}
    };

    /// True: drop this one.
    bool hit()
    {
        const std::uint64_t number = operations_++;
        if (fault_.kind == Fault::Kind::delay) {
            std::this_thread::sleep_for(std::chrono::microseconds((number + 1) * (fault_.at * 2 + 7) * 2654435761u % 300));
            return false;
        }
        if (number != fault_.at || fault_.kind == Fault::Kind::none)
            return false;
        const std::string what = "injected fault at operation " + std::to_string(number);
        if (fault_.kind == Fault::Kind::kill)
            inner_.abort(what);
        if (fault_.kind == Fault::Kind::fail)
            throw Error(JIGSAW_SYSTEM_ERROR, what);
        return fault_.kind == Fault::Kind::drop;
    }

    collective::Collective &inner_;
    const Fault fault_;
    std::atomic<std::uint64_t> operations_{0};
};

} // namespace jigsaw::tests
#endif
