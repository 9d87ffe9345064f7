// Minidumps: what a writer of our own put in must come out; lying counts and offsets are reported, the rest still read.
#include "formats/image/minidump.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "support/dump_file.h"
#include "support/minidump_writer.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using image::MinidumpFile;
using test::DumpFile;
using test::filled;
using test::MinidumpWriter;
using test::some_registers;
using test::view;

MinidumpWriter small_dump(Architecture architecture) {
  MinidumpWriter dump(architecture);
  dump.threads = {{7, some_registers(architecture, 0x1000), "main", 0x7000000, filled(0x100, 0x33)},
                  {8, some_registers(architecture, 0x2000), "", 0x8000000, filled(0x80, 0x44)}};
  dump.modules = {
      {0x400000, 0x10000, "/no/such/program", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}},
      {0x600000, 0x8000, "/no/such/library", {0xaa, 0xbb, 0xcc, 0xdd, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, false}};
  dump.memory = {{0x7000000, filled(0x100, 0x33)}, {0x400000, filled(0x40, 0x90)}};
  dump.memory64 = {{0x9000000, filled(0x40, 1)}, {0xa000000, filled(0x50, 2)}};
  dump.crashed = 8;
  dump.process = 99;
  dump.linux_command_line = std::string("program\0-x\0", 11);
  return dump;
}

TEST(Minidump, WhatWasPutIn) {
  for (const bool padded : {false, true}) {
    for (const bool extended : {false, true}) {
      MinidumpWriter writer = small_dump(Architecture::kX86_64);
      writer.padded_lists = padded;
      writer.extended_threads = extended;
      const auto bytes = writer.write();
      const auto dump = MinidumpFile::parse(view(bytes));
      ASSERT_TRUE(dump) << dump.error().text();
      for (const Error& problem : dump->problems) ADD_FAILURE() << problem.text();
      EXPECT_EQ(dump->machine, image::Machine::kX86_64);
      EXPECT_FALSE(dump->windows);
      ASSERT_EQ(dump->threads.size(), 2u);
      EXPECT_EQ(dump->threads[0].name, "main");
      EXPECT_EQ(dump->threads[1].id, 8u);
      EXPECT_EQ(dump->threads[1].context.size(), 1232u);
      ASSERT_EQ(dump->modules.size(), 2u);
      EXPECT_EQ(dump->modules[0].path, "/no/such/program");
      EXPECT_EQ(dump->modules[0].build_id, "0102030405060708090a0b0c0d0e0f1011121314");
      EXPECT_EQ(dump->modules[1].build_id, "aabbccdd000102030405060708090a0b");
      EXPECT_FALSE(dump->modules[1].elf_id);
      EXPECT_EQ(dump->memory.size(), 6u);  // two stacks, two ranges, two of the 64-bit list
      ASSERT_TRUE(dump->exception);
      EXPECT_EQ(dump->exception->thread, 8u);
      EXPECT_EQ(dump->exception->code, 11u);
      EXPECT_EQ(dump->process, 99u);
    }
  }
}

TEST(Minidump, NamesAreOfEveryLength) {
  MinidumpWriter writer = small_dump(Architecture::kX86_64);
  writer.modules[0].wide_path = u"/\x7f\u0080\u07ff\u0800\uffff\U00010000\U0010ffff";  // each form's first and last
  const auto bytes = writer.write();
  const auto dump = MinidumpFile::parse(view(bytes));
  ASSERT_TRUE(dump) << dump.error().text();
  EXPECT_EQ(dump->modules[0].path, "/\x7f\u0080\u07ff\u0800\uffff\U00010000\U0010ffff");
}

