// SPDX-License-Identifier: Apache-2.0
// The shared pages: what a hostile process cannot do with its descriptors, torn and stale and future pages, garbage.
#include "runtime/page/page.hpp"
#include "tests/lib/suite.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

using namespace jigsaw::page;
using jigsaw::UniqueFd;
using jigsaw::plan::Directive;
using jigsaw::plan::Policy;

constexpr uid_t kOtherUid = 65534; // nobody

/// Runs `attempt` in a child of another uid (when we may change it); its result must be 0.
void in_stranger(const char *what, const std::function<int()> &attempt)
{
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        if (geteuid() == 0 && (setgid(kOtherUid) != 0 || setuid(kOtherUid) != 0))
            _exit(99);
        _exit(attempt());
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: status %#x", what, status);
}

bool refused(bool failed, int expected) { return failed && errno == expected; }

/// 0 when nothing of what a process may try on its directive descriptor gets anywhere, else which attempt did.
int attack_directive(int fd)
{
    const char byte = 1;
    if (!refused(write(fd, &byte, 1) < 0, EPERM))
        return 1;
    if (!refused(pwrite(fd, &byte, 1, 64) < 0, EPERM))
        return 2;
    if (!refused(ftruncate(fd, 0) != 0, EPERM) || !refused(ftruncate(fd, 1 << 20) != 0, EPERM))
        return 3;
    if (!refused(fallocate(fd, 0, 0, 1 << 20) != 0, EPERM))
        return 4;
    if (!refused(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0, EPERM))
        return 5;
    if (!refused(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED, EPERM))
        return 6;
    if (!refused(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) != 0, EPERM))
        return 7;
    void *memory = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return 8;
    if (!refused(mprotect(memory, 4096, PROT_READ | PROT_WRITE) != 0, EACCES))
        return 9;
    if (madvise(memory, 4096, MADV_REMOVE) == 0)
        return 10;
    // A second descriptor of the same file, opened for writing where the kernel lets us, is sealed as well.
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    const int again = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (again >= 0 && !refused(write(again, &byte, 1) < 0, EPERM))
        return 11;
    if (again >= 0 && mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) != MAP_FAILED)
        return 12;
    return __atomic_load_n(static_cast<const std::uint32_t *>(memory), __ATOMIC_ACQUIRE) ==
                   JIGSAW_PAGE_MAGIC_DIRECTIVE
               ? 0
               : 13;
}

int attack_report(int fd)
{
    if (!refused(ftruncate(fd, 0) != 0, EPERM) || !refused(ftruncate(fd, 1 << 20) != 0, EPERM))
        return 1;
    if (!refused(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) != 0, EPERM))
        return 2;
    if (open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_TRUNC | O_CLOEXEC) >= 0 &&
        lseek(fd, 0, SEEK_END) != 4096)
        return 3;
    void *memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return 4;
    std::memset(memory, 0xff, 4096);
    return 0;
}

START_TEST(strangers_cannot_hurt_a_page)
{
    const AgentPages pages = create_pages();
    in_stranger("directive", [&] { return attack_directive(pages.directive_fd.get()); });
    in_stranger("report", [&] { return attack_report(pages.report_fd.get()); });
    DirectiveView directive;
    ck_assert(read_directive(&directive, pages.directive.get()));
    ReportView report;
    ck_assert(!read_report(&report, pages.report.get())); // overwritten with 0xff: absent, and no SIGBUS
    // jigsawd's own map still writes.
    directive.wanted.generation = 9;
    publish_directive(pages.directive.get(), directive);
    ck_assert(read_directive(&directive, pages.directive.get()));
    ck_assert_uint_eq(directive.wanted.generation, 9);
}
END_TEST

START_TEST(a_forked_child_has_no_page)
{
    const AgentPages pages = create_pages();
    const ProcessPages mine = map_pages(pages.directive_fd.get(), pages.report_fd.get());
    in_stranger("fork", [&] {
        unsigned char resident = 0;
        const bool gone = mincore(const_cast<jigsaw_directive_page_t *>(mine.directive.get()), 4096, &resident) != 0 &&
                          errno == ENOMEM;
        const bool report_gone = mincore(mine.report.get(), 4096, &resident) != 0 && errno == ENOMEM;
        return gone && report_gone ? 0 : 1;
    });
}
END_TEST

