// What a process has registered with GDB, in memory made up by hand: whole, changed, lying.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "runtimes/gdb/code_map.h"
#include "runtimes/gdb/find.h"
#include "runtimes/gdb/object.h"
#include "runtimes/gdb/rows.h"
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
  EXPECT_FALSE((*method)->lasting) << "it can be taken away";
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

// What a compiler says of its frames need not hold at every instruction: another source of the code's rows comes first.
TEST(GdbReader, RowsAreNotExact) {
  const Process process;
  EXPECT_FALSE(process.runtime->is_exact());
  const auto method = process.runtime->method_at(kInFirst);
  ASSERT_TRUE(method);
  EXPECT_EQ((*method)->bytes(), sizeof(Code) + std::string("first").size());
}

TEST(GdbReader, AProgramThatNeverRegistersHasStarted) {
  const Process process;
  process.memory->put(fake::kHead, std::uint64_t{0});
  int looks = 0;
  while (process.runtime->is_starting() && looks < 1000) ++looks;
  EXPECT_EQ(looks, 200);
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

// What is still registered, by the entry and those beside it.
TEST(GdbReader, AnEntryThatIsChangedIsNotThere) {
  const auto known = [](std::uint64_t pc, auto change) {
    fake::FakeMemory memory = fake::make();
    CodeMap map(fake::kDescriptor);
    const auto found = map.find(memory, pc);
    EXPECT_TRUE(found && map.is_still(memory, found->entry));
    change(memory);
    return map.is_still(memory, found->entry);
  };
  using Memory = fake::FakeMemory;
  EXPECT_TRUE(known(kInFirst, [](Memory&) {}));
  for (const std::uint64_t pc : {kInFirst, kInSecond}) {
    const std::uint64_t entry = pc == kInFirst ? fake::kFirstEntry : fake::kSecondEntry;
    EXPECT_FALSE(known(pc, [&](Memory& it) { it.put(entry + fake::kFile, fake::kFirstFile + 8); }));
    EXPECT_FALSE(known(pc, [&](Memory& it) { it.put(entry + fake::kFileSize, std::uint64_t{8}); }));
  }
  EXPECT_FALSE(known(kInFirst, [](Memory& it) { it.put(fake::kSecondEntry + fake::kNext, std::uint64_t{0}); }))
      << "nothing leads to it";
  EXPECT_FALSE(known(kInFirst, [](Memory& it) { it.put(fake::kFirstEntry + fake::kPrevious, std::uint64_t{8}); }))
      << "what leads to it cannot be read";
  EXPECT_FALSE(known(kInSecond, [](Memory& it) { it.put(fake::kHead, fake::kFirstEntry); })) << "the first of the list";
}

TEST(GdbReader, WhatStaysIsReadOnce) {
  fake::FakeMemory memory = fake::make();
  CodeMap map(fake::kDescriptor);
  const auto before = map.find(memory, kInFirst);
  ASSERT_TRUE(before && map.find(memory, kInSecond));
  fake::unregister_second(memory);
  EXPECT_FALSE(map.find(memory, kInSecond));
  EXPECT_EQ(map.find(memory, kInFirst)->object, before->object);
}

// A list without an end, of entries that nothing is known of.
TEST(GdbReader, SoManyEntriesAreRead) {
  static constexpr std::uint64_t kEntries = 0x10000;
  struct Endless final : Memory {
    bool read(std::uint64_t address, void* to, std::size_t size) const override {
      if (address < kEntries) {
        const std::uint64_t descriptor[3] = {1, 0, kEntries};
        std::memcpy(to, descriptor, size);
        return address == 0 && size <= sizeof descriptor;
      }
      const std::uint64_t entry[4] = {address + sizeof entry, 0, 0, Object::kMaxBytes + 1};
      if (size > sizeof entry || ++entries > 2 * CodeMap::kMaxEntries) return false;
      std::memcpy(to, entry, size);
      return true;
    }
    mutable std::size_t entries = 0;
  };
  const Endless memory;
  CodeMap map(0);
  EXPECT_FALSE(map.find(memory, 8));
  EXPECT_EQ(memory.entries, CodeMap::kMaxEntries + 1) << "the last one is read, and not kept";
}

// Sixteen objects of 16 MiB, all of the same code, and a seventeenth of other code.
TEST(GdbReader, SoManyBytesOfObjectsAreRead) {
  constexpr std::uint64_t kFiles = 16, kLarge = 0x2000'0000, kEntries = fake::kBase + 0x2800;
  constexpr std::uint64_t kMost = CodeMap::kMaxBytes / kFiles;
  struct Large final : Memory {
    bool read(std::uint64_t address, void* to, std::size_t size) const override {
      if (address != kLarge) return small.read(address, to, size);
      std::memset(to, 0, size);
      std::memcpy(to, file.data(), file.size());
      return true;
    }
    fake::FakeMemory small = fake::make();
    std::vector<std::byte> file = fake::object(fake::kFirst, "first");
  };
  const auto finds_the_last = [&](std::uint64_t less) {
    Large memory;
    for (std::uint64_t i = 0; i < kFiles; ++i) {
      const std::uint64_t entry = kEntries + i * 32;
      const std::uint64_t size = kMost - 2 * sizeof(Object::Function) - (i == 0 ? less : 0);
      memory.small.put(entry + fake::kFile, kLarge), memory.small.put(entry + fake::kFileSize, size);
      memory.small.put(entry + fake::kNext, i + 1 < kFiles ? entry + 32 : fake::kSecondEntry);
    }
    memory.small.put(fake::kHead, kEntries);
    CodeMap map(fake::kDescriptor);
    EXPECT_TRUE(map.find(memory, kInFirst));
    return map.find(memory, kInSecond).has_value();
  };
  EXPECT_FALSE(finds_the_last(0)) << "256 MiB are kept";
  EXPECT_TRUE(finds_the_last(1));
}

TEST(GdbReader, AnObjectThatCannotBeReadHasNoCode) {
  fake::FakeMemory memory = fake::make();
  memory.put(fake::kSecondEntry + fake::kFileSize, std::uint64_t{8});
  CodeMap map(fake::kDescriptor);
  EXPECT_EQ(map.find(memory, kInSecond).error().code, ErrorCode::kNotFound);
  const auto first = map.find(memory, kInFirst);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->entry.address, fake::kFirstEntry);
  EXPECT_EQ(first->entry.previous, fake::kSecondEntry);
  EXPECT_EQ(first->entry.next, 0U);
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
