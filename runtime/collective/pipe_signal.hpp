// SPDX-License-Identifier: Apache-2.0
// Libraries that write to a peer's socket without MSG_NOSIGNAL (Gloo does): when the peer has died, SIGPIPE would end this
// process before it could say who is gone. Python ignores the signal; a program in C++ need not.
#ifndef JIGSAW_COLLECTIVE_PIPE_SIGNAL_HPP
#define JIGSAW_COLLECTIVE_PIPE_SIGNAL_HPP

#include <csignal>
#include <ctime>
#include <pthread.h>

namespace jigsaw::collective {

/// While it lives, no write of this thread raises SIGPIPE, nor does any of a thread started meanwhile (it inherits the
/// mask). The program's own handler and mask are as before afterwards. About 0.3 us.
class NoPipeSignal {
  public:
    NoPipeSignal()
    {
        sigset_t pending;
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
        sigpending(&pending);
        was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    }
    ~NoPipeSignal()
    {
        const timespec at_once{};
        if (!was_pending_)
            sigtimedwait(&pipe_, nullptr, &at_once);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    NoPipeSignal(const NoPipeSignal &) = delete;
    NoPipeSignal &operator=(const NoPipeSignal &) = delete;

  private:
    sigset_t pipe_, before_;
    bool was_pending_ = false;
};

} // namespace jigsaw::collective
#endif
