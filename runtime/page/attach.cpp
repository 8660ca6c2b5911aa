// SPDX-License-Identifier: Apache-2.0
// ATTACH and its answer. docs/protocol.md "Registration" 3.
#include "runtime/page/attach.hpp"

#include <algorithm>
#include <stdexcept>

namespace jigsaw::page {
namespace {

constexpr std::uint64_t kMaxProcessors = 8192;
constexpr std::uint64_t kMaxGpus = 1024;

wire::Message attach_message(const AttachRequest &request)
{
    wire::Message message{"ATTACH", {}};
    message.values["proto"] = std::to_string(wire::kProtocolMin) + "-" + std::to_string(wire::kProtocolMax);
    message.values["job"] = std::to_string(request.job_id);
    message.values["restart"] = std::to_string(request.restart);
    message.values["step"] = std::to_string(request.step_id);
    message.values["token"] = request.token;
    message.values["rank"] = std::to_string(request.rank);
    message.values["local_rank"] = std::to_string(request.local_rank);
    message.values["world"] = std::to_string(request.world_size);
    if (!request.gpu.empty())
        message.values["gpu"] = request.gpu;
    if (request.agreed_generation != 0)
        message.values["generation"] = std::to_string(request.agreed_generation);
    return message;
}

std::string value_of(const wire::Message &message, const char *key)
{
    const std::string *value = message.find(key);
    return value ? *value : std::string();
}

} // namespace

std::string implausible(const AttachRequest &request)
{
    // What goes over the wire must fit one message with room for the rest.
    if (request.socket_path.empty() || request.socket_path.size() > 107)
        return "socket path of " + std::to_string(request.socket_path.size()) + " bytes, allowed is 1 to 107";
    if (request.token.size() > 256 || request.gpu.size() > 256)
        return "token or GPU name longer than 256 bytes";
    if (request.world_size == 0 || request.rank >= request.world_size)
        return "rank " + std::to_string(request.rank) + " of " + std::to_string(request.world_size);
    return {};
}

std::vector<int> parse_cores(const std::string &text)
{
    std::vector<int> cores;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t comma = std::min(text.find(',', begin), text.size());
        const std::string range = text.substr(begin, comma - begin);
        const std::size_t dash = std::min(range.find('-'), range.size());
        std::uint64_t first = 0, last = 0;
        if (!wire::parse_unsigned(&first, range.substr(0, dash), 0, kMaxProcessors - 1))
            return {};
        last = first;
        if (dash < range.size() && !wire::parse_unsigned(&last, range.substr(dash + 1), first, kMaxProcessors - 1))
            return {};
        for (std::uint64_t core = first; core <= last; ++core)
            cores.push_back(static_cast<int>(core));
        begin = comma + 1;
    }
    return cores;
}

AttachAttempt::Progress AttachAttempt::advance(int timeout_ms)
{
    if (!attachment_.socket && !send_request(timeout_ms))
        return Progress::failed;
    return look_for_answer(timeout_ms);
}

bool AttachAttempt::send_request(int timeout_ms)
{
    attachment_.socket = wire::connect_to(&why_, request_.socket_path, timeout_ms);
    if (!attachment_.socket)
        return false;
    sent_ns_ = monotonic_ns();
    return wire::send_message(&why_, attachment_.socket.get(), attach_message(request_), {}, timeout_ms);
}

AttachAttempt::Progress AttachAttempt::look_for_answer(int timeout_ms)
{
    wire::Message answer;
    std::vector<UniqueFd> fds;
    switch (wire::receive_message(&answer, &fds, &why_, attachment_.socket.get(), timeout_ms)) {
    case wire::Received::message:
        return accept(answer, std::move(fds)) ? Progress::done : Progress::failed;
    case wire::Received::closed:
        why_ = "jigsawd hung up without an answer to ATTACH";
        return Progress::failed;
    case wire::Received::bad:
        return Progress::failed;
    case wire::Received::nothing:
        break;
    }
    if (monotonic_ns() - sent_ns_ < std::uint64_t{kStepLimitMs} * 1000000u)
        return Progress::pending;
    why_ = "no answer to ATTACH within " + std::to_string(kStepLimitMs) + " ms";
    return Progress::failed;
}

bool AttachAttempt::accept(const wire::Message &answer, std::vector<UniqueFd> fds)
{
    if (answer.verb != "OK") {
        why_ = "jigsawd refused: " + value_of(answer, "code") + " " + value_of(answer, "text");
        return false;
    }
    std::uint64_t number = 0;
    if (!wire::parse_unsigned(&number, value_of(answer, "proto"), wire::kProtocolMin, wire::kProtocolMax)) {
        why_ = "jigsawd speaks protocol '" + value_of(answer, "proto") + "', this library " +
               std::to_string(wire::kProtocolMin) + " to " + std::to_string(wire::kProtocolMax);
        return false;
    }
    if (fds.size() != 3) {
        why_ = "answer to ATTACH with " + std::to_string(fds.size()) + " descriptors, expected 3";
        return false;
    }
    try {
        attachment_.pages = map_pages(fds[0].get(), fds[1].get());
    } catch (const std::runtime_error &error) {
        why_ = error.what();
        return false;
    }
    attachment_.bell = std::move(fds[2]);
    if (wire::parse_unsigned(&number, value_of(answer, "gpu"), 0, kMaxGpus - 1))
        attachment_.gpu = static_cast<int>(number);
    attachment_.cores = parse_cores(value_of(answer, "cores"));
    return true;
}

} // namespace jigsaw::page
