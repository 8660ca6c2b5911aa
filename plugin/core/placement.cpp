// SPDX-License-Identifier: Apache-2.0
// The search for places. Candidates come from the index of gangs, best classes first, and are bounded, so that
// a decision costs what the job and its candidates cost, whatever the size of the cluster
// (docs/decisions/0001-placement.md).
#include "plugin/core/placement.hpp"

#include "plugin/core/places.hpp"
#include "plugin/core/prediction.hpp"
#include "plugin/core/waiting.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

namespace jigsaw::core {

namespace {

constexpr std::uint32_t kMaxExact = 48, kMaxSubsets = 32, kMaxSeeds = 32; // candidates looked at, by kind
constexpr std::uint32_t kMaxLone = 32; // single GPUs looked at for a job of one GPU whose wait is known
constexpr std::uint32_t kLeastOfClass = 4;                                // candidates of one class of gangs
constexpr JobId kSpread = 2654435761u; // Knuth's multiplicative hash: newcomers begin at different places
constexpr double kEqualGain = 1e-9;
constexpr std::size_t kRefusalLimit = 200;

class Search {
  public:
    Search(const Cluster &cluster, const PlacementRequest &job, const SharingPolicy &policy)
        : cluster_(cluster), job_(job), policy_(policy), admission_(cluster, job, policy),
          predictor_(cluster, job, policy), waiting_(job, policy), gpus_per_node_(std::max(1u, job.gpus_per_node)),
          nodes_(std::max(1u, job.nodes)), places_(cluster, admission_, nodes_, gpus_per_node_)
    {
    }

    Offers run()
    {
        if (policy_.enabled) {
            walk(
                kMaxExact, [&](const GangClass &c) { return exact_shape(c); },
                [&](const Resident &gang) { consider_exact(gang); });
            walk(
                kMaxSubsets, [&](const GangClass &c) { return !exact_shape(c) && large_enough(c); },
                [&](const Resident &gang) { consider_subset(gang); });
            consider_mixed();
        } else {
            refusal_ = "sharing is off for this job's partition, QOS or account: wait for idle GPUs";
        }
        return finish(idle_offer());
    }

  private:
    bool exact_shape(const GangClass &c) const { return c.nodes == nodes_ && c.gpus_per_node == gpus_per_node_; }
    bool large_enough(const GangClass &c) const { return c.nodes >= nodes_ && c.gpus_per_node >= gpus_per_node_; }
    double own_gpus() const { return static_cast<double>(nodes_) * gpus_per_node_; }
    bool scored() const { return job_.wait_s >= 0; }

    const GangIndex::Classes &classes() const
    {
        switch (policy_.scope) {
        case SharingScope::user:
            return cluster_.gangs().of_user(job_.uid);
        case SharingScope::account:
            return cluster_.gangs().of_account(job_.account);
        case SharingScope::any:
            break;
        }
        return cluster_.gangs().of_anyone();
    }

    /// Turns of the whole class differ too much from the job's.
    bool turns_apart(const GangClass &c) const
    {
        const int own = turn_class_of(job_.profile);
        if (own == kUnknownTurn || c.turn_class == kUnknownTurn)
            return false;
        return std::ldexp(1, std::abs(own - c.turn_class) - 1) > policy_.max_turn_ratio;
    }

    /// visit() for at most `budget` jobs of the wanted classes, an equal part of each so that no class hides
    /// the others; one, for the reason's sake, where all must be refused.
    template <typename Wanted, typename Visit> void walk(std::uint32_t budget, Wanted wanted, Visit visit)
    {
        std::vector<GangIndex::Classes::const_pointer> open;
        for (const auto &entry : classes())
            if (wanted(entry.first))
                open.push_back(&entry);
        const auto part =
            std::max(kLeastOfClass, budget / static_cast<std::uint32_t>(std::max<std::size_t>(1, open.size())));
        for (const auto *entry : open) {
            const std::uint32_t most = std::min(budget, turns_apart(entry->first) ? 1u : part);
            budget -= visit_some(entry->second, most, visit);
            if (budget == 0)
                return;
        }
    }

    /// At most `most` members of a class; how many they were.
    template <typename Visit>
    std::uint32_t visit_some(const GangIndex::Members &members, std::uint32_t most, Visit visit)
    {
        auto member = start_of(members, most);
        const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(most, members.size()));
        for (std::uint32_t i = 0; i < count; ++i, ++member) {
            if (member == members.end())
                member = members.begin();
            if (const Resident *gang = cluster_.find(member->second))
                visit(*gang);
        }
        return count;
    }

