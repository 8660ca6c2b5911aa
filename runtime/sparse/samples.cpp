// SPDX-License-Identifier: Apache-2.0
#include "runtime/sparse/samples.hpp"

#include "runtime/sparse/text.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

namespace jigsaw::sparse {

namespace {

/// What `gzip -dc` makes of a file: one package less to link, and it is on every Debian machine.
std::string unpacked(const std::string &path)
{
    { const MappedFile there(path); } // the better complaint where it is not
    int ends[2];
    if (pipe(ends) != 0)
        throw Error(path + ": cannot be unpacked: " + std::strerror(errno));
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execlp("gzip", "gzip", "-dc", "--", path.c_str(), static_cast<char *>(nullptr));
        _exit(127);
    }
    close(ends[1]);
    std::string text;
    static char room[1 << 16];
    for (ssize_t got = 1; child > 0 && got != 0;) {
        got = read(ends[0], room, sizeof room);
        if (got > 0)
            text.append(room, static_cast<std::size_t>(got));
        else if (got < 0 && errno != EINTR)
            break;
    }
    close(ends[0]);
    int status = -1;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (child < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        throw Error(path + ": gzip -dc fails on it");
    return text;
}

bool ends_with(const std::string &text, const char *tail)
{
    const std::size_t length = std::strlen(tail);
    return text.size() >= length && text.compare(text.size() - length, length, tail) == 0;
}

constexpr std::uint32_t kMostSamples = 1U << 28;

} // namespace

Samples parse_graph_challenge_inputs(const std::string &name, std::string_view text, std::uint32_t neurons, std::uint32_t most)
{
    struct Entry {
        std::uint32_t sample, neuron;
        float value;
        std::uint64_t line;
    };
    std::vector<Entry> entries;
    bool from_zero = false;
    TextLines lines(name, text);
    while (lines.next()) {
        const auto sample = static_cast<std::uint32_t>(lines.unsigned_number("sample", 0, kMostSamples));
        const auto neuron = static_cast<std::uint32_t>(lines.unsigned_number("neuron", 1, neurons));
        entries.push_back({sample, neuron - 1, lines.real_number("value"), lines.number()});
        lines.expect_end();
        from_zero |= sample == 0;
    }
    if (entries.empty())
        throw Error(name + ":1: no samples");
    for (Entry &entry : entries)
        entry.sample -= from_zero ? 0 : 1;
    if (most > 0)
        entries.erase(std::remove_if(entries.begin(), entries.end(), [&](const Entry &e) { return e.sample >= most; }), entries.end());
    std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) {
        return a.sample != b.sample ? a.sample < b.sample : a.neuron != b.neuron ? a.neuron < b.neuron : a.line < b.line;
    });
    Samples samples;
    samples.features = neurons;
    for (std::size_t i = 0; i < entries.size(); ++i) {
        const Entry &entry = entries[i];
        if (i > 0 && entry.sample == entries[i - 1].sample && entry.neuron == entries[i - 1].neuron)
            throw Error(name + ":" + std::to_string(entry.line) + ": the same place as line " + std::to_string(entries[i - 1].line));
        while (samples.count() < entry.sample)
            samples.start.push_back(samples.feature.size());
        samples.feature.push_back(entry.neuron);
        samples.value.push_back(entry.value);
        if (i + 1 == entries.size() || entries[i + 1].sample != entry.sample)
            samples.start.push_back(samples.feature.size());
    }
    while (most > 0 && samples.count() < most && !entries.empty())
        samples.start.push_back(samples.feature.size());
    return samples;
}

Samples read_graph_challenge_inputs(const std::string &path, std::uint32_t neurons, std::uint32_t most)
{
    if (ends_with(path, ".gz"))
        return parse_graph_challenge_inputs(path, unpacked(path), neurons, most);
    const MappedFile file(path);
    return parse_graph_challenge_inputs(path, file.text(), neurons, most);
}

