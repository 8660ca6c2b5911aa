// SPDX-License-Identifier: Apache-2.0
// The exchange and the verdict. Whatever is decided here is a function of the k records alone, which are the same on
// every rank: all ranks fail, leave or follow together.
#include "runtime/sync/agreement.hpp"

#include "runtime/collective/tags.hpp"
#include "runtime/sync/agreement_record.hpp"

#include <algorithm>
#include <cstdio>
#include <list>
#include <map>
#include <optional>
#include <tuple>

namespace jigsaw::sync {
namespace {

using Clock = std::chrono::steady_clock;

/// In force, pending, and two older ones for references that a caller still holds.
constexpr std::size_t kKeptDirectives = 4;

/// "rank 2" or "ranks 1,3".
std::string name_ranks(const std::vector<int> &ranks)
{
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < ranks.size(); ++i)
        text += (i ? "," : "") + std::to_string(ranks[i]);
    return text;
}

bool same_but_for_the_stamp(plan::Directive a, const plan::Directive &b)
{
    a.first_iteration = b.first_iteration;
    return a == b;
}

struct Exchange {
    std::uint64_t iteration = 0;
    bool announces = false;
    std::vector<RecordBytes> records; ///< [rank]
    std::vector<int> peers;           ///< of `requests`
    std::vector<std::unique_ptr<collective::Request>> requests;
    std::optional<Error> failure; ///< of posting; told by finish()
};

} // namespace

struct Agreement::State {
    State(collective::Collective &collective, std::uint32_t blocks, std::uint64_t first)
        : world(collective), num_blocks(blocks), next(first), directives(1),
          inputs(static_cast<std::size_t>(collective.size()))
    {
    }

    const plan::Directive &directive(std::uint64_t iteration) const;
    plan::IterationPlan plan(std::uint64_t iteration) const;
    bool pending_at(std::uint64_t iteration) const { return directives.back().first_iteration > iteration; }
    Record make_record(std::uint64_t iteration, const AgreementInput &input) const;
    void post(Exchange &posted);
    bool wait_until(Clock::time_point deadline);
    std::vector<Record> decode_all() const;
    void check_same(const std::vector<Record> &records) const;
    std::string describe(const std::vector<Record> &records) const;
    void check_skipped(const std::vector<Record> &records) const;
    bool check_leaving(const std::vector<Record> &records) const;
    void follow(const plan::Directive &announced, std::uint64_t first_iteration);
    std::string where(std::uint64_t iteration) const
    {
        return "rank " + std::to_string(world.rank()) + ": agreement of iteration " + std::to_string(iteration);
    }

    collective::Collective &world;
    const std::uint32_t num_blocks;
    std::uint64_t next; ///< exchange to start, and the last iteration whose plan is confirmed
    std::uint64_t sequence = 0; ///< of exchanges since the start, the same on all ranks whatever their iteration is
    std::list<plan::Directive> directives; ///< ascending first_iteration; the oldest may be "none"
    std::optional<Exchange> exchange;
    std::vector<AgreementInput> inputs;
    std::function<void(const plan::Directive &)> on_agreed;
    std::map<std::uint64_t, std::uint32_t> corrupted; ///< iteration -> own depth, tests only
};

const plan::Directive &Agreement::State::directive(std::uint64_t iteration) const
{
    const auto newest = std::find_if(directives.rbegin(), directives.rend(), [&](const plan::Directive &directive) {
        return directive.first_iteration <= iteration;
    });
    return newest == directives.rend() ? directives.front() : *newest;
}

plan::IterationPlan Agreement::State::plan(std::uint64_t iteration) const
{
    const auto ranks = static_cast<std::uint32_t>(world.size());
    plan::IterationPlan plan = plan::make_iteration_plan(directive(iteration), ranks, num_blocks, iteration);
    const auto wrong = corrupted.find(iteration);
    if (wrong == corrupted.end())
        return plan;
    const auto rank = static_cast<std::uint32_t>(world.rank());
    plan.depths[rank] = wrong->second;
    for (std::uint32_t block = 0; block < num_blocks; ++block) {
        auto &who = plan.contributors[block];
        who.erase(std::remove(who.begin(), who.end(), rank), who.end());
        if (plan.depths[rank] > num_blocks - 1 - block)
            who.insert(std::lower_bound(who.begin(), who.end(), rank), rank);
    }
    plan.hash = ~plan.hash + wrong->second;
    return plan;
}

