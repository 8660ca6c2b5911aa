// SPDX-License-Identifier: Apache-2.0
// The one exception of the runtime; runtime/capi turns it into a jigsaw_result_t and jigsaw_last_error().
#ifndef JIGSAW_COLLECTIVE_ERROR_HPP
#define JIGSAW_COLLECTIVE_ERROR_HPP

#include <jigsaw/jigsaw.h>

#include <stdexcept>
#include <string>

namespace jigsaw {

class Error : public std::runtime_error {
  public:
    Error(jigsaw_result_t code, const std::string &text) : std::runtime_error(text), code_(code) {}
    jigsaw_result_t code() const { return code_; }

  private:
    jigsaw_result_t code_;
};

} // namespace jigsaw
#endif
