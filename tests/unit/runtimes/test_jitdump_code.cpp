#include "runtimes/jitdump_code.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/monotonic.h"
#include "os/mapped_files.h"
#include "support/jit_stub.h"
#include "support/jitdump_text.h"
#include "windlass/backtrace.h"
#include "windlass/format/dwarf.h"
#include "windlass/jit/registration.h"

namespace windlass::manager {
namespace {

using os::JitdumpHeader;
using test::GrowingFile;
using test::JitdumpText;

constexpr std::uint64_t kNever = ~std::uint64_t{0};

std::shared_ptr<JitdumpCode> code_of(const GrowingFile& file) {
  return std::make_shared<JitdumpCode>(file.reader(), 0x10000, os::FileIdentity());
}

std::string name_at(PublishedCode& code, std::uint64_t address, std::uint64_t time) {
  std::vector<sources::NamedFunction> names;
  const std::uint64_t begin = code.functions_at(address, 0, time, names);
  return names.empty() ? "" : fmt::format("{} {:x}", names.back().name, begin);
}

// ---- names ----------------------------------------------------------------------------------------------------------

TEST(JitdumpCode, NamesAreThoseOfTheTime) {
  const GrowingFile file;
  ASSERT_TRUE(file.append(
      JitdumpText().header().load(100, 0x1000, 0x100, 1, "first").load(200, 0x1080, 0x100, 2, "second").take()));
  const auto code = code_of(file);
  EXPECT_EQ(name_at(*code, 0x1090, 150), "first 1000");
  EXPECT_EQ(name_at(*code, 0x1090, 200), "second 1080");
  EXPECT_EQ(name_at(*code, 0x1010, 300), "first 1000");
  EXPECT_EQ(name_at(*code, 0x1010, 50), "first 1000") << "told of after it has run";
  EXPECT_EQ(name_at(*code, 0x1180, 300), "");
  EXPECT_EQ(name_at(*code, 0xfff, 300), "");
}

TEST(JitdumpCode, CodeThatMovedIsSomewhereElseFromThenOn) {
  const GrowingFile file;
  ASSERT_TRUE(file.append(JitdumpText()
                              .header()
                              .load(100, 0x1000, 0x100, 1, "moves")
                              .load(110, 0x4000, 0x100, 2, "stays")
                              .move(200, 0x1000, 0x1080, 0x100, 1)  // over a part of itself
                              .move(300, 0x1080, 0x4080, 0x100, 1)  // over a part of another one
                              .take()));
  const auto code = code_of(file);
  EXPECT_EQ(name_at(*code, 0x1010, 199), "moves 1000");
  EXPECT_EQ(name_at(*code, 0x1010, 200), "");
  EXPECT_EQ(name_at(*code, 0x1090, 200), "moves 1080");
  EXPECT_EQ(name_at(*code, 0x1170, 299), "moves 1080");
  EXPECT_EQ(name_at(*code, 0x1170, 300), "");
  EXPECT_EQ(name_at(*code, 0x4090, 299), "stays 4000");
  EXPECT_EQ(name_at(*code, 0x4090, 300), "moves 4080");
  EXPECT_EQ(name_at(*code, 0x4010, 300), "stays 4000");
  EXPECT_FALSE(code->problem());
  ASSERT_TRUE(file.append(JitdumpText().move(400, 0, 0x9000, 0x10, 77).take()));
  EXPECT_EQ(name_at(*code, 0x9000, kNever), "");
  ASSERT_TRUE(code->problem()) << "an index that no code had";
  EXPECT_EQ(code->problem()->detail, 77u);
}

// A runtime keeps records for as long as it likes.
TEST(JitdumpCode, WhatComesLateIsWaitedFor) {
  const GrowingFile file;
  const auto code = code_of(file);
  EXPECT_FALSE(code->is_settled(100, 0)) << "there is not even a header";
  ASSERT_TRUE(file.append(JitdumpText().header().load(90, 0x1000, 0x100, 1, "first").take()));
  EXPECT_EQ(name_at(*code, 0x1000, kNever), "first 1000");
  EXPECT_FALSE(code->is_settled(100, 0));
  EXPECT_TRUE(code->is_settled(90, 0));
  ASSERT_TRUE(file.append(JitdumpText().load(95, 0x1000, 0x100, 2, "second").take()));
  EXPECT_TRUE(code->is_settled(100, monotonic_ns())) << "its process has ended";
  EXPECT_EQ(name_at(*code, 0x1000, 100), "second 1000");
  ASSERT_TRUE(file.append(JitdumpText().close(99).take()));
  EXPECT_EQ(name_at(*code, 0x1000, kNever), "second 1000");
  EXPECT_TRUE(code->is_settled(kNever, 0)) << "it says that no more will come";
}

// A processor's clock says nothing here: a record counts from when it was read.
TEST(JitdumpCode, TimesOfAnotherClock) {
  const GrowingFile file;
  ASSERT_TRUE(file.append(JitdumpText()
                              .header({.elf_machine = 62, .flags = JitdumpHeader::kProcessorsClock})
                              .load(kNever, 0x1000, 0x100, 1, "first")
                              .take()));
  const auto code = code_of(file);
  const std::uint64_t before = monotonic_ns();
  EXPECT_EQ(name_at(*code, 0x1000, before), "first 1000");
  const std::uint64_t between = monotonic_ns();
  ASSERT_TRUE(file.append(JitdumpText().load(0, 0x1000, 0x100, 2, "second").take()));
  EXPECT_EQ(name_at(*code, 0x1000, kNever), "second 1000");
  EXPECT_EQ(name_at(*code, 0x1000, between), "first 1000");
  EXPECT_TRUE(code->is_settled(between, 0));
}

// ---- lines ----------------------------------------------------------------------------------------------------------

std::string line_at(PublishedCode& code, std::uint64_t address, std::uint64_t time = kNever) {
  std::vector<sources::NamedFunction> names;
  code.functions_at(address, 0, time, names);
  return names.empty() ? "?" : fmt::format("{}:{}", names.back().file, names.back().line);
}

TEST(JitdumpCode, LinesAreThoseOfTheFunctionAtTheTime) {
  const GrowingFile file;
  ASSERT_TRUE(file.append(
      JitdumpText()
          .header()
          .lines(100, 0x1000, {{0x1004, 5, "a.js"}, {0x1010, 7, "\xff"}, {0x1020, 9, "b.js"}, {0x1030, 8, "a.js"}})
          .load(100, 0x1000, 0x100, 1, "first")
          .lines(200, 0x1000, {{0x1020, 3, "c.js"}, {0x1000, 1, "\xff"}})  // not in order
          .load(200, 0x1000, 0x100, 2, "second")
          .load(300, 0x4000, 0x100, 3, "no lines")
          .move(400, 0x1000, 0x8000, 0x100, 2)
          .take()));
  const auto code = code_of(file);
  EXPECT_EQ(line_at(*code, 0x1003, 150), ":0") << "before the first entry";
  EXPECT_EQ(line_at(*code, 0x1004, 150), "a.js:5");
  EXPECT_EQ(line_at(*code, 0x100f, 150), "a.js:5");
  EXPECT_EQ(line_at(*code, 0x1010, 150), "a.js:7");
  EXPECT_EQ(line_at(*code, 0x1020, 150), "a.js:7") << "inlined from another file";
  EXPECT_EQ(line_at(*code, 0x10ff, 150), "a.js:8");
  EXPECT_EQ(line_at(*code, 0x1010, 250), "c.js:1");
  EXPECT_EQ(line_at(*code, 0x4010, 350), ":0");
  EXPECT_EQ(line_at(*code, 0x8021, 450), "c.js:3");
  code->set_time(450);
  EXPECT_EQ(line_at(*code, 0x8005, PublishedCode::kTimeSet), "c.js:1");
  EXPECT_EQ(line_at(*code, 0x4010, PublishedCode::kTimeSet), ":0");
  EXPECT_EQ(line_at(*code, 0x1010, PublishedCode::kTimeSet), "?") << "it is gone";
}

// V8's count from behind perf's ELF header, which the first function that shows it decides for all.
TEST(JitdumpCode, LinesThatCountFromAnElfHeader) {
  const GrowingFile file;
  ASSERT_TRUE(file.append(JitdumpText()
                              .header()
                              .lines(1, 0x1000, {{0x1044, 1, "a.js"}, {0x1050, 2, "a.js"}})
                              .load(1, 0x1000, 0x100, 1, "either")
                              .take()));
  const auto code = code_of(file);
  EXPECT_EQ(line_at(*code, 0x1010), ":0") << "as it stands";
  ASSERT_TRUE(file.append(JitdumpText()
                              .lines(2, 0x2000, {{0x2044, 3, "a.js"}, {0x2100, 4, "a.js"}})
                              .load(2, 0x2000, 0x100, 2, "V8's")
                              .lines(3, 0x3000, {{0x3000, 5, "a.js"}})
                              .load(3, 0x3000, 0x100, 3, "another's, which comes too late")
                              .take()));
  EXPECT_EQ(line_at(*code, 0x2004), "a.js:3");
  EXPECT_EQ(line_at(*code, 0x20bf), "a.js:3");
  EXPECT_EQ(line_at(*code, 0x20c0), "a.js:4");
  EXPECT_EQ(line_at(*code, 0x1004), "a.js:1");
  EXPECT_EQ(line_at(*code, 0x1010), "a.js:2");

  const GrowingFile plain;
  ASSERT_TRUE(plain.append(JitdumpText()
                               .header()
                               .lines(1, 0x1000, {{0x1000, 1, "a.js"}})
                               .load(1, 0x1000, 0x100, 1, "as it stands")
                               .lines(2, 0x2000, {{0x2000, 2, "a.js"}, {0x2100, 3, "a.js"}})
                               .load(2, 0x2000, 0x100, 2, "with one behind its end")
                               .take()));
  const auto other = code_of(plain);
  EXPECT_EQ(line_at(*other, 0x20ff), "a.js:2");
}

// V8's names of files that it has freed may have NULs in them.
TEST(JitdumpCode, LinesWithANameThatIsNone) {
  using Entry = os::JitdumpDebugEntry;
  const auto line_with = [](const Entry& first, std::string_view name, std::string_view last = {"a.js\0", 5}) {
    const GrowingFile file;
    JitdumpText body;
    body.raw(os::JitdumpDebugInfo{.address = 0x1000, .count = 2});
    body.raw(first).text(name).raw(Entry{.address = 0x1008, .line = 2}).text(last);
    const std::string entries = body.take();
    EXPECT_TRUE(file.append(
        JitdumpText().header().record(os::JitdumpKind::kDebugInfo, 1, entries).load(1, 0x1000, 0x100, 1, "f").take()));
    const auto code = code_of(file);
    return line_at(*code, 0x1004) + " " + line_at(*code, 0x1008);
  };
  EXPECT_EQ(line_with({.address = 0x1000, .line = 1}, {"a.js\0", 5}), "a.js:1 a.js:2");
  EXPECT_EQ(line_with({.address = 0x1000, .line = 1}, {"\x18q\0\0\0\0\0\0G\x10.js\0", 14}), "a.js:1 a.js:2");
  EXPECT_EQ(line_with({.address = 0x1000, .line = 1}, {"q\0.js\0", 6}, {"\x18\0", 2}), ":1 :2") << "no file at all";
  EXPECT_EQ(line_with({.address = 0x1000, .line = 1}, "a.js"), ":0 :0") << "it has no end";
  EXPECT_EQ(line_with({.address = 0x1000, .line = 1}, {"a.js\0", 5}, "a.js"), ":0 :0");
  EXPECT_EQ(line_with({.address = 0x0fff, .line = 1}, {"a.js\0", 5}), ":0 :0") << "before the code";
  EXPECT_EQ(line_with({.address = 0x1141, .line = 1}, {"a.js\0", 5}), ":0 :0") << "behind it, with an ELF header";
  EXPECT_EQ(line_with({.address = 0x1140, .line = 1}, {"a.js\0", 5}), ":0 a.js:2") << "V8's last one";
}

// ---- rows -----------------------------------------------------------------------------------------------------------

class JitdumpRows : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "windlass-jitdump-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    ASSERT_NE(chain_.room(), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path() const { return fmt::format("{}/jit-{}.dump", folder_, ::getpid()); }
  [[nodiscard]] std::unique_ptr<Registrar> open() const {
    auto registrar = open_registrar(Registry::kJitdump, {.folder = folder_});
    EXPECT_TRUE(registrar);
    return std::move(*registrar);
  }
  static GeneratedFunction function_of(const test::JitStub& stub) {
    return {.address = stub.begin(),
            .size = static_cast<std::uint32_t>(stub.end() - stub.begin()),
            .name = "stub",
            .rows = stub.rows()};
  }
  void expect_rows(const sources::UnwindSource& source, std::uint64_t moved) const {
    for (const test::JitStub& stub : chain_.stubs()) {
      for (const FrameRow& wanted : stub.rows()) {
        for (std::uint64_t at = wanted.begin; at < wanted.end; ++at) {
          FrameRow row;
          ASSERT_TRUE(source.row_at(at + moved, row));
          EXPECT_EQ(row.cfa, wanted.cfa) << at - stub.begin();
          EXPECT_EQ(row.return_address, wanted.return_address);
          ASSERT_LE(row.begin, at + moved);
          ASSERT_GT(row.end, at + moved);
        }
      }
    }
  }