    /// Where to begin in a class that is too large to be seen whole: among those with most free memory not always
    /// with the oldest, or all newcomers would look at the same few.
    GangIndex::Members::const_iterator start_of(const GangIndex::Members &members, std::uint32_t most) const
    {
        if (members.size() <= most)
            return members.begin();
        const JobId a = members.begin()->second, b = members.rbegin()->second;
        const JobId least = std::min(a, b), span = std::max(a, b) - least + 1;
        const auto at = members.lower_bound({members.begin()->first, least + job_.id * kSpread % span});
        return at == members.end() ? members.begin() : at;
    }

    void consider_exact(const Resident &gang)
    {
        const bool whole = std::all_of(gang.where.begin(), gang.where.end(), [&](const NodeGpus &one) {
            return one.gpus.size() == gpus_per_node_ && admission_.node_allowed(one.node);
        });
        if (whole)
            consider(Offer::Kind::exact_gang, gang.where);
        else
            consider_subset(gang);
    }

    void consider_subset(const Resident &gang)
    {
        std::vector<Pick> picks;
        for (const NodeGpus &one : gang.where) {
            if (!admission_.node_allowed(one.node) || one.gpus.size() < gpus_per_node_)
                continue;
            Pick made = places_.pick(one.node, one.gpus);
            if (places_.enough(made))
                picks.push_back(std::move(made));
            else
                turned_ = {Turned::by_admission, {one}, {}};
        }
        const std::vector<NodeGpus> where = places_.best_nodes(std::move(picks));
        if (where.empty())
            ++examined_;
        else
            consider(Offer::Kind::subset, where);
    }

    /// Nodes of sharing jobs, some of every class.
    std::set<int> seeds()
    {
        std::set<int> found;
        walk(
            kMaxSeeds, [](const GangClass &) { return true; },
            [&](const Resident &gang) {
                for (const NodeGpus &one : gang.where)
                    if (found.size() < kMaxSeeds && admission_.node_allowed(one.node))
                        found.insert(one.node);
            });
        return found;
    }

    /// Supersets of small gangs and gangs together with idle GPUs: on the nodes of sharing jobs, the n GPUs
    /// with fewest residents.
    void consider_mixed()
    {
        std::vector<Pick> picks;
        const std::set<int> nodes = seeds();
        for (int node : nodes) {
            Pick made = places_.pick(node, places_.every_gpu(node));
            if (places_.enough(made) && made.residents > 0)
                picks.push_back(std::move(made));
            ++examined_;
        }
        if (nodes_ == 1) {
            for (const Pick &made : picks)
                consider(Offer::Kind::mixed, {made.place});
            if (gpus_per_node_ == 1 && scored())
                consider_lone(nodes);
            return;
        }
        const std::vector<Pick> idle = places_.idle_nodes(nodes_);
        if (idle.size() < nodes_)
            picks.insert(picks.end(), idle.begin(), idle.end());
        const std::vector<NodeGpus> where = places_.best_nodes(std::move(picks));
        if (!where.empty())
            consider(Offer::Kind::mixed, where);
    }

    /// For a job of one GPU: also the GPUs that are not their node's emptiest, where a score can order them.
    void consider_lone(const std::set<int> &nodes)
    {
        std::uint32_t left = kMaxLone;
        for (int node : nodes)
            for (const NodeGpus &one : places_.lone(node)) {
                if (left-- == 0)
                    return;
                consider(Offer::Kind::mixed, {one});
            }
    }

    Offer idle_offer() const
    {
        Offer offer;
        for (Pick &made : places_.idle_nodes(static_cast<std::size_t>(cluster_.node_count())))
            offer.where.push_back(std::move(made.place));
        if (offer.where.size() < nodes_)
            return {};
        std::sort(offer.where.begin(), offer.where.end(),
                  [](const NodeGpus &a, const NodeGpus &b) { return a.node < b.node; });
        offer.gain = own_gpus();
        return offer;
    }

