// SPDX-License-Identifier: Apache-2.0
// The search for places. Candidates come from the index of gangs, best classes first, and are bounded, so that
// a decision costs what the job and its candidates cost, whatever the size of the cluster
// (docs/decisions/0001-placement.md).
#include "plugin/core/placement.hpp"

#include "plugin/core/admission.hpp"
#include "plugin/core/prediction.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

namespace jigsaw::core {

namespace {

constexpr std::uint32_t kMaxExact = 48, kMaxSubsets = 32, kMaxSeeds = 32; // candidates looked at, by kind
constexpr std::uint32_t kLeastOfClass = 4;                                // candidates of one class of gangs
constexpr double kLeastGain = 0.3; // capacity gate: of the newcomer's GPUs (scheduling-study 7)
constexpr double kEqualGain = 1e-9;
constexpr std::size_t kRefusalLimit = 200;

class Search {
  public:
    Search(const Cluster &cluster, const PlacementRequest &job, const SharingPolicy &policy)
        : cluster_(cluster), job_(job), policy_(policy), admission_(cluster, job, policy),
          predictor_(cluster, job, policy), gpus_per_node_(std::max(1u, job.gpus_per_node)),
          nodes_(std::max(1u, job.nodes))
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
            refuse("sharing is off for this job's partition, QOS or account: wait for idle GPUs");
        }
        return finish(idle_offer());
    }

  private:
    struct Pick {
        std::size_t residents = 0; ///< most on any GPU of it
        NodeGpus place;
    };

