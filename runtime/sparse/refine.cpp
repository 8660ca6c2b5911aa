// SPDX-License-Identifier: Apache-2.0
#include "runtime/sparse/refine.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>

namespace jigsaw::sparse {

std::vector<std::uint32_t> spread(const std::vector<std::uint64_t> &weight, std::uint32_t parts, Random *random)
{
    std::vector<std::uint32_t> order(weight.size()), owner(weight.size());
    std::iota(order.begin(), order.end(), 0);
    if (random != nullptr)
        random->shuffle(order);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return weight[a] > weight[b]; });
    using Load = std::pair<std::uint64_t, std::uint32_t>;
    std::priority_queue<Load, std::vector<Load>, std::greater<>> emptiest;
    for (std::uint32_t p = 0; p < parts; ++p)
        emptiest.emplace(0, p);
    for (std::uint32_t v : order) {
        auto [load, part] = emptiest.top();
        emptiest.pop();
        owner[v] = part;
        emptiest.emplace(load + weight[v], part);
    }
    return owner;
}

std::uint64_t fullest(const std::vector<std::uint64_t> &weight, std::uint32_t parts)
{
    const std::vector<std::uint32_t> owner = spread(weight, parts, nullptr);
    std::vector<std::uint64_t> load(parts, 0);
    for (std::size_t v = 0; v < weight.size(); ++v)
        load[owner[v]] += weight[v];
    return *std::max_element(load.begin(), load.end());
}

Refiner::Refiner(const Level &level, std::uint32_t parts, std::vector<std::uint64_t> cap, std::vector<float> times)
    : level_(level), parts_(parts), cap_(std::move(cap)), times_(std::move(times)), patience_(4096)
{
    std::uint32_t most_nets = 0, most_pins = 0;
    for (const Phase &phase : level.phases) {
        most_nets = std::max(most_nets, phase.nets());
        for (std::uint32_t net = 0; net < phase.nets(); ++net)
            most_pins = std::max(most_pins, phase.pins_of_net.length(net));
    }
    need_.resize(std::size_t{most_pins} + 1);
    step_.resize(std::size_t{most_pins} + 1);
    blur(0);
    mark_.assign(most_nets, 0);
    for (std::size_t i = 0; i < patience_.size(); ++i)
        patience_[i] =
            static_cast<float>(-std::log((static_cast<double>(i) + .5) / static_cast<double>(patience_.size())));
}

void Refiner::assign(Owners owners)
{
    owners_ = std::move(owners);
    load_.assign(layers(), {});
    for (std::uint32_t k = 0; k < layers(); ++k) {
        load_[k].assign(parts_, 0);
        for (std::size_t v = 0; v < owners_[k].size(); ++v)
            load_[k][owners_[k][v]] += level_.weight[k][v];
    }
    cells_.assign(level_.phases.size(), {});
    for (std::size_t i = 0; i < cells_.size(); ++i) {
        const Phase &phase = level_.phases[i];
        auto &cells = cells_[i];
        cells.resize(std::size_t{phase.nets()} * parts_);
        for (std::uint32_t net = 0; net < phase.nets(); ++net) {
            Cell *const row = &cells[std::size_t{net} * parts_];
            std::fill(row, row + parts_, Cell{0, static_cast<float>(phase.net_weight[net])});
            for (const std::uint32_t *pin = phase.pins_of_net.begin(net); pin != phase.pins_of_net.end(net); ++pin)
                ++row[owners_[i + 1][*pin]].pins;
        }
        for (std::uint32_t v = 0; v < owners_[i].size(); ++v)
            for (std::uint64_t at = phase.nets_of_source.start[v]; at < phase.nets_of_source.start[v + 1]; ++at)
                cells[std::size_t{phase.nets_of_source.item[at]} * parts_ + owners_[i][v]].missing -=
                    static_cast<float>(phase.times_of_source.item[at]);
    }
}

double Refiner::cost() const
{
    double sum = 0;
    for (std::size_t i = 0; i < cells_.size(); ++i)
        for (const Cell &cell : cells_[i])
            sum += cell.pins > 0 ? static_cast<double>(times_[i]) * static_cast<double>(cell.missing) : 0;
    return sum;
}

/// What it costs to move a vertex.
float Refiner::enter(std::uint32_t layer, std::uint32_t v, std::uint32_t from, std::uint32_t to, bool ahead) const
{
    float sum = 0;
    if (layer > 0) {
        const Phase &phase = level_.phases[layer - 1];
        const Cell *const cells = cells_[layer - 1].data();
        for (const std::uint32_t *net = phase.nets_of_pin.begin(v); net != phase.nets_of_pin.end(v); ++net) {
            const Cell &old = cells[std::size_t{*net} * parts_ + from], &now = cells[std::size_t{*net} * parts_ + to];
            sum += now.missing * step_[now.pins] - old.missing * step_[old.pins - 1];
        }
        sum *= times_[layer - 1];
    }
    return ahead && layer < level_.phases.size() ? sum + times_[layer] * feed(layer, v, from, to) : sum;
}

