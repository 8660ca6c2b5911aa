// SPDX-License-Identifier: Apache-2.0
// Records in the run folder: taken whole, or refused with a line number; GPU lists and file names likewise.
#include "tests/fuzz/fuzz.hpp"

#include "plugin/config/registration.hpp"

using namespace jigsaw;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    const std::string text(reinterpret_cast<const char *>(data), size);
    config::Registration record;
    std::string why;
    if (config::parse_registration(&record, &why, text)) {
        ++fuzz::accepted;
        const std::string again = config::format_registration(record);
        config::Registration back;
        fuzz::require(config::parse_registration(&back, &why, again), "a record's text is taken");
        fuzz::require(config::format_registration(back) == again, "a record survives its text");
        fuzz::require(record.job_id > 0 && record.gpus.size() <= 1024, "values are in their ranges");
    } else {
        ++fuzz::refused;
        fuzz::require_message(why);
        fuzz::require(record.job_id == 0, "a refused record changes nothing");
    }
    std::vector<int> gpus;
    if (config::parse_gpu_list(&gpus, text)) {
        std::vector<int> back;
        fuzz::require(config::parse_gpu_list(&back, config::format_gpu_list(gpus)) && back == gpus, "a list survives its text");
    }
    core::JobId job = 0;
    std::uint32_t restart = 0;
    if (config::parse_registration_file_name(&job, &restart, text))
        fuzz::require(config::registration_file_name(job, restart) == text, "one file has one name");
    return 0;
}

JIGSAW_FUZZ_MAIN("registration", 20000)
