// SPDX-License-Identifier: Apache-2.0
// jigsawd's socket, as a stranger meets it: an agent in this process, each input a datagram. Whatever is said, it
// answers the next PING. An input with a line end is two datagrams of one connection.
#include "tests/fuzz/fuzz.hpp"
#include "tests/lib/agent_in_process.hpp"

#include <sys/socket.h>

#include <cstring>

namespace {

using jigsaw::tests::AgentInProcess;

/// Two jobs of ours, so that mutations of a good ATTACH find something.
AgentInProcess &ground()
{
    static AgentInProcess made;
    static const bool registered = [] {
        made.register_job(AgentInProcess::record(11));
        made.register_job(AgentInProcess::record(12));
        return true;
    }();
    (void)registered;
    return made;
}

void say(const jigsaw::UniqueFd &socket, const std::uint8_t *data, std::size_t size)
{
    if (size > 0 && send(socket.get(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return; // it hung up on us: its good right
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    const jigsaw::UniqueFd socket = ground().connect();
    const auto *end = static_cast<const std::uint8_t *>(std::memchr(data, '\n', size));
    const std::size_t first = end ? static_cast<std::size_t>(end - data) : size;
    say(socket, data, first);
    if (end)
        say(socket, end + 1, size - first - 1);
    for (int i = 0; i < 3; ++i)
        ground().agent->step(0);
    jigsaw::wire::Message answer;
    std::vector<jigsaw::UniqueFd> fds;
    std::string why;
    const bool heard = jigsaw::wire::receive_message(&answer, &fds, &why, socket.get(), 0) == jigsaw::wire::Received::message;
    ++(heard && answer.verb == "OK" ? jigsaw::fuzz::accepted : jigsaw::fuzz::refused);
    jigsaw::fuzz::require(ground().ask({"PING", {}}).verb == "OK", "the next one is answered");
    ground().lines.clear();
    return 0;
}

JIGSAW_FUZZ_MAIN("agent", 3000)
