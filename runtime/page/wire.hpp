// SPDX-License-Identifier: Apache-2.0
// What is said over jigsawd's socket (AF_UNIX, SOCK_SEQPACKET): one datagram is one message, a verb and key=value words
// separated by single spaces, printable ASCII, at most kMaxMessage bytes. Values are percent-encoded outside
// [A-Za-z0-9._:/,@+-]. Used by libjigsaw, jigsawd, spank_jigsaw and the jigsaw command. docs/protocol.md has the list.
//
//   ATTACH proto=1-1 job=12 restart=0 step=0 token=HEX rank=0 local_rank=0 world=2 [gpu=UUID|index] [generation=N]
//     -> OK proto=1 gpu=0 cores=0-1 job_start=NS pages=2 bell=1     with SCM_RIGHTS: directive fd, report fd, eventfd
//     -> ERROR code=NAME text=...
//   REGISTER job=12 restart=0     (uid 0) the record lies in jobs/: read it now          -> OK
//   DRAIN job=12 restart=0        (uid 0) the job is over on this node                   -> OK
//   SET job=12 weight=2.0 ...     (uid 0)                                                -> OK
//   STATUS                        anyone        -> OK bytes=N with SCM_RIGHTS: memfd holding the JSON document
//   TRACE since_ns=0              anyone        -> the same, JSON lines of the turn and depth log
//   METRICS                       anyone        -> the same, Prometheus text
//   PING                          anyone        -> OK proto=1 version=0.1.0 agent_start=N
#ifndef JIGSAW_PAGE_WIRE_HPP
#define JIGSAW_PAGE_WIRE_HPP

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace jigsaw::wire {

constexpr std::size_t kMaxMessage = 4096;
constexpr unsigned kProtocolMin = 1;
constexpr unsigned kProtocolMax = 1;

struct Message {
    std::string verb;
    std::map<std::string, std::string> values;

    const std::string *find(const std::string &key) const;
};

/// Datagram text of a message. A message longer than kMaxMessage is a bug of the caller (assert).
std::string format(const Message &message);

/// Parse a datagram. On failure returns false, sets *ret_why to one line and leaves *ret_message alone.
bool parse(Message *ret_message, std::string *ret_why, const char *data, std::size_t bytes);

/// Whole-string unsigned decimal within [lowest, highest].
bool parse_unsigned(std::uint64_t *ret_value, const std::string &text, std::uint64_t lowest, std::uint64_t highest);

} // namespace jigsaw::wire
#endif
