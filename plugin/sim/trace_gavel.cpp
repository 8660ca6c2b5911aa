// SPDX-License-Identifier: Apache-2.0
// Gavel's traces (OSDI 2020): tab-separated, no header: job type, command, folder, name of the steps argument, needs
// data, steps, GPUs, priority weight, SLO, arrival (s). How long a step takes stands in Gavel's table of throughputs:
// {"v100": {"('ResNet-18 (batch size 128)', 4)": {"null": steps per second, ...}}}.
#include "plugin/cli/json_value.hpp"
#include "plugin/sim/text.hpp"
#include "plugin/sim/trace.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace jigsaw::sim {

namespace {

constexpr std::size_t kFields = 10;

class Throughputs {
  public:
    explicit Throughputs(const std::string &where)
    {
        const auto colon = where.rfind(':');
        const std::string path = where.substr(0, colon);
        const std::string gpu = colon == std::string::npos ? "v100" : where.substr(colon + 1);
        if (path.empty())
            throw InputError("a Gavel trace counts steps: give --throughputs FILE, its table of steps per second");
        std::ifstream file(path);
        if (!file)
            throw InputError(path + ": " + std::strerror(errno));
        std::ostringstream text;
        text << file.rdbuf();
        std::string why;
        cli::JsonValue document;
        if (!cli::parse_json(&document, &why, text.str()))
            throw InputError(path + ": " + why);
        table_ = document[gpu];
        if (table_.is_null())
            throw InputError(path + ": no GPU '" + gpu + "' in it");
    }

    double steps_per_second(const std::string &model, int gpus) const
    {
        const auto alone = [&](int scale) {
            return table_["('" + model + "', " + std::to_string(scale) + ")"]["null"].number_or(0);
        };
        if (alone(gpus) > 0)
            return alone(gpus);
        throw InputError("no throughput of '" + model + "' on " + std::to_string(gpus) + " GPUs");
    }

  private:
    cli::JsonValue table_;
};

double number_in(const std::string &name, const std::string &text, double least, double most)
{
    double number = 0;
    if (!parse_number(&number, text) || number < least || number > most)
        throw InputError(name + " '" + text + "' is no number in range");
    return number;
}

} // namespace

TraceRows read_gavel(const TraceOptions &options, std::size_t *ret_bad)
{
    const Throughputs throughputs(options.throughputs);
    TableReader table(options.path, '\t', options.skip_bad);
    TraceRows rows;
    table.each([&](const std::vector<std::string> &fields) {
        if (fields.size() != kFields)
            throw InputError(std::to_string(fields.size()) + " fields, " + std::to_string(kFields) + " expected");
        TraceRow row;
        row.name = std::to_string(rows.size());
        row.model = trim(fields[0]);
        row.iterations = number_in("steps", fields[5], 1, 1e15);
        row.gpus = static_cast<int>(number_in("scale factor", fields[6], 1, 1e6));
        row.submit_s = number_in("arrival", fields[9], 0, 1e12);
        row.iteration_s = 1 / throughputs.steps_per_second(row.model, row.gpus);
        rows.push_back(row);
    });
    *ret_bad = table.bad_lines();
    return rows;
}

} // namespace jigsaw::sim
