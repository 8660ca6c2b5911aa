// SPDX-License-Identifier: Apache-2.0
// Bytes in the pages: refused, or a view in which everything can be counted with. An input edits a page that is right:
// 'r' or 'd' for report or directive, then edits. An edit is the number of a 32-bit word of the page, a byte that
// chooses a value that often matters, or (13 and more) four bytes of the input's own.
#include "tests/fuzz/fuzz.hpp"

#include "runtime/page/page.hpp"
#include "runtime/plan/contributors.hpp"

#include <cmath>
#include <cstring>
#include <memory>

namespace {

using namespace jigsaw;
using fuzz::require;
using page::DirectiveView;
using page::ReportView;

/// What jigsawd and rank 0 do with a directive must work with every one that passed.
void use(const plan::Directive &directive, const std::vector<std::uint64_t> &backward_ns)
{
    constexpr std::uint32_t kWorld = 5;
    const auto num_blocks = static_cast<std::uint32_t>(backward_ns.size());
    for (const std::uint64_t iteration : {std::uint64_t{0}, directive.first_iteration, UINT64_MAX}) {
        const plan::IterationPlan plan = plan::make_iteration_plan(directive, kWorld, num_blocks, iteration);
        for (const std::uint32_t depth : plan.depths)
            require(depth >= 1 && depth <= num_blocks, "a depth is between 1 and num_blocks");
    }
    const double fraction = plan::mean_depth_fraction(directive, kWorld, backward_ns);
    require(fraction > 0 && fraction <= 1 + 1e-9, "a mean depth fraction is in (0, 1]");
}

void edit(void *page, const std::uint8_t *data, std::size_t size)
{
    static const std::uint32_t kValues[] = {0, 1, 2, 3, 4, 5, 16, 17, 64, 65, 0x7fffffff, 0x80000000, 0xffffffff};
    for (std::size_t at = 0; at + 2 <= size;) {
        const std::size_t word = data[at], choice = data[at + 1] % 16u;
        at += 2;
        std::uint32_t value = 0;
        if (choice < sizeof kValues / sizeof kValues[0]) {
            value = kValues[choice];
        } else if (at + 4 <= size) {
            std::memcpy(&value, data + at, 4);
            at += 4;
        }
        std::memcpy(static_cast<char *>(page) + 4 * word, &value, 4);
    }
}

template <class Page> std::unique_ptr<Page> blank(std::uint32_t magic)
{
    auto page = std::make_unique<Page>();
    page->magic = magic;
    page->version = page->compatible = 1;
    page->page_bytes = JIGSAW_PAGE_BYTES;
    return page;
}

bool read_report(const std::uint8_t *data, std::size_t size)
{
    const auto page = blank<jigsaw_report_page_t>(JIGSAW_PAGE_MAGIC_REPORT);
    ReportView view;
    view.num_blocks = view.depth = view.last_depth = 4;
    view.agreed.generation = 3;
    view.agreed.policy = plan::Policy::two_level;
    view.agreed.levels = 2;
    view.agreed.depth_of_level = {1, 4};
    view.block_backward_ns = {4, 3, 2, 1};
    page::publish_report(page.get(), view);
    edit(page.get(), data, size);
    if (!page::read_report(&view, page.get()))
        return false;
    require(view.num_blocks <= JIGSAW_MAX_BLOCKS && view.block_backward_ns.size() == view.num_blocks,
            "the blocks are counted");
    require(view.depth <= view.num_blocks && view.last_depth <= view.num_blocks, "no more depth than blocks");
    require(std::isnan(view.progress) || (view.progress >= 0 && view.progress <= 1), "progress is a share");
    if (view.num_blocks > 0)
        use(view.agreed, view.block_backward_ns);
    return true;
}

bool read_directive(const std::uint8_t *data, std::size_t size)
{
    const auto page = blank<jigsaw_directive_page_t>(JIGSAW_PAGE_MAGIC_DIRECTIVE);
    DirectiveView view;
    view.wanted.generation = 3;
    view.wanted.policy = plan::Policy::shuffle;
    view.wanted.levels = 4;
    view.rivals.resize(2);
    page::publish_directive(page.get(), view);
    edit(page.get(), data, size);
    if (!page::read_directive(&view, page.get()))
        return false;
    require(view.rivals.size() <= JIGSAW_MAX_RIVALS, "the rivals are counted");
    const std::vector<std::uint64_t> backward_ns = {30, 0, 20, 10};
    plan::Directive complete = view.wanted;
    complete.depth_of_level = plan::make_depth_table(complete.policy, complete.levels, backward_ns);
    if (plan::validate(complete, 5, 4).empty())
        use(complete, backward_ns);
    return true;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    if (size == 0)
        return 0;
    const bool taken = data[0] == 'r' ? read_report(data + 1, size - 1) : read_directive(data + 1, size - 1);
    taken ? ++fuzz::accepted : ++fuzz::refused;
    return 0;
}

JIGSAW_FUZZ_MAIN("page", 20000)
