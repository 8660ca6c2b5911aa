// SPDX-License-Identifier: Apache-2.0
// The 128 bytes that a rank sends to every other rank once per iteration. Little-endian on the wire:
//
//     0   magic "JSAG"           4   version (16 bits)       6   flags: 1 leave, 2 announces, 4 shares,
//                                                                8 rival is older, 16 skipped
//     8   iteration t           16   generation in force at t+1
//     24  hash of plan t+1      32   hash of plan t+2 as known before this exchange
//     40  own depth at t+1 (32) 44   rival job (32)          48  rival generation   56  rival iteration
//     64  rival phase (32)      68   announced: policy, levels, direction (8 each), 0
//     72  generation            80   seed                    88  phase (32)         92  full workers (32)
//     96  depth of level 1..16 (8 each)                      112 rival offset (32)  116 rival rank (16)
//     118 rival world (16)      120 rival full workers (16)  122 rival policy, levels, direction (8 each)  125 zeros
#ifndef JIGSAW_SYNC_AGREEMENT_RECORD_HPP
#define JIGSAW_SYNC_AGREEMENT_RECORD_HPP

#include "runtime/sync/agreement.hpp"

#include <array>

namespace jigsaw::sync {

constexpr std::size_t kRecordBytes = 128;
using RecordBytes = std::array<unsigned char, kRecordBytes>;

struct Record {
    std::uint64_t iteration = 0;
    std::uint64_t generation = 0;
    std::uint64_t hash_next = 0, hash_after = 0;
    std::uint32_t depth = 0;
    AgreementInput input;
};

RecordBytes encode(const Record &record);

/// False for what is not a record of this version. Values of the directive are not judged: plan::validate() does.
bool decode(Record *ret_record, const RecordBytes &bytes);

} // namespace jigsaw::sync
#endif
