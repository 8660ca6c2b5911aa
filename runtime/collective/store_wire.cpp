// SPDX-License-Identifier: Apache-2.0
// Bytes to words and back; every length is checked here.
#include "runtime/collective/store_wire.hpp"

#include <algorithm>

namespace jigsaw::collective {
namespace {

constexpr char kMagic[] = {'J', 'S', 'R', 'V', 1, 0, 0, 0}; // with the version

void append_u32(std::string &bytes, std::uint32_t value)
{
    for (int shift = 0; shift < 32; shift += 8)
        bytes += static_cast<char>(value >> shift);
}

std::uint32_t read_u32(const std::string &bytes, std::size_t at)
{
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i)
        value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
    return value;
}

std::uint64_t fnv1a(const std::string &text, std::uint64_t hash)
{
    for (const unsigned char c : text)
        hash = (hash ^ c) * 0x100000001b3u;
    return hash;
}

} // namespace

std::string to_string(const Departure &departure)
{
    const std::string rank = "rank " + std::to_string(departure.rank);
    switch (departure.how) {
    case Departure::How::left: return rank + " left";
    case Departure::How::aborted: return rank + " gave up: " + departure.text;
    case Departure::How::died: break;
    }
    return rank + " ended without a word" + (departure.text.empty() ? "" : " (" + departure.text + ")");
}

std::array<unsigned char, 16> digest_of(const std::string &token)
{
    std::array<unsigned char, 16> digest{};
    const std::uint64_t halves[] = {fnv1a(token, 0xcbf29ce484222325u), fnv1a(token, 0x84222325cbf29ce4u)};
    for (std::size_t i = 0; i < digest.size(); ++i)
        digest[i] = static_cast<unsigned char>(halves[i / 8] >> (8 * (i % 8)));
    return digest;
}

std::string encode_hello(const Hello &hello)
{
    std::string bytes(std::begin(kMagic), std::end(kMagic));
    bytes.append(hello.digest.begin(), hello.digest.end());
    append_u32(bytes, hello.rank);
    append_u32(bytes, hello.size);
    return bytes;
}

bool may_be_hello(const std::string &begin)
{
    const std::size_t length = std::min(begin.size(), sizeof kMagic);
    return std::equal(begin.begin(), begin.begin() + static_cast<std::ptrdiff_t>(length), kMagic);
}

std::optional<Hello> decode_hello(const std::string &bytes)
{
    if (!may_be_hello(bytes))
        return std::nullopt;
    Hello hello;
    std::copy_n(bytes.begin() + sizeof kMagic, hello.digest.size(), hello.digest.begin());
    hello.rank = read_u32(bytes, 24);
    hello.size = read_u32(bytes, 28);
    return hello;
}

std::string encode_frame(FrameType type, const std::string &payload)
{
    std::string bytes;
    append_u32(bytes, static_cast<std::uint32_t>(payload.size()));
    bytes += static_cast<char>(type);
    return bytes + payload;
}

Parse take_frame(Frame *ret_frame, std::string &buffer)
{
    if (buffer.size() < kFrameHeadBytes)
        return Parse::more;
    const std::uint32_t length = read_u32(buffer, 0);
    const auto type = static_cast<unsigned char>(buffer[4]);
    if (length > kMaxFrameBytes || type < static_cast<unsigned>(FrameType::welcome) ||
        type > static_cast<unsigned>(FrameType::abort))
        return Parse::broken;
    if (buffer.size() < kFrameHeadBytes + length)
        return Parse::more;
    ret_frame->type = static_cast<FrameType>(type);
    ret_frame->payload = buffer.substr(kFrameHeadBytes, length);
    buffer.erase(0, kFrameHeadBytes + length);
    return Parse::complete;
}

std::string encode_departure(const Departure &departure)
{
    std::string payload;
    append_u32(payload, static_cast<std::uint32_t>(departure.rank));
    payload += static_cast<char>(departure.how);
    return payload + departure.text.substr(0, kMaxTextBytes);
}

std::optional<Departure> decode_departure(const std::string &payload)
{
    if (payload.size() < 5 || static_cast<unsigned char>(payload[4]) > static_cast<unsigned>(Departure::How::died))
        return std::nullopt;
    Departure departure;
    departure.rank = static_cast<int>(read_u32(payload, 0));
    departure.how = static_cast<Departure::How>(payload[4]);
    departure.text = payload.substr(5, kMaxTextBytes);
    return departure;
}

std::optional<KeyValue> decode_key_value(const std::string &payload)
{
    const std::size_t end = payload.find('\0');
    if (end == std::string::npos || end == 0 || end > kMaxKeyBytes)
        return std::nullopt;
    return KeyValue{payload.substr(0, end), payload.substr(end + 1)};
}

} // namespace jigsaw::collective
