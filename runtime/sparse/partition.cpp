// SPDX-License-Identifier: Apache-2.0
#include "runtime/sparse/partition.hpp"

#include "runtime/sparse/levels.hpp"
#include "runtime/sparse/refine.hpp"

#include <algorithm>
#include <cmath>

namespace jigsaw::sparse {

namespace {

/// How the levels are annealed; found by trial on RadiX-Nets, random regular and pruned networks (docs/sparse.md). Heats are
/// shares of what a typical exchange costs at the coarsest level.
struct Heats {
    double hot, cold, blur;
    std::uint32_t steps;
    double proposals; ///< per vertex of the finest level, over all steps
};
constexpr Heats kFromNothing{1.4, .035, .5, 300, 1500}; ///< the coarsest level, from a random start
constexpr Heats kFromCoarser{.035, .005, 0, 60, 600};
constexpr Heats kPlateau{.05, .002, .6, 50, 300}; ///< where a net rarely fits a part, only a blurred view has a slope
constexpr double kLoose = .03; ///< imbalance of the coarsest level where rows weigh differently
constexpr double kSharp = .85; ///< the share of the steps after which nothing is blurred
constexpr std::uint32_t kStepsBetweenNames = 15, kMostToName = 256;

void check(const Network &network, const PartitionOptions &options)
{
    sparse::check(network);
    if (options.parts == 0 || options.parts > kMostParts)
        throw Error("the number of parts is " + std::to_string(options.parts) + ", not from 1 to " +
                    std::to_string(kMostParts));
    if (!(options.imbalance >= 0 && options.imbalance <= kMostImbalance))
        throw Error("the imbalance is " + std::to_string(options.imbalance) + ", not from 0 to " +
                    std::to_string(kMostImbalance));
    if (!(options.effort > 0 && options.effort <= kMostEffort))
        throw Error("the effort is " + std::to_string(options.effort) + ", not from above 0 to " +
                    std::to_string(kMostEffort));
}

/// As even as vertices allow, or the mean and this share above it.
std::vector<std::uint64_t> caps(const Level &level, const PartitionOptions &options, double imbalance)
{
    std::vector<std::uint64_t> caps;
    for (const auto &weight : level.weight) {
        std::uint64_t sum = 0;
        for (std::uint64_t one : weight)
            sum += one;
        const double asked = static_cast<double>(sum) / options.parts * (1 + imbalance);
        caps.push_back(std::max(fullest(weight, options.parts), static_cast<std::uint64_t>(asked)));
    }
    return caps;
}

Owners finer(const Owners &coarse, const Maps &maps)
{
    Owners fine(maps.size());
    for (std::size_t k = 0; k < maps.size(); ++k)
        for (std::uint32_t vertex : maps[k])
            fine[k].push_back(coarse[k][vertex]);
    return fine;
}

bool all_equal(const std::vector<std::uint64_t> &weight)
{
    return weight.empty() || std::equal(weight.begin() + 1, weight.end(), weight.begin());
}

double mean_net_weight(const Level &level)
{
    double sum = 0, nets = 0;
    for (const Phase &phase : level.phases) {
        for (std::uint32_t weight : phase.net_weight)
            sum += weight;
        nets += phase.nets();
    }
    return nets > 0 ? sum / nets : 1;
}

/// Annealings of one level.
struct Search {
    Refiner &refiner;
    const PartitionOptions &options;
    Random &random;
    double unit, finest_vertices;
    std::string stage;