DirectiveView example_directive()
{
    DirectiveView view;
    view.wanted.generation = 7;
    view.wanted.seed = 0x123456789abcdefu;
    view.wanted.policy = Policy::two_level;
    view.wanted.phase = -3;
    view.wanted.direction = -1;
    view.wanted.levels = 2;
    view.wanted.full_workers = 2;
    view.published_ns = 55;
    view.rivals.push_back({12, 1, 4, 1000, -2, JIGSAW_POLICY_ROTATE});
    view.rivals.push_back({13, 0, 0, 0, 0, JIGSAW_POLICY_FULL});
    view.roles.push_back({-3, 1, 4, 2, 3, -1});
    view.roles.push_back({7, 0, 1, 1, 1, 1});
    return view;
}

ReportView example_report()
{
    ReportView view;
    view.iteration = 1, view.turns = 2, view.turn_ns = 3, view.forward_ns = 4, view.backward_ns = 5;
    view.sync_ns = 6, view.iteration_ns = 7, view.memory_bytes = 8, view.memory_peak_bytes = 9;
    view.loss = 0.25, view.progress = 0.5;
    view.depth = 2, view.last_depth = 3, view.num_blocks = 4;
    view.agreed = example_directive().wanted;
    view.agreed.first_iteration = 1;
    view.agreed.depth_of_level = {1, 4};
    view.min_full_workers = 2, view.warmup_left = 10;
    view.block_backward_ns = {11, 12, 13, 14};
    view.elsewhere.push_back({1, 12, 1, JIGSAW_POLICY_TWO_LEVEL, 5, -6, 0, {7, 2, 4, 2, 3, -1}});
    return view;
}

START_TEST(directives_come_back)
{
    const AgentPages pages = create_pages();
    const ProcessPages process = map_pages(pages.directive_fd.get(), pages.report_fd.get());
    DirectiveView back;
    ck_assert(read_directive(&back, process.directive.get()));
    ck_assert(back.wanted == Directive{});
    const DirectiveView view = example_directive();
    publish_directive(pages.directive.get(), view);
    ck_assert(read_directive(&back, process.directive.get()));
    ck_assert(back.wanted == view.wanted);
    ck_assert_uint_eq(back.published_ns, 55);
    ck_assert_uint_eq(back.rivals.size(), 2);
    ck_assert_int_eq(std::memcmp(back.rivals.data(), view.rivals.data(), 2 * sizeof(jigsaw_rival_t)), 0);
    ck_assert_uint_eq(back.roles.size(), 2);
    ck_assert_int_eq(std::memcmp(back.roles.data(), view.roles.data(), 2 * sizeof(jigsaw_rival_role_t)), 0);
}
END_TEST

START_TEST(too_many_rivals_are_left_out)
{
    const AgentPages pages = create_pages();
    DirectiveView view = example_directive();
    view.rivals.resize(20);
    publish_directive(pages.directive.get(), view);
    ck_assert(read_directive(&view, pages.directive.get()));
    ck_assert_uint_eq(view.rivals.size(), JIGSAW_MAX_RIVALS);
}
END_TEST

START_TEST(reports_come_back)
{
    const AgentPages pages = create_pages();
    const ProcessPages process = map_pages(pages.directive_fd.get(), pages.report_fd.get());
    ReportView back;
    ck_assert(read_report(&back, pages.report.get()));
    ck_assert(std::isnan(back.loss) && std::isnan(back.progress));
    ck_assert_uint_eq(back.num_blocks, 0);
    const ReportView view = example_report();
    publish_report(process.report.get(), view);
    ck_assert(read_report(&back, pages.report.get()));
    ck_assert(back.agreed == view.agreed);
    ck_assert(back.block_backward_ns == view.block_backward_ns);
    const std::uint64_t numbers[] = {back.iteration,    back.turns,        back.turn_ns,
                                     back.forward_ns,   back.backward_ns,  back.sync_ns,
                                     back.iteration_ns, back.memory_bytes, back.memory_peak_bytes};
    for (std::uint64_t i = 0; i < 9; ++i)
        ck_assert_uint_eq(numbers[i], i + 1);
    ck_assert(back.loss == 0.25 && back.progress == 0.5);
    ck_assert(back.depth == 2 && back.last_depth == 3 && back.num_blocks == 4);
    ck_assert(back.min_full_workers == 2 && back.warmup_left == 10);
    ck_assert_uint_eq(back.elsewhere.size(), 1);
    ck_assert_int_eq(std::memcmp(&back.elsewhere[0], &example_report().elsewhere[0], sizeof(jigsaw_elsewhere_t)), 0);
}
END_TEST

