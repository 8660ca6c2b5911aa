// SPDX-License-Identifier: Apache-2.0
// What the 64 bits of a tag mean, so that two users of one world can never take each other's message:
//
//     63..62  kind: 0 operations of collective/ops, 1 gradients, 2 agreement, 3 free for tests
//     gradients:  61 phase (0 contribution, 1 result) | 60..35 low bits of the plan's hash | 34..11 piece | 10..0 chunk
//     others:     61..0 a sequence number that both sides count
//
// The plan's hash covers the iteration and every depth. Ranks with different plans therefore never match a message:
// they wait until a time-out instead of adding up the wrong gradients.
#ifndef JIGSAW_COLLECTIVE_TAGS_HPP
#define JIGSAW_COLLECTIVE_TAGS_HPP

#include <cstdint>

namespace jigsaw::collective {

enum class TagKind : std::uint64_t { operation = 0, gradient = 1, agreement = 2, test = 3 };
enum class TagPhase : std::uint64_t { contribution = 0, result = 1 };

constexpr std::uint32_t kMaxPieces = 1u << 24;
constexpr std::uint32_t kMaxChunks = 1u << 11;

constexpr std::uint64_t sequence_tag(TagKind kind, std::uint64_t sequence)
{
    return static_cast<std::uint64_t>(kind) << 62 | (sequence & ((std::uint64_t{1} << 62) - 1));
}

constexpr std::uint64_t gradient_tag(TagPhase phase, std::uint64_t plan_hash, std::uint32_t piece, std::uint32_t chunk)
{
    constexpr std::uint64_t kHashMask = (std::uint64_t{1} << 26) - 1;
    return sequence_tag(TagKind::gradient, 0) | static_cast<std::uint64_t>(phase) << 61 |
           (plan_hash & kHashMask) << 35 | static_cast<std::uint64_t>(piece % kMaxPieces) << 11 | chunk % kMaxChunks;
}

} // namespace jigsaw::collective
#endif