TEST(OpenMinidump, RegistersOfEveryContext) {
  struct Case {
    Architecture architecture;
    MinidumpWriter::Context context;
  };
  for (const Case& c : {Case{Architecture::kX86_64, MinidumpWriter::Context::kMicrosoft},
                        Case{Architecture::kAArch64, MinidumpWriter::Context::kMicrosoft},
                        Case{Architecture::kAArch64, MinidumpWriter::Context::kBreakpadOld}}) {
    MinidumpWriter writer = small_dump(c.architecture);
    writer.context = c.context;
    const DumpFile file(writer.write());
    const auto target = open_minidump(file.path());
    ASSERT_TRUE(target) << target.error().text();
    for (const Error& problem : target->problems) ADD_FAILURE() << problem.text();
    ASSERT_EQ(target->threads.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      const Registers& expected = writer.threads[i].registers;
      expected.for_each([&](RegisterNumber reg, std::uint64_t value) {
        EXPECT_EQ(target->threads[i].registers.get(reg), value) << reg;
      });
      EXPECT_EQ(target->threads[i].registers.pc().value(), expected.pc().value());
    }
    EXPECT_FALSE(target->threads[0].faulted);
    EXPECT_TRUE(target->threads[1].faulted);
    EXPECT_EQ(target->command, "program -x");
    EXPECT_EQ(target->process, 99u);
  }
}

TEST(OpenMinidump, MemoryOfAllStreams) {
  MinidumpWriter writer = small_dump(Architecture::kX86_64);
  writer.memory.push_back({0x7000080, filled(0x200, 0x55)});  // overlaps a stack and goes on behind it
  const DumpFile file(writer.write());
  const auto target = open_minidump(file.path());
  ASSERT_TRUE(target);
  const Memory& memory = target->space.memory();
  std::uint8_t two[2];
  EXPECT_TRUE(memory.read(0x70000ff, two, 2));
  EXPECT_EQ(two[0], 0x33);
  EXPECT_EQ(two[1], 0x55);
  EXPECT_TRUE(memory.read(0x700027f, two, 1));
  EXPECT_FALSE(memory.read(0x7000280, two, 1));
  EXPECT_TRUE(memory.read(0x900003f, two, 1));
  EXPECT_FALSE(memory.read(0x900003f, two, 2));
  EXPECT_TRUE(memory.read(0xa00004f, two, 1));
  EXPECT_EQ(two[0], 2);
}

TEST(OpenMinidump, ModulesOfWindowsAreListed) {
  MinidumpWriter writer = small_dump(Architecture::kX86_64);
  writer.windows = true;
  writer.modules = {{0x140000000, 0x10000, "C:\\dir\\program.exe"}, {0x180000000, 0x20000, "C:\\Windows\\ntdll.dll"}};
  const DumpFile file(writer.write());
  const auto target = open_minidump(file.path());
  ASSERT_TRUE(target);
  const auto modules = target->space.modules();
  ASSERT_EQ(modules.size(), 2u);
  EXPECT_EQ(modules[0]->path, "C:\\dir\\program.exe");
  EXPECT_EQ(modules[1]->bias, 0x180000000u);
}

TEST(OpenMinidump, MapsTellTheCode) {
  MinidumpWriter writer = small_dump(Architecture::kX86_64);
  writer.linux_maps =
      "400000-401000 r--p 00000000 08:01 42 /no/such/program\n"
      "401000-408000 r-xp 00001000 08:01 42 /no/such/program\n"
      "a00000-a01000 rwxp 00000000 00:00 0 \n";
  const DumpFile file(writer.write());
  const auto target = open_minidump(file.path());
  ASSERT_TRUE(target);
  std::set<std::uint64_t> begins;
  for (const ModuleInfo* module : target->space.modules()) begins.insert(module->begin);
  // The program by its code, the anonymous code, and the library, which only the module list has.
  EXPECT_EQ(begins, (std::set<std::uint64_t>{0x401000, 0xa00000, 0x600000}));
}

// ---- hostile --------------------------------------------------------------------------------------------------------

void read_everything(const std::vector<std::byte>& bytes) {
  const std::vector<std::byte> exact(bytes.begin(), bytes.end());
  const auto dump = MinidumpFile::parse(view(exact));
  if (!dump) return;
  EXPECT_LE(dump->problems.size(), MinidumpFile::kMaxProblems);
  for (const auto& piece : dump->memory) EXPECT_LE(piece.bytes.origin() + piece.bytes.size(), exact.size());
}

