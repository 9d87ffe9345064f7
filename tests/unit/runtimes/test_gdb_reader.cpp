// What a process has registered with GDB, in memory made up by hand: whole, changed, lying.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

#include "runtimes/gdb/find.h"
#include "runtimes/gdb/object.h"
#include "support/fake_gdb.h"

namespace windlass::runtimes::gdb {
namespace {

namespace fake = test::fake_gdb;

constexpr std::uint64_t kInFirst = fake::kFirst + 16, kInSecond = fake::kSecond + 16;

struct Process {
  std::shared_ptr<fake::FakeMemory> memory = std::make_shared<fake::FakeMemory>(fake::make());
  std::unique_ptr<Runtime> runtime = open(memory, fake::kDescriptor);

  [[nodiscard]] std::string name(std::uint64_t pc) const {
    const auto method = runtime->method_at(pc);
    return method ? (*method)->name : "none";
  }
};

TEST(GdbReader, FunctionsHaveTheirNamesAndFrames) {
  const Process process;
  ASSERT_TRUE(process.runtime->is_understood());
  EXPECT_EQ(process.name(kInFirst), "first");
  EXPECT_EQ(process.name(kInSecond), "second");
  EXPECT_EQ(process.name(fake::kFirst - 1), "none");
  EXPECT_EQ(process.name(fake::kFirst + fake::kFunctionSize), "none") << "between two functions of a section";
  EXPECT_EQ(process.name(fake::kFirst + fake::kBeside), "beside");
  EXPECT_EQ(process.name(fake::kFirst + fake::kBeside + fake::kFunctionSize), "none");
  const auto method = process.runtime->method_at(kInFirst);
  ASSERT_TRUE(method);
  EXPECT_EQ((*method)->begin, fake::kFirst);
  EXPECT_EQ((*method)->end, fake::kFirst + fake::kFunctionSize);
  FrameRow row;
  ASSERT_TRUE((*method)->row_at(kInFirst, row));
  EXPECT_EQ(row.cfa.offset(), kOwnArchitecture == Architecture::kX86_64 ? 56 : 48);
  std::size_t rows = 0;
  (*method)->for_each_row([&](const FrameRow&) { ++rows; }, [](const Error&) {});
  EXPECT_EQ(rows, 2U);
}

TEST(GdbReader, WhoHasRegisteredNothingAnswersForNothing) {
  const Process process;
  process.memory->put(fake::kHead, std::uint64_t{0});
  EXPECT_FALSE(process.runtime->is_understood());
  EXPECT_TRUE(process.runtime->is_starting()) << "it may come";
  EXPECT_EQ(process.name(kInFirst), "none");
  process.memory->put(fake::kHead, fake::kSecondEntry);
  EXPECT_TRUE(process.runtime->is_understood());
  EXPECT_FALSE(process.runtime->is_starting());
  EXPECT_EQ(process.name(kInFirst), "first");
  process.memory->put(fake::kDescriptor, std::uint32_t{2});
  EXPECT_FALSE(process.runtime->is_understood()) << "another version";
}

TEST(GdbReader, WhatIsTakenAwayIsNotThere) {
  const Process process;
  const auto first = process.runtime->method_at(kInFirst), second = process.runtime->method_at(kInSecond);
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(process.runtime->is_still(**second));
  fake::unregister_second(*process.memory);
  EXPECT_FALSE(process.runtime->is_still(**second));
  EXPECT_TRUE(process.runtime->is_still(**first));
  EXPECT_EQ(process.name(kInSecond), "none");
}

TEST(GdbReader, AnotherObjectOfTheSameEntryIsReadAnew) {
  const Process process;
  ASSERT_EQ(process.name(kInSecond), "second");
  process.memory->put_entry(fake::kSecondEntry, fake::kFirstFile + 0xa00, fake::object(fake::kSecond, "third"));
  EXPECT_EQ(process.name(kInSecond), "third");
}

TEST(GdbReader, ListsThatLieEnd) {
  const Process circle;
  circle.memory->put(fake::kFirstEntry + fake::kNext, fake::kSecondEntry);
  EXPECT_EQ(circle.name(kInFirst), "first");
  EXPECT_EQ(circle.name(kInFirst + 0x100), "none");
  const Process large;
  large.memory->put(fake::kSecondEntry + fake::kFileSize, Object::kMaxBytes + 1);
  EXPECT_EQ(large.name(kInSecond), "none");
  EXPECT_EQ(large.name(kInFirst), "first") << "behind one that cannot be read";
}

TEST(GdbReader, MemoryThatChangesAtRandom) {
  std::mt19937 random(5);  // NOLINT(bugprone-random-generator-seed): the same each time
  std::size_t found = 0;
  for (int round = 0; round < 3000; ++round) {
    const Process process;
    for (std::size_t i = random() % 8; i-- > 0;)
      process.memory->bytes[random() % fake::kSize] ^= static_cast<std::uint8_t>(1U << random() % 8);
    for (const std::uint64_t pc : {kInFirst, kInSecond}) {
      const auto method = process.runtime->method_at(pc);
      if (!method) continue;
      ASSERT_TRUE((*method)->contains(pc));
      FrameRow row;
      found += (*method)->row_at(pc, row) ? 1 : 0;
      (void)process.runtime->is_still(**method);
    }
  }
  EXPECT_GT(found, 3000U);
}

}  // namespace
}  // namespace windlass::runtimes::gdb
