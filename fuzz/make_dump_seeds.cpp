// Writes seeds for fuzz_core, fuzz_minidump, fuzz_code_manager and fuzz_jitdump, a folder for each, which fuzz/pack.sh
// adds to the kept corpora: make_dump_seeds FOLDER; fuzz/pack.sh fuzz_core FOLDER/fuzz_core/*
#include <elf.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/core_writer.h"
#include "support/jitdump_text.h"
#include "support/managed_rows.h"
#include "support/minidump_writer.h"
#include "windlass/format/dwarf.h"
#include "windlass/jit/code_manager.h"

namespace {

using namespace windlass;

void keep(const std::filesystem::path& folder, const std::string& name, const std::vector<std::byte>& bytes) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / name, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

Registers registers_of(Architecture architecture) {
  Registers registers(architecture);
  for (std::uint64_t reg = 0; reg <= Registers::pc_number(architecture); ++reg) registers.set(reg, 0x1000 + reg);
  return registers;
}

void make_core(const std::filesystem::path& corpus, Architecture architecture, bool gcore) {
  test::CoreWriter core(architecture);
  core.process = 77;
  core.notes_last = gcore;
  core.extended_segment_count = gcore;
  core.pac_mask = 0x007f'0000'0000'0000;
  core.threads = {{77, registers_of(architecture)}, {78, registers_of(architecture)}};
  core.segments = {{0x400000, std::vector<std::byte>(64), 0x2000, PF_R | PF_X},
                   {0x1000, std::vector<std::byte>(64), 64, PF_R | PF_W}};
  core.files = {{0x400000, 0x402000, 0, "/bin/program"}, {0x500000, 0x501000, 0x1000, "/lib/library (deleted)"}};
  core.auxiliary = {{AT_ENTRY, 0x400100}, {AT_PAGESZ, 4096}};
  keep(corpus / "fuzz_core",
       std::string(gcore ? "gcore" : "kernel") + (architecture == Architecture::kX86_64 ? "-x86-64" : "-aarch64"),
       core.write());
}

void make_minidump(const std::filesystem::path& corpus, Architecture architecture, const std::string& maker) {
  test::MinidumpWriter dump(architecture);
  dump.threads = {{7, registers_of(architecture), "main", 0x1000, std::vector<std::byte>(64)},
                  {8, registers_of(architecture), "", 0x2000, std::vector<std::byte>(32)}};
  dump.memory = {{0x1000, std::vector<std::byte>(64)}, {0x1020, std::vector<std::byte>(128)}};
  dump.crashed = 8;
  dump.process = 99;
  if (maker == "windows") {
    dump.windows = dump.extended_threads = true;
    dump.modules = {{0x140000000, 0x10000, "C:\\program.exe", std::vector<std::uint8_t>(16, 3), false}};
    dump.memory64 = {{0x9000, std::vector<std::byte>(32)}, {0xa000, std::vector<std::byte>(48)}};
  } else {
    dump.padded_lists = maker == "crashpad";
    dump.modules = {{0x400000, 0x10000, "/bin/program", std::vector<std::uint8_t>(20, 3)}};
    if (maker == "breakpad") {
      dump.context = test::MinidumpWriter::Context::kBreakpadOld;
      dump.linux_command_line = std::string("program\0-x\0", 11);
      dump.linux_maps =
          "400000-401000 r--p 00000000 08:01 42 /bin/program\n401000-408000 r-xp 00001000 08:01 42 /bin/program\n";
    }
  }
  keep(corpus / "fuzz_minidump", maker + (architecture == Architecture::kX86_64 ? "-x86-64" : "-aarch64"),
       dump.write());
}

// Functions of one and of several blocks, with a shape in common, and holes where others were.
void make_code_manager(const std::filesystem::path& corpus) {
  constexpr std::uint64_t kBegin = 0x10000;
  auto manager =
      CodeManager::create(kBegin, kBegin + 4096, {.functions = 12, .shape_bytes = 600, .name_bytes = 120, .past = 4});
  if (!manager) return;
  const std::byte expression[] = {std::byte{0x77}, std::byte{8}};
  for (std::uint32_t i = 0; i < 10; ++i) {
    const std::uint64_t size = i == 4 ? 900 : 40 + i;
    std::vector<FrameRow> rows = test::managed_rows(size, 64);
    if (i == 7) rows[1].expressions = ByteView(expression, 2), rows[1].cfa = CfaRule::expression({0, 2});
    (void)manager->add(
        {{kBegin + i * 50 + (i > 4 ? 1000 : 0), size, "name", i, i != 2 ? rows : std::vector<FrameRow>()}});
  }
  (void)manager->remove({kBegin + 50, kBegin + 1000 + 6 * 50});
  std::vector<std::byte> table(static_cast<std::size_t>(::lseek(manager->fd(), 0, SEEK_END)));
  if (::pread(manager->fd(), table.data(), table.size(), 0) != static_cast<ssize_t>(table.size())) return;
  keep(corpus / "fuzz_code_manager", "table", table);
}

// Every record, the unwinding data in both orders, in two pieces.
void make_jitdump(const std::filesystem::path& corpus, bool header_first) {
  constexpr std::uint64_t kCode = 0x1000, kSize = 64, kHeader = 24;
  const std::uint64_t data = kCode + kSize, frames = data + (header_first ? kHeader : 0);
  dwarf::Writer writer({.address = frames});
  if (!writer.add(test::managed_rows(kSize, 8), {.address = kCode})) return;
  const dwarf::Written written = std::move(writer).take();
  const auto header = dwarf::eh_frame_hdr(written, header_first ? data : frames + written.bytes.size());
  if (!header) return;
  const auto text_of = [](const std::vector<std::byte>& bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  std::string table = text_of(*header);
  table.resize(kHeader);
  const std::string both = header_first ? table + text_of(written.bytes) : text_of(written.bytes) + table;
  const std::string text = test::JitdumpText()
                               .raw(std::uint16_t{200})
                               .header()
                               .unwinding(1, both, kHeader)
                               .load(2, kCode, kSize, 1, "described")
                               .lines(3, kCode + kSize, {{kCode + kSize, 1, "a"}, {kCode + kSize + 8, 2, "\xff"}})
                               .load(4, kCode + kSize, 16, 2, "plain")
                               .move(2000, kCode, kCode + 48, kSize, 1)
                               .close(3000)
                               .take();
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  keep(corpus / "fuzz_jitdump", header_first ? "header-first" : "header-last", {bytes, bytes + text.size()});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  for (const Architecture architecture : {Architecture::kX86_64, Architecture::kAArch64}) {
    for (const bool gcore : {false, true}) make_core(argv[1], architecture, gcore);
    for (const char* maker : {"windows", "breakpad", "crashpad"}) make_minidump(argv[1], architecture, maker);
  }
  make_code_manager(argv[1]);
  for (const bool header_first : {false, true}) make_jitdump(argv[1], header_first);
}
