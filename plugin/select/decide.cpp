// SPDX-License-Identifier: GPL-2.0-or-later
// See decide.hpp.
//
// RUN_NOW and WILL_RUN ask the same questions in the same order, so that a start that backfill is promised ("now") is one
// that the scheduler then finds: each offer by itself, then all offers together. Only then does WILL_RUN look into the
// future, and RUN_NOW at victims: nobody is preempted while a GPU can be joined.
#include "plugin/select/decide.hpp"

#include "plugin/select/admission.hpp"
#include "plugin/select/comments.hpp"
#include "plugin/select/inner.hpp"
#include "plugin/select/owner.hpp"
#include "plugin/select/preempt.hpp"
#include "plugin/select/view.hpp"

namespace jigsaw::select {
namespace {

/// The bitmap of allowed nodes as it came, since a failed test leaves it changed.
class NodesAsGiven {
  public:
    explicit NodesAsGiven(bitstr_t *nodes) : live_(nodes), copy_(bit_copy(nodes)) {}
    ~NodesAsGiven() { FREE_NULL_BITMAP(copy_); }
    NodesAsGiven(const NodesAsGiven &) = delete;
    NodesAsGiven &operator=(const NodesAsGiven &) = delete;
    void restore() const
    {
        bit_clear_all(live_);
        bit_or(live_, copy_);
    }
    bool contains(int node) const { return bit_test(copy_, node); }

  private:
    bitstr_t *live_, *copy_;
};

bool has_candidates(const JobTest &test)
{
    return test.candidates && list_count(test.candidates) > 0;
}

/// For a job that shares with nobody a GPU opens when the last resident has left.
bool never_opens(int, int, const std::vector<core::JobId> &)
{
    return false;
}

/// WILL_RUN that answers for this moment only.
class NowOnly {
  public:
    explicit NowOnly(job_record_t *job) : job_(job), old_(job->bit_flags) { job_->bit_flags |= TEST_NOW_ONLY; }
    ~NowOnly()
    {
        if (!(old_ & TEST_NOW_ONLY))
            job_->bit_flags &= ~static_cast<decltype(job_->bit_flags)>(TEST_NOW_ONLY);
    }
    NowOnly(const NowOnly &) = delete;
    NowOnly &operator=(const NowOnly &) = delete;

