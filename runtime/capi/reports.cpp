// SPDX-License-Identifier: Apache-2.0
// What goes out: the report page, what rank 0 announces, numbers for the caller.
#include "runtime/capi/session.hpp"
#include "runtime/collective/error.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace jigsaw::capi {

namespace {

/// NaN means "not known"; anything else must lie in the range.
void check_share(const char *name, double value)
{
    if (!std::isnan(value) && !(value >= 0 && value <= 1))
        throw Error(JIGSAW_INVALID_ARGUMENT,
                    std::string("jigsaw_report: ") + name + " is " + std::to_string(value) + "; allowed are 0 to 1 and NaN");
}

/// The first older rival, else the first: the younger job adapts its phase to the older one.
void add_hint(sync::AgreementInput *input, const page::DirectiveView &view)
{
    const auto older = std::find_if(view.rivals.begin(), view.rivals.end(),
                                    [](const jigsaw_rival_t &rival) { return rival.older != 0; });
    const auto found = older == view.rivals.end() ? view.rivals.begin() : older;
    if (found == view.rivals.end())
        return;
    const jigsaw_rival_role_t &role = view.roles[static_cast<std::size_t>(found - view.rivals.begin())];
    if (role.world_size == 0 || role.world_size > UINT16_MAX)
        return; // of a jigsawd that does not tell roles, or more ranks than the record can say
    input->rival_job = found->job_id;
    input->rival_older = found->older != 0;
    input->rival_generation = found->generation;
    input->rival_iteration = found->iteration;
    input->rival_phase = found->phase;
    input->rival_policy = static_cast<std::uint8_t>(found->policy);
    input->rival_offset = role.offset;
    input->rival_rank = static_cast<std::uint16_t>(role.rank);
    input->rival_world = static_cast<std::uint16_t>(role.world_size);
    input->rival_full_workers = static_cast<std::uint16_t>(role.full_workers);
    input->rival_levels = static_cast<std::uint8_t>(role.levels);
    input->rival_direction = static_cast<std::int8_t>(role.direction);
}

/// What the other ranks told of their rivals: one entry per job, from the first rank that named it.
std::vector<jigsaw_elsewhere_t> rivals_elsewhere(const std::vector<sync::AgreementInput> &inputs)
{
    std::vector<jigsaw_elsewhere_t> out;
    for (std::uint32_t rank = 1; rank < inputs.size() && out.size() < JIGSAW_MAX_RIVALS; ++rank) {
        const sync::AgreementInput &input = inputs[rank];
        const bool known = std::any_of(out.begin(), out.end(),
                                       [&](const jigsaw_elsewhere_t &e) { return e.job_id == input.rival_job; });
        if (input.rival_job == 0 || known)
            continue;
        out.push_back({rank, input.rival_job, input.rival_older ? 1u : 0u, input.rival_policy, input.rival_generation,
                       input.rival_phase, 0,
                       {input.rival_offset, input.rival_rank, input.rival_world, input.rival_levels,
                        input.rival_full_workers, input.rival_direction}});
    }
    return out;
}

} // namespace

void Session::report(const jigsaw_report_t &report)
{
    if (state_ == State::broken)
        expect(State::attached, "jigsaw_report");
    check_share("progress", report.progress);
    check_share("lr_over_peak", report.lr_over_peak);
    report_.loss = report.loss;
    report_.progress = report.progress;
    report_.memory_bytes = report.memory_bytes;
    report_.memory_peak_bytes = report.memory_peak_bytes;
    lr_over_peak_ = report.lr_over_peak;
}

void Session::publish_report()
{
    report_.turns = turns_->count();
    report_.turn_ns = turns_->held_ns();
    report_.agreed = agreement_->directive(next_);
    report_.block_backward_ns = block_times_.backward_ns();
    if (director_) { // rank 0
        report_.elsewhere = rivals_elsewhere(agreement_->inputs());
        report_.min_full_workers = director_->min_full_workers(next_, lr_over_peak_);
        report_.warmup_left = director_->warmup_left(next_);
    }
    gate_.publish(report_);
}

plan::Directive Session::announcement()
{
    if (replay_)
        return replay_->at(next_ + 2);
    // With one block there is nothing to choose, and jigsaw_set_blocks() may still come.
    if (agreement_->announcement_pending() || settings_.num_blocks() == 1)
        return {};
    page::DirectiveView view;
    Outlook outlook;
    outlook.iteration = next_;
    outlook.agent = settings_.agent_given && gate_.read_wanted(&view);
    outlook.wanted = view.wanted;
    outlook.lr_over_peak = lr_over_peak_;
    outlook.measured = block_times_.measured();
    outlook.backward_ns = block_times_.backward_ns();
    plan::Directive directive = director_->next(outlook);
    const std::string message = director_->take_message();
    if (!message.empty())
        settings_.log(message);
    return directive;
}

sync::AgreementInput Session::exchange_input()
{
    sync::AgreementInput input;
    input.leave = leaving_;
    input.skipped = std::exchange(skipped_, false);
    if (director_)
        input.announce = announcement();
    page::DirectiveView view;
    if (!settings_.agent_given || !gate_.read_wanted(&view))
        return input;
    input.shares = !view.rivals.empty();
    add_hint(&input, view);
    return input;
}

jigsaw_stats_t Session::stats() const
{
    jigsaw_stats_t out{};
    out.iterations = iterations_;
    out.turns = turns_->count();
    out.turn_ns = turns_->held_ns();
    out.payload_bytes_sent = gradients_->payload_bytes_sent();
    out.mean_depth_fraction = iterations_ ? depth_fraction_sum_ / static_cast<double>(iterations_) : 1.0;
    out.attached = gate_.attached() ? 1 : 0;
    out.gpu_index = gate_.gpu_index();
    return out;
}

} // namespace jigsaw::capi