TEST(HostileMinidump, EveryTruncationIsSurvived) {
  const auto bytes = small_dump(Architecture::kX86_64).write();
  for (std::size_t size = 0; size < bytes.size(); size += size < 512 ? 1 : 16) {
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<long>(size));
    const auto dump = MinidumpFile::parse(view(cut));
    if (dump) {
      EXPECT_FALSE(dump->problems.empty()) << size;
    }
    read_everything(cut);
  }
}

TEST(HostileMinidump, EveryByteOfTheStructuresSpoiled) {
  MinidumpWriter writer = small_dump(Architecture::kAArch64);
  auto bytes = writer.write();
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < 32 + 12 * writer.streams().size(); ++at) places.push_back(at);
  for (const auto& stream : writer.streams())
    for (std::size_t i = 0; i < stream.size; ++i) places.push_back(stream.at + i);
  for (const std::size_t at : places) {
    const std::byte kept = bytes[at];
    for (const unsigned value : {0u, 1u, 0x7fu, 0x80u, 0xffu}) {
      bytes[at] = static_cast<std::byte>(value);
      read_everything(bytes);
    }
    bytes[at] = kept;
  }
}

TEST(HostileMinidump, LyingCountsAreToldWithTheirPlace) {
  MinidumpWriter writer = small_dump(Architecture::kX86_64);
  const auto good = writer.write();
  for (const auto& stream : writer.streams()) {
    if (stream.type != 3 && stream.type != 4 && stream.type != 5 && stream.type != 9) continue;
    for (const std::uint32_t count : {100u, 0x7fffffffu, 0xffffffffu}) {
      auto bytes = good;
      std::memcpy(bytes.data() + stream.at, &count, sizeof count);
      const auto dump = MinidumpFile::parse(view(bytes));
      ASSERT_TRUE(dump);
      ASSERT_FALSE(dump->problems.empty()) << stream.type;
      EXPECT_EQ(dump->problems[0].where, stream.at);
      EXPECT_EQ(dump->problems[0].detail, count);
      // What is there is still read.
      EXPECT_EQ(dump->threads.size(), 2u);
      EXPECT_EQ(dump->modules.size(), 2u);
      EXPECT_GE(dump->memory.size(), 6u);
    }
  }
}

TEST(HostileMinidump, StreamsOverEachOther) {
  MinidumpWriter writer = small_dump(Architecture::kX86_64);
  const auto good = writer.write();
  std::uint32_t directory = 0;
  std::memcpy(&directory, good.data() + 12, sizeof directory);
  // Every stream takes every other one's place.
  for (std::size_t i = 0; i < writer.streams().size(); ++i) {
    for (std::size_t j = 0; j < writer.streams().size(); ++j) {
      auto bytes = good;
      std::memcpy(bytes.data() + directory + 12 * i + 4, good.data() + directory + 12 * j + 4, 8);
      read_everything(bytes);
      const DumpFile file(bytes);
      (void)open_minidump(file.path());
    }
  }
}

TEST(HostileMinidump, AContextOfAnotherMachine) {
  MinidumpWriter writer = small_dump(Architecture::kAArch64);
  writer.crashed = 0;
  auto bytes = writer.write();
  for (const auto& stream : writer.streams())
    if (stream.type == 7) {
      const std::uint16_t amd64 = 9;
      std::memcpy(bytes.data() + stream.at, &amd64, sizeof amd64);
    }
  const DumpFile file(bytes);
  const auto target = open_minidump(file.path());
  ASSERT_TRUE(target);
  EXPECT_EQ(target->problems.size(), 2u);
}

TEST(OpenTarget, ToldByContent) {
  EXPECT_EQ(open_target("/etc/passwd").error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(open_target("/no/such/file").error().code, ErrorCode::kSystem);
  const DumpFile file(small_dump(Architecture::kX86_64).write());
  const auto target = open_target(file.path());
  ASSERT_TRUE(target);
  EXPECT_EQ(target->kind, TargetKind::kMinidump);
  const auto nobody = open_target("2147483646");
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().code, ErrorCode::kSystem);
}

}  // namespace
}  // namespace windlass
