// The code that V8 has made is found by a pc, and says which functions it is of. The file and the heap are made up.
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>

#include "runtimes/v8/code_map.h"
#include "runtimes/v8/heap.h"
#include "runtimes/v8/image_facts.h"
#include "runtimes/v8/names.h"
#include "runtimes/v8/rows.h"
#include "support/fake_v8.h"

namespace windlass::runtimes::v8 {
namespace {

namespace fake = test::fake_v8;

// What its optimised code says of itself at each of its instructions: "f 3 f 2", innermost first. Nothing: no code.
std::optional<std::string> functions_of(const Memory& memory, const ImageFacts& facts, std::uint64_t offset) {
  const auto layout = Layout::make(facts);
  auto map = CodeMap::make(facts);
  if (!layout || !map) return std::nullopt;
  const Heap heap(memory, *layout);
  Names names(heap, facts);
  const auto object = map->find(heap, fake::kInstructions + offset, fake::kBase);
  auto code = object ? CompiledCode::read(heap, *object) : Failure(object.error());
  if (!code) return std::nullopt;
  names.fill(**code);
  std::string found;
  (*code)->each_function(offset, [&](std::uint32_t function, std::int32_t position) {
    if (function == Functions::kNone) return;
    const auto named = names.named(function, names.functions().line_of(function, position));
    found += named.name + ' ' + std::to_string(named.line) + ' ';
  });
  return found;
}

TEST(V8Reader, OptimisedCodeHasItsFunctions) {
  const auto file = fake::file_of(fake::facts());
  const auto facts = ImageFacts::read({file.data(), file.size()});
  ASSERT_TRUE(facts);
  const fake::FakeMemory memory = fake::make();
  EXPECT_EQ(functions_of(memory, *facts, 0), "f 2 f 2 ") << "one that is inlined";
  EXPECT_EQ(functions_of(memory, *facts, 5), "f 3 ");
  EXPECT_EQ(functions_of(memory, *facts, 15), "f 3 ");
  EXPECT_FALSE(functions_of(memory, *facts, 16));
}

// Each symbol is missing once, once says something else, and once is in a file that is cut off.
TEST(V8Reader, ForgedSymbolsAreRefusedOrLeadNowhere) {
  const fake::FakeMemory memory = fake::make();
  const fake::Facts whole = fake::facts();
  std::size_t refused = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    fake::Facts missing = whole;
    missing.erase(missing.begin() + static_cast<std::ptrdiff_t>(i));
    const auto without = fake::file_of(missing);
    const auto facts = ImageFacts::read({without.data(), without.size()});
    ASSERT_TRUE(facts);
    refused += functions_of(memory, *facts, 5) ? 0 : 1;
    for (const std::int32_t value : {-1, 0, 7, 0x7fffffff}) {
      fake::Facts other = whole;
      other[i].second = value;
      const auto forged = fake::file_of(other);
      if (const auto lies = ImageFacts::read({forged.data(), forged.size()})) (void)functions_of(memory, *lies, 5);
    }
  }
  EXPECT_EQ(refused, whole.size());
  const auto file = fake::file_of(whole);
  for (std::size_t size = 0; size < file.size(); size += 7)
    if (const auto facts = ImageFacts::read({file.data(), size})) (void)functions_of(memory, *facts, 5);
}

TEST(V8Reader, MemoryThatChangesAtRandom) {
  const auto file = fake::file_of(fake::facts());
  const auto facts = ImageFacts::read({file.data(), file.size()});
  ASSERT_TRUE(facts);
  std::mt19937 random(5);  // NOLINT(bugprone-random-generator-seed): the same each time
  std::size_t named = 0;
  for (int round = 0; round < 2000; ++round) {
    fake::FakeMemory memory = fake::make();
    for (std::size_t i = random() % 8; i-- > 0;)
      memory.bytes[random() % fake::kSize] ^= static_cast<std::uint8_t>(1U << random() % 8);
    named += functions_of(memory, *facts, 5) == "f 3 " ? 1 : 0;
  }
  EXPECT_GT(named, 500U);
  EXPECT_LT(named, 2000U);
}

// The file and the heap of a V8 10, whose Code holds the instructions.
struct InOnePiece {
  fake::FakeMemory memory = fake::make();
  std::vector<std::byte> file = fake::file_of(fake::facts_in_one_piece());
  Expected<ImageFacts> facts = ImageFacts::read({file.data(), file.size()});

