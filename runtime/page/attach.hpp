// SPDX-License-Identifier: Apache-2.0
// One try to attach to jigsawd, in steps that never wait longer than they are told: at start a process may wait a
// second for each, in the middle of training it looks in at every iteration instead. Internal to runtime/page.
#ifndef JIGSAW_PAGE_ATTACH_HPP
#define JIGSAW_PAGE_ATTACH_HPP

#include "runtime/page/gate.hpp"
#include "runtime/page/socket.hpp"

namespace jigsaw::page {

constexpr int kStepLimitMs = 1000; ///< of connecting, and of the answer

/// What jigsawd gave.
struct Attachment {
    ProcessPages pages;
    UniqueFd socket; ///< says nothing more; its hang-up says that jigsawd ended
    UniqueFd bell;   ///< eventfd
    int gpu = -1;
    std::vector<int> cores;
};

/// Empty when it makes sense to try again with this request later, else what is wrong with it.
std::string implausible(const AttachRequest &request);

class AttachAttempt {
  public:
    enum class Progress { pending, done, failed };

    explicit AttachAttempt(const AttachRequest &request) : request_(request) {}
    /// Connects and asks at the first call, then looks for the answer; waits at most timeout_ms in each of the two.
    Progress advance(int timeout_ms);
    Attachment take() { return std::move(attachment_); } ///< after done
    const std::string &why() const { return why_; }      ///< after failed

  private:
    bool send_request(int timeout_ms);
    Progress look_for_answer(int timeout_ms);
    bool accept(const wire::Message &answer, std::vector<UniqueFd> fds);

    AttachRequest request_;
    Attachment attachment_;
    std::uint64_t sent_ns_ = 0;
    std::string why_;
};

/// "0-1,4" as {0, 1, 4}; empty for text that is no list of processors.
std::vector<int> parse_cores(const std::string &text);

} // namespace jigsaw::page
#endif