    /// What it ends with is what it began with, unless it found better or had to `forget`.
    void run(const Heats &heats, bool forget)
    {
        const double before = refiner.cost();
        const Owners start = forget ? Owners() : refiner.owners();
        const auto last = static_cast<std::uint32_t>(refiner.owners().size() - 1);
        const double tries = heats.proposals * options.effort * finest_vertices / refiner.vertices() / heats.steps;
        const auto cooling = [&](std::uint32_t step) { // the next kStepsBetweenNames steps
            const std::uint32_t steps = std::min(kStepsBetweenNames, heats.steps - step);
            const auto heat = [&](std::uint32_t at) {
                return unit * heats.hot * std::pow(heats.cold / heats.hot, static_cast<double>(at) / heats.steps);
            };
            return Cooling{heat(step), heat(step + steps), steps, tries,
                           heats.blur * std::max(0., 1 - static_cast<double>(step) / heats.steps / kSharp)};
        };
        if (!options.look_ahead) {
            for (std::uint32_t k = 1; k <= last; ++k) {
                for (std::uint32_t step = 0; step < heats.steps; step += kStepsBetweenNames)
                    refiner.anneal(k, k, false, cooling(step), random);
                progress(static_cast<double>(k) / last);
            }
            return;
        }
        for (std::uint32_t step = 0; step < heats.steps; step += kStepsBetweenNames) {
            refiner.anneal(0, last, true, cooling(step), random);
            if (options.parts <= kMostToName)
                refiner.rename();
            progress(static_cast<double>(std::min(step + kStepsBetweenNames, heats.steps)) / heats.steps);
        }
        if (!forget && refiner.cost() > before)
            refiner.assign(start);
    }

    void progress(double share) const
    {
        if (options.progress)
            options.progress(stage.c_str(), share);
    }
};

} // namespace

Partition partition_network(const Network &network, const PartitionOptions &options)
{
    check(network, options);
    std::vector<Level> levels{finest_level(network, options.merge_equal)};
    std::vector<Maps> maps; // [i]: from level i to i + 1
    const auto add = [&](Maps next) {
        levels.push_back(coarser(levels.back(), next, options.merge_equal));
        maps.push_back(std::move(next));
    };
    if (options.merge_equal) {
        add(merge_equal_vertices(levels.back(), options.parts));
        if (levels.back().vertices() == levels[0].vertices()) {
            levels.pop_back();
            maps.pop_back();
        }
    }
    std::vector<float> times(network.layers.size(), options.backward ? 2.F : 1.F);
    times[0] = 1; // what comes in is not trained: nothing goes back
    const std::vector<std::uint64_t> cap = caps(levels[0], options, options.imbalance);
    const std::vector<std::uint64_t> loose = caps(levels[0], options, kLoose);
    Random random(options.seed);
    Owners owners;
    for (const auto &weight : levels.back().weight)
        owners.push_back(spread(weight, options.parts, &random));
    double unit = 0;
    for (std::size_t at = levels.size(); at-- > 0 && options.parts > 1;) {
        const Level &level = levels[at];
        const bool coarsest = at + 1 == levels.size();
        std::vector<std::uint64_t> here = cap;
        for (std::size_t k = 0; k < here.size(); ++k) {
            if (at > 0)
                here[k] = std::max(here[k], fullest(level.weight[k], options.parts));
            if (coarsest && !all_equal(levels[0].weight[k])) // those are stuck between tight caps: loose ones first
                here[k] = std::max(here[k], loose[k]);
        }
        Refiner refiner(level, options.parts, std::move(here), times);
        refiner.assign(std::move(owners));
        refiner.mend();
        if (coarsest)
            unit = std::max(refiner.typical_change(random), mean_net_weight(level));
        Search search{refiner, options, random, unit, static_cast<double>(levels[0].vertices()),
                      "level " + std::to_string(levels.size() - at) + " of " + std::to_string(levels.size())};
        search.run(coarsest ? kFromNothing : kFromCoarser, coarsest);
        if (at == 0 && coarsest) {
            refiner.tighten(cap);
            search.run(kFromCoarser, false);
        }
        if (at == 0)
            search.run(kPlateau, false);
        owners = at > 0 ? finer(refiner.owners(), maps[at - 1]) : refiner.owners();
    }
    return {options.parts, std::move(owners)};
}

} // namespace jigsaw::sparse
