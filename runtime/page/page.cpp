// SPDX-License-Identifier: Apache-2.0
// Making and mapping the pages: memfds, seals, checks. What stands in them is in views.cpp.
#include "runtime/page/page.hpp"

#include <cerrno>
#include <fcntl.h>
#include <limits>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <time.h>
#include <type_traits>
#include <utility>

// Linux 5.1; older C libraries do not name it.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace jigsaw::page {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

[[noreturn]] void fail(const char *what) { throw std::system_error(errno, std::generic_category(), what); }

UniqueFd make_memfd(const char *name)
{
    UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd)
        fail("memfd_create for a page");
    if (ftruncate(fd.get(), JIGSAW_PAGE_BYTES) != 0)
        fail("ftruncate of a page");
    return fd;
}

template <class Page> Mapped<Page> map(int fd, int protection)
{
    void *memory = mmap(nullptr, JIGSAW_PAGE_BYTES, protection, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        fail("mmap of a page");
    Mapped<Page> mapped(static_cast<Page *>(memory), JIGSAW_PAGE_BYTES);
    // A child that a data loader forks must not look like its parent.
    if (madvise(memory, JIGSAW_PAGE_BYTES, MADV_DONTFORK) != 0)
        fail("madvise(MADV_DONTFORK) of a page");
    return mapped;
}

void seal(int fd, int seals)
{
    if (fcntl(fd, F_ADD_SEALS, seals) != 0)
        fail("sealing a page (F_SEAL_FUTURE_WRITE needs Linux 5.1)");
}

template <class Page> void write_header(Page *page, std::uint32_t magic)
{
    __atomic_store_n(&page->version, JIGSAW_PAGE_VERSION, __ATOMIC_RELEASE);
    __atomic_store_n(&page->compatible, JIGSAW_PAGE_COMPATIBLE, __ATOMIC_RELEASE);
    __atomic_store_n(&page->page_bytes, JIGSAW_PAGE_BYTES, __ATOMIC_RELEASE);
    __atomic_store_n(&page->magic, magic, __ATOMIC_RELEASE);
}

/// Enough to map without a later SIGBUS: it cannot shrink, and (directive) nobody else can write it.
void check_file(const char *name, int fd, int needed_seals)
{
    struct stat status = {};
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < off_t{JIGSAW_PAGE_BYTES})
        throw std::runtime_error(std::string(name) + " page: not a file of at least " +
                                 std::to_string(JIGSAW_PAGE_BYTES) + " bytes");
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & needed_seals) != needed_seals)
        throw std::runtime_error(std::string(name) + " page: not sealed as jigsawd seals it (seals " +
                                 std::to_string(seals) + ", needed " + std::to_string(needed_seals) + ")");
}

template <class Page> void check_header(const char *name, const Page *page, std::uint32_t magic)
{
    const std::string why = header_problem(page, magic);
    if (!why.empty())
        throw std::runtime_error(std::string(name) + " page: " + why);
}

template <class Page> std::string problem_of(const Page *page, std::uint32_t magic)
{
    const std::uint32_t found = __atomic_load_n(&page->magic, __ATOMIC_ACQUIRE);
    const std::uint32_t version = __atomic_load_n(&page->version, __ATOMIC_ACQUIRE);
    const std::uint32_t compatible = __atomic_load_n(&page->compatible, __ATOMIC_ACQUIRE);
    const std::uint32_t bytes = __atomic_load_n(&page->page_bytes, __ATOMIC_ACQUIRE);
    if (found != magic)
        return "magic number " + std::to_string(found) + ", expected " + std::to_string(magic);
    if (version < JIGSAW_PAGE_VERSION || compatible > JIGSAW_PAGE_VERSION)
        return "version " + std::to_string(version) + " for readers from " + std::to_string(compatible) +
               " on, this library reads " + std::to_string(JIGSAW_PAGE_VERSION);
    if (bytes < JIGSAW_PAGE_BYTES)
        return "states " + std::to_string(bytes) + " bytes, needed " + std::to_string(JIGSAW_PAGE_BYTES);
    return {};
}

} // namespace

std::string header_problem(const jigsaw_directive_page_t *page, std::uint32_t magic)
{
    return problem_of(page, magic);
}

std::string header_problem(const jigsaw_report_page_t *page, std::uint32_t magic) { return problem_of(page, magic); }

std::uint64_t monotonic_ns()
{
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000u + static_cast<std::uint64_t>(now.tv_nsec);
}

template <class Page>
Mapped<Page>::Mapped(Mapped &&other) noexcept
    : page_(std::exchange(other.page_, nullptr)), bytes_(std::exchange(other.bytes_, 0))
{
}

template <class Page> Mapped<Page> &Mapped<Page>::operator=(Mapped &&other) noexcept
{
    std::swap(page_, other.page_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

template <class Page> Mapped<Page>::~Mapped()
{
    if (page_)
        munmap(const_cast<std::remove_const_t<Page> *>(page_), bytes_);
}

template class Mapped<jigsaw_directive_page_t>;
template class Mapped<const jigsaw_directive_page_t>;
template class Mapped<jigsaw_report_page_t>;
template class Mapped<const jigsaw_report_page_t>;

AgentPages create_pages()
{
    AgentPages pages;
    pages.directive_fd = make_memfd("jigsaw-directive");
    pages.directive = map<jigsaw_directive_page_t>(pages.directive_fd.get(), PROT_READ | PROT_WRITE);
    write_header(pages.directive.get(), JIGSAW_PAGE_MAGIC_DIRECTIVE);
    publish_directive(pages.directive.get(), DirectiveView{});
    __atomic_store_n(&pages.directive->heartbeat_ns, monotonic_ns(), __ATOMIC_RELEASE);
    // From here on only the mapping above can write; the seals hold for every descriptor of the file, also a new one.
    seal(pages.directive_fd.get(), kSizeSeals | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);

    pages.report_fd = make_memfd("jigsaw-report");
    {
        const auto writable = map<jigsaw_report_page_t>(pages.report_fd.get(), PROT_READ | PROT_WRITE);
        write_header(writable.get(), JIGSAW_PAGE_MAGIC_REPORT);
        ReportView nothing;
        nothing.loss = nothing.progress = std::numeric_limits<double>::quiet_NaN();
        publish_report(writable.get(), nothing);
    }
    seal(pages.report_fd.get(), kSizeSeals | F_SEAL_SEAL);
    pages.report = map<const jigsaw_report_page_t>(pages.report_fd.get(), PROT_READ);
    return pages;
}

ProcessPages map_pages(int directive_fd, int report_fd)
{
    check_file("directive", directive_fd, kSizeSeals | F_SEAL_FUTURE_WRITE);
    check_file("report", report_fd, kSizeSeals);
    ProcessPages pages;
    pages.directive = map<const jigsaw_directive_page_t>(directive_fd, PROT_READ);
    check_header("directive", pages.directive.get(), JIGSAW_PAGE_MAGIC_DIRECTIVE);
    pages.report = map<jigsaw_report_page_t>(report_fd, PROT_READ | PROT_WRITE);
    check_header("report", pages.report.get(), JIGSAW_PAGE_MAGIC_REPORT);
    return pages;
}

} // namespace jigsaw::page