START_TEST(directive_values_are_checked)
{
    const std::function<void(jigsaw_directive_page_t &)> garbage[] = {
        [](auto &p) { p.policy = JIGSAW_POLICY_UNIFORM + 1; },
        [](auto &p) { p.levels = 0; },
        [](auto &p) { p.levels = 17; },
        [](auto &p) { p.direction = 0; },
        [](auto &p) { p.full_workers = 0; },
        [](auto &p) { p.nrivals = 9; },
        [](auto &p) { p.nrivals = UINT32_MAX; },
        [](auto &p) { p.rivals[1].policy = 9; },
        [](auto &p) { p.rivals[0].older = 2; },
        [](auto &p) { p.magic = 0; },
        [](auto &p) { p.version = 0; },
        [](auto &p) { p.compatible = 2; },
        [](auto &p) { p.page_bytes = 100; },
        [](auto &p) { p.seq = 1; }, // a writer that died in the middle
    };
    for (const auto &spoil : garbage) {
        const AgentPages pages = create_pages();
        publish_directive(pages.directive.get(), example_directive());
        DirectiveView view;
        ck_assert(read_directive(&view, pages.directive.get()));
        spoil(*pages.directive.get());
        view = DirectiveView{};
        ck_assert_msg(!read_directive(&view, pages.directive.get()), "row %td", &spoil - garbage);
        ck_assert_uint_eq(view.wanted.generation, 0);
    }
}
END_TEST

START_TEST(report_values_are_checked)
{
    const std::function<void(jigsaw_report_page_t &)> garbage[] = {
        [](auto &p) { p.nelsewhere = 9; },
        [](auto &p) { p.nelsewhere = UINT32_MAX; },
        [](auto &p) { p.elsewhere[0].older = 2; },
        [](auto &p) { p.elsewhere[0].policy = 9; },
        [](auto &p) { p.elsewhere[0].role.rank = 4; },
        [](auto &p) { p.elsewhere[0].role.levels = 17; },
        [](auto &p) { p.elsewhere[0].role.direction = 0; },
        [](auto &p) { p.num_blocks = 65; },
        [](auto &p) { p.num_blocks = UINT32_MAX; },
        [](auto &p) { p.depth = 5; },
        [](auto &p) { p.last_depth = 5; },
        [](auto &p) { p.iteration = UINT64_MAX; },
        [](auto &p) { p.turns = UINT64_MAX; },
        [](auto &p) { p.turn_ns = UINT64_MAX; },
        [](auto &p) { p.forward_ns = UINT64_MAX; },
        [](auto &p) { p.backward_ns = UINT64_MAX; },
        [](auto &p) { p.sync_ns = UINT64_MAX; },
        [](auto &p) { p.iteration_ns = UINT64_MAX; },
        [](auto &p) { p.memory_bytes = UINT64_MAX; },
        [](auto &p) { p.memory_peak_bytes = UINT64_MAX; },
        [](auto &p) { p.progress = 1.5; },
        [](auto &p) { p.progress = -std::numeric_limits<double>::infinity(); },
        [](auto &p) { p.min_full_workers = 0; },
        [](auto &p) { p.block_backward_ns[3] = UINT64_MAX; },
        [](auto &p) { p.agreed_policy = JIGSAW_POLICY_UNIFORM + 1; },
        [](auto &p) { p.agreed_levels = 0; },
        [](auto &p) { p.agreed_levels = UINT32_MAX; },
        [](auto &p) { p.agreed_direction = 0; },
        [](auto &p) { p.agreed_full_workers = 0; },
        [](auto &p) { p.agreed_first_iteration = UINT64_MAX; },
        [](auto &p) { p.depth_of_level[0] = 0; },
        [](auto &p) { p.depth_of_level[1] = 3; },
        [](auto &p) { p.num_blocks = p.depth = p.last_depth = 0; }, // agreed, but on no model
        [](auto &p) { p.magic = JIGSAW_PAGE_MAGIC_DIRECTIVE; },
        [](auto &p) { p.version = 0; },
        [](auto &p) { p.compatible = 2; },
        [](auto &p) { p.seq |= 1; },
    };
    for (const auto &spoil : garbage) {
        const AgentPages pages = create_pages();
        const ProcessPages process = map_pages(pages.directive_fd.get(), pages.report_fd.get());
        publish_report(process.report.get(), example_report());
        ReportView view;
        ck_assert(read_report(&view, pages.report.get()));
        spoil(*process.report.get());
        view = ReportView{};
        ck_assert_msg(!read_report(&view, pages.report.get()), "row %td", &spoil - garbage);
        ck_assert_uint_eq(view.iteration, 0);
    }
}
END_TEST