  // Rows that say the same one behind the other are written as one.
  static unsigned different_rows(const test::JitStub& stub) {
    unsigned count = 0;
    const FrameRow* before = nullptr;
    for (const FrameRow& row : stub.rows()) {
      const auto same = [&] {
        if (row.cfa != before->cfa || row.return_address != before->return_address ||
            row.registers.size() != before->registers.size())
          return false;
        for (const RegisterEntry entry : row.registers) {
          const RegisterRule* rule = before->registers.find(entry.reg);
          if (rule == nullptr || *rule != entry.rule) return false;
        }
        return true;
      };
      count += before == nullptr || !same() ? 1 : 0;
      before = &row;
    }
    return count;
  }

  std::string folder_;
  const test::JitChain chain_;
};

// What our own writer has written of functions whose rows are known.
TEST_F(JitdumpRows, AreThoseThatWereWritten) {
  const auto registrar = open();
  std::vector<GeneratedFunction> functions;
  for (const test::JitStub& stub : chain_.stubs()) functions.push_back(function_of(stub));
  const std::uint64_t before = monotonic_ns();
  ASSERT_TRUE(registrar->add(functions));
  struct stat status {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  os::ProcMap shown;
  shown.begin = 0x10000;
  shown.end = 0x11000;
  shown.executable = true;
  shown.path = path();
  shown.file.inode = status.st_ino;
  ASSERT_TRUE(shows_published(shown));
  const auto code = open_published(::getpid(), 0, shown);
  ASSERT_TRUE(code) << code.error().text();
  EXPECT_TRUE((*code)->is_of(shown));
  (*code)->set_time(monotonic_ns());
  const auto source = (*code)->make_source();
  EXPECT_EQ(source->architecture(), kOwnArchitecture);
  expect_rows(*source, 0);
  unsigned rows = 0, wanted = 0, seen = 0;
  const auto report = [](const Error& error) { ADD_FAILURE() << error.text(); };
  const auto take = [&](const sources::Function& function) {
    const test::JitStub& stub = chain_.stubs()[seen++];
    EXPECT_EQ(function.begin, stub.begin());
    EXPECT_EQ(function.end, stub.end());
    source->for_each_row(
        function, [&](const FrameRow&) { ++rows; }, report);
    wanted += different_rows(stub);
    return true;
  };
  source->for_each_function(take, report);
  EXPECT_EQ(seen, chain_.stubs().size());
  EXPECT_EQ(rows, wanted);
  (*code)->set_time(before);
  FrameRow row;
  EXPECT_FALSE(source->row_at(chain_.stubs()[0].begin(), row)) << "it was not there yet: another one may have been";
}

// The unwinding data are relative to the code.
TEST_F(JitdumpRows, MoveWithTheirCode) {
  const auto registrar = open();
  std::vector<GeneratedFunction> functions;
  for (const test::JitStub& stub : chain_.stubs()) functions.push_back(function_of(stub));
  ASSERT_TRUE(registrar->add(functions));
  constexpr std::uint64_t kFar = 0x1'0000'0000;
  JitdumpText moves;
  for (std::size_t i = 0; i < functions.size(); ++i)
    moves.move(monotonic_ns(), functions[i].address, functions[i].address + kFar, functions[i].size, i);
  std::ofstream(path(), std::ios::app | std::ios::binary) << moves.take();
  const auto code = std::make_shared<JitdumpCode>(os::Descriptor(os::open_regular(path())), 1, os::FileIdentity());
  code->set_time(monotonic_ns());
  const auto source = code->make_source();
  expect_rows(*source, kFar);
  FrameRow row;
  EXPECT_FALSE(source->row_at(chain_.stubs()[0].begin(), row));
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// As the specification has it: .eh_frame_hdr first.
TEST_F(JitdumpRows, TheOtherOrder) {
  const test::JitStub& stub = chain_.stubs()[3];
  constexpr std::uint64_t kCode = 0x1000, kHeader = 24;
  const std::uint64_t size = stub.end() - stub.begin(), data = kCode + (size + 7) / 8 * 8;
  dwarf::Writer writer({.architecture = kOwnArchitecture, .address = data + kHeader});
  ASSERT_TRUE(writer.add(stub.rows(), {.address = kCode}));
  const dwarf::Written written = std::move(writer).take();
  const auto header = dwarf::eh_frame_hdr(written, data);
  ASSERT_TRUE(header);
  ASSERT_LE(header->size(), kHeader);
  std::string bytes = text_of(*header);
  bytes.resize(kHeader);
  const GrowingFile file;
  ASSERT_TRUE(file.append(JitdumpText()
                              .header({.elf_machine = kOwnArchitecture == Architecture::kX86_64 ? 62u : 183u})
                              .unwinding(1, bytes + text_of(written.bytes), kHeader)
                              .load(1, kCode, size, 1, "other order")
                              .take()));
  const auto code = code_of(file);
  code->set_time(kNever);
  const auto source = code->make_source();
  for (const FrameRow& wanted : stub.rows()) {
    FrameRow row;
    ASSERT_TRUE(source->row_at(kCode + (wanted.begin - stub.begin()), row));
    EXPECT_EQ(row.cfa, wanted.cfa);
  }
}

// Data that say nothing, as V8 writes them for functions that keep a frame pointer, and such as make no sense; a
// machine that is not known.
TEST(JitdumpCode, NoRowsAndANameAllTheSame) {
  const GrowingFile file, other;
  ASSERT_TRUE(file.append(JitdumpText()
                              .header()
                              .unwinding(1, std::string("\x01\x1b\x03\x3b", 4) + std::string(16, '\0'), 20)
                              .load(1, 0x1000, 64, 2, "v8")
                              .unwinding(1, std::string(64, '\xfe'), 0)
                              .load(1, 0x2000, 64, 3, "garbage")
                              .take()));
  ASSERT_TRUE(other.append(JitdumpText()
                               .header({.elf_machine = 243})
                               .unwinding(1, std::string(64, '\0'), 0)
                               .load(1, 0x1000, 64, 2, "riscv")
                               .load(1, 0x2000, 64, 2, "riscv")
                               .take()));
  for (const GrowingFile* it : {&file, &other}) {
    const auto code = code_of(*it);
    code->set_time(kNever);
    const auto source = code->make_source();
    for (const std::uint64_t begin : {0x1000u, 0x2000u}) {
      FrameRow row;
      EXPECT_FALSE(source->row_at(begin + 16, row));
      EXPECT_EQ(source->function_start(begin + 16), begin);
    }
  }
}

}  // namespace
}  // namespace windlass::manager
