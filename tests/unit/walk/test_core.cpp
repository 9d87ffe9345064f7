// Core files from a writer of our own. The data comes out again. Cut or spoiled parts are reported with their offset,
// and the rest is still read.
#include "formats/image/core.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <algorithm>

#include <fmt/format.h>

#include "support/compressed.h"
#include "support/core_writer.h"
#include "support/dump_file.h"
#include "walk/target/dump_file.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using image::CoreFile;
using test::CoreWriter;
using test::DumpFile;
using test::filled;
using test::some_registers;
using test::view;

CoreWriter small_core(Architecture architecture) {
  CoreWriter core(architecture);
  core.process = 4711;
  core.threads = {{4711, some_registers(architecture, 0x1000)}, {4712, some_registers(architecture, 0x2000)}};
  core.segments = {{0x400000, filled(0x1000, 0x11), 0x3000, PF_R | PF_X},
                   {0x7000000, filled(0x2000, 0x22), 0x2000, PF_R | PF_W}};
  core.files = {{0x400000, 0x403000, 0, "/no/such/program"},
                {0x500000, 0x501000, 0x1000, "/no/such/library (deleted)"}};
  core.auxiliary = {{AT_ENTRY, 0x400100}, {AT_PAGESZ, 4096}};
  return core;
}

TEST(CoreFile, WhatWasPutIn) {
  for (const bool extended : {false, true}) {
    for (const bool last : {false, true}) {
      CoreWriter writer = small_core(Architecture::kX86_64);
      writer.extended_segment_count = extended;
      writer.notes_last = last;
      const auto bytes = writer.write();
      const auto core = CoreFile::parse(view(bytes));
      ASSERT_TRUE(core) << core.error().text();
      EXPECT_TRUE(core->problems.empty()) << core->problems.front().text();
      ASSERT_EQ(core->threads.size(), 2u);
      EXPECT_EQ(core->threads[1].id, 4712u);
      EXPECT_EQ(core->threads[0].signal, 11);
      EXPECT_EQ(core->process, 4711u);
      EXPECT_EQ(core->name, "program");
      EXPECT_EQ(core->arguments, "program with arguments");
      ASSERT_EQ(core->mappings.size(), 2u);
      EXPECT_EQ(core->mappings[1].path, "/no/such/library");
      EXPECT_TRUE(core->mappings[1].deleted);
      EXPECT_EQ(core->mappings[1].offset, 0x1000u);
      EXPECT_EQ(core->auxiliary_value(AT_ENTRY), 0x400100u);
      ASSERT_NE(core->segment_at(0x402fff), nullptr);
      EXPECT_EQ(core->segment_at(0x402fff)->bytes.size(), 0x1000u);
      EXPECT_EQ(core->segment_at(0x403000), nullptr);
    }
  }
}

TEST(OpenCore, RegistersOfBothMachines) {
  for (const Architecture architecture : {Architecture::kX86_64, Architecture::kAArch64}) {
    CoreWriter writer = small_core(architecture);
    writer.pac_mask = 0x007f'0000'0000'0000;
    const DumpFile file(writer.write());
    const auto target = open_core(file.path());
    ASSERT_TRUE(target) << target.error().text();
    ASSERT_EQ(target->threads.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      const Registers expected = writer.threads[i].registers;
      expected.for_each([&](RegisterNumber reg, std::uint64_t value) {
        EXPECT_TRUE(target->threads[i].registers.has(reg)) << reg;
        EXPECT_EQ(target->threads[i].registers.get(reg), value) << reg;
      });
    }
    EXPECT_TRUE(target->threads[0].faulted);
    EXPECT_FALSE(target->threads[1].faulted);
    EXPECT_EQ(target->threads[0].name, "program");
    if (architecture == Architecture::kAArch64) {
      EXPECT_EQ(target->space.pointer_mask(), writer.pac_mask);
    }
  }
}

