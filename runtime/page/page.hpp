// SPDX-License-Identifier: Apache-2.0
// Making, mapping, writing and reading the two pages of <jigsaw/page.h>. POSIX only: jigsawd and libjigsaw link it.
#ifndef JIGSAW_PAGE_PAGE_HPP
#define JIGSAW_PAGE_PAGE_HPP

#include "runtime/page/fd.hpp"
#include "runtime/plan/roles.hpp"

#include <jigsaw/page.h>

#include <cstdint>
#include <string>
#include <vector>

namespace jigsaw::page {

std::uint64_t monotonic_ns();

/// A mapping of one page, unmapped at the end of its life. MADV_DONTFORK: a forked child has no page.
template <class Page> class Mapped {
  public:
    Mapped() = default;
    Mapped(Page *page, std::size_t bytes) : page_(page), bytes_(bytes) {}
    Mapped(Mapped &&other) noexcept;
    Mapped &operator=(Mapped &&other) noexcept;
    ~Mapped();
    Page *get() const { return page_; }
    Page *operator->() const { return page_; }
    explicit operator bool() const { return page_ != nullptr; }

  private:
    Page *page_ = nullptr;
    std::size_t bytes_ = 0;
};

/// jigsawd's side of a pair. The fds are what is sent to the process.
struct AgentPages {
    UniqueFd directive_fd; ///< sealed SHRINK|GROW|FUTURE_WRITE|SEAL after jigsawd mapped it writable
    UniqueFd report_fd;    ///< sealed SHRINK|GROW|SEAL; the process writes
    Mapped<jigsaw_directive_page_t> directive; ///< writable
    Mapped<const jigsaw_report_page_t> report; ///< read-only
};
/// Throws std::system_error.
AgentPages create_pages();

/// The process's side. Throws std::runtime_error with one line when an fd is no page of ours, not sealed, too small
/// or of a version we do not understand.
struct ProcessPages {
    Mapped<const jigsaw_directive_page_t> directive;
    Mapped<jigsaw_report_page_t> report;
};
ProcessPages map_pages(int directive_fd, int report_fd);

/// Empty when the page's header is one that this library understands, else what is wrong with it. `magic` is
/// JIGSAW_PAGE_MAGIC_DIRECTIVE or _REPORT. The readers below ask it every time: a process may overwrite its report page.
std::string header_problem(const jigsaw_directive_page_t *page, std::uint32_t magic);
std::string header_problem(const jigsaw_report_page_t *page, std::uint32_t magic);

/// What a page holds under its seq counter, as plain values.
struct DirectiveView {
    plan::Directive wanted; ///< generation 0: nothing wanted
    std::uint64_t published_ns = 0;
    std::vector<jigsaw_rival_t> rivals;
    std::vector<jigsaw_rival_role_t> roles; ///< [of rivals]; shorter: zeros
};
/// Writer: one thread.
void publish_directive(jigsaw_directive_page_t *page, const DirectiveView &view);
/// Reader: gives up after a bounded number of torn tries (a writer that died in the middle) and returns false;
/// false too when a value is out of range.
bool read_directive(DirectiveView *ret_view, const jigsaw_directive_page_t *page);

/// Report values as plain data; same rules.
struct ReportView {
    std::uint64_t iteration = 0, turns = 0, turn_ns = 0;
    std::uint64_t forward_ns = 0, backward_ns = 0, sync_ns = 0, iteration_ns = 0;
    std::uint64_t memory_bytes = 0, memory_peak_bytes = 0;
    double loss = 0, progress = 0; ///< NaN when not reported
    std::uint32_t depth = 0, last_depth = 0, num_blocks = 0;
    plan::Directive agreed;
    std::uint32_t min_full_workers = 1, warmup_left = 0;
    std::vector<std::uint64_t> block_backward_ns; ///< [num_blocks]
    std::vector<jigsaw_elsewhere_t> elsewhere;    ///< rank 0: rivals of other ranks
};
void publish_report(jigsaw_report_page_t *page, const ReportView &view);
bool read_report(ReportView *ret_view, const jigsaw_report_page_t *page);

} // namespace jigsaw::page
#endif
