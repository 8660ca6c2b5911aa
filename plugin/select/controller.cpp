// SPDX-License-Identifier: GPL-2.0-or-later
// See controller.hpp. Each entry point calls cons_tres exactly once (job_test: as often as it has offers, which is
// harmless), with our part before and behind it in separate fences.
#include "plugin/select/controller.hpp"

#include "plugin/select/comments.hpp"
#include "plugin/select/inner.hpp"
#include "plugin/select/selfcheck.hpp"

namespace jigsaw::select {
namespace {

constexpr time_t kAuditPeriodS = 60;

std::vector<int> all_nodes()
{
    std::vector<int> nodes;
    for (int node = 0; node < node_record_count; ++node)
        nodes.push_back(node);
    return nodes;
}

std::vector<int> both(std::vector<int> a, const std::vector<int> &b)
{
    a.insert(a.end(), b.begin(), b.end());
    std::sort(a.begin(), a.end());
    a.erase(std::unique(a.begin(), a.end()), a.end());
    return a;
}

std::string list_of(const std::vector<core::JobId> &jobs)
{
    std::string text;
    for (core::JobId job : jobs)
        text += (text.empty() ? "" : ",") + std::to_string(job);
    return text;
}

} // namespace

Controller &Controller::instance()
{
    static auto *controller = new Controller();
    return *controller;
}

template <class Work> void Controller::guarded(const char *what, Work work) noexcept
{
    try {
        work();
    } catch (const std::exception &trouble) {
        lose_trust(std::string(what) + ": " + trouble.what());
    } catch (...) {
        lose_trust(std::string(what) + ": unknown exception");
    }
}

void Controller::lose_trust(const std::string &why) noexcept
{
    if (trust_ != Trust::lost)
        error("jigsaw: %s; GPUs are no longer shared and every decision is cons_tres's own until slurmctld restarts",
              why.c_str());
    trust_ = Trust::lost;
}

bool Controller::trusted(const job_record_t *job) noexcept
{
    if (trust_ == Trust::unknown)
        guarded("self-check", [&] {
            std::string why = check_job(job);
            if (why.empty())
                why = check_nodes();
            if (why.empty())
                trust_ = Trust::good;
            else
                lose_trust("self-check: " + why + ": this Slurm is not the one the plugin was built for");
        });
    return trust_ == Trust::good;
}

void Controller::read_configuration()
{
    load_settings();
    if (!configured_ && slurm_conf.state_save_location)
        profile_store().load(slurm_conf.state_save_location);
    const bool before = !configured_ || prolog_at_allocation_;
    configured_ = true;
    prolog_at_allocation_ = slurm_conf.prolog_flags & PROLOG_FLAG_ALLOC;
    if (before && !prolog_at_allocation_)
        error("jigsaw: PrologFlags lacks Alloc: only a job's first node would hear of it before it starts, so no GPU is "
              "shared; add PrologFlags=Alloc to slurm.conf and run `scontrol reconfigure`");
}

bool Controller::may_share(const job_record_t *job) const
{
    return prolog_at_allocation_ && job_shares(job);
}

void Controller::audit_sometimes()
{
    const time_t now = time(nullptr);
    if (now < next_audit_)
        return;
    next_audit_ = now + kAuditPeriodS;
    occupancy_.audit();
    refresh_measurements();
    save_profiles();
}

/// jigsawd writes what it measured into AdminComment, about once a minute.
void Controller::refresh_measurements()
{
    std::vector<core::JobId> sharing;
    for (const auto &[id, resident] : occupancy_.cluster().jobs())
        if (resident.spb.mode != core::SpbMode::off)
            sharing.push_back(id);
    for (core::JobId id : sharing)
        if (job_record_t *job = find_job_record(id); job && job->admin_comment)
            occupancy_.add(job);
}

void Controller::save_profiles()
{
    guarded("profiles", [] {
        std::string why;
        if (profile_store().unsaved() && slurm_conf.state_save_location &&
            !profile_store().save(&why, slurm_conf.state_save_location))
            error("jigsaw: %s; what jobs cost is not remembered over a restart", why.c_str());
    });
}

int Controller::decide(const JobTest &test)
{
    if (!configured_)
        read_configuration();
    audit_sometimes();
    Decision decision(occupancy_, test);
    if (!may_share(test.job))
        return decision.decide_exclusive();
    const int rc = decision.decide_sharing();
    if (test.mode == SELECT_MODE_RUN_NOW)
        accepted_ = rc == SLURM_SUCCESS ? decision.accepted() : Accepted();
    return rc;
}

int Controller::job_test(const JobTest &test)
{
    if (test.mode == SELECT_MODE_TEST_ONLY || !trusted(test.job))
        return inner_job_test(test);
    bitstr_t *given = bit_copy(test.nodes);
    int rc = SLURM_ERROR;
    bool decided = false;
    guarded("job_test", [&] {
        rc = decide(test);
        decided = true;
    });
    if (!decided) {
        bit_clear_all(test.nodes);
        bit_or(test.nodes, given);
        rc = inner_job_test(test);
    }
    FREE_NULL_BITMAP(given);
    return rc;
}

int Controller::nodeinfo_set(job_record_t *job)
{
    if (!trusted(job))
        return inner_nodeinfo_set(job);
    std::unique_ptr<View> view;
    bool fresh = true;
    guarded("start of a job", [&] {
        if (!configured_)
            read_configuration();
        const std::vector<int> nodes = nodes_held(job);
        occupancy_.refresh_nodes(nodes);
        fresh = gpus_held(job).empty();
        strip_forged(job);
        view = std::make_unique<View>(occupancy_);
        if (fresh && may_share(job))
            show_for_start(view.get(), job);
        else if (!fresh) // a job that ran before this slurmctld did: it holds what it holds
            for (int node : nodes)
                view->show_empty(node);
    });
    const int rc = inner_nodeinfo_set(job);
    guarded("start of a job", [&] {
        note_start(job, fresh);
        view.reset();
    });
    return rc;
}

/// The GPUs of the decision look free. Where cons_tres has chosen GPUs already, exactly those.
void Controller::show_for_start(View *view, const job_record_t *job) const
{
    for (int node : nodes_held(job)) {
        const std::vector<int> chosen = gpus_chosen(job, node);
        if (!chosen.empty()) {
            view->also_free(node, chosen);
            continue;
        }
        for (const core::NodeGpus &part : accepted_.where) {
            if (accepted_.job != job || part.node != node)
                continue;
            if (accepted_.idle_too)
                view->also_free(node, part.gpus);
            else
                view->show_free(node, part.gpus);
        }
    }
}

void Controller::note_start(job_record_t *job, bool fresh)
{
    if (!IS_JOB_RUNNING(job) && !IS_JOB_SUSPENDED(job))
        return;
    note_change(job);
    const core::Resident *resident = occupancy_.cluster().find(job->job_id);
    if (!resident || !resident->spb.shares()) {
        set_system_comment(job, ""); // it no longer waits
        return;
    }
    announce_sharing(occupancy_, job->job_id);
    const std::vector<core::JobId> neighbours = occupancy_.neighbours_of(job->job_id);
    if (fresh)
        info("jigsaw: job %u starts on %s%s%s", job->job_id, format_gpus(resident->where).c_str(),
             neighbours.empty() ? "" : ", shared with job ", list_of(neighbours).c_str());
}

/// Slurm has changed what the job holds.
void Controller::note_change(job_record_t *job)
{
    const std::vector<int> before = occupancy_.nodes_of(job->job_id);
    occupancy_.add(job);
    write_truth(occupancy_, both(before, nodes_held(job)));
}

int Controller::job_fini(job_record_t *job)
{
    std::vector<int> nodes;
    if (trusted(job))
        guarded("end of a job", [&] { nodes = both(nodes_held(job), occupancy_.nodes_of(job->job_id)); });
    const int rc = inner_job_fini(job);
    if (trusted(job))
        guarded("end of a job", [&] {
            const std::vector<core::JobId> neighbours = occupancy_.neighbours_of(job->job_id);
            learn_profile(job);
            occupancy_.remove(job->job_id);
            write_truth(occupancy_, nodes);
            set_system_comment(job, ""); // a requeued job waits again
            announce_leaving(occupancy_, neighbours);
        });
    if (!kStateSaveIsAnnounced)
        save_profiles();
    return rc;
}

int Controller::job_resized(job_record_t *job, node_record_t *node)
{
    const int rc = inner_job_resized(job, node);
    if (trusted(job))
        guarded("shrinking of a job", [&] {
            const std::vector<core::JobId> neighbours = occupancy_.neighbours_of(job->job_id);
            note_change(job);
            write_truth(occupancy_, node->index);
            announce_sharing(occupancy_, job->job_id);
            announce_leaving(occupancy_, neighbours);
        });
    return rc;
}

int Controller::job_expand(job_record_t *from, job_record_t *to)
{
    const int rc = inner_job_expand(from, to);
    if (trusted(to))
        guarded("growth of a job", [&] {
            note_change(from);
            note_change(to);
        });
    return rc;
}

int Controller::job_suspend(job_record_t *job, bool indefinitely)
{
    const int rc = inner_job_suspend(job, indefinitely);
    if (trusted(job))
        guarded("suspension of a job", [&] { note_change(job); });
    return rc;
}

int Controller::job_resume(job_record_t *job, bool indefinitely)
{
    const int rc = inner_job_resume(job, indefinitely);
    if (trusted(job))
        guarded("resumption of a job", [&] { note_change(job); });
    return rc;
}

int Controller::node_init()
{
    guarded("node table", [&] { occupancy_.forget(); }); // indices may change; the jobs are added again one by one
    return inner_node_init();
}

int Controller::reconfigure()
{
    int rc;
    {
        std::unique_ptr<Inflation> inflation;
        if (trust_ != Trust::lost)
            guarded("reconfiguration", [&] { inflation = std::make_unique<Inflation>(occupancy_); });
        rc = inner_reconfigure();
    }
    if (trust_ != Trust::lost)
        guarded("reconfiguration", [&] {
            read_configuration();
            occupancy_.rebuild();
            write_truth(occupancy_, all_nodes());
        });
    return rc;
}

} // namespace jigsaw::select