TEST(OpenCore, MemoryIsThatOfTheSegments) {
  const DumpFile file(small_core(Architecture::kX86_64).write());
  const auto target = open_core(file.path());
  ASSERT_TRUE(target);
  std::uint8_t two[2] = {};
  const Memory& memory = target->space.memory();
  EXPECT_TRUE(memory.read(0x400fff, two, 1));
  EXPECT_EQ(two[0], 0x11);
  EXPECT_FALSE(memory.read(0x400fff, two, 2));  // the second page was not dumped, and there is no file
  EXPECT_TRUE(memory.read(0x7001ffe, two, 2));
  EXPECT_FALSE(memory.read(0x7001fff, two, 2));
  EXPECT_FALSE(memory.read(0x3fffff, two, 2));
  EXPECT_FALSE(memory.read(~std::uint64_t{0}, two, 2));
}

constexpr image::Compression kCompressions[] = {image::Compression::kGzip, image::Compression::kXz,
                                                image::Compression::kZstd, image::Compression::kLz4};

TEST(CompressedCore, IsReadLikeAnyOther) {
  CoreWriter writer = small_core(Architecture::kX86_64);
  writer.segments.push_back({0x9000000, filled(0x100000, 0), 0x100000, PF_R | PF_W});  // pages of zeroes
  writer.segments.push_back({0xa000000, filled(0x1000, 0x33), 0x1000, PF_R});
  for (const image::Compression how : kCompressions) {
    SCOPED_TRACE(static_cast<int>(how));
    const DumpFile file(test::compressed(how, writer.write()));
    for (const auto& target : {open_core(file.path()), open_target(file.path())}) {
      ASSERT_TRUE(target) << target.error().text();
      EXPECT_EQ(target->kind, TargetKind::kCore);
      EXPECT_TRUE(target->problems.empty());
      ASSERT_EQ(target->threads.size(), 2u);
      EXPECT_EQ(target->threads[0].registers.sp(), writer.threads[0].registers.sp());
      const std::pair<std::uint64_t, int> words[] = {
          {0x400fff, 0x11}, {0x9000000, 0}, {0x90fffff, 0}, {0xa000fff, 0x33}};
      for (const auto& [address, value] : words) {
        std::uint8_t byte = 0xee;
        EXPECT_TRUE(target->space.memory().read(address, &byte, 1)) << address;
        EXPECT_EQ(byte, value) << address;
      }
    }
  }
}

TEST(CompressedCore, WhatIsWrongWithItSaysWhere) {
  const auto core = small_core(Architecture::kX86_64).write();
  for (const image::Compression how : kCompressions) {
    SCOPED_TRACE(static_cast<int>(how));
    auto bytes = test::compressed(how, core);
    const DumpFile whole(bytes);
    const auto limited = walk::open_dump_file(whole.path(), core.size() - 1);
    ASSERT_FALSE(limited);
    EXPECT_EQ(limited.error().code, ErrorCode::kLimit);
    EXPECT_TRUE(walk::open_dump_file(whole.path(), core.size()));
    bytes.resize(bytes.size() * 3 / 4);
    const DumpFile cut(bytes);
    const auto target = open_target(cut.path());
    ASSERT_FALSE(target);
    EXPECT_EQ(target.error().code, ErrorCode::kTruncated) << target.error().text();
    EXPECT_EQ(target.error().where, bytes.size());
    const DumpFile other(test::compressed(how, filled(10000, 'x')));
    const auto refused = open_target(other.path());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported) << refused.error().text();
  }
}

// Nothing says that a core's segments ascend.
TEST(OpenCore, SegmentsMayStandInAnyOrder) {
  CoreWriter core = small_core(Architecture::kX86_64);
  for (std::uint8_t i = 0; i < 8; ++i)
    core.segments.push_back({0x8000000 + i * 0x10000ULL, filled(0x1000, i), 0x1000, PF_R});
  std::ranges::reverse(core.segments);
  const auto bytes = core.write();
  const auto parsed = CoreFile::parse(view(bytes));
  ASSERT_TRUE(parsed);
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_NE(parsed->segment_at(0x8000800 + i * 0x10000), nullptr) << i;
  const DumpFile file(bytes);
  const auto target = open_core(file.path());
  ASSERT_TRUE(target);
  const Memory& memory = target->space.memory();
  std::uint8_t byte = 0;
  EXPECT_TRUE(memory.read(0x400fff, &byte, 1));
  EXPECT_EQ(byte, 0x11);
  for (std::uint8_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(memory.read(0x8000800 + i * 0x10000ULL, &byte, 1)) << i;
    EXPECT_EQ(byte, i);
  }
}

