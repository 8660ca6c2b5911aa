// SPDX-License-Identifier: Apache-2.0
// The table of policies.
#include "plugin/sim/policy.hpp"

#include "plugin/sim/text.hpp"

namespace jigsaw::sim {

const std::vector<const Policy *> &all_policies()
{
    static const std::vector<const Policy *> policies = {&kFifo,   &kBackfill,     &kSrtfStay, &kSrsfStay, &kShare,
                                                         &kJigsaw, &kSrtf,         &kSrsf,     &kLas,      &kPacking,
                                                         &kMuri,   &kSharePreempt, &kJigsawPreempt};
    return policies;
}

std::string full_name(const Policy &policy)
{
    return std::string(policy.name) + (policy.preempt ? "/preempt" : "/stay");
}

const Policy &find_policy(const std::string &name)
{
    // Without a suffix: where ours and Slurm's stay; the others are preemptive in their papers.
    const std::string bare = name.substr(0, name.find('/'));
    const bool peer = bare == "srtf" || bare == "srsf";
    std::string names;
    for (const Policy *policy : all_policies()) {
        const bool plain = name == policy->name && policy->preempt == peer;
        if (name == full_name(*policy) || plain)
            return *policy;
        names += (names.empty() ? "" : ", ") + full_name(*policy);
    }
    for (const Policy *policy : all_policies())
        if (name == policy->name)
            return *policy; // the only regime it has
    throw InputError("'" + name + "' is no policy; there are " + names);
}

} // namespace jigsaw::sim
