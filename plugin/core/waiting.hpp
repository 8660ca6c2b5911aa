// SPDX-License-Identifier: Apache-2.0
// Is waiting better than a join? "Nobody pays", the capacity gate and the score, and the words for each
// (docs/decisions/0001-placement.md).
#ifndef JIGSAW_CORE_WAITING_HPP
#define JIGSAW_CORE_WAITING_HPP

#include "plugin/core/prediction.hpp"

#include <string>

namespace jigsaw::core {

class Waiting {
  public:
    Waiting(const PlacementRequest &job, const SharingPolicy &policy) : job_(job), policy_(policy) {}

    /// Should the job wait rather than join? Never where somebody's profile is unknown: there is no number to go
    /// by, and all of them asked to share.
    bool better(const Prediction &join, double own_gpus) const { return why(join, own_gpus) != Why::no; }
    /// The sentence for it; `place` and `others` name the candidate.
    std::string explain(const Prediction &join, double own_gpus, const std::string &place,
                        const std::string &others) const;

  private:
    enum class Why { no, pay, gate, score };
    Why why(const Prediction &join, double own_gpus) const;
    double wait_s(const Prediction &join) const;
    bool squeezed(const Prediction &join) const;
    bool interlocks(const Prediction &join) const;
    bool trifling(const Prediction &join) const;
    double allowed_finish(const Prediction &join) const;
    double least_gain(const Prediction &join, double own_gpus) const;

    const PlacementRequest &job_;
    const SharingPolicy &policy_;
};

} // namespace jigsaw::core
#endif
