// SPDX-License-Identifier: Apache-2.0
// What ranks and the store of rank 0 say to each other over TCP.
//
//     client -> store, once: 32 bytes {"JSRV", version 2 bytes, 0 2 bytes, token digest 16, rank 4, size 4}
//     then frames both ways: {payload length 4, type 1, payload}, integers little-endian
//
// Nothing is answered before the 32 bytes are right: who is no rank of this job sees a closed connection. The digest is
// no secret worth stealing; it keeps two jobs apart that meet on one port.
#ifndef JIGSAW_COLLECTIVE_STORE_WIRE_HPP
#define JIGSAW_COLLECTIVE_STORE_WIRE_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace jigsaw::collective {

constexpr std::size_t kHelloBytes = 32;
constexpr std::size_t kFrameHeadBytes = 5;
/// Gloo's addresses of one rank: at most 192 bytes for each peer, in two keys.
constexpr std::size_t kMaxFrameBytes = 1 << 20;
constexpr std::size_t kMaxKeyBytes = 64;
constexpr std::size_t kMaxTextBytes = 4096;

enum class FrameType : std::uint8_t {
    welcome = 1,  ///< store: this rank is in
    refused = 2,  ///< store: text, why not
    waiting = 3,  ///< store: text, the ranks that are missing
    complete = 4, ///< store: all ranks are in
    value = 5,    ///< store: key, 0, value: the answer to get
    departed = 6, ///< store: rank 4, how 1, text
    set = 7,      ///< rank: key, 0, value
    get = 8,      ///< rank: key; answered when it is set
    leave = 9,    ///< rank: a clean end
    abort = 10,   ///< rank: text, why nothing goes on
};

/// How a rank went.
struct Departure {
    enum class How : std::uint8_t { left = 0, aborted = 1, died = 2 };
    int rank = 0;
    How how = How::died;
    std::string text;
};
/// "rank 2 ended without a word", "rank 2 gave up: why", "rank 2 left".
std::string to_string(const Departure &departure);

struct Hello {
    std::array<unsigned char, 16> digest{};
    std::uint32_t rank = 0, size = 0;
};
std::array<unsigned char, 16> digest_of(const std::string &token);
std::string encode_hello(const Hello &hello);
/// Empty optional for anything else; `bytes` holds at least kHelloBytes.
std::optional<Hello> decode_hello(const std::string &bytes);
/// False as soon as the bytes so far cannot become a hello.
bool may_be_hello(const std::string &begin);

struct Frame {
    FrameType type = FrameType::welcome;
    std::string payload;
};
std::string encode_frame(FrameType type, const std::string &payload = "");
enum class Parse { complete, more, broken };
/// Takes the first frame off `buffer`; broken when its length is above the limit or its type unknown.
Parse take_frame(Frame *ret_frame, std::string &buffer);

std::string encode_departure(const Departure &departure);
std::optional<Departure> decode_departure(const std::string &payload);

/// "key\0value" apart; nothing for a missing or too long key.
struct KeyValue {
    std::string key, value;
};
std::optional<KeyValue> decode_key_value(const std::string &payload);

} // namespace jigsaw::collective
#endif