/// What the next phase costs more when `to` owns v instead of `from`.
float Refiner::feed(std::uint32_t layer, std::uint32_t v, std::uint32_t from, std::uint32_t to) const
{
    const Phase &phase = level_.phases[layer];
    const Cell *const cells = cells_[layer].data();
    float sum = 0;
    for (std::uint64_t at = phase.nets_of_source.start[v]; at < phase.nets_of_source.start[v + 1]; ++at) {
        const Cell *const row = cells + std::size_t{phase.nets_of_source.item[at]} * parts_;
        sum += static_cast<float>(phase.times_of_source.item[at]) * (need_[row[from].pins] - need_[row[to].pins]);
    }
    return sum;
}

/// What it costs that v and u change places.
float Refiner::exchange(std::uint32_t layer, std::uint32_t v, std::uint32_t u, bool ahead) const
{
    const std::uint32_t p = owners_[layer][v], q = owners_[layer][u];
    float sum = 0;
    if (layer > 0) {
        const Phase &phase = level_.phases[layer - 1];
        const Cell *const cells = cells_[layer - 1].data();
        ++stamp_;
        for (const std::uint32_t *net = phase.nets_of_pin.begin(v); net != phase.nets_of_pin.end(v); ++net) {
            const Cell &at_p = cells[std::size_t{*net} * parts_ + p], &at_q = cells[std::size_t{*net} * parts_ + q];
            mark_[*net] = stamp_;
            sum += at_q.missing * step_[at_q.pins] - at_p.missing * step_[at_p.pins - 1];
        }
        for (const std::uint32_t *net = phase.nets_of_pin.begin(u); net != phase.nets_of_pin.end(u); ++net) {
            const Cell &at_p = cells[std::size_t{*net} * parts_ + p], &at_q = cells[std::size_t{*net} * parts_ + q];
            if (mark_[*net] == stamp_) // a net of both keeps its parts: v neither saves nor costs anything
                sum += at_p.missing * step_[at_p.pins - 1] - at_q.missing * step_[at_q.pins];
            else
                sum += at_p.missing * step_[at_p.pins] - at_q.missing * step_[at_q.pins - 1];
        }
        sum *= times_[layer - 1];
    }
    if (ahead && layer < level_.phases.size())
        sum += times_[layer] * (feed(layer, v, p, q) + feed(layer, u, q, p));
    return sum;
}

void Refiner::blur(double share)
{
    double left = 1;
    for (std::size_t pins = 0; pins < step_.size(); ++pins) {
        need_[pins] = static_cast<float>(1 - left);
        step_[pins] = static_cast<float>(left * (1 - share));
        left *= share;
    }
}

void Refiner::move(std::uint32_t layer, std::uint32_t v, std::uint32_t to)
{
    const std::uint32_t from = owners_[layer][v];
    if (layer > 0) {
        const Phase &phase = level_.phases[layer - 1];
        for (const std::uint32_t *net = phase.nets_of_pin.begin(v); net != phase.nets_of_pin.end(v); ++net) {
            Cell *const row = &cells_[layer - 1][std::size_t{*net} * parts_];
            --row[from].pins;
            ++row[to].pins;
        }
    }
    if (layer < level_.phases.size()) {
        const Phase &phase = level_.phases[layer];
        for (std::uint64_t at = phase.nets_of_source.start[v]; at < phase.nets_of_source.start[v + 1]; ++at) {
            Cell *const row = &cells_[layer][std::size_t{phase.nets_of_source.item[at]} * parts_];
            row[from].missing += static_cast<float>(phase.times_of_source.item[at]);
            row[to].missing -= static_cast<float>(phase.times_of_source.item[at]);
        }
    }
    load_[layer][from] -= level_.weight[layer][v];
    load_[layer][to] += level_.weight[layer][v];
    owners_[layer][v] = to;
}

