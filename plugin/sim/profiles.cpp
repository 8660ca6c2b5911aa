// SPDX-License-Identifier: Apache-2.0
// Tables of model costs.
#include "plugin/sim/profiles.hpp"

#include "plugin/cli/json_value.hpp"
#include "plugin/sim/text.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace jigsaw::sim {

namespace {

constexpr double kMost_ms = 1e9, kMostGpus = 1e6;

using cli::JsonValue;

std::vector<double> parse_levels(const std::string &text)
{
    std::vector<double> levels;
    for (const std::string &part : split(text, '/')) {
        double level_ms = 0;
        if (!parse_number(&level_ms, part) || level_ms < 0)
            throw InputError("backward_ms '" + text + "' is no number, nor numbers joined by '/'");
        levels.push_back(level_ms);
    }
    return levels;
}

/// GPU time from forward and backward; one backward time alone leaves the levels to the curve.
void set_compute(Stages *stages, double forward_ms, const std::vector<double> &backward_ms)
{
    if (!std::is_sorted(backward_ms.begin(), backward_ms.end()))
        throw InputError("backward_ms must not fall from one level to the next");
    stages->gpu_ms = forward_ms + backward_ms.back();
    if (!(stages->gpu_ms > 0))
        throw InputError("forward_ms and backward_ms are both 0");
    stages->forward_share = forward_ms / stages->gpu_ms;
    if (backward_ms.size() > 1)
        stages->backward_ms_of_level = backward_ms;
}

void check(const JobType &type)
{
    if (type.model.empty())
        throw InputError("the model has no name");
    if (!(type.stages.iteration_ms > 0))
        throw InputError("an iteration of " + type.model + " takes no time");
    if (!(type.stages.host_capacity > 0))
        throw InputError("host_capacity must be above 0");
}

JobType from_peer_row(const TableReader &table, const std::vector<std::string> &fields)
{
    JobType type;
    type.model = trim(table.field(fields, "model"));
    type.gpus = static_cast<int>(table.number(fields, "num_gpu", 1, kMostGpus));
    type.stages.iteration_ms = table.number(fields, "iteration_time_ms", 0, kMost_ms);
    type.stages.host_ms = table.number(fields, "resource_time_0_ms", 0, kMost_ms);
    type.stages.gpu_ms = table.number(fields, "resource_time_1_ms", 0, kMost_ms);
    type.stages.network_ms = table.number(fields, "resource_time_2_ms", 0, kMost_ms);
    type.restart_s = restart_seconds(type.model, type.gpus);
    return type;
}

JobType from_own_row(const TableReader &table, const std::vector<std::string> &fields)
{
    const auto optional = [&](const char *column, double fallback) {
        const bool there = table.has(column) && !trim(table.field(fields, column)).empty();
        return there ? table.number(fields, column, 0, kMost_ms) : fallback;
    };
    JobType type;
    type.model = trim(table.field(fields, "model"));
    type.gpus = static_cast<int>(table.number(fields, "num_gpu", 1, kMostGpus));
    type.stages.iteration_ms = table.number(fields, "iteration_ms", 0, kMost_ms);
    set_compute(&type.stages, table.number(fields, "forward_ms", 0, kMost_ms),
                parse_levels(table.field(fields, "backward_ms")));
    type.stages.network_ms = table.number(fields, "network_ms", 0, kMost_ms);
    type.stages.host_ms = optional("cpu_ms", 0) + optional("io_ms", 0);
    type.stages.host_capacity = optional("host_capacity", type.stages.host_capacity);
    type.restart_s = optional("restart_s", restart_seconds(type.model, type.gpus));
    return type;
}

ProfileBook read_csv(const std::string &path)
{
    TableReader table(path, ',', false);
    table.header({"model", "num_gpu"});
    const bool peer = table.has("iteration_time_ms");
    const std::vector<std::string> needed =
        peer ? std::vector<std::string>{"resource_time_0_ms", "resource_time_1_ms", "resource_time_2_ms"}
             : std::vector<std::string>{"iteration_ms", "forward_ms", "backward_ms", "network_ms"};
    for (const std::string &column : needed)
        if (!table.has(column))
            throw InputError(path + ":1: the header has no column '" + column + "'");
    ProfileBook book;
    table.each([&](const std::vector<std::string> &fields) {
        const JobType type = peer ? from_peer_row(table, fields) : from_own_row(table, fields);
        check(type);
        book.add(type);
    });
    return book;
}

double json_number(const JsonValue &row, const char *key, double fallback)
{
    const JsonValue &value = row[key];
    if (value.is_null())
        return fallback;
    if (value.kind != JsonValue::Kind::number || value.number < 0 || value.number > kMost_ms)
        throw InputError(std::string(key) + " must be a number of 0 or more");
    return value.number;
}

JobType from_json(const JsonValue &row)
{
    JobType type;
    type.model = row["model"].string_or("");
    type.gpus = static_cast<int>(std::clamp(json_number(row, "num_gpu", 1), 1.0, kMostGpus));
    type.stages.iteration_ms = json_number(row, "iteration_ms", 0);
    std::vector<double> backward_ms;
    const JsonValue &backward = row["backward_ms"];
    for (const JsonValue &level : backward.items) {
        if (level.kind != JsonValue::Kind::number || level.number < 0)
            throw InputError("backward_ms must hold numbers of 0 or more");
        backward_ms.push_back(level.number);
    }
    if (backward_ms.empty())
        backward_ms.push_back(json_number(row, "backward_ms", 0));
    set_compute(&type.stages, json_number(row, "forward_ms", 0), backward_ms);
    type.stages.network_ms = json_number(row, "network_ms", 0);
    type.stages.host_ms = json_number(row, "cpu_ms", 0) + json_number(row, "io_ms", 0);
    type.stages.host_capacity = json_number(row, "host_capacity", type.stages.host_capacity);
    type.restart_s = json_number(row, "restart_s", restart_seconds(type.model, type.gpus));
    return type;
}

ProfileBook read_json(const std::string &path)
{
    std::ifstream file(path);
    if (!file)
        throw InputError(path + ": " + std::strerror(errno));
    std::ostringstream text;
    text << file.rdbuf();
    JsonValue document;
    std::string why;
    if (!cli::parse_json(&document, &why, text.str()))
        throw InputError(path + ": " + why);
    if (document.kind != JsonValue::Kind::array)
        throw InputError(path + ": expected an array of models");
    ProfileBook book;
    for (std::size_t i = 0; i < document.items.size(); ++i) {
        try {
            const JobType type = from_json(document.items[i]);
            check(type);
            book.add(type);
        } catch (const InputError &error) {
            throw InputError(path + ": entry " + std::to_string(i + 1) + ": " + error.what());
        }
    }
    return book;
}

} // namespace