// A core of this very program: its own file stands in for the pages that were left out.
TEST(OpenCore, MissingPagesComeFromTheFile) {
  char self[4096];
  const ssize_t length = ::readlink("/proc/self/exe", self, sizeof self - 1);
  ASSERT_GT(length, 0);
  const std::string path(self, static_cast<std::size_t>(length));
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  const auto elf = image::ElfImage::parse(file->bytes());
  ASSERT_TRUE(elf);
  const auto code = elf->executable_segments().front();
  const std::uint64_t bias = 0x10000000;
  const std::uint64_t offset = code.file_offset & ~std::uint64_t{4095};
  const std::uint64_t begin = bias + code.vaddr - (code.file_offset - offset);
  const std::uint64_t end = begin + ((code.filesz + 4095) & ~std::uint64_t{4095});
  const std::uint8_t* at = file->bytes().u8() + code.file_offset;
  const auto* head = file->bytes().data();
  if (begin == bias) GTEST_SKIP() << "SKIPPED: headers and code share a page here, so it cannot be left out alone";

  CoreWriter writer = small_core(Architecture::kX86_64);
  writer.files = {{bias, bias + 0x1000, 0, path}, {begin, end, offset, path}};
  writer.segments = {{bias, {head, head + 0x1000}, 0x1000, PF_R}, {begin, {}, end - begin, PF_R | PF_X}};
  {
    const DumpFile dump(writer.write());
    const auto target = open_core(dump.path());
    ASSERT_TRUE(target);
    std::uint8_t bytes[64];
    ASSERT_TRUE(target->space.memory().read(bias + code.vaddr, bytes, sizeof bytes));
    EXPECT_EQ(std::memcmp(bytes, at, sizeof bytes), 0);
    ASSERT_EQ(target->space.modules().size(), 1u);
    EXPECT_EQ(target->space.modules()[0]->bias, bias);
    EXPECT_EQ(target->space.modules()[0]->file, path);
    EXPECT_TRUE(target->notes.empty());
  }
  if (elf->build_id().empty()) GTEST_SKIP() << "SKIPPED: linked without a build id";
  // The same with another build id in memory: the file is not the one that ran.
  for (std::size_t i = 0; i + 20 <= 0x1000; ++i) {
    const auto text = [&] {
      std::string hex;
      for (std::size_t k = 0; k < 20; ++k)
        hex += fmt::format("{:02x}", static_cast<unsigned>(writer.segments[0].bytes[i + k]));
      return hex;
    };
    if (text() != elf->build_id()) continue;
    writer.segments[0].bytes[i] ^= std::byte{1};
    break;
  }
  const DumpFile dump(writer.write());
  const auto target = open_core(dump.path());
  ASSERT_TRUE(target);
  std::uint8_t bytes[64];
  EXPECT_FALSE(target->space.memory().read(bias + code.vaddr, bytes, sizeof bytes));
  ASSERT_EQ(target->notes.size(), 1u);
  EXPECT_NE(target->notes[0].find("not the file that ran"), std::string::npos) << target->notes[0];
  // Found again by the sysroot.
  for (const auto& module : target->space.modules()) EXPECT_TRUE(module->file.empty());
}

