// SPDX-License-Identifier: GPL-2.0-or-later
// The same snapshots on two ways to core::find_offers(): as values, as jigsaw sim gives them, and as the select plugin
// gets them: options in spank_job_env, what jigsawd wrote into AdminComment, profiles on disk, jigsaw.yaml. Both must
// decide alike.
#include "plugin/config/config.hpp"
#include "plugin/config/options.hpp"
#include "plugin/core/placement.hpp"
#include "plugin/select/facts.hpp"

#include <cmath>
#include <cstdio>
#include <random>
#include <string>

#include "tests/lib/suite.hpp"

using namespace jigsaw;

namespace {

constexpr std::uint64_t kGib = 1ULL << 30;
constexpr std::int64_t kNow = 1790000000;
constexpr int kNodes = 12, kGpus = 4;

/// A job as both sides are told of it.
struct Told {
    core::JobId id = 0;
    std::uint32_t uid = 1000;
    int mode = 0; ///< of kModes
    std::uint64_t memory_gib = 0;
    std::uint32_t max_share = 0;
    std::string key;
    core::Profile profile; ///< measured in this run, or in an earlier one under the key
    std::int64_t started_ago_s = 0, waited_s = 0, limit_s = 0;
    double done_s = -1, left_s = -1;
};

const char *const kModes[] = {"auto", "full", "2"};

Told random_job(std::mt19937 &random, core::JobId id)
{
    Told job;
    job.id = id;
    job.uid = 1000 + random() % 3;
    job.mode = static_cast<int>(random() % 3);
    job.memory_gib = 4 + random() % 20;
    job.max_share = random() % 4 ? 0 : 2 + random() % 2;
    job.limit_s = static_cast<std::int64_t>(60 * (10 + random() % 3000));
    job.started_ago_s = static_cast<std::int64_t>(random() % 20000);
    job.waited_s = static_cast<std::int64_t>(random() % 50000);
    if (random() % 5 == 0)
        return job; // nothing measured
    job.profile.forward_ms = 10 + static_cast<double>(random() % 40);
    const double full_ms = 2 * job.profile.forward_ms;
    job.profile.backward_ms_of_level = {full_ms / 4, full_ms};
    job.profile.network_ms = static_cast<double>(random() % 80);
    if (random() % 2) {
        job.done_s = static_cast<double>(job.started_ago_s / 2);
        job.left_s = random() % 2 ? static_cast<double>(random() % 20000) : -1;
    }
    return job;
}

core::SpbRequest request_value(const Told &told)
{
    core::SpbRequest spb;
    const core::SpbMode modes[] = {core::SpbMode::automatic, core::SpbMode::full, core::SpbMode::levels};
    spb.mode = modes[told.mode];
    spb.levels = told.mode == 2 ? 2 : 0;
    spb.memory_bytes = told.memory_gib * kGib;
    spb.max_share = told.max_share;
    spb.profile_key = told.key;
    return spb;
}

core::Resident resident_value(const Told &told, std::vector<core::NodeGpus> where)
{
    core::Resident job;
    job.id = told.id;
    job.uid = told.uid;
    job.spb = request_value(told);
    job.profile = told.profile;
    job.start_s = kNow - told.started_ago_s;
    job.time_limit_s = told.limit_s;
    job.done_s = told.done_s;
    job.done_at_s = told.done_s >= 0 ? kNow - 5 : 0;
    job.total_s = told.done_s >= 0 && told.left_s >= 0 ? told.done_s + told.left_s : 0;
    job.where = std::move(where);
    return job;
}

core::PlacementRequest pending_value(const Told &told)
{
    core::PlacementRequest job;
    job.id = told.id;
    job.uid = told.uid;
    job.spb = request_value(told);
    job.profile = told.profile;
    job.now_s = kNow;
    job.time_limit_s = told.limit_s;
    job.run_s = told.profile.run_s;
    job.waited_s = static_cast<double>(told.waited_s);
    return job;
}

std::string number(double value)
{
    char text[32];
    std::snprintf(text, sizeof text, "%.10g", value);
    return text;
}

std::string comment_of(const Told &told)
{
    std::string text = "ask Ann jigsaw:{\"spb\":\"x\",\"attached\":true";
    if (told.profile.known())
        text += ",\"fwd_ms\":" + number(told.profile.forward_ms) +
                ",\"bwd_ms\":" + number(told.profile.backward_ms_of_level.back()) +
                ",\"sync_ms\":" + number(told.profile.network_ms) + ",\"lvl_ms\":\"" +
                number(told.profile.backward_ms_of_level.front()) + " " +
                number(told.profile.backward_ms_of_level.back()) + "\"";
    if (told.done_s >= 0)
        text += ",\"at\":" + std::to_string(kNow - 5) + ",\"done_s\":" + number(told.done_s);
    if (told.done_s >= 0 && told.left_s >= 0)
        text += ",\"left_s\":" + number(told.left_s);
    return text + "}";
}

select::JobFacts facts_of(const Told &told, bool running)
{
    std::vector<std::string> entries;
    const auto option = [&](const char *name, const std::string &value) {
        entries.push_back(config::spank_environment_name(name) + "=" + value);
    };
    option("spb", kModes[told.mode]);
    option("spb-mem", std::to_string(told.memory_gib) + "G");
    if (told.max_share)
        option("spb-share", std::to_string(told.max_share));
    if (!told.key.empty())
        option("spb-profile", told.key);
    select::JobFacts facts;
    std::string why;
    ck_assert_msg(config::parse_spank_environment(&facts.spb, &why, entries), "%s", why.c_str());
    facts.id = told.id;
    facts.uid = told.uid;
    facts.shares = true;
    facts.time_limit_s = told.limit_s;
    facts.start_s = running ? kNow - told.started_ago_s : 0;
    facts.eligible_s = kNow - told.waited_s;
    if (running)
        facts.admin_comment = comment_of(told);
    return facts;
}

std::string text_of(const core::Offers &found)
{
    std::string text = found.refusal.text;
    for (const core::Offer &offer : found.offers) {
        text += "; kind " + std::to_string(static_cast<int>(offer.kind)) + " gain " + number(offer.gain);
        for (const core::NodeGpus &one : offer.where)
            for (int gpu : one.gpus)
                text += " " + std::to_string(one.node) + ":" + std::to_string(gpu);
    }
    return text;
}

core::Cluster empty_cluster()
{
    core::Cluster cluster;
    core::Gpu gpu;
    gpu.memory_bytes = 80 * kGib;
    for (int n = 0; n < kNodes; ++n)
        cluster.set_node(n, "n" + std::to_string(n), std::vector<core::Gpu>(kGpus, gpu));
    return cluster;
}

START_TEST(both_ways_decide_alike)
{
    std::string why;
    const auto config = config::parse_config(&why, "sharing_scope: any\nmax_jobs_per_gpu: 3\npay: 0.6\nleast_gain: 0.2\n"
                                                   "share_slowdown: 1.1\nextra_iterations: 1.05\ncontext_memory: 1G\n", "f");
    ck_assert_msg(config != nullptr, "%s", why.c_str());
    core::SharingPolicy values;
    values.scope = core::SharingScope::any;
    values.max_jobs_per_gpu = 3;
    values.pay = 0.6;
    values.least_gain = 0.2;
    values.share_slowdown = 1.1;
    values.extra_iterations = 1.05;
    values.context_bytes = kGib;
    const core::SharingPolicy read = config::policy_for(*config, "batch", "normal", "");
    std::mt19937 random(1);
    int joined = 0, refused = 0;
    for (int snapshot = 0; snapshot < 20; ++snapshot) {
        core::Cluster by_values = empty_cluster(), by_records = empty_cluster();
        select::ProfileStore store;
        core::JobId id = 0;
        for (int n = 0; n < kNodes; ++n)
            for (const std::vector<int> &gpus : {std::vector<int>{0, 1, 2, 3}, std::vector<int>{0, 1}}) {
                const Told told = random_job(random, ++id);
                ck_assert(by_values.add(resident_value(told, {{n, gpus}})));
                ck_assert(by_records.add(select::resident_of(facts_of(told, true), store, {{n, gpus}})));
            }
        for (int i = 0; i < 20; ++i) {
            Told told = random_job(random, 1000 + static_cast<core::JobId>(i));
            told.key = "job" + std::to_string(i);
            told.profile.run_s = told.profile.known() ? static_cast<double>(100 + random() % 30000) : 0;
            store.learn(told.uid, told.key, told.profile); // of its run yesterday
            core::PlacementRequest one = pending_value(told);
            core::PlacementRequest other = select::request_of(facts_of(told, false), store, kNow);
            one.gpus_per_node = other.gpus_per_node = 1u << random() % 3;
            const core::Offers a = core::find_offers(by_values, one, values), b = core::find_offers(by_records, other, read);
            ck_assert_str_eq(text_of(a).c_str(), text_of(b).c_str());
            joined += !a.offers.empty();
            refused += a.offers.empty();
        }
    }
    std::printf("# %d jobs got offers, %d were refused, alike on both ways\n", joined, refused);
    ck_assert_int_gt(joined, 50);
    ck_assert_int_gt(refused, 20);
}
END_TEST

// A comment of the run before a requeue, one without progress, and a process that misbehaves.
START_TEST(what_comments_may_say)
{
    const select::ProfileStore store;
    select::JobFacts facts;
    facts.shares = true;
    facts.spb.mode = core::SpbMode::automatic;
    facts.start_s = kNow;
    facts.admin_comment = "jigsaw:{\"at\":" + std::to_string(kNow - 1) + ",\"done_s\":50,\"left_s\":10}";
    ck_assert_double_lt(select::resident_of(facts, store, {}).done_s, 0);
    facts.start_s = kNow - 100;
    ck_assert_double_eq(select::resident_of(facts, store, {}).total_s, 60);
    facts.admin_comment = "jigsaw:{\"misbehaving\":\"keeps turns\"}";
    ck_assert(!select::resident_of(facts, store, {}).spb.shares());
    facts.shares = false;
    ck_assert(select::resident_of(facts, store, {}).spb.mode == core::SpbMode::off);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("same decisions");
    jigsaw::tests::add_case(suite, "placement", {both_ways_decide_alike, what_comments_may_say});
    return jigsaw::tests::run_tap(suite);
}
