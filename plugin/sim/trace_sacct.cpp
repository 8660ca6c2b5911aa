// SPDX-License-Identifier: Apache-2.0
// What `sacct -a -X --parsable2 --format=JobID,User,JobName,Submit,Elapsed,Timelimit,AllocTRES,State` prints, with more
// columns or in another order if you like. Steps (an id with a dot), jobs without GPUs and jobs that never ran are no
// jobs for us and no bad lines. A job whose JobName is a model of --profiles is taken to train it.
#include "plugin/sim/text.hpp"
#include "plugin/sim/trace.hpp"

#include <algorithm>
#include <cstdio>

namespace jigsaw::sim {

namespace {

/// [DAYS-]HH:MM:SS[.fraction] or MM:SS[.fraction].
double parse_span(const std::string &column, const std::string &text)
{
    const std::string bare = trim(text);
    const auto dash = bare.find('-');
    double days = 0, total_s = 0;
    bool good = dash == std::string::npos || parse_number(&days, bare.substr(0, dash));
    const std::vector<std::string> parts = split(bare.substr(dash == std::string::npos ? 0 : dash + 1), ':');
    good = good && (parts.size() == 3 || (parts.size() == 2 && dash == std::string::npos));
    for (const std::string &part : parts) {
        double number = 0;
        good = good && parse_number(&number, part) && number >= 0;
        total_s = total_s * 60 + number;
    }
    if (!good || days < 0)
        throw InputError(column + " '" + bare + "' is no time like 1-02:03:04");
    return days * 86400 + total_s;
}

/// "billing=8,cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=4G": the untyped number, else the sum of the typed ones.
int gpus_in(const std::string &tres)
{
    double typed = 0;
    for (const std::string &part : split(tres, ',')) {
        const auto equals = part.find('=');
        double number = 0;
        if (equals == std::string::npos || !parse_number(&number, part.substr(equals + 1)))
            continue;
        if (part.compare(0, equals, "gres/gpu") == 0)
            return static_cast<int>(number);
        if (part.compare(0, 9, "gres/gpu:") == 0)
            typed += number;
    }
    return static_cast<int>(typed);
}

double limit_in(const std::string &text)
{
    const std::string bare = trim(text);
    return bare.empty() || bare == "UNLIMITED" || bare == "Partition_Limit" ? 0 : parse_span("Timelimit", bare);
}

} // namespace

TraceRows read_sacct(const TraceOptions &options, std::size_t *ret_bad)
{
    TableReader table(options.path, '|', options.skip_bad);
    table.header({"JobID", "Submit", "Elapsed"});
    const bool allocated = table.has("AllocTRES");
    if (!allocated && !table.has("ReqTRES"))
        throw InputError(options.path + ":1: the header has neither AllocTRES nor ReqTRES: no GPUs are told");
    const std::vector<std::string> models = options.profiles.models();
    TraceRows rows;
    table.each([&](const std::vector<std::string> &fields) {
        TraceRow row;
        row.name = trim(table.field(fields, "JobID"));
        row.gpus = gpus_in(table.field(fields, allocated ? "AllocTRES" : "ReqTRES"));
        row.iteration_s = parse_span("Elapsed", table.field(fields, "Elapsed"));
        if (row.name.find('.') != std::string::npos || row.gpus < 1 || !(row.iteration_s > 0))
            return;
        row.submit_s = parse_time(table.field(fields, "Submit"));
        row.user = table.has("User") ? trim(table.field(fields, "User")) : "";
        row.limit_s = table.has("Timelimit") ? limit_in(table.field(fields, "Timelimit")) : 0;
        const std::string name = table.has("JobName") ? trim(table.field(fields, "JobName")) : "";
        if (std::find(models.begin(), models.end(), name) != models.end())
            row.model = name;
        rows.push_back(row);
    });
    *ret_bad = table.bad_lines();
    return rows;
}

} // namespace jigsaw::sim
