// SPDX-License-Identifier: Apache-2.0
// Gate logs as a Chrome trace document.
#ifndef JIGSAW_CLI_TRACE_EVENTS_HPP
#define JIGSAW_CLI_TRACE_EVENTS_HPP

#include "plugin/cli/json_value.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace jigsaw::cli {

/// Where in a log begins what happened in the `last_ns` before its last event. What an earlier boot left in the same file is
/// older whatever its times say: they begin anew with each boot.
std::size_t recent_part(const std::string &lines, std::uint64_t last_ns);

class TraceEvents {
  public:
    /// Add one node's log under a title; its first line is that of this number. False with "line: what is wrong" in *ret_why;
    /// the events before it stay.
    bool add_log(std::string *ret_why, const std::string &title, const std::string &lines, std::size_t first_line = 1);
    /// The whole document.
    std::string text() const;

  private:
    using Key = std::pair<std::int64_t, std::int64_t>; ///< gpu, process
    void add_event(const JsonValue &event);
    void begin_turn(const JsonValue &event);
    void end_turn(const JsonValue &event);
    void instant(const JsonValue &event);
    void row_name(std::int64_t gpu);
    void append(const std::string &json);

    int node_ = 0;
    std::map<Key, JsonValue> open_; ///< grant or run without an end yet
    std::map<std::pair<int, std::int64_t>, bool> named_;
    std::string events_;
};

} // namespace jigsaw::cli
#endif
