// SPDX-License-Identifier: Apache-2.0
// Every agreed directive as a line of JSON, and a run that follows such a file. docs/protocol.md "Agreement": replaying
// the log repeats a run exactly, whatever the neighbours do.
//
//   {"generation":1,"first_iteration":12,"policy":"two-level","phase":0,"direction":1,"levels":2,"full_workers":1,
//    "seed":0,"depth_of_level":[1,4],"world_size":2}
//
// A run that was resumed appends to its log; its generations start again, which is how a reader sees it.
#ifndef JIGSAW_CAPI_DIRECTIVE_LOG_HPP
#define JIGSAW_CAPI_DIRECTIVE_LOG_HPP

#include "runtime/plan/roles.hpp"

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

namespace jigsaw::capi {

class DirectiveLog {
  public:
    /// Opens for appending. Throws jigsaw::Error {JIGSAW_SYSTEM_ERROR}.
    DirectiveLog(const std::string &path, std::uint32_t world_size);
    /// Written and flushed before it returns; false when the file refused it.
    bool append(const plan::Directive &directive);

  private:
    std::uint32_t world_size_;
    struct Close {
        void operator()(std::FILE *file) const { std::fclose(file); }
    };
    std::unique_ptr<std::FILE, Close> file_;
};

class Replay {
  public:
    /// Throws jigsaw::Error {JIGSAW_INVALID_ARGUMENT} naming file, line and what is wrong.
    Replay(const std::string &path, std::uint32_t world_size, std::uint32_t num_blocks);
    /// What came into force at `first_iteration`; generation 0: nothing.
    plan::Directive at(std::uint64_t first_iteration) const;

  private:
    void take_line(const std::string &line, std::uint32_t world_size, std::uint32_t num_blocks);
    std::map<std::uint64_t, plan::Directive> directives_; ///< by first iteration
};

std::string format_directive(const plan::Directive &directive, std::uint32_t world_size);

} // namespace jigsaw::capi
#endif
