// SPDX-License-Identifier: Apache-2.0
// jigsaw.yaml: any text is taken or refused with one line that begins with its place.
#include "tests/fuzz/fuzz.hpp"

#include "plugin/config/config.hpp"

using namespace jigsaw;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    std::string why;
    const auto config = config::parse_config(&why, std::string(reinterpret_cast<const char *>(data), size), "f.yaml");
    if (config != nullptr) {
        ++fuzz::accepted;
        const core::SharingPolicy policy = config::policy_for(*config, "batch", "urgent", "vision");
        fuzz::require(policy.max_jobs_per_gpu >= 1 && policy.max_jobs_per_gpu <= 8, "max_jobs_per_gpu is in its range");
        fuzz::require(policy.memory_headroom >= 0 && policy.memory_headroom <= 0.5, "memory_headroom is in its range");
        return 0;
    }
    ++fuzz::refused;
    fuzz::require_message(why);
    unsigned line = 0, column = 0;
    fuzz::require(std::sscanf(why.c_str(), "f.yaml:%u:%u: ", &line, &column) == 2 && line > 0 && column > 0, "a refusal has its place");
    return 0;
}

JIGSAW_FUZZ_MAIN("yaml", 20000)