    void consider(Offer::Kind kind, const std::vector<NodeGpus> &where)
    {
        ++examined_;
        for (const NodeGpus &one : where)
            if (!admission_.admits(one)) {
                turned_ = {Turned::by_admission, {one}, {}};
                return;
            }
        if (std::any_of(found_.begin(), found_.end(), [&](const Found &known) { return known.offer.where == where; }))
            return;
        Prediction predicted = predictor_.predict(where);
        if (waiting_.better(predicted, own_gpus())) {
            turned_ = {Turned::by_waiting, {where.front()}, std::move(predicted)};
            return;
        }
        const std::size_t spanned = groups_spanned(cluster_, where);
        found_.push_back({{kind, where, std::move(predicted.joins), predicted.gain, predicted.score},
                          scored() && predicted.known, spanned});
    }

    /// One that may be joined, and what orders it beside its gain.
    struct Found {
        Offer offer;
        bool by_score = false;
        std::size_t spanned = 0; ///< link groups
    };

    static bool better(const Found &a, const Found &b)
    {
        if (a.by_score != b.by_score)
            return a.by_score;
        const auto key = [](const Found &f) {
            const Offer &o = f.offer;
            return std::make_tuple(f.by_score ? -o.score : 0.0, o.kind, -o.gain, f.spanned, o.joins.size());
        };
        const auto left = key(a), right = key(b);
        if (left != right)
            return left < right;
        const NodeGpus &first = a.offer.where.front(), &second = b.offer.where.front();
        return std::tie(first.node, first.gpus) < std::tie(second.node, second.gpus);
    }

    Offers finish(Offer idle)
    {
        const std::size_t most = std::max(1u, policy_.max_offers) - (idle.where.empty() ? 0 : 1);
        const auto kept = found_.begin() + static_cast<std::ptrdiff_t>(std::min(found_.size(), most));
        std::partial_sort(found_.begin(), kept, found_.end(), better);
        Offers made{{}, {}, examined_};
        for (auto at = found_.begin(); at != kept; ++at)
            made.offers.push_back(std::move(at->offer));
        if (!idle.where.empty()) {
            const auto worse = [&](const Offer &o) { return !policy_.pack && o.gain < idle.gain - kEqualGain; };
            const auto at = std::find_if(made.offers.begin(), made.offers.end(), worse);
            made.offers.insert(at, std::move(idle));
        }
        made.refusal.text = refusal(made.offers.empty()).substr(0, kRefusalLimit);
        return made;
    }

    /// Of the last candidate turned down; where nobody was even looked at, why.
    std::string refusal(bool nothing_offered) const
    {
        if (!refusal_.empty())
            return refusal_;
        switch (turned_.how) {
        case Turned::by_admission:
            return admission_.why_not(turned_.where);
        case Turned::by_waiting:
            return waiting_.explain(turned_.predicted, own_gpus(), name_of(cluster_, turned_.where),
                                    name_of(turned_.predicted.joins));
        case Turned::nobody:
            break;
        }
        return nothing_offered ? why_nobody() : std::string();
    }

    /// Nobody in scope: somebody out of it who sits on such GPUs, or that there is none.
    std::string why_nobody() const
    {
        for (const auto &[gang_class, members] : cluster_.gangs().of_anyone()) {
            const Resident *gang = cluster_.find(members.begin()->second);
            const std::string why = gang ? why_not_together(job_, *gang, policy_) : "";
            if (large_enough(gang_class) && !why.empty())
                return name_of(cluster_, gang->where.front()) + ": " + why;
        }
        return "no idle GPUs and no job to share with on " + std::to_string(nodes_) + " node(s) with " +
               std::to_string(gpus_per_node_) + " GPU(s) each: wait or ask for fewer";
    }

    /// The last candidate turned down; the words are made when they are asked for.
    struct Turned {
        enum How { nobody, by_admission, by_waiting } how = nobody;
        NodeGpus where;
        Prediction predicted;
    };

    const Cluster &cluster_;
    const PlacementRequest &job_;
    const SharingPolicy &policy_;
    Admission admission_;
    Predictor predictor_;
    Waiting waiting_;
    std::uint32_t gpus_per_node_, nodes_;
    Places places_;
    std::vector<Found> found_;
    Turned turned_;
    std::string refusal_;
    std::uint32_t examined_ = 0;
};

} // namespace

Offers find_offers(const Cluster &cluster, const PlacementRequest &job, const SharingPolicy &policy)
{
    return job.spb.shares() ? Search(cluster, job, policy).run() : Offers{};
}

} // namespace jigsaw::core