void ProfileBook::add(const JobType &type) { types_.push_back(type); }

std::vector<std::string> ProfileBook::models() const
{
    std::vector<std::string> names;
    for (const JobType &type : types_)
        if (std::find(names.begin(), names.end(), type.model) == names.end())
            names.push_back(type.model);
    return names;
}

JobType ProfileBook::type(const std::string &model, int gpus) const
{
    const JobType *best = nullptr;
    for (const JobType &type : types_) {
        if (type.model != model)
            continue;
        const bool enough = type.gpus >= gpus, best_enough = best && best->gpus >= gpus;
        if (!best || (enough && (!best_enough || type.gpus < best->gpus)) ||
            (!enough && !best_enough && type.gpus > best->gpus))
            best = &type;
    }
    if (!best)
        throw InputError("no profile of model '" + model + "'; --profiles must name it");
    JobType found = *best;
    found.gpus = gpus;
    return found;
}

ProfileBook read_profiles(const std::string &path)
{
    const bool json = path.size() > 5 && path.compare(path.size() - 5, 5, ".json") == 0;
    ProfileBook book = json ? read_json(path) : read_csv(path);
    if (book.empty())
        throw InputError(path + ": no model in it");
    return book;
}

DepthCurve read_depth_costs(const std::string &path, const std::string &model)
{
    TableReader table(path, ',', false);
    table.header({"model_batch", "suffix_frac_of_bwd_convs", "cum_bwd_frac"});
    std::vector<DepthCurve::Point> points;
    table.each([&](const std::vector<std::string> &fields) {
        if (trim(table.field(fields, "model_batch")) != model)
            return;
        const double blocks = table.number(fields, "suffix_frac_of_bwd_convs", 0, 1);
        const double share = table.number(fields, "cum_bwd_frac", 0, 1);
        if (!points.empty() && (blocks <= points.back().first || share < points.back().second))
            throw InputError("depth costs must rise with depth");
        if (blocks > 0 && blocks < 1)
            points.emplace_back(blocks, share);
    });
    if (points.empty())
        throw InputError(path + ": no row of model '" + model + "'");
    return DepthCurve(points);
}

double restart_seconds(const std::string &model, int gpus)
{
    struct Row {
        const char *model;
        std::array<double, 6> seconds; // on 1, 2, 4, 8, 16, 32 GPUs
    };
    // Muri's simulator (Apache-2.0) charges these for a job that is stopped and started.
    static const Row rows[] = {{"a2c", {38, 39, 39, 46, 46, 46}},  {"bert", {10, 10, 10, 10, 10, 10}},
                               {"dqn", {5, 5, 6, 6, 8, 8}},        {"gpt2", {10, 10, 10, 10, 10, 10}},
                               {"resnet18", {4, 5, 5, 7, 7, 7}},   {"shufflenet_v2_x1_0", {4, 4, 5, 5, 7, 8}},
                               {"vgg16", {7, 7, 8, 9, 9, 10}},     {"vgg19", {7, 7, 8, 9, 10, 10}}};
    constexpr double kUnknown_s = 10;
    const auto row = std::find_if(std::begin(rows), std::end(rows), [&](const Row &r) { return model == r.model; });
    if (row == std::end(rows))
        return kUnknown_s;
    std::size_t column = 0;
    while (column + 1 < row->seconds.size() && (1 << column) < gpus)
        ++column;
    return row->seconds[column];
}

} // namespace jigsaw::sim
