// SPDX-License-Identifier: Apache-2.0
// Datagrams on jigsawd's socket: taken and written again the same way, or refused with one line.
#include "tests/fuzz/fuzz.hpp"

#include "runtime/page/wire.hpp"

using namespace jigsaw;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    wire::Message message;
    std::string why;
    if (!wire::parse(&message, &why, reinterpret_cast<const char *>(data), size)) {
        ++fuzz::refused;
        fuzz::require_message(why);
        fuzz::require(message.verb.empty() && message.values.empty(), "a refused message changes nothing");
        return 0;
    }
    ++fuzz::accepted;
    const std::string text = wire::format(message);
    wire::Message back;
    fuzz::require(wire::parse(&back, &why, text.data(), text.size()), "a message's text is taken");
    fuzz::require(back.verb == message.verb && back.values == message.values, "a message survives its text");
    std::uint64_t number = 0;
    for (const auto &[key, value] : message.values)
        if (wire::parse_unsigned(&number, value, 1, 100))
            fuzz::require(number >= 1 && number <= 100, "a number is in its range");
    return 0;
}

JIGSAW_FUZZ_MAIN("wire", 20000)
