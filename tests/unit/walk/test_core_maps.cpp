// Which files a core's memory came from where its notes do not say: by the dynamic linker's list, and by the headers of
// the file whose code has been moved.
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "os/proc_file.h"
#include "os/proc_maps.h"
#include "os/process_memory.h"
#include "support/core_writer.h"
#include "support/dump_file.h"
#include "support/process_reading.h"
#include "windlass/backtrace.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using os::ProcMap;
using test::CoreWriter;
using test::DumpFile;
using test::some_registers;

// ---- the dynamic linker's list
// ----------------------------------------------------------------------------------------

// This very process, as a kernel dumps it: what is written, and the first page of each ELF file, but no list of files.
CoreWriter core_of_this_process() {
  CoreWriter core(kOwnArchitecture);
  core.threads = {{1, some_registers(kOwnArchitecture, 0x1000)}};
  for (const auto type : {AT_PHDR, AT_BASE, AT_EXECFN, AT_ENTRY, AT_PAGESZ, AT_SYSINFO_EHDR})
    core.auxiliary.emplace_back(type, ::getauxval(type));
  const os::MemoryFile memory(::getpid());
  constexpr std::uint64_t kMost = std::uint64_t{1} << 20;
  for (const ProcMap& map : os::parse_proc_maps(os::read_proc_file("/proc/self/maps"))) {
    if (map.path.starts_with("[v") || !map.readable) continue;
    const bool of_file = map.has_file() && map.offset == 0;
    std::vector<std::byte> bytes(of_file ? 4096 : std::min(map.end - map.begin, kMost));
    if (!memory.read(map.begin, bytes.data(), bytes.size())) bytes.clear();
    if (map.has_file() && map.executable) bytes.clear();
    const std::uint32_t flags = map.executable ? PF_R | PF_X : PF_R;
    core.segments.push_back({map.begin, std::move(bytes), map.end - map.begin, flags});
  }
  return core;
}