void Refiner::sweep(std::uint32_t layer, bool ahead, float heat, double tries, Random &random)
{
    const std::vector<std::uint64_t> &weight = level_.weight[layer];
    const std::vector<std::uint32_t> &owner = owners_[layer];
    const auto count = static_cast<std::uint32_t>(weight.size());
    std::vector<std::uint64_t> &load = load_[layer];
    const std::uint64_t cap = cap_[layer];
    const auto allowed = [&](float change) {
        return change <= 0 || change < heat * patience_[random.next() >> 52];
    };
    const auto proposals = static_cast<std::uint64_t>(std::ceil(tries * count));
    for (std::uint64_t i = 0; i < proposals; ++i) {
        const std::uint64_t bits = random.next();
        const auto v = static_cast<std::uint32_t>(((bits >> 32) * count) >> 32);
        const auto u = static_cast<std::uint32_t>(((bits & 0xffffffffu) * count) >> 32);
        const std::uint32_t p = owner[v], q = owner[u];
        if (p == q)
            continue;
        // A part with room takes a row as often as it exchanges one.
        if ((bits & 1) != 0 && load[q] + weight[v] <= cap) {
            if (allowed(enter(layer, v, p, q, ahead)))
                move(layer, v, q);
            continue;
        }
        if (weight[v] != weight[u] &&
            (load[p] - weight[v] + weight[u] > cap || load[q] - weight[u] + weight[v] > cap))
            continue;
        if (allowed(exchange(layer, v, u, ahead))) {
            move(layer, v, q);
            move(layer, u, p);
        }
    }
}

void Refiner::anneal(std::uint32_t first, std::uint32_t last, bool ahead, const Cooling &cooling, Random &random)
{
    blur(cooling.blur);
    for (std::uint32_t step = 0; step < cooling.steps; ++step) {
        const double share = cooling.steps > 1 ? static_cast<double>(step) / (cooling.steps - 1) : 1;
        const double heat = cooling.hot * std::pow(cooling.cold / cooling.hot, share);
        for (std::uint32_t i = first; i <= last; ++i)
            sweep(step % 2 == 0 ? i : first + last - i, ahead, static_cast<float>(heat), cooling.tries, random);
    }
    blur(0);
}

double Refiner::typical_change(Random &random) const
{
    double sum = 0;
    std::uint64_t found = 0;
    for (std::uint32_t k = 0; k < layers(); ++k)
        for (int i = 0; i < 64 && !owners_[k].empty(); ++i) {
            const auto count = static_cast<std::uint32_t>(owners_[k].size());
            const std::uint32_t v = random.below(count), u = random.below(count);
            const float change = owners_[k][v] == owners_[k][u] ? 0 : exchange(k, v, u, true);
            sum += change > 0 ? static_cast<double>(change) : 0.;
            found += change > 0;
        }
    return found > 0 ? sum / static_cast<double>(found) : 1;
}

/// For each row its column, each column once, with the largest sum: by shortest augmenting paths (Kuhn, Munkres;
/// Jonker and Volgenant), n^3 steps.
std::vector<std::uint32_t> best_match(const std::vector<double> &gain, std::uint32_t n)
{
    std::vector<double> row_price(n + 1, 0), column_price(n + 1, 0), slack(n + 1);
    std::vector<std::uint32_t> row_of(n + 1, 0), way(n + 1, 0); // counted from 1; 0: none
    std::vector<char> seen(n + 1);
    for (std::uint32_t row = 1; row <= n; ++row) {
        row_of[0] = row;
        std::uint32_t column = 0;
        std::fill(slack.begin(), slack.end(), INFINITY);
        std::fill(seen.begin(), seen.end(), 0);
        do {
            seen[column] = 1;
            const std::uint32_t at = row_of[column];
            std::uint32_t next = 0;
            double least = INFINITY;
            for (std::uint32_t j = 1; j <= n; ++j) {
                if (seen[j] != 0)
                    continue;
                const double now = -gain[std::size_t{at - 1} * n + j - 1] - row_price[at] - column_price[j];
                if (now < slack[j])
                    slack[j] = now, way[j] = column;
                if (slack[j] < least)
                    least = slack[j], next = j;
            }
            for (std::uint32_t j = 0; j <= n; ++j)
                if (seen[j] != 0)
                    row_price[row_of[j]] += least, column_price[j] -= least;
                else
                    slack[j] -= least;
            column = next;
        } while (row_of[column] != 0);
        for (; column != 0; column = way[column])
            row_of[column] = row_of[way[column]];
    }
    std::vector<std::uint32_t> match(n);
    for (std::uint32_t j = 1; j <= n; ++j)
        match[row_of[j] - 1] = j - 1;
    return match;
}

void Refiner::rename()
{
    std::vector<std::uint32_t> before(parts_), now(parts_);
    std::iota(before.begin(), before.end(), 0);
    Owners owners = owners_;
    for (std::uint32_t k = 1; k < layers(); ++k) {
        // gain[need * parts + own]: words that part `need` is spared if its inputs are those that `own` has.
        std::vector<double> gain(std::size_t{parts_} * parts_, 0);
        const Phase &phase = level_.phases[k - 1];
        for (std::uint32_t net = 0; net < phase.nets(); ++net) {
            const Cell *const row = &cells_[k - 1][std::size_t{net} * parts_];
            for (std::uint32_t need = 0; need < parts_; ++need)
                if (row[need].pins > 0)
                    for (std::uint32_t own = 0; own < parts_; ++own)
                        gain[std::size_t{need} * parts_ + own] +=
                            static_cast<double>(phase.net_weight[net]) - static_cast<double>(row[own].missing);
        }
        const std::vector<std::uint32_t> match = best_match(gain, parts_);
        for (std::uint32_t part = 0; part < parts_; ++part)
            now[part] = before[match[part]];
        for (std::uint32_t &owner : owners[k])
            owner = now[owner];
        before = now;
    }
    assign(std::move(owners));
}