START_TEST(odd_but_honest_reports_are_read)
{
    const AgentPages pages = create_pages();
    const ProcessPages process = map_pages(pages.directive_fd.get(), pages.report_fd.get());
    ReportView view = example_report(), back;
    view.loss = std::numeric_limits<double>::infinity(); // a run that diverged says so
    view.progress = std::numeric_limits<double>::quiet_NaN();
    view.agreed.generation = 0; // nothing agreed: the rest of it says nothing
    view.agreed.direction = 0;
    publish_report(process.report.get(), view);
    ck_assert(read_report(&back, pages.report.get()));
    ck_assert(std::isinf(back.loss) && std::isnan(back.progress));
    ck_assert(back.agreed == Directive{});
    process.report->version = 2; // written by a later library that still speaks to version 1
    ck_assert(read_report(&back, pages.report.get()));
}
END_TEST

START_TEST(a_writer_that_died_is_followed_by_another)
{
    const AgentPages pages = create_pages();
    pages.directive->seq = UINT32_MAX; // odd, and about to wrap
    publish_directive(pages.directive.get(), example_directive());
    DirectiveView view;
    ck_assert(read_directive(&view, pages.directive.get()));
    ck_assert_uint_eq(view.wanted.generation, 7);
    ck_assert_uint_eq(pages.directive->seq, 0);
}
END_TEST