std::vector<std::uint32_t> read_categories(const std::string &path)
{
    const MappedFile file(path);
    TextLines lines(path, file.text());
    std::vector<std::uint32_t> categories;
    while (lines.next()) {
        categories.push_back(static_cast<std::uint32_t>(lines.unsigned_number("category", 1, kMostSamples)));
        lines.expect_end();
    }
    std::sort(categories.begin(), categories.end());
    return categories;
}

Samples parse_labelled(const std::string &name, std::string_view text)
{
    Samples samples;
    std::uint64_t number = 0;
    std::size_t cells_wanted = 0;
    float largest = 0;
    const auto fail = [&](const std::string &what) { throw Error(name + ":" + std::to_string(number) + ": " + what); };
    while (!text.empty()) {
        ++number;
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        std::size_t cells = 0;
        float last = 0;
        for (bool more = true; more; ++cells) {
            const std::size_t comma = line.find(',');
            const std::string_view cell = line.substr(0, comma);
            const auto [stop, problem] = std::from_chars(cell.data(), cell.data() + cell.size(), last);
            if (problem != std::errc() || stop != cell.data() + cell.size() || !std::isfinite(last))
                fail("cell " + std::to_string(cells + 1) + " is " + quoted(cell) + ", not a number");
            more = comma != std::string_view::npos;
            if (!more)
                break;
            line.remove_prefix(comma + 1);
            if (last != 0) {
                samples.feature.push_back(static_cast<std::uint32_t>(cells));
                samples.value.push_back(last);
                largest = std::max(largest, std::abs(last));
            }
        }
        if (number == 1)
            cells_wanted = cells;
        if (cells != cells_wanted || cells == 0)
            fail(std::to_string(cells) + " features and a label, but " + std::to_string(cells_wanted) + " in the first line");
        if (last < 0 || last != std::floor(last) || last > 1e6F)
            fail("the label must be a whole number from 0");
        samples.label.push_back(static_cast<std::uint32_t>(last));
        samples.start.push_back(samples.feature.size());
    }
    if (samples.count() == 0)
        throw Error(name + ":1: no samples");
    samples.features = static_cast<std::uint32_t>(cells_wanted);
    for (float &value : samples.value)
        value /= largest;
    return samples;
}

Samples read_labelled(const std::string &path)
{
    const MappedFile file(path);
    return parse_labelled(path, file.text());
}

Samples repeat_features(const Samples &samples, std::uint32_t features)
{
    Samples wide;
    wide.features = features;
    wide.label = samples.label;
    for (std::uint32_t s = 0; s < samples.count(); ++s) {
        for (std::uint32_t from = 0; from < features; from += samples.features)
            for (std::uint64_t i = samples.start[s]; i < samples.start[s + 1]; ++i)
                if (from + samples.feature[i] < features) {
                    wide.feature.push_back(from + samples.feature[i]);
                    wide.value.push_back(samples.value[i]);
                }
        wide.start.push_back(wide.feature.size());
    }
    return wide;
}

void fill_tiles(const Samples &samples, const std::vector<std::uint32_t> &which, const std::vector<std::uint32_t> &inputs,
                std::uint32_t width, Tiles *tiles)
{
    const auto rows = static_cast<std::uint32_t>(inputs.size());
    const auto count = (static_cast<std::uint32_t>(which.size()) + width - 1) / width;
    tiles->resize(rows, count, width);
    if (rows == 0 || count == 0)
        return;
    std::fill_n(tiles->tile(0), tiles->tile_floats() * count, 0.0F);
    constexpr std::uint32_t elsewhere = ~0U;
    std::vector<std::uint32_t> row_of(samples.features, elsewhere);
    for (std::uint32_t row = 0; row < rows; ++row)
        row_of[inputs[row]] = row;
    for (std::uint32_t slot = 0; slot < which.size(); ++slot)
        for (std::uint64_t i = samples.start[which[slot]]; i < samples.start[which[slot] + 1]; ++i)
            if (row_of[samples.feature[i]] != elsewhere)
                tiles->at(row_of[samples.feature[i]], slot) = samples.value[i];
}

} // namespace jigsaw::sparse
