// SPDX-License-Identifier: Apache-2.0
// Microsoft's Philly trace as a table: timestamp (submission), duration (s), num_gpus and, where it is there, cluster
// (virtual; taken as the user). Models are not in it. Also where times of day are read.
#include "plugin/sim/text.hpp"
#include "plugin/sim/trace.hpp"

#include <cstdio>

namespace jigsaw::sim {

namespace {

/// Days since 1970-01-01 of a date of the Gregorian calendar: March is the first month, so that the leap day is the
/// last day of a year.
long days_of(int year, int month, int day)
{
    const long y = month <= 2 ? year - 1 : year;
    const long era_day = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return 365 * y + y / 4 - y / 100 + y / 400 + era_day - 719468;
}

} // namespace

double parse_time(const std::string &text)
{
    int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, used = 0;
    char between = 0;
    const std::string bare = trim(text);
    const int read = std::sscanf(bare.c_str(), "%4d-%2d-%2d%c%2d:%2d:%2d%n", &year, &month, &day, &between, &hour,
                                 &minute, &second, &used);
    if (read != 7 || static_cast<std::size_t>(used) != bare.size() || (between != ' ' && between != 'T') ||
        year < 1970 || month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 || hour > 23 || minute < 0 ||
        minute > 59 || second < 0 || second > 60)
        throw InputError("'" + bare + "' is no time like 2017-10-09 07:01:55");
    return 86400.0 * static_cast<double>(days_of(year, month, day)) + 3600.0 * hour + 60.0 * minute + second;
}

TraceRows read_philly(const TraceOptions &options, std::size_t *ret_bad)
{
    TableReader table(options.path, ',', options.skip_bad);
    table.header({"timestamp", "duration", "num_gpus"});
    TraceRows rows;
    table.each([&](const std::vector<std::string> &fields) {
        TraceRow row;
        row.name = std::to_string(rows.size());
        row.user = table.has("cluster") ? trim(table.field(fields, "cluster")) : "";
        row.submit_s = parse_time(table.field(fields, "timestamp"));
        row.iteration_s = table.number(fields, "duration", 1e-3, 1e12);
        row.gpus = static_cast<int>(table.number(fields, "num_gpus", 1, 1e6));
        rows.push_back(row);
    });
    *ret_bad = table.bad_lines();
    return rows;
}

} // namespace jigsaw::sim