    bool exact_shape(const GangClass &c) const { return c.nodes == nodes_ && c.gpus_per_node == gpus_per_node_; }
    bool large_enough(const GangClass &c) const { return c.nodes >= nodes_ && c.gpus_per_node >= gpus_per_node_; }

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
            std::uint32_t left = std::min(budget, turns_apart(entry->first) ? 1u : part);
            budget -= left;
            for (auto member = entry->second.begin(); member != entry->second.end() && left > 0; ++member, --left)
                if (const Resident *gang = cluster_.find(member->second))
                    visit(*gang);
            budget += left;
            if (budget == 0)
                return;
        }
    }

    void refuse(const std::string &text) { refusal_ = text.substr(0, kRefusalLimit); }

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

    /// The GPUs with fewest residents of those that the job may take, n of them; fewer when there are not so
    /// many.
    Pick pick(int node, const std::vector<int> &gpus) const
    {
        std::vector<std::pair<std::size_t, int>> open;
        for (int gpu : gpus)
            if (admission_.admits(node, gpu))
                open.emplace_back(residents(node, gpu).size(), gpu);
        std::sort(open.begin(), open.end());
        open.resize(std::min<std::size_t>(open.size(), gpus_per_node_));
        Pick made{open.empty() ? 0 : open.back().first, {node, {}}};
        for (const auto &[count, gpu] : open)
            made.place.gpus.push_back(gpu);
        std::sort(made.place.gpus.begin(), made.place.gpus.end());
        return made;
    }

    /// The nodes with fewest residents, as many as the job wants; empty when there are too few.
    std::vector<NodeGpus> best_nodes(std::vector<Pick> picks) const
    {
        if (picks.size() < nodes_)
            return {};
        std::sort(picks.begin(), picks.end(), [](const Pick &a, const Pick &b) {
            return std::tie(a.residents, a.place.node) < std::tie(b.residents, b.place.node);
        });
        picks.resize(nodes_);
        std::vector<NodeGpus> where;
        for (const Pick &one : picks)
            where.push_back(one.place);
        std::sort(where.begin(), where.end(), [](const NodeGpus &a, const NodeGpus &b) { return a.node < b.node; });
        return where;
    }

    void consider_subset(const Resident &gang)
    {
        std::vector<Pick> picks;
        for (const NodeGpus &one : gang.where) {
            if (!admission_.node_allowed(one.node) || one.gpus.size() < gpus_per_node_)
                continue;
            const Pick made = pick(one.node, one.gpus);
            if (made.place.gpus.size() == gpus_per_node_)
                picks.push_back(made);
            else
                refuse(admission_.why_not(one));
        }
        const std::vector<NodeGpus> where = best_nodes(std::move(picks));
        if (where.empty())
            ++examined_;
        else
            consider(Offer::Kind::subset, where);
    }

    /// Supersets of small gangs and gangs together with idle GPUs: on the nodes of sharing jobs, the n GPUs
    /// with fewest residents.
    void consider_mixed()
    {
        std::set<int> seeds;
        walk(
            kMaxSeeds, [](const GangClass &) { return true; },
            [&](const Resident &gang) {
                for (const NodeGpus &one : gang.where)
                    if (seeds.size() < kMaxSeeds && admission_.node_allowed(one.node))
                        seeds.insert(one.node);
            });
        std::vector<Pick> picks;
        for (int node : seeds) {
            const Pick made = pick(node, every_gpu(node));
            if (made.place.gpus.size() == gpus_per_node_ && made.residents > 0)
                picks.push_back(made);
            ++examined_;
        }
        if (nodes_ == 1) {
            for (const Pick &made : picks)
                consider(Offer::Kind::mixed, {made.place});
            return;
        }
        const std::vector<Pick> idle = idle_nodes(nodes_);
        if (idle.size() < nodes_)
            picks.insert(picks.end(), idle.begin(), idle.end());
        const std::vector<NodeGpus> where = best_nodes(std::move(picks));
        if (!where.empty())
            consider(Offer::Kind::mixed, where);
    }

    /// Up to `most` nodes with enough idle GPUs: all of each node's that the job may take.
    std::vector<Pick> idle_nodes(std::size_t most) const
    {
        std::vector<Pick> found;
        const auto &by_idle = cluster_.nodes_by_idle();
        for (std::size_t idle = gpus_per_node_; idle < by_idle.size(); ++idle)
            for (int node : by_idle[idle]) {
                if (found.size() >= most)
                    return found;
                const Pick made = idle_on(node);
                if (made.place.gpus.size() >= gpus_per_node_)
                    found.push_back(made);
            }
        return found;
    }

    Pick idle_on(int node) const
    {
        Pick made{0, {node, {}}};
        for (int gpu : admission_.node_allowed(node) ? every_gpu(node) : std::vector<int>{})
            if (residents(node, gpu).empty() && admission_.admits(node, gpu))
                made.place.gpus.push_back(gpu);
        return made;
    }

    Offer idle_offer() const
    {
        Offer offer;
        for (const Pick &made : idle_nodes(static_cast<std::size_t>(cluster_.node_count())))
            offer.where.push_back(made.place);
        if (offer.where.size() < nodes_)
            return {};
        std::sort(offer.where.begin(), offer.where.end(),
                  [](const NodeGpus &a, const NodeGpus &b) { return a.node < b.node; });
        offer.gain = static_cast<double>(nodes_) * gpus_per_node_;
        return offer;
    }

    void consider(Offer::Kind kind, const std::vector<NodeGpus> &where)
    {
        ++examined_;
        for (const NodeGpus &one : where)
            if (const std::string why = admission_.why_not(one); !why.empty())
                return refuse(why);
        if (std::any_of(found_.begin(), found_.end(), [&](const Offer &known) { return known.where == where; }))
            return;
        const Prediction predicted = predictor_.predict(where);
        if (const std::string why = why_wait(predicted, where.front()); !why.empty())
            return refuse(why);
        found_.push_back({kind, where, predicted.joins, predicted.gain});
    }

    /// Is waiting better? "Nobody pays" and the capacity gate; where somebody's profile is unknown neither has
    /// a number to go by, and all of them asked to share.
    std::string why_wait(const Prediction &predicted, const NodeGpus &first) const
    {
        if (!predicted.known)
            return {};
        const std::string place = name_of(cluster_, first);
        if (predicted.worst_finish > 1 + policy_.pay)
            return "job " + std::to_string(predicted.worst_job) + " on " + place + " would run " +
                   decimal(predicted.worst_finish, 2) + " times its time alone, at most " +
                   decimal(1 + policy_.pay, 2) + " allowed: wait for it or lower --time";
        const double least = kLeastGain * nodes_ * gpus_per_node_;
        if (predicted.gain < least && !predicted.short_visit)
            return "sharing " + place + " with " + name_of(predicted.joins) + " would gain the work of " +
                   decimal(predicted.gain, 2) + " GPUs, at least " + decimal(least, 2) +
                   " needed: wait or lower --time";
        if (job_.wait_s >= 0 && job_.time_limit_s > 0 && predicted.score <= 0)
            return "sharing " + place + " with " + name_of(predicted.joins) + " would cost " +
                   decimal(-predicted.score, 0) + " s more than waiting " + decimal(job_.wait_s, 0) + " s: wait";
        return {};
    }

    Offers finish(Offer idle)
    {
        const auto rank = [](const Offer &offer) { return offer.kind; };
        std::sort(found_.begin(), found_.end(), [&](const Offer &a, const Offer &b) {
            if (rank(a) != rank(b))
                return rank(a) < rank(b);
            return std::make_tuple(-a.gain, a.joins.size(), a.where.front().node, a.where.front().gpus) <
                   std::make_tuple(-b.gain, b.joins.size(), b.where.front().node, b.where.front().gpus);
        });
        const std::size_t most = std::max(1u, policy_.max_offers);
        found_.resize(std::min(found_.size(), idle.where.empty() ? most : most - 1));
        if (!idle.where.empty()) {
            const auto worse = [&](const Offer &o) { return !policy_.pack && o.gain < idle.gain - kEqualGain; };
            found_.insert(std::find_if(found_.begin(), found_.end(), worse), idle);
        } else if (found_.empty() && refusal_.empty()) {
            refuse(why_nobody());
        }
        return {std::move(found_), {refusal_}, examined_};
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

    const std::vector<JobId> &residents(int node, int gpu) const
    {
        return cluster_.node(node).gpus.at(static_cast<std::size_t>(gpu)).residents;
    }

    std::vector<int> every_gpu(int node) const
    {
        std::vector<int> gpus(cluster_.node(node).gpus.size());
        for (std::size_t i = 0; i < gpus.size(); ++i)
            gpus[i] = static_cast<int>(i);
        return gpus;
    }

    const Cluster &cluster_;
    const PlacementRequest &job_;
    const SharingPolicy &policy_;
    Admission admission_;
    Predictor predictor_;
    std::uint32_t gpus_per_node_, nodes_;
    std::vector<Offer> found_;
    std::string refusal_;
    std::uint32_t examined_ = 0;
};

} // namespace

Offers find_offers(const Cluster &cluster, const PlacementRequest &job, const SharingPolicy &policy)
{
    return job.spb.shares() ? Search(cluster, job, policy).run() : Offers{};
}

} // namespace jigsaw::core