Record Agreement::State::make_record(std::uint64_t iteration, const AgreementInput &input) const
{
    const plan::IterationPlan following = plan(iteration + 1);
    Record record;
    record.iteration = iteration;
    record.generation = directive(iteration + 1).generation;
    record.hash_next = following.hash;
    record.hash_after = plan(iteration + 2).hash;
    record.depth = following.depths[static_cast<std::size_t>(world.rank())];
    record.input = input;
    const plan::Directive &announce = input.announce;
    if (world.rank() != 0 || pending_at(iteration) || same_but_for_the_stamp(announce, directives.back()))
        record.input.announce = plan::Directive();
    if (record.input.announce.generation == 0)
        return record;
    const auto why = plan::validate(announce, static_cast<std::uint32_t>(world.size()), num_blocks);
    if (!why.empty())
        throw Error(JIGSAW_INVALID_ARGUMENT, where(iteration) + ": cannot announce generation " +
                                                 std::to_string(announce.generation) + ": " + why);
    return record;
}

/// Tags count exchanges, not iterations: ranks that differ in the iteration shall meet and find out.
void Agreement::State::post(Exchange &posted)
{
    const std::uint64_t tag = collective::sequence_tag(collective::TagKind::agreement, sequence++);
    const int rank = world.rank();
    for (int peer = 0; peer < world.size(); ++peer) {
        if (peer == rank)
            continue;
        auto &theirs = posted.records[static_cast<std::size_t>(peer)];
        posted.requests.push_back(world.receive(peer, tag, theirs.data(), theirs.size()));
        posted.peers.push_back(peer);
    }
    const auto &mine = posted.records[static_cast<std::size_t>(rank)];
    for (const int peer : std::vector<int>(posted.peers)) {
        posted.requests.push_back(world.send(peer, tag, mine.data(), mine.size()));
        posted.peers.push_back(peer);
    }
}

