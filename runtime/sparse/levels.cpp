// SPDX-License-Identifier: Apache-2.0
#include "runtime/sparse/levels.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace jigsaw::sparse {

namespace {

std::uint64_t hash_of(const std::uint32_t *from, const std::uint32_t *to)
{
    std::uint64_t sum = 0x9e3779b97f4a7c15u;
    for (; from != to; ++from) {
        sum = (sum ^ *from) * 0xff51afd7ed558ccdu;
        sum ^= sum >> 32;
    }
    return sum;
}

/// The number of each list's first equal; lists are numbered anew in `ret_first` in order of appearance.
std::vector<std::uint32_t> equal_lists(const Lists &lists, bool merge, std::vector<std::uint32_t> *ret_first)
{
    std::vector<std::uint32_t> number(lists.size());
    std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> found; // hash: numbers
    for (std::uint32_t i = 0; i < lists.size(); ++i) {
        bool is_new = true;
        auto &same_hash = found[merge ? hash_of(lists.begin(i), lists.end(i)) : i];
        for (std::uint32_t other : same_hash)
            if (is_new && std::equal(lists.begin(i), lists.end(i), lists.begin((*ret_first)[other]),
                                     lists.end((*ret_first)[other]))) {
                number[i] = other;
                is_new = false;
            }
        if (!is_new)
            continue;
        number[i] = static_cast<std::uint32_t>(ret_first->size());
        same_hash.push_back(number[i]);
        ret_first->push_back(i);
    }
    return number;
}

/// A phase from its nets' pins and its sources' nets, in which a net may occur often: equal nets become one, those
/// without pins lose their sources.
Phase make_phase(const Lists &pins, const Lists &nets_of_source, const Lists &times, std::uint32_t pin_vertices,
                 bool merge)
{
    std::vector<std::uint32_t> first;
    const std::vector<std::uint32_t> number = equal_lists(pins, merge, &first);
    Phase phase;
    for (std::uint32_t net : first) {
        phase.pins_of_net.item.insert(phase.pins_of_net.item.end(), pins.begin(net), pins.end(net));
        phase.pins_of_net.start.push_back(phase.pins_of_net.item.size());
    }
    phase.net_weight.assign(first.size(), 0);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> row;
    for (std::uint32_t source = 0; source < nets_of_source.size(); ++source) {
        row.clear();
        for (std::uint64_t at = nets_of_source.start[source]; at < nets_of_source.start[source + 1]; ++at) {
            const std::uint32_t net = number[nets_of_source.item[at]];
            phase.net_weight[net] += times.item[at];
            if (phase.pins_of_net.length(net) > 0)
                row.emplace_back(net, times.item[at]);
        }
        std::sort(row.begin(), row.end());
        for (const auto &[net, count] : row) {
            if (phase.nets_of_source.item.size() > phase.nets_of_source.start.back() &&
                phase.nets_of_source.item.back() == net) {
                phase.times_of_source.item.back() += count;
            } else {
                phase.nets_of_source.item.push_back(net);
                phase.times_of_source.item.push_back(count);
            }
        }
        phase.nets_of_source.start.push_back(phase.nets_of_source.item.size());
        phase.times_of_source.start.push_back(phase.times_of_source.item.size());
    }
    phase.nets_of_pin = turned(phase.pins_of_net, pin_vertices);
    phase.sources_of_net = turned(phase.nets_of_source, phase.nets());
    return phase;
}

std::vector<std::uint32_t> identity(std::size_t size)
{
    std::vector<std::uint32_t> map(size);
    std::iota(map.begin(), map.end(), 0);
    return map;
}

} // namespace

Lists turned(const Lists &lists, std::uint32_t targets)
{
    Lists out;
    out.start.assign(std::size_t{targets} + 1, 0);
    for (std::uint32_t item : lists.item)
        ++out.start[item + 1];
    std::partial_sum(out.start.begin(), out.start.end(), out.start.begin());
    out.item.resize(lists.item.size());
    std::vector<std::uint64_t> next(out.start.begin(), out.start.end() - 1);
    for (std::uint32_t i = 0; i < lists.size(); ++i)
        for (const std::uint32_t *item = lists.begin(i); item != lists.end(i); ++item)
            out.item[next[*item]++] = i;
    return out;
}