/// A page file of our own making: `seals` and `edit` as the row says.
UniqueFd make_file(std::size_t bytes, int seals, std::uint32_t magic,
                   const std::function<void(jigsaw_directive_page_t &)> &edit)
{
    UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    jigsaw_directive_page_t page = {};
    page.magic = magic;
    page.version = page.compatible = 1;
    page.page_bytes = JIGSAW_PAGE_BYTES;
    edit(page);
    ck_assert_int_eq(write(fd.get(), &page, bytes), static_cast<ssize_t>(bytes));
    ck_assert_int_eq(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
}

std::string mapping_problem(int directive_fd, int report_fd)
{
    try {
        map_pages(directive_fd, report_fd);
    } catch (const std::runtime_error &error) {
        return error.what();
    }
    return {};
}

START_TEST(mapping_refuses_what_is_no_page)
{
    constexpr int kFutureWrite = 0x10, kSize = F_SEAL_SHRINK | F_SEAL_GROW;
    const auto same = [](jigsaw_directive_page_t &) {};
    const AgentPages good = create_pages();
    ck_assert(mapping_problem(good.directive_fd.get(), good.report_fd.get()).empty());
    const struct {
        std::size_t bytes;
        int seals;
        std::uint32_t magic;
        std::function<void(jigsaw_directive_page_t &)> edit;
        const char *says;
    } rows[] = {
        {100, kSize | kFutureWrite, JIGSAW_PAGE_MAGIC_DIRECTIVE, same, "at least 4096 bytes"},
        {4096, kSize, JIGSAW_PAGE_MAGIC_DIRECTIVE, same, "not sealed"},
        {4096, F_SEAL_GROW | kFutureWrite, JIGSAW_PAGE_MAGIC_DIRECTIVE, same, "not sealed"},
        {4096, kSize | kFutureWrite, JIGSAW_PAGE_MAGIC_REPORT, same, "magic number"},
        {4096, kSize | kFutureWrite, JIGSAW_PAGE_MAGIC_DIRECTIVE, [](auto &p) { p.version = p.compatible = 2; },
         "version 2 for readers from 2 on, this library reads 1"},
        {4096, kSize | kFutureWrite, JIGSAW_PAGE_MAGIC_DIRECTIVE, [](auto &p) { p.version = 0; }, "version 0"},
        {4096, kSize | kFutureWrite, JIGSAW_PAGE_MAGIC_DIRECTIVE, [](auto &p) { p.page_bytes = 64; }, "64 bytes"},
        {4096, kSize | kFutureWrite, JIGSAW_PAGE_MAGIC_DIRECTIVE, [](auto &p) { p.version = 2; }, nullptr},
    };
    for (const auto &row : rows) {
        const UniqueFd fd = make_file(row.bytes, row.seals, row.magic, row.edit);
        const std::string why = mapping_problem(fd.get(), good.report_fd.get());
        if (row.says)
            ck_assert_msg(why.find(row.says) != std::string::npos, "'%s' does not say '%s'", why.c_str(), row.says);
        else
            ck_assert_str_eq(why.c_str(), "");
    }
    int pipes[2];
    ck_assert_int_eq(pipe(pipes), 0);
    const UniqueFd reader(pipes[0]), writer(pipes[1]);
    ck_assert(!mapping_problem(reader.get(), good.report_fd.get()).empty());
    ck_assert(!mapping_problem(-1, good.report_fd.get()).empty());
    ck_assert(!mapping_problem(good.directive_fd.get(), writer.get()).empty());
    ck_assert(!mapping_problem(good.directive_fd.get(), good.directive_fd.get()).empty());
    ck_assert(!mapping_problem(good.report_fd.get(), good.directive_fd.get()).empty());
}
END_TEST

/// A view in which every number follows from `n`: a mixture of two cannot pass for one.
DirectiveView numbered(std::uint64_t n)
{
    DirectiveView view;
    view.wanted.generation = n;
    view.wanted.seed = n;
    view.wanted.phase = static_cast<std::int32_t>(n);
    view.wanted.full_workers = static_cast<std::uint32_t>(n);
    view.published_ns = n;
    view.rivals.assign(n % (JIGSAW_MAX_RIVALS + 1), jigsaw_rival_t{static_cast<std::uint32_t>(n), 0, n, n, 0, 0});
    return view;
}

bool is_whole(const DirectiveView &view)
{
    const DirectiveView expected = numbered(view.wanted.generation);
    return view.wanted == expected.wanted && view.published_ns == expected.published_ns &&
           std::equal(view.rivals.begin(), view.rivals.end(), expected.rivals.begin(), expected.rivals.end(),
                      [](const auto &a, const auto &b) { return std::memcmp(&a, &b, sizeof a) == 0; });
}

START_TEST(readers_never_see_half_a_directive)
{
    const AgentPages pages = create_pages();
    publish_directive(pages.directive.get(), numbered(1));
    const ProcessPages process = map_pages(pages.directive_fd.get(), pages.report_fd.get());
    std::atomic<bool> stop{false};
    std::atomic<int> torn{0}, whole{0};
    std::thread reader([&] {
        DirectiveView view;
        while (!stop.load())
            if (read_directive(&view, process.directive.get()))
                is_whole(view) ? ++whole : ++torn;
    });
    for (std::uint64_t n = 1; n < 20000 || whole.load() < 100; ++n)
        publish_directive(pages.directive.get(), numbered(1 + n % 1000000));
    stop = true;
    reader.join();
    ck_assert_int_eq(torn.load(), 0);
}
END_TEST

START_TEST(readers_never_see_half_a_report)
{
    const AgentPages pages = create_pages();
    const ProcessPages process = map_pages(pages.directive_fd.get(), pages.report_fd.get());
    std::atomic<bool> stop{false};
    std::atomic<int> torn{0}, whole{0};
    std::thread reader([&] {
        ReportView view;
        while (!stop.load()) {
            if (!read_report(&view, pages.report.get()))
                continue;
            const bool same = view.iteration == view.turns && view.iteration == view.memory_peak_bytes;
            same ? ++whole : ++torn;
        }
    });
    ReportView view;
    for (std::uint64_t n = 0; n < 20000 || whole.load() < 100; ++n) {
        view.iteration = view.turns = view.memory_peak_bytes = n;
        publish_report(process.report.get(), view);
    }
    stop = true;
    reader.join();
    ck_assert_int_eq(torn.load(), 0);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("page");
    jigsaw::tests::add_case(suite, "trust", {strangers_cannot_hurt_a_page, a_forked_child_has_no_page});
    jigsaw::tests::add_case(suite, "round trip",
                            {directives_come_back, reports_come_back, too_many_rivals_are_left_out,
                             odd_but_honest_reports_are_read, a_writer_that_died_is_followed_by_another});
    jigsaw::tests::add_case(suite, "range",
                            {directive_values_are_checked, report_values_are_checked, mapping_refuses_what_is_no_page});
    jigsaw::tests::add_case(suite, "torn", {readers_never_see_half_a_directive, readers_never_see_half_a_report});
    return jigsaw::tests::run_tap(suite);
}
