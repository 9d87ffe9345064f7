#include "bench/peers.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <gelf.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

namespace windlass::bench {

namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

PeerResult readelf(const std::string& file) {
  const CommandTime time = time_command({"readelf", "-wF", file.c_str()});
  return {time.user + time.system, 0};
}

PeerResult llvm_dwarfdump(const std::string& file) {
  for (const char* tool : {"llvm-dwarfdump", "llvm-dwarfdump-19", "llvm-dwarfdump-14"}) {
    const CommandTime time = time_command({tool, "--eh-frame", file.c_str()});
    if (time.user > 0) return {time.user + time.system, 0};
  }
  return {};
}

Elf_Data* section_data(Elf* elf, const char* name, GElf_Shdr& header) {
  std::size_t names = 0;
  if (elf_getshdrstrndx(elf, &names) != 0) return nullptr;
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf, section)) != nullptr;) {
    if (gelf_getshdr(section, &header) == nullptr) continue;
    const char* its_name = elf_strptr(elf, names, header.sh_name);
    if (its_name != nullptr && std::strcmp(its_name, name) == 0) return elf_rawdata(section, nullptr);
  }
  return nullptr;
}

// Every row of every FDE through libdw: the FDEs by dwarf_next_cfi, the row at an address by dwarf_cfi_addrframe, and
// from it the CFA, the return address and rbp. The next row starts where this one ends.
PeerResult elfutils(const std::string& file) {
  elf_version(EV_CURRENT);
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  PeerResult result;
  const double start = cpu_seconds();
  Elf* elf = elf_begin(fd, ELF_C_READ_MMAP, nullptr);
  GElf_Shdr header{};
  GElf_Ehdr ehdr{};
  Elf_Data* data = elf != nullptr ? section_data(elf, ".eh_frame", header) : nullptr;
  Dwarf_CFI* cfi = data != nullptr && gelf_getehdr(elf, &ehdr) != nullptr ? dwarf_getcfi_elf(elf) : nullptr;
  if (cfi != nullptr) {
    Dwarf_Off offset = 0, next = 0;
    for (Dwarf_CFI_Entry entry; dwarf_next_cfi(ehdr.e_ident, data, true, offset, &next, &entry) >= 0; offset = next) {
      if (next == static_cast<Dwarf_Off>(-1)) break;
      if (dwarf_cfi_cie_p(&entry)) continue;
      std::int32_t delta = 0;
      std::uint32_t range = 0;  // pcrel sdata4, which all of the measured files use
      std::memcpy(&delta, entry.fde.start, sizeof delta);
      std::memcpy(&range, entry.fde.start + 4, sizeof range);
      const auto at = static_cast<std::uint64_t>(entry.fde.start - static_cast<const std::uint8_t*>(data->d_buf));
      Dwarf_Addr pc = header.sh_addr + at + static_cast<std::uint64_t>(std::int64_t{delta});
      const Dwarf_Addr end = pc + range;
      while (pc < end) {
        Dwarf_Frame* frame = nullptr;
        if (dwarf_cfi_addrframe(cfi, pc, &frame) != 0) break;
        Dwarf_Addr row_begin = 0, row_end = 0;
        bool signal = false;
        Dwarf_Op* ops = nullptr;
        std::size_t count = 0;
        Dwarf_Op memory[3];
        (void)dwarf_frame_info(frame, &row_begin, &row_end, &signal);
        (void)dwarf_frame_cfa(frame, &ops, &count);
        (void)dwarf_frame_register(frame, 16, memory, &ops, &count);
        (void)dwarf_frame_register(frame, 6, memory, &ops, &count);
        std::free(frame);
        ++result.rows;
        if (row_end <= pc) break;
        pc = row_end;
      }
    }
  }
  result.seconds = cfi != nullptr ? cpu_seconds() - start : 0;
  if (cfi != nullptr) dwarf_cfi_end(cfi);
  if (elf != nullptr) elf_end(elf);
  close(fd);
  return result;
}

constexpr Peer kPeers[] = {
    {"readelf -wF", readelf},
    {"llvm-dwarfdump --eh-frame", llvm_dwarfdump},
    {"elfutils, every row", elfutils},
};

}  // namespace

CommandTime time_command(std::vector<const char*> arguments) {
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, 1);
    dup2(null, 2);
    execvp(arguments[0], const_cast<char**>(arguments.data()));
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  if (child < 0 || wait4(child, &status, 0, &usage) != child) return {-1, -1};
  if (!WIFEXITED(status) || WEXITSTATUS(status) == 127) return {-1, -1};
  return {seconds(usage.ru_utime), seconds(usage.ru_stime)};
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

std::span<const Peer> peers() { return kPeers; }

}  // namespace windlass::bench
