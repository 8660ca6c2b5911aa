// SPDX-License-Identifier: Apache-2.0
// Files of sparse networks. The first byte says the reader: b binary, g Graph Challenge, m Matrix Market, p partition.
// What is taken holds all invariants; what is not is refused with one line.
#include "tests/fuzz/fuzz.hpp"

#include "runtime/sparse/formats.hpp"

#include <cstring>
#include <vector>

using namespace jigsaw;

namespace {

void read(char kind, const std::string &text)
{
    if (kind == 'b') {
        std::vector<std::uint64_t> words(text.size() / 8 + 1); // aligned, as a mapped file is
        std::memcpy(words.data(), text.data(), text.size());
        float bias = 0, clip = 0;
        for (const sparse::CsrView &layer :
             sparse::parse_binary("f", reinterpret_cast<const unsigned char *>(words.data()), text.size(), &bias, &clip))
            sparse::check(layer.copy(), "taken");
    } else if (kind == 'g') {
        sparse::check(sparse::parse_graph_challenge_layer("f", text, 8), "taken");
    } else if (kind == 'm') {
        sparse::check(sparse::parse_matrix_market("f", text), "taken");
    } else {
        const sparse::Partition partition = sparse::parse_partition("f", text);
        for (const auto &owners : partition.owner)
            for (std::uint32_t owner : owners)
                fuzz::require(owner < partition.parts, "an owner is a part");
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    if (size == 0)
        return 0;
    const std::string text(reinterpret_cast<const char *>(data) + 1, size - 1);
    try {
        read(static_cast<char>(data[0]), text);
        ++fuzz::accepted;
    } catch (const sparse::Error &error) {
        ++fuzz::refused;
        fuzz::require(std::string(error.what()).compare(0, 2, "f:") == 0, "a refusal names the file");
        fuzz::require_message(error.what());
    }
    return 0;
}

JIGSAW_FUZZ_MAIN("sparse", 20000)
