// SPDX-License-Identifier: Apache-2.0
// Options as environment entries (one a line), as a request's text and one by one: whatever is taken is in range and
// survives its own text.
#include "tests/fuzz/fuzz.hpp"

#include "plugin/config/options.hpp"
#include "plugin/config/text.hpp"

using namespace jigsaw;

namespace {

void check(const core::SpbRequest &request)
{
    ++fuzz::accepted;
    fuzz::require(request.min_depth_fraction >= 0 && request.min_depth_fraction <= 1, "min-depth is in its range");
    fuzz::require(request.weight >= 0.1 && request.weight <= 10, "weight is in its range");
    fuzz::require(request.max_share <= 8 && request.levels <= 16, "share and levels are in their ranges");
    const std::string text = config::format_request(request);
    fuzz::require(text.size() < 400, "a request is short");
    core::SpbRequest again;
    std::string why;
    fuzz::require(config::parse_request(&again, &why, text), "a request's text is taken");
    fuzz::require(config::format_request(again) == text, "a request survives its text");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    const std::string text(reinterpret_cast<const char *>(data), size);
    const std::vector<std::string> lines = config::split(text, '\n');
    core::SpbRequest request;
    std::string why;
    if (config::parse_spank_environment(&request, &why, lines))
        check(request);
    else
        ++fuzz::refused, fuzz::require_message(why);
    core::SpbRequest from_text;
    if (config::parse_request(&from_text, &why, text))
        check(from_text);
    for (const std::string &line : lines)
        for (const config::OptionRow &row : config::spb_option_table()) {
            core::SpbRequest one;
            if (!config::set_spb_option(&one, &why, row.name, line))
                fuzz::require_message(why);
        }
    std::uint64_t bytes = 0, again = 0;
    if (config::parse_size(&bytes, text))
        fuzz::require(config::parse_size(&again, config::format_size(bytes)) && again == bytes, "a size survives its text");
    return 0;
}

JIGSAW_FUZZ_MAIN("options", 20000)