TEST(CoreWithoutAListOfFiles, GoesByTheLinkersList) {
  if (const auto reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << "SKIPPED: " << reason;
  const DumpFile file(core_of_this_process().write());
  DumpOptions options;
  options.files.executable = "/proc/self/exe";
  const auto target = open_core(file.path(), options);
  ASSERT_TRUE(target) << target.error().text();
  const auto here = reinterpret_cast<std::uint64_t>(&core_of_this_process);
  const auto there = reinterpret_cast<std::uint64_t>(&::qsort);
  const ProcMap* library = nullptr;
  const auto maps = os::parse_proc_maps(os::read_proc_file("/proc/self/maps"));
  for (const ProcMap& map : maps)
    if (map.begin <= there && there < map.end) library = &map;
  ASSERT_NE(library, nullptr);
  const ModuleInfo *own = nullptr, *libc = nullptr;
  for (const ModuleInfo* info : target->space.modules()) {
    if (info->begin <= here && here < info->end) own = info;
    if (info->begin <= there && there < info->end) libc = info;
  }
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(own->file, "/proc/self/exe");
  ASSERT_NE(libc, nullptr);
  EXPECT_FALSE(libc->file.empty());
  EXPECT_EQ(libc->begin, library->begin);
  EXPECT_EQ(libc->end, library->end);
  // The linker's list has the name that it opened, the kernel's the file behind that: libasan.so.8 for
  // libasan.so.8.0.0.
  EXPECT_EQ(std::filesystem::canonical(libc->path), std::filesystem::canonical(library->path));
}

// Whatever the list holds, it is left.
TEST(CoreWithoutAListOfFiles, AListThatIsACircle) {
  constexpr std::uint64_t kBase = 0x400000, kData = 0x500000;
  test::ByteSink image;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_EXEC;
  header.e_machine = EM_X86_64;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 2;
  image.put(header);
  image.put(Elf64_Phdr{PT_LOAD, PF_R | PF_X, 0, kBase, 0, 0x1000, 0x1000, 4096});
  image.put(Elf64_Phdr{PT_DYNAMIC, PF_R, 0, kData, 0, 32, 32, 8});
  image.zeros(4096 - image.size());
  test::ByteSink data;
  data.put(Elf64_Dyn{DT_DEBUG, {kData + 0x100}});
  data.put(Elf64_Dyn{DT_NULL, {0}});
  data.zeros(0x1000 - data.size());
  data.set(0x108, kData + 0x200);          // r_map
  data.set(0x200 + 24, kData + 0x300);     // l_next
  data.set(0x300, kBase);                  // l_addr: the program once more
  data.set(0x300 + 8, kData + 0x400);      // l_name
  data.set(0x300 + 24, kData + 0x300);     // l_next: itself
  data.set(0x400, std::uint64_t{0x612f});  // "/a"
  CoreWriter core(Architecture::kX86_64);
  core.threads = {{1, some_registers(Architecture::kX86_64, 0x1000)}};
  core.auxiliary = {{AT_PHDR, kBase + sizeof header}, {AT_ENTRY, kBase + 0x800}};
  core.segments = {{kBase, image.bytes(), 0x1000, PF_R | PF_X}, {kData, data.bytes(), 0x1000, PF_R | PF_W}};
  const DumpFile file(core.write());
  const auto target = open_core(file.path());
  ASSERT_TRUE(target) << target.error().text();
  const auto modules = target->space.modules();
  ASSERT_EQ(modules.size(), 1u);
  EXPECT_EQ(modules[0]->begin, kBase);
  EXPECT_EQ(modules[0]->path, "/program");  // the dump's name of it
}

// ---- code that was moved
// ----------------------------------------------------------------------------------------------

constexpr std::uint64_t kImage = 0x7000'0000'0000;

// The headers of a file whose code fills [0x1000, 0x1000 + size).
std::vector<std::byte> headers_page(std::uint64_t size) {
  test::ByteSink page;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_DYN;
  header.e_machine = EM_X86_64;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 3;
  page.put(header);
  page.put(Elf64_Phdr{PT_LOAD, PF_R, 0, 0, 0, 0x1000, 0x1000, 4096});
  page.put(Elf64_Phdr{PT_LOAD, PF_R | PF_X, 0x1000, 0x1000, 0, size, size, 4096});
  page.put(Elf64_Phdr{PT_LOAD, PF_R, 0x4000, 0x4000, 0, 0x1000, 0x1000, 4096});
  page.zeros(4096 - page.size());
  return page.bytes();
}

std::string path_at(const CoreWriter& core, std::uint64_t address) {
  const DumpFile file(core.write());
  const auto target = open_core(file.path());
  if (!target) return target.error().text();
  for (const ModuleInfo* info : target->space.modules())
    if (info->begin <= address && address < info->end) return info->path;
  return "none";
}

CoreWriter moved_code(std::uint64_t size) {
  CoreWriter core(Architecture::kX86_64);
  core.threads = {{1, some_registers(Architecture::kX86_64, 0x1000)}};
  core.segments = {{kImage, headers_page(size), 0x1000, PF_R},
                   {kImage + 0x1000, test::filled(0x3000, 0x90), 0x3000, PF_R | PF_X},
                   {kImage + 0x4000, {}, 0x1000, PF_R}};
  core.files = {{kImage, kImage + 0x1000, 0, "/no/such/file"},
                {kImage + 0x4000, kImage + 0x5000, 0x4000, "/no/such/file"}};
  return core;
}

TEST(CoreOfMovedCode, TheCodeIsTheFiles) {
  EXPECT_EQ(path_at(moved_code(0x3000), kImage + 0x2345), "/no/such/file");
  EXPECT_EQ(path_at(moved_code(0x2001), kImage + 0x2345), "/no/such/file");
}

TEST(CoreOfMovedCode, WhatTheHeadersDoNotSayIsNot) {
  EXPECT_EQ(path_at(moved_code(0x2000), kImage + 0x2345), "[anon]") << "the code is shorter than the hole";
  CoreWriter other = moved_code(0x3000);
  other.files[1].path = "/another/file";
  EXPECT_EQ(path_at(other, kImage + 0x2345), "[anon]");
  CoreWriter shifted = moved_code(0x3000);
  shifted.files[1].offset = 0x5000;
  EXPECT_EQ(path_at(shifted, kImage + 0x2345), "[anon]");
  CoreWriter gap = moved_code(0x3000);
  gap.segments[1] = {kImage + 0x1000, test::filled(0x2000, 0x90), 0x2000, PF_R | PF_X};
  EXPECT_EQ(path_at(gap, kImage + 0x2345), "[anon]") << "the hole is not filled";
}

}  // namespace
}  // namespace windlass
