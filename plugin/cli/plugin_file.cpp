// SPDX-License-Identifier: Apache-2.0
// Just enough of ELF (elf(5)): the dynamic symbols by their section, their bytes by the loadable segments. Every offset comes
// from a file that may be damaged, so nothing is read but through at().
#include "plugin/cli/plugin_file.hpp"

#include <elf.h>
#include <link.h> // ElfW: the word size of this machine

#include <cerrno>
#include <cstring>
#include <fstream>

namespace jigsaw::cli {

namespace {

constexpr std::uint64_t kLargestFile = 256u << 20;
constexpr std::size_t kLongestType = 64;

bool read_bytes(std::string *ret_bytes, std::string *ret_why, const std::string &path)
{
    errno = 0;
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
    if (size < 0) {
        *ret_why = errno != 0 ? std::strerror(errno) : "cannot be read";
        return false;
    }
    if (size == 0 || static_cast<std::uint64_t>(size) > kLargestFile) {
        *ret_why = size == 0 ? "is empty" : "is too large for a plugin";
        return false;
    }
    std::string bytes(static_cast<std::size_t>(size), '\0');
    file.seekg(0);
    if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
        *ret_why = "cannot be read";
        return false;
    }
    *ret_bytes = std::move(bytes);
    return true;
}

class Elf {
  public:
    explicit Elf(std::string bytes) : bytes_(std::move(bytes)) {}

    /// Is it a shared object that this machine can load: of the kind of this very program?
    bool is_shared_object() const
    {
        ElfW(Ehdr) header{}, own{};
        std::ifstream self("/proc/self/exe", std::ios::binary);
        return at(&header, 0) && self.read(reinterpret_cast<char *>(&own), sizeof own) &&
               std::memcmp(header.e_ident, own.e_ident, EI_VERSION + 1) == 0 && header.e_machine == own.e_machine &&
               header.e_type == ET_DYN;
    }

    /// Offset in the file of what a defined dynamic symbol names, 0: there is none.
    std::uint64_t offset_of(const std::string &name) const
    {
        ElfW(Ehdr) header{};
        ElfW(Shdr) section{}, names{};
        at(&header, 0);
        for (unsigned i = 0; i < header.e_shnum && section.sh_type != SHT_DYNSYM; ++i) {
            if (!at(&section, header.e_shoff + i * sizeof section))
                return 0;
        }
        if (section.sh_type != SHT_DYNSYM || !at(&names, header.e_shoff + section.sh_link * sizeof names))
            return 0;
        for (std::uint64_t i = 0; i < section.sh_size / sizeof(ElfW(Sym)); ++i) {
            ElfW(Sym) symbol{};
            if (!at(&symbol, section.sh_offset + i * sizeof symbol))
                return 0;
            if (symbol.st_shndx != SHN_UNDEF && text_at(names.sh_offset + symbol.st_name, name.size() + 1) == name)
                return offset_of_address(header, symbol.st_value);
        }
        return 0;
    }

    template <class T> bool at(T *ret_value, std::uint64_t offset) const
    {
        if (offset > bytes_.size() || bytes_.size() - offset < sizeof *ret_value)
            return false;
        std::memcpy(ret_value, bytes_.data() + offset, sizeof *ret_value);
        return true;
    }

    /// Up to a NUL byte, at most `most` bytes.
    std::string text_at(std::uint64_t offset, std::size_t most) const
    {
        if (offset >= bytes_.size())
            return "";
        const std::string text = bytes_.substr(static_cast<std::size_t>(offset), most);
        return text.substr(0, text.find('\0'));
    }

  private:
    std::uint64_t offset_of_address(const ElfW(Ehdr) &header, std::uint64_t address) const
    {
        for (unsigned i = 0; i < header.e_phnum; ++i) {
            ElfW(Phdr) segment{};
            if (!at(&segment, header.e_phoff + i * sizeof segment))
                return 0;
            if (segment.p_type == PT_LOAD && address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz)
                return segment.p_offset + (address - segment.p_vaddr);
        }
        return 0;
    }

    std::string bytes_;
};

} // namespace

bool read_plugin_file(PluginFile *ret_plugin, std::string *ret_why, const std::string &path)
{
    std::string bytes;
    if (!read_bytes(&bytes, ret_why, path))
        return false;
    const Elf elf(std::move(bytes));
    if (!elf.is_shared_object()) {
        *ret_why = "is no shared object of this machine's kind";
        return false;
    }
    PluginFile plugin;
    const std::uint64_t type = elf.offset_of("plugin_type"), version = elf.offset_of("plugin_version");
    plugin.type = elf.text_at(type, kLongestType);
    if (type == 0 || version == 0 || plugin.type.empty() || !elf.at(&plugin.version, version)) {
        *ret_why = "is no Slurm plugin: it has no plugin_type and plugin_version";
        return false;
    }
    *ret_plugin = std::move(plugin);
    return true;
}

} // namespace jigsaw::cli
