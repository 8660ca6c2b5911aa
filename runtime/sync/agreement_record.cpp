// SPDX-License-Identifier: Apache-2.0
// One walk over the fields serves both ways, so that they cannot differ.
#include "runtime/sync/agreement_record.hpp"

#include <algorithm>

namespace jigsaw::sync {
namespace {

constexpr std::uint32_t kMagic = 0x4741534a; // "JSAG"
constexpr std::uint16_t kVersion = 1;
constexpr std::uint16_t kLeave = 1, kAnnounces = 2, kShares = 4, kRivalOlder = 8, kSkipped = 16;

class Writer {
  public:
    explicit Writer(RecordBytes &bytes) : bytes_(bytes) {}
    template <typename Number> void field(std::size_t offset, Number &value)
    {
        const auto bits = static_cast<std::uint64_t>(value);
        for (std::size_t i = 0; i < sizeof(Number); ++i)
            bytes_[offset + i] = static_cast<unsigned char>(bits >> (8 * i));
    }

  private:
    RecordBytes &bytes_;
};

class Reader {
  public:
    explicit Reader(const RecordBytes &bytes) : bytes_(bytes) {}
    template <typename Number> void field(std::size_t offset, Number &value)
    {
        std::uint64_t bits = 0;
        for (std::size_t i = 0; i < sizeof(Number); ++i)
            bits |= static_cast<std::uint64_t>(bytes_[offset + i]) << (8 * i);
        value = static_cast<Number>(bits);
    }

  private:
    const RecordBytes &bytes_;
};

/// The record as it stands on the wire; narrower than Record where the values allow it.
struct Wire {
    std::uint32_t magic = kMagic;
    std::uint16_t version = kVersion, flags = 0;
    std::uint8_t policy = 0, levels = 0;
    std::int8_t direction = 1;
    std::array<std::uint8_t, JIGSAW_MAX_LEVELS> depth_of_level{};
};

template <typename Walker> void walk(Walker walker, Wire &wire, Record &record)
{
    AgreementInput &input = record.input;
    walker.field(0, wire.magic);
    walker.field(4, wire.version);
    walker.field(6, wire.flags);
    walker.field(8, record.iteration);
    walker.field(16, record.generation);
    walker.field(24, record.hash_next);
    walker.field(32, record.hash_after);
    walker.field(40, record.depth);
    walker.field(44, input.rival_job);
    walker.field(48, input.rival_generation);
    walker.field(56, input.rival_iteration);
    walker.field(64, input.rival_phase);
    walker.field(68, wire.policy);
    walker.field(69, wire.levels);
    walker.field(70, wire.direction);
    walker.field(72, input.announce.generation);
    walker.field(80, input.announce.seed);
    walker.field(88, input.announce.phase);
    walker.field(92, input.announce.full_workers);
    for (std::size_t level = 0; level < wire.depth_of_level.size(); ++level)
        walker.field(96 + level, wire.depth_of_level[level]);
    walker.field(112, input.rival_offset);
    walker.field(116, input.rival_rank);
    walker.field(118, input.rival_world);
    walker.field(120, input.rival_full_workers);
    walker.field(122, input.rival_policy);
    walker.field(123, input.rival_levels);
    walker.field(124, input.rival_direction);
}

} // namespace

RecordBytes encode(const Record &record)
{
    RecordBytes bytes{};
    Record copy = record;
    const plan::Directive &announce = record.input.announce;
    Wire wire;
    wire.flags = static_cast<std::uint16_t>((record.input.leave ? kLeave : 0) | (announce.generation ? kAnnounces : 0) |
                                            (record.input.shares ? kShares : 0) |
                                            (record.input.rival_older ? kRivalOlder : 0) |
                                            (record.input.skipped ? kSkipped : 0));
    wire.policy = static_cast<std::uint8_t>(announce.policy);
    wire.levels = static_cast<std::uint8_t>(announce.levels);
    wire.direction = static_cast<std::int8_t>(announce.direction);
    for (std::size_t i = 0; i < announce.depth_of_level.size() && i < wire.depth_of_level.size(); ++i)
        wire.depth_of_level[i] = static_cast<std::uint8_t>(announce.depth_of_level[i]);
    walk(Writer(bytes), wire, copy);
    return bytes;
}

bool decode(Record *ret_record, const RecordBytes &bytes)
{
    Record record;
    Wire wire;
    walk(Reader(bytes), wire, record);
    if (wire.magic != kMagic || wire.version != kVersion)
        return false;
    record.input.leave = wire.flags & kLeave;
    record.input.shares = wire.flags & kShares;
    record.input.rival_older = wire.flags & kRivalOlder;
    record.input.skipped = wire.flags & kSkipped;
    plan::Directive &announce = record.input.announce;
    if (wire.flags & kAnnounces) {
        announce.policy = static_cast<plan::Policy>(wire.policy);
        announce.levels = wire.levels;
        announce.direction = wire.direction;
        const std::size_t levels = std::min<std::size_t>(wire.levels, wire.depth_of_level.size());
        announce.depth_of_level.assign(wire.depth_of_level.begin(),
                                       wire.depth_of_level.begin() + static_cast<std::ptrdiff_t>(levels));
    } else {
        announce = plan::Directive();
    }
    *ret_record = record;
    return true;
}

} // namespace jigsaw::sync
