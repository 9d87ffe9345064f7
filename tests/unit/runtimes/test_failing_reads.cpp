// Readers of runtimes while one read of the memory fails, each in turn: a function is the one that is there, or none is
// found. Nothing is made up of bytes that were not read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtimes/beam/find.h"
#include "runtimes/coreclr/find.h"
#include "runtimes/find.h"
#include "runtimes/gdb/find.h"
#include "runtimes/interpreted_frames.h"
#include "runtimes/mono/find.h"
#include "runtimes/python/names.h"
#include "runtimes/ruby/names.h"
#include "runtimes/sbcl/find.h"
#include "support/failing_memory.h"
#include "support/fake_beam.h"
#include "support/fake_coreclr.h"
#include "support/fake_gdb.h"
#include "support/fake_mono.h"
#include "support/fake_python.h"
#include "support/fake_ruby.h"
#include "support/fake_sbcl.h"
#include "support/same_rows.h"

namespace windlass::runtimes {
namespace {

struct SeenMethod {
  std::uint64_t begin = 0, end = 0;
  std::string name;
  std::vector<std::optional<FrameRow>> rows;  // of some addresses
};

// Of a name parts may be missing, for example the parameters. No part is another one.
bool is_part_of(std::string_view name, std::string_view whole) {
  for (const char c : whole)
    if (!name.empty() && name.front() == c) name.remove_prefix(1);
  return name.empty();
}

// What a runtime says of a pc; nothing: it knows no function there.
std::optional<SeenMethod> method_of(Runtime* runtime, std::uint64_t pc) {
  const auto method = runtime != nullptr ? runtime->method_at(pc) : fail(ErrorCode::kNotFound, "no runtime", pc);
  if (!method) return std::nullopt;
  EXPECT_TRUE((*method)->contains(pc));
  SeenMethod seen{(*method)->begin, (*method)->end, (*method)->name, {}};
  const std::uint64_t step = std::max<std::uint64_t>(1, (seen.end - seen.begin) / 16);
  for (std::uint64_t at = seen.begin; at < seen.end; at += step) {
    FrameRow row;
    seen.rows.push_back((*method)->row_at(at, row) ? std::optional(row) : std::nullopt);
  }
  return seen;
}

// Asks a runtime that is opened anew by open(memory) for each of the addresses.
template <typename Open>
void expect_nothing_made_up(const Memory& memory, Open&& open, const std::vector<std::uint64_t>& addresses) {
  for (const std::uint64_t pc : addresses) {
    const auto ask = [&](const Memory& of) { return method_of(open(of).get(), pc); };
    const auto right = ask(memory);
    ASSERT_TRUE(right) << std::hex << pc;
    std::size_t found = 0;
    const std::size_t reads = test::each_failing_read(memory, ask, [&](const auto& seen, std::size_t failing) {
      if (!seen) return;
      ++found;
      SCOPED_TRACE(testing::Message() << std::hex << pc << ", read " << std::dec << failing);
      EXPECT_EQ(seen->begin, right->begin);
      EXPECT_EQ(seen->end, right->end);
      EXPECT_TRUE(is_part_of(seen->name, right->name)) << seen->name;
      ASSERT_EQ(seen->rows.size(), right->rows.size());
      for (std::size_t i = 0; i < seen->rows.size(); ++i)
        EXPECT_TRUE(!seen->rows[i] || (right->rows[i] && test::is_same(*seen->rows[i], *right->rows[i]))) << i;
    });
    EXPECT_GT(reads, 2U);
    EXPECT_LT(found, reads) << "each read is of something that is needed, but for a few";
  }
}

TEST(FailingReads, OfMono) {
  namespace fake = test::fake_mono;
  expect_nothing_made_up(fake::make(), [](const Memory& of) { return mono::open(unowned(of), fake::kImage); },
                         {fake::kCode});
}

TEST(FailingReads, OfSbcl) {
  namespace fake = test::fake_sbcl;
  expect_nothing_made_up(fake::make(), [](const Memory& of) { return sbcl::open(unowned(of), fake::kImage); },
                         {fake::kText, fake::kFunction + 5, fake::kOther});
}

TEST(FailingReads, OfBeam) {
  namespace fake = test::fake_beam;
  expect_nothing_made_up(fake::make(), [](const Memory& of) { return beam::open(unowned(of), fake::kImage); },
                         {fake::kFirst, fake::kSecond, fake::kShared, fake::kNormalExit - 1});
}

TEST(FailingReads, OfCodeRegisteredWithGdb) {
  namespace fake = test::fake_gdb;
  expect_nothing_made_up(fake::make(), [](const Memory& of) { return gdb::open(unowned(of), fake::kDescriptor); },
                         {fake::kFirst + 16, fake::kSecond + 16, fake::kFirst + fake::kBeside});
}

TEST(FailingReads, OfCoreClr) {
  const test::FakeCoreClr fake;
  expect_nothing_made_up(fake.memory(),
                         [&](const Memory& of) { return coreclr::open(unowned(of), {.descriptor = fake.descriptor}); },
                         {fake.first + 5, fake.second + 600, fake.handler + 1, fake.stub});
}

// Of an interpreter's thread: all frames or none, and of each all that is said of it or nothing.
template <typename Layout, typename ReadName>
void expect_no_frame_made_up(const Memory& memory, const Layout& layout, const manager::ThreadStack& thread,
                             ReadName&& read_name) {
  const auto ask = [&](const Memory& of) { return read_frames(of, layout.interpreter, thread); };
  const auto right = ask(memory);
  ASSERT_TRUE(right);
  std::size_t found = 0;
  const std::size_t reads = test::each_failing_read(memory, ask, [&](const auto& frames, std::size_t failing) {
    if (!frames) return;
    ++found;
    ASSERT_EQ(frames->size(), right->size()) << "read " << failing;
    for (std::size_t i = 0; i < frames->size(); ++i) {
      EXPECT_EQ((*frames)[i].code, (*right)[i].code) << "read " << failing;
      EXPECT_EQ((*frames)[i].identity, (*right)[i].identity) << "read " << failing;
      EXPECT_EQ((*frames)[i].place, (*right)[i].place) << "read " << failing;
    }
  });
  EXPECT_LT(found, reads / 2);
  for (const auto& frame : *right) {
    const auto name_in = [&](const Memory& of) { return read_name(of, layout, frame); };
    const auto named = name_in(memory);
    ASSERT_TRUE(named);
    test::each_failing_read(memory, name_in, [&](const auto& name, std::size_t failing) {
      if (!name) return;
      SCOPED_TRACE(testing::Message() << named->name << ", read " << failing);
      EXPECT_EQ(name->name, named->name);
      EXPECT_TRUE(name->file == named->file || name->file.empty()) << name->file;
      EXPECT_TRUE(name->line == named->line || name->line == 0) << name->line;
    });
  }
}

TEST(FailingReads, OfPython) {
  namespace fake = test::fake_python;
  expect_no_frame_made_up(
      fake::make(), fake::layout(), {fake::kPointer, 0},
      [](const Memory& of, const auto& layout, const auto& frame) { return python::read_name(of, layout, frame); });
}

TEST(FailingReads, OfRuby) {
  namespace fake = test::fake_ruby;
  expect_no_frame_made_up(
      fake::make(), fake::layout(), {fake::kPointer, fake::kSp},
      [](const Memory& of, const auto& layout, const auto& frame) { return ruby::read_name(of, layout, frame); });
}

}  // namespace
}  // namespace windlass::runtimes