  InOnePiece() { fake::put_in_one_piece(memory); }
  InOnePiece(const InOnePiece&) = delete;
  [[nodiscard]] std::optional<std::string> at(std::uint64_t offset) const {
    return functions_of(memory, *facts, offset);
  }
};

TEST(V8InOnePiece, OptimisedCodeHasItsFunctions) {
  const InOnePiece process;
  ASSERT_TRUE(process.facts);
  EXPECT_EQ(process.at(0), "f 2 f 2 ");
  EXPECT_EQ(process.at(5), "f 3 ");
  EXPECT_FALSE(process.at(16)) << "behind its end";
}

TEST(V8InOnePiece, WhatIsNoCodeIsNotTakenForIt) {
  InOnePiece stream;  // V8 11's objects are none of V8 10
  stream.memory = fake::make();
  EXPECT_FALSE(stream.at(5));
  InOnePiece container;  // an object of another type is there
  container.memory.put_object(fake::kCode, fake::kBytes, {});
  EXPECT_FALSE(container.at(5));
  InOnePiece other;
  other.memory.put_object(fake::kInstructions - 128, fake::kBytes, {});
  EXPECT_FALSE(other.at(5));
  InOnePiece empty;
  empty.memory.put(fake::kInstructions - 128 + 40, std::uint32_t{0});
  EXPECT_FALSE(empty.at(0));
}

// While the word is there that leads to the container, the code is.
TEST(V8InOnePiece, CodeIsGoneWithItsContainer) {
  InOnePiece process;
  const Layout layout = Layout::make(*process.facts).value();
  const Heap heap(process.memory, layout);
  CodeMap map = CodeMap::make(*process.facts).value();
  const auto object = map.find(heap, fake::kInstructions + 5, fake::kBase);
  ASSERT_TRUE(object);
  EXPECT_EQ(map.code_place(*object), fake::kInstructions - 128 + 32);
  EXPECT_EQ(object->code, fake::kCode + 1);
  EXPECT_TRUE(map.is_still(heap, *object));
  process.memory.put_object(fake::kCode + 0x40, fake::kContainer, {});
  process.memory.put(map.code_place(*object), fake::kCode + 0x41);
  EXPECT_FALSE(map.is_still(heap, *object));
}

// A header of 128 bytes may begin in front of the piece of memory that is looked through at once, 16 KiB.
TEST(V8InOnePiece, CodeIsFoundFromFarBehindIt) {
  constexpr std::uint32_t kSize = 0x8000;
  for (const std::uint32_t offset : {0x3f00U, 0x3f40U, 0x3f80U, 0x3fc0U, 0x4000U, 0x4040U, 0x4080U, 0x7fffU}) {
    test::MadeUpMemory memory(fake::kBase, 0x10000);
    fake::FakeMemory head = fake::make();
    fake::put_in_one_piece(head);
    std::copy(head.bytes.begin(), head.bytes.end(), memory.bytes.begin());
    memory.put(fake::kInstructions - 128 + 40, kSize);
    const InOnePiece process;
    const Layout layout = Layout::make(*process.facts).value();
    CodeMap map = CodeMap::make(*process.facts).value();
    const auto object = map.find(Heap(memory, layout), fake::kInstructions + offset, fake::kBase);
    ASSERT_TRUE(object) << offset;
    EXPECT_EQ(object->begin, fake::kInstructions);
    EXPECT_EQ(object->end, fake::kInstructions + kSize);
  }
}

// A function's SharedFunctionInfo leads to its baseline code, which has the bytecodes.
TEST(V8InOnePiece, BaselineCodeLeadsFromAFunctionToItsBytecodes) {
  InOnePiece process;
  fake::put_in_one_piece(process.memory, fake::kBytecodes + 1, 9);
  process.memory.put(fake::kShared + 8, fake::kInstructions - 127);
  const Layout layout = Layout::make(*process.facts).value();
  const Heap heap(process.memory, layout);
  Names names(heap, *process.facts);
  // call, which sets up the frame; nops; leave; ret
  process.memory.put_bytes(fake::kInstructions, {"\xe8\0\1\0\0\x90\x90\x90\x90\x90\x90\x90\x90\x90\xc9\xc3", 16});
  CodeMap map = CodeMap::make(*process.facts).value();
  const auto object = map.find(heap, fake::kInstructions, fake::kBase);
  ASSERT_TRUE(object);
  const auto code = CompiledCode::read(heap, *object);
  ASSERT_TRUE(code);
  Registers frame(Architecture::kX86_64);
  frame.set(6, fake::kStack), frame.set(7, fake::kStack - 64);
  const auto place = names.by_slots(**code, fake::kInstructions + 8, frame, process.memory);
  ASSERT_TRUE(place);
  EXPECT_EQ(names.named(place->function, 0).name, "f");
}

// Each symbol is missing once.
TEST(V8InOnePiece, ForgedSymbolsAreRefusedOrLeadNowhere) {
  const InOnePiece process;
  const fake::Facts whole = fake::facts_in_one_piece();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    fake::Facts missing = whole;
    missing.erase(missing.begin() + static_cast<std::ptrdiff_t>(i));
    const auto without = fake::file_of(missing);
    const auto facts = ImageFacts::read({without.data(), without.size()});
    ASSERT_TRUE(facts);
    EXPECT_FALSE(functions_of(process.memory, *facts, 5)) << whole[i].first;
    for (const std::int32_t value : {-1, 0, 7, 0x7fffffff}) {
      fake::Facts other = whole;
      other[i].second = value;
      const auto forged = fake::file_of(other);
      if (const auto lies = ImageFacts::read({forged.data(), forged.size()}))
        (void)functions_of(process.memory, *lies, 5);
    }
  }
}

}  // namespace
}  // namespace windlass::runtimes::v8