  private:
    job_record_t *job_;
    decltype(job_record_t::bit_flags) old_;
};

} // namespace

int Decision::decide_exclusive()
{
    const bool simulates = test_.mode == SELECT_MODE_WILL_RUN || has_candidates(test_);
    if (!simulates)
        return inner_job_test(test_);
    nodes_ = nodes_in(test_.nodes);
    const Departures departures(test_.candidates, test_.mode == SELECT_MODE_WILL_RUN);
    int rc;
    {
        const OneOwner guard(occupancy_, nodes_, departures, never_opens);
        rc = inner_job_test(test_);
    }
    if (rc == SLURM_SUCCESS && test_.mode == SELECT_MODE_RUN_NOW)
        take_neighbours_along(occupancy_, test_);
    return rc;
}

int Decision::decide_sharing()
{
    nodes_ = nodes_in(test_.nodes);
    occupancy_.refresh_nodes(nodes_);
    request_ = make_placement_request(test_);
    policy_ = sharing_policy(test_.job);
    offers_ = core::find_offers(occupancy_.cluster(), request_, policy_);
    for (const core::Offer &offer : offers_.offers)
        for (const core::NodeGpus &part : offer.where)
            union_[part.node].insert(union_[part.node].end(), part.gpus.begin(), part.gpus.end());
    int rc = try_now();
    if (rc != SLURM_SUCCESS && test_.mode == SELECT_MODE_WILL_RUN)
        rc = try_later();
    else if (rc != SLURM_SUCCESS && has_candidates(test_))
        rc = try_preempting();
    if (rc != SLURM_SUCCESS || (test_.mode == SELECT_MODE_WILL_RUN && test_.job->start_time > time(nullptr)))
        explain_refusal();
    return rc;
}

/// Without victims: each offer, then all together.
int Decision::try_now()
{
    for (const core::Offer &offer : offers_.offers)
        if (holds_required_nodes(offer.where) && try_offer(offer.where) == SLURM_SUCCESS) {
            accepted_ = {test_.job, offer.where, false};
            return SLURM_SUCCESS;
        }
    return try_union();
}

int Decision::try_offer(const std::vector<core::NodeGpus> &where)
{
    const NodesAsGiven given(test_.nodes);
    View view(occupancy_);
    bit_clear_all(test_.nodes);
    for (const core::NodeGpus &part : where) {
        if (!given.contains(part.node))
            continue;
        bit_set(test_.nodes, part.node);
        view.show_free(part.node, part.gpus);
    }
    const int rc = run_quietly(test_.mode);
    if (rc != SLURM_SUCCESS)
        given.restore();
    return rc;
}

int Decision::try_union()
{
    const NodesAsGiven given(test_.nodes);
    View view(occupancy_);
    for (const auto &[node, gpus] : union_)
        view.also_free(node, gpus);
    const int rc = run_quietly(test_.mode);
    if (rc != SLURM_SUCCESS) {
        given.restore();
        return rc;
    }
    accept_union();
    return rc;
}

void Decision::accept_union()
{
    accepted_ = {test_.job, {}, true};
    for (const auto &[node, gpus] : union_)
        accepted_.where.push_back({node, gpus});
}

/// One question to cons_tres about this moment, without candidates for preemption.
int Decision::run_quietly(uint16_t mode)
{
    JobTest now = test_;
    now.mode = mode;
    now.candidates = nullptr;
    now.victims = nullptr;
    const NowOnly only(test_.job);
    return inner_job_test(now);
}

int Decision::try_preempting()
{
    const NodesAsGiven given(test_.nodes);
    View view(occupancy_);
    for (const auto &[node, gpus] : union_)
        view.also_free(node, gpus);
    const FutureAdmission admission(occupancy_.cluster(), request_, policy_);
    const Departures departures(test_.candidates, false);
    int rc;
    {
        const OneOwner guard(occupancy_, nodes_, departures, [&](int node, int gpu, const std::vector<core::JobId> &left) {
            return admission.opens(node, gpu, left);
        });
        rc = inner_job_test(test_);
    }
    if (rc == SLURM_SUCCESS && !open_for_sharing(occupancy_, test_, admission))
        rc = SLURM_ERROR;
    if (rc != SLURM_SUCCESS)
        given.restore();
    else
        accept_union();
    return rc;
}

/// When, if not now: jobs end (and candidates go) in cons_tres's simulation.
int Decision::try_later()
{
    View view(occupancy_);
    for (const auto &[node, gpus] : union_)
        view.also_free(node, gpus);
    const FutureAdmission admission(occupancy_.cluster(), request_, policy_);
    const Departures departures(test_.candidates, true);
    const OneOwner guard(occupancy_, nodes_, departures, [&](int node, int gpu, const std::vector<core::JobId> &left) {
        return admission.opens(node, gpu, left);
    });
    return inner_job_test(test_);
}

/// cons_tres refuses a bitmap that lacks one of the nodes named with --nodelist.
bool Decision::holds_required_nodes(const std::vector<core::NodeGpus> &where) const
{
    const bitstr_t *required = test_.job->details ? test_.job->details->req_node_bitmap : nullptr;
    for (int node : nodes_in(required))
        if (std::none_of(where.begin(), where.end(), [node](const core::NodeGpus &part) { return part.node == node; }))
            return false;
    return true;
}

void Decision::explain_refusal() const
{
    std::string text = offers_.refusal.text;
    if (!offers_.offers.empty() && !offers_.offers.front().joins.empty())
        text = "GPUs " + format_gpus(offers_.offers.front().where) + " may be shared, but cores or memory of the nodes are "
               "taken: ask for fewer with --cpus-per-task or --mem";
    if (!text.empty())
        Reasons::instance().refuse(test_.job, text);
}

} // namespace jigsaw::select