Level finest_level(const Network &network, bool merge_equal)
{
    Level level;
    level.weight.emplace_back(network.inputs(), 1);
    for (const CsrMatrix &layer : network.layers) {
        std::vector<std::uint64_t> weight(layer.rows);
        for (std::uint32_t row = 0; row < layer.rows; ++row)
            weight[row] = layer.row_nonzeros(row);
        level.weight.push_back(std::move(weight));
        Lists rows, sources, times;
        rows.start = layer.row_start;
        rows.item = layer.column;
        sources.item = identity(layer.columns);
        sources.start.resize(std::size_t{layer.columns} + 1);
        std::iota(sources.start.begin(), sources.start.end(), std::uint64_t{0});
        times.start = sources.start;
        times.item.assign(layer.columns, 1);
        level.phases.push_back(make_phase(turned(rows, layer.columns), sources, times, layer.rows, merge_equal));
    }
    return level;
}

Level coarser(const Level &fine, const Maps &maps, bool merge_equal)
{
    Level level;
    for (std::size_t k = 0; k < maps.size(); ++k) {
        std::vector<std::uint64_t> weight(maps[k].empty() ? 0 : *std::max_element(maps[k].begin(), maps[k].end()) + 1);
        for (std::size_t v = 0; v < maps[k].size(); ++v)
            weight[maps[k][v]] += fine.weight[k][v];
        level.weight.push_back(std::move(weight));
    }
    for (std::size_t k = 1; k < maps.size(); ++k) {
        const Phase &phase = fine.phases[k - 1];
        Lists pins, members, sources, times;
        for (std::uint32_t net = 0; net < phase.nets(); ++net) {
            const std::size_t from = pins.item.size();
            for (const std::uint32_t *pin = phase.pins_of_net.begin(net); pin != phase.pins_of_net.end(net); ++pin)
                pins.item.push_back(maps[k][*pin]);
            std::sort(pins.item.begin() + static_cast<std::ptrdiff_t>(from), pins.item.end());
            pins.item.erase(std::unique(pins.item.begin() + static_cast<std::ptrdiff_t>(from), pins.item.end()),
                            pins.item.end());
            pins.start.push_back(pins.item.size());
        }
        const std::uint32_t count = static_cast<std::uint32_t>(level.weight[k - 1].size());
        Lists map;
        map.item = maps[k - 1];
        map.start.resize(map.item.size() + 1);
        std::iota(map.start.begin(), map.start.end(), std::uint64_t{0});
        members = turned(map, count);
        for (std::uint32_t v = 0; v < count; ++v) {
            for (const std::uint32_t *member = members.begin(v); member != members.end(v); ++member) {
                sources.item.insert(sources.item.end(), phase.nets_of_source.begin(*member),
                                    phase.nets_of_source.end(*member));
                times.item.insert(times.item.end(), phase.times_of_source.begin(*member),
                                  phase.times_of_source.end(*member));
            }
            sources.start.push_back(sources.item.size());
            times.start.push_back(times.item.size());
        }
        const auto vertices = static_cast<std::uint32_t>(level.weight[k].size());
        level.phases.push_back(make_phase(pins, sources, times, vertices, merge_equal));
    }
    return level;
}

Maps merge_equal_vertices(const Level &level, std::uint32_t parts)
{
    Maps maps;
    for (std::size_t k = 0; k < level.weight.size(); ++k) {
        const Lists &lists = k == 0 ? level.phases[0].nets_of_source : level.phases[k - 1].nets_of_pin;
        std::vector<std::uint32_t> first;
        const std::vector<std::uint32_t> number = equal_lists(lists, true, &first);
        std::vector<std::uint32_t> size(first.size()), filled(first.size()), open(first.size()), map(number.size());
        for (std::uint32_t v : number)
            ++size[v];
        // A large bundle that does not divide a part's rows would spoil the balance.
        const auto per_part = static_cast<std::uint32_t>(std::max<std::size_t>(1, number.size() / parts));
        std::uint32_t next = 0;
        for (std::size_t v = 0; v < number.size(); ++v) {
            const std::uint32_t group = number[v];
            const std::uint32_t most = size[group] * 4 <= per_part ? size[group] : std::gcd(size[group], per_part);
            if (filled[group] % most == 0)
                open[group] = next++;
            ++filled[group];
            map[v] = open[group];
        }
        maps.push_back(std::move(map));
    }
    return maps;
}

} // namespace jigsaw::sparse