/// One step towards the cap from the fullest part; false where no step leads there.
bool Refiner::mend_one(std::uint32_t layer)
{
    const std::vector<std::uint64_t> &weight = level_.weight[layer];
    std::vector<std::uint64_t> &load = load_[layer];
    const auto full = static_cast<std::uint32_t>(std::max_element(load.begin(), load.end()) - load.begin());
    std::uint32_t best_v = 0, best_to = parts_, best_u = 0;
    bool best_swaps = false;
    double best = 0;
    const auto offer = [&](double each, std::uint32_t v, std::uint32_t to, std::uint32_t u, bool swaps) {
        if (best_to != parts_ && each >= best)
            return;
        best = each, best_v = v, best_to = to, best_u = u, best_swaps = swaps;
    };
    const auto over = static_cast<double>(load[full] - cap_[layer]);
    const auto count = static_cast<std::uint32_t>(weight.size());
    for (std::uint32_t v = 0; v < count; ++v)
        if (owners_[layer][v] == full && weight[v] > 0)
            for (std::uint32_t to = 0; to < parts_; ++to)
                if (load[to] + weight[v] <= cap_[layer])
                    offer(static_cast<double>(enter(layer, v, full, to, true)) /
                              std::min(over, static_cast<double>(weight[v])), v, to, v, false);
    // All pairs are many: those of light parts only, and only where no row fits anywhere.
    if (best_to == parts_)
        for (std::uint32_t u = 0; u < count; ++u) {
            const std::uint32_t to = owners_[layer][u];
            if (to == full || load[to] >= cap_[layer])
                continue;
            for (std::uint32_t v = 0; v < count; ++v)
                if (owners_[layer][v] == full && weight[v] > weight[u] && load[to] + weight[v] - weight[u] <= cap_[layer])
                    offer(static_cast<double>(exchange(layer, v, u, true)) /
                              std::min(over, static_cast<double>(weight[v] - weight[u])), v, to, u, true);
        }
    if (best_to == parts_)
        return false;
    if (best_swaps)
        move(layer, best_u, full);
    move(layer, best_v, best_to);
    return true;
}

void Refiner::mend()
{
    for (std::uint32_t k = 0; k < layers(); ++k) {
        const auto over = [&] { return *std::max_element(load_[k].begin(), load_[k].end()) > cap_[k]; };
        while (over() && mend_one(k)) {
        }
        for (double share = .05; share < 2 && over() && !deal_again(k, share); share *= 2) {
        }
    }
}

/// Takes away the lightest rows, this share of the weight, and deals them out to the emptiest parts, heavy ones first: what
/// is left has its place, and small rows fill what is missing. True where that keeps to the cap; a share of 1 does.
bool Refiner::deal_again(std::uint32_t layer, double share)
{
    const std::vector<std::uint64_t> &weight = level_.weight[layer];
    std::vector<std::uint32_t> order(weight.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return weight[a] < weight[b]; });
    std::vector<std::uint64_t> load = load_[layer];
    double left = share * static_cast<double>(std::accumulate(load.begin(), load.end(), std::uint64_t{0}));
    std::size_t taken = 0;
    for (; taken < order.size() && (left > 0 || share >= 1); ++taken) {
        load[owners_[layer][order[taken]]] -= weight[order[taken]];
        left -= static_cast<double>(weight[order[taken]]);
    }
    using Load = std::pair<std::uint64_t, std::uint32_t>;
    std::priority_queue<Load, std::vector<Load>, std::greater<>> emptiest;
    for (std::uint32_t p = 0; p < parts_; ++p)
        emptiest.emplace(load[p], p);
    std::vector<std::uint32_t> to(taken);
    for (std::size_t i = taken; i-- > 0;) {
        to[i] = emptiest.top().second;
        load[to[i]] += weight[order[i]];
        emptiest.pop();
        emptiest.emplace(load[to[i]], to[i]);
    }
    if (*std::max_element(load.begin(), load.end()) > cap_[layer])
        return false;
    for (std::size_t i = 0; i < taken; ++i)
        if (to[i] != owners_[layer][order[i]])
            move(layer, order[i], to[i]);
    return true;
}

} // namespace jigsaw::sparse