TEST(OpenCore, NotACore) {
  EXPECT_EQ(open_core("/proc/self/exe").error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(open_core("/no/such/file").error().code, ErrorCode::kSystem);
  const DumpFile empty({});
  EXPECT_EQ(open_core(empty.path()).error().code, ErrorCode::kMalformed);
}

// ---- hostile --------------------------------------------------------------------------------------------------------

void read_everything(const std::vector<std::byte>& bytes) {
  const std::vector<std::byte> exact(bytes.begin(), bytes.end());
  const auto core = CoreFile::parse(view(exact));
  if (!core) return;
  EXPECT_LE(core->problems.size(), CoreFile::kMaxProblems);
  for (const auto& segment : core->segments)
    if (!segment.bytes.empty()) {
      EXPECT_LE(segment.bytes.origin() + segment.bytes.size(), exact.size());
    }
  for (const auto& thread : core->threads)
    if (!thread.general.empty()) {
      EXPECT_LE(thread.general.origin() + thread.general.size(), exact.size());
    }
}

TEST(HostileCore, EveryTruncationIsTold) {
  for (const bool last : {false, true}) {
    CoreWriter writer = small_core(Architecture::kX86_64);
    writer.notes_last = last;
    const auto bytes = writer.write();
    for (std::size_t size = 0; size < bytes.size(); size += size < 2048 ? 1 : 64) {
      const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<long>(size));
      const auto core = CoreFile::parse(view(cut));
      if (size < 64) {
        EXPECT_FALSE(core);
        continue;
      }
      ASSERT_TRUE(core) << size;
      // What is missing is said, with an offset in the file (or just behind it).
      ASSERT_FALSE(core->problems.empty()) << size;
      read_everything(cut);
    }
  }
}

TEST(HostileCore, TruncatedMemoryLeavesTheThreads) {
  const auto bytes = small_core(Architecture::kX86_64).write();
  const std::vector<std::byte> cut(bytes.begin(), bytes.end() - 100);
  const DumpFile file(cut);
  const auto target = open_core(file.path());
  ASSERT_TRUE(target);
  EXPECT_EQ(target->threads.size(), 2u);
  ASSERT_EQ(target->problems.size(), 1u);
  EXPECT_EQ(target->problems[0].code, ErrorCode::kTruncated);
  EXPECT_GT(target->problems[0].where, 0u) << "where the memory begins in the file";
  EXPECT_LT(target->problems[0].where, bytes.size());
  std::uint8_t byte = 0;
  EXPECT_TRUE(target->space.memory().read(0x7000000, &byte, 1));
  EXPECT_FALSE(target->space.memory().read(0x7001fff, &byte, 1));
}

TEST(HostileCore, EveryHeaderByteSpoiled) {
  auto bytes = small_core(Architecture::kAArch64).write();
  const std::size_t headers = std::min<std::size_t>(bytes.size(), 4096);
  for (std::size_t at = 0; at < headers; ++at) {
    const std::byte kept = bytes[at];
    for (const unsigned value : {0u, 1u, 0x7fu, 0x80u, 0xffu}) {
      bytes[at] = static_cast<std::byte>(value);
      read_everything(bytes);
    }
    bytes[at] = kept;
  }
}

TEST(HostileCore, LyingFileNote) {
  CoreWriter writer = small_core(Architecture::kX86_64);
  auto bytes = writer.write();
  // The count of NT_FILE: the first u64 2 followed by a page size.
  for (std::size_t at = 0; at + 16 < bytes.size(); at += 4) {
    std::uint64_t pair[2];
    std::memcpy(pair, bytes.data() + at, sizeof pair);
    if (pair[0] != 2 || pair[1] != 4096) continue;
    for (const std::uint64_t count :
         {std::uint64_t{3}, std::uint64_t{1000}, std::uint64_t{1} << 60, ~std::uint64_t{0}}) {
      std::memcpy(bytes.data() + at, &count, sizeof count);
      const auto core = CoreFile::parse(view(bytes));
      ASSERT_TRUE(core);
      EXPECT_EQ(core->threads.size(), 2u);
      ASSERT_FALSE(core->problems.empty()) << count;
      EXPECT_GE(core->problems.back().where, at);
    }
    return;
  }
  FAIL() << "no NT_FILE in the file";
}

}  // namespace
}  // namespace windlass