/// Completed requests are dropped, so that who is missing is what remains.
bool Agreement::State::wait_until(Clock::time_point deadline)
{
    if (exchange->failure)
        throw *exchange->failure;
    auto &requests = exchange->requests;
    for (std::size_t i = 0; i < requests.size();) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
        if (!requests[i]->wait_for(std::max(left, std::chrono::milliseconds(0)))) {
            ++i;
            continue;
        }
        requests.erase(requests.begin() + static_cast<std::ptrdiff_t>(i));
        exchange->peers.erase(exchange->peers.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return requests.empty();
}

std::vector<Record> Agreement::State::decode_all() const
{
    std::vector<Record> records(exchange->records.size());
    for (std::size_t rank = 0; rank < records.size(); ++rank)
        if (!decode(&records[rank], exchange->records[rank]))
            throw Error(JIGSAW_DISAGREE, where(exchange->iteration) + ": rank " + std::to_string(rank) +
                                             " sent no record of this version; do all ranks run one libjigsaw?");
    return records;
}

/// Ranks with one view side by side: "ranks 0,1: iteration 8 of generation 3, depths 4,2, plan 12ab; rank 2: ...".
std::string Agreement::State::describe(const std::vector<Record> &records) const
{
    std::map<std::string, std::pair<std::vector<int>, std::string>> views;
    for (std::size_t rank = 0; rank < records.size(); ++rank) {
        const Record &record = records[rank];
        char hashes[48];
        std::snprintf(hashes, sizeof hashes, ", plan %016llx", static_cast<unsigned long long>(record.hash_next));
        const std::string view = "iteration " + std::to_string(record.iteration + 1) + " of generation " +
                                 std::to_string(record.generation) + hashes;
        auto &[ranks, depths] = views[view + std::to_string(record.hash_after)];
        depths += (ranks.empty() ? view + ", depths " : ",") + std::to_string(record.depth);
        ranks.push_back(static_cast<int>(rank));
    }
    std::string text;
    for (const auto &[key, view] : views)
        text += (text.empty() ? "" : "; ") + name_ranks(view.first) + ": " + view.second;
    return text;
}

void Agreement::State::check_same(const std::vector<Record> &records) const
{
    const auto view = [](const Record &r) { return std::tie(r.iteration, r.generation, r.hash_next, r.hash_after); };
    for (const Record &record : records)
        if (view(record) != view(records.front()))
            throw Error(JIGSAW_DISAGREE,
                        where(exchange->iteration) + ": ranks do not agree on the plan: " + describe(records));
}

/// Replicas that step apart are found before the next gradients are used.
void Agreement::State::check_skipped(const std::vector<Record> &records) const
{
    std::vector<int> skipped, stepped;
    for (std::size_t rank = 0; rank < records.size(); ++rank)
        (records[rank].input.skipped ? skipped : stepped).push_back(static_cast<int>(rank));
    if (!skipped.empty() && !stepped.empty())
        throw Error(JIGSAW_DISAGREE, where(exchange->iteration) + ": " + name_ranks(skipped) +
                                         " skipped the optimizer step before it and " + name_ranks(stepped) +
                                         " did not; decide by the synchronised gradients, which all ranks share");
}

bool Agreement::State::check_leaving(const std::vector<Record> &records) const
{
    std::vector<int> leaving;
    for (std::size_t rank = 0; rank < records.size(); ++rank)
        if (records[rank].input.leave)
            leaving.push_back(static_cast<int>(rank));
    if (leaving.size() == records.size())
        return true;
    if (leaving.empty() || records[static_cast<std::size_t>(world.rank())].input.leave)
        return false;
    throw Error(JIGSAW_PEER_LEFT, name_ranks(leaving) + " left after iteration " + std::to_string(exchange->iteration));
}

void Agreement::State::follow(const plan::Directive &announced, std::uint64_t first_iteration)
{
    const auto why = plan::validate(announced, static_cast<std::uint32_t>(world.size()), num_blocks);
    if (!why.empty())
        throw Error(JIGSAW_DISAGREE, where(exchange->iteration) + ": rank 0 announced generation " +
                                         std::to_string(announced.generation) + ": " + why);
    directives.push_back(announced);
    directives.back().first_iteration = first_iteration;
    if (directives.size() > kKeptDirectives)
        directives.pop_front();
    if (on_agreed)
        on_agreed(directives.back());
}

Agreement::Agreement(collective::Collective &world, std::uint32_t num_blocks, std::uint64_t first_iteration)
    : state_(new State(world, num_blocks, first_iteration))
{
}

Agreement::~Agreement() = default;

plan::IterationPlan Agreement::plan(std::uint64_t iteration) const
{
    if (iteration > state_->next)
        throw Error(JIGSAW_DISAGREE, state_->where(iteration) + ": the exchange of iteration " +
                                         std::to_string(iteration - 1) + " has not confirmed its plan; finish it first");
    return state_->plan(iteration);
}

const plan::Directive &Agreement::directive(std::uint64_t iteration) const { return state_->directive(iteration); }

bool Agreement::announcement_pending() const
{
    const State &state = *state_;
    const bool started = state.exchange.has_value();
    return (started && state.exchange->announces) || state.pending_at(state.next + (started ? 1 : 0));
}

void Agreement::start(std::uint64_t iteration, const AgreementInput &input)
{
    State &state = *state_;
    if (state.exchange || iteration != state.next)
        throw Error(JIGSAW_INVALID_STATE, state.where(iteration) + ": the exchange of iteration " +
                                              std::to_string(state.next) +
                                              (state.exchange ? " is not finished" : " comes first"));
    const Record record = state.make_record(iteration, input);
    Exchange &exchange = state.exchange.emplace();
    exchange.iteration = iteration;
    exchange.announces = record.input.announce.generation != 0;
    exchange.records.resize(state.inputs.size());
    exchange.records[static_cast<std::size_t>(state.world.rank())] = encode(record);
    try {
        state.post(exchange);
    } catch (const Error &error) {
        exchange.failure = Error(error.code(), state.where(iteration) + ": " + error.what());
    }
}

bool Agreement::wait_for(std::uint64_t iteration, std::chrono::milliseconds limit)
{
    State &state = *state_;
    if (!state.exchange || state.exchange->iteration != iteration)
        throw Error(JIGSAW_INVALID_STATE, state.where(iteration) + " was not started");
    try {
        return state.wait_until(Clock::now() + limit);
    } catch (const Error &error) {
        if (!state.exchange->failure)
            state.exchange->failure = Error(error.code(), state.where(iteration) + ": " + error.what());
        throw *state.exchange->failure;
    }
}

bool Agreement::finish(std::uint64_t iteration, std::chrono::milliseconds timeout)
{
    State &state = *state_;
    if (!wait_for(iteration, timeout)) {
        std::vector<int> missing = state.exchange->peers;
        std::sort(missing.begin(), missing.end());
        missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
        throw Error(JIGSAW_TIMEOUT, state.where(iteration) + ": no answer from " + name_ranks(missing) + " after " +
                                        std::to_string(timeout.count()) + " ms");
    }
    const std::vector<Record> records = state.decode_all();
    state.check_same(records);
    state.check_skipped(records);
    const bool all_leave = state.check_leaving(records);
    if (const plan::Directive &announced = records.front().input.announce; announced.generation != 0 && !all_leave)
        state.follow(announced, iteration + 2);
    for (std::size_t rank = 0; rank < records.size(); ++rank)
        state.inputs[rank] = records[rank].input;
    state.corrupted.erase(iteration);
    state.exchange.reset();
    state.next = iteration + 1;
    return all_leave;
}

const std::vector<AgreementInput> &Agreement::inputs() const { return state_->inputs; }

void Agreement::on_agreed(std::function<void(const plan::Directive &)> callback)
{
    state_->on_agreed = std::move(callback);
}

void Agreement::corrupt_for_test(std::uint64_t iteration, std::uint32_t depth) { state_->corrupted[iteration] = depth; }

} // namespace jigsaw::sync
