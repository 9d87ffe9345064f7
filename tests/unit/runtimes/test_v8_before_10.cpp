// V8 7.8, 8.4 and 9.4 (node 12, 14 and 16), which do not export all of their layout. The files and the heaps are made
// up.
#include <gtest/gtest.h>

#include <optional>
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

constexpr std::uint32_t kHeader = 64, kFlags = 44, kOptimised = 0x40;  // a function, by the optimising compiler

// What these versions export.
fake::Facts exported(std::int32_t major, std::int32_t minor) {
  fake::Facts all = fake::facts_in_one_piece();
  std::erase_if(all, [](const auto& fact) {
    return fact.first.starts_with("CodeKind") || fact.first.starts_with("class_BytecodeArray") ||
           fact.first.starts_with("class_Code__") || fact.first.starts_with("off_fp_bytecode") ||
           fact.first.starts_with("class_Script__source") || fact.first.starts_with("_ZN");
  });
  all.insert(all.end(), {{"_ZN2v88internal7Version6major_E", major},
                         {"_ZN2v88internal7Version6minor_E", minor},
                         {"class_Code__instruction_start__x", kHeader},
                         {"class_Code__instruction_size__x", 40}});
  return all;
}

// A Code of V8 7 in front of instructions, by the map of its isolate.
void put_code(fake::FakeMemory& memory, std::uint64_t instructions, std::uint64_t map, std::uint32_t flags) {
  const std::uint64_t object = instructions - kHeader;
  memory.put_object(object, fake::kCodeType,
                    {fake::kTables + 0x81, fake::kData + 1, fake::kTables + 1, fake::kCode + 1});
  memory.put(object, map);
  memory.put(object + 40, std::uint32_t{16}), memory.put(object + kFlags, flags);
}

struct Process {
  fake::FakeMemory memory = fake::make();
  std::vector<std::byte> file;
  Expected<ImageFacts> facts = fail(ErrorCode::kNotFound, "no file", 0);
  std::optional<Heap> heap;
  Expected<Layout> layout = fail(ErrorCode::kNotFound, "no file", 0);
  std::optional<CodeMap> map;

  Process(std::int32_t major, std::int32_t minor) : file(fake::file_of(exported(major, minor))) {
    facts = ImageFacts::read({file.data(), file.size()});
    layout = Layout::make(*facts);
    if (!layout) return;
    heap.emplace(memory, *layout);
    map = CodeMap::make(*facts).value();
    fake::put_in_one_piece(memory);
    put_code(memory, fake::kInstructions, memory.map(fake::kCodeType), kOptimised);
    // A ScopeInfo is a FixedArray, and the first code of a table of positions is as it is: 0 and 4.
    memory.put_object(
        fake::kScope, fake::kScopeType,
        {fake::number(10), fake::number(0), fake::number(0), fake::number(1), fake::kSource + 0x81, fake::number(0),
         fake::kSource + 0xc1, fake::number(0), fake::number(17), fake::number(36), fake::kScript + 1});
    memory.put_bytes(fake::kTables + 16, std::string_view("\0", 1));
  }
  Process(const Process&) = delete;

  // "f 3 f 2", innermost first.
  std::string at(std::uint64_t pc) {
    const auto object = map->find(*heap, pc, fake::kBase);
    auto code = object ? CompiledCode::read(*heap, *object) : Failure(object.error());
    if (!code) return "none";
    Names names(*heap, *facts);
    names.fill(**code);
    std::string found;
    (*code)->each_function(pc - object->begin, [&](std::uint32_t function, std::int32_t position) {
      if (function == Functions::kNone) return;
      const auto named = names.named(function, names.functions().line_of(function, position));
      found += named.name + ' ' + std::to_string(named.line) + ' ';
    });
    return found;
  }
};

TEST(V8Before10, OptimisedCodeHasItsFunctions) {
  Process process(7, 8);
  ASSERT_TRUE(process.layout) << process.layout.error().text();
  EXPECT_EQ(process.at(fake::kInstructions), "f 2 f 2 ") << "one that is inlined";
  EXPECT_EQ(process.at(fake::kInstructions + 3), "f 2 f 2 ") << "the next position is that of instruction 4";
  EXPECT_EQ(process.at(fake::kInstructions + 5), "f 3 ");
  EXPECT_EQ(process.at(fake::kInstructions + 16), "none");
}

// The slots of the interpreter's frames, and the data behind a BytecodeArray's header.
TEST(V8Before10, TheLayoutIsThatOfTheVersion) {
  const Process seven(7, 8), eight(8, 4), nine(9, 4);
  for (const Process* it : {&seven, &eight, &nine}) {
    ASSERT_TRUE(it->layout);
    EXPECT_EQ(it->layout->bytecode_data, 54U);
    EXPECT_EQ(it->layout->script_source, 8U);
    EXPECT_GT(it->layout->scope_most_names, 1'000'000U) << "all names are there";
  }
  EXPECT_EQ(seven.layout->frame_bytecodes, -24);
  EXPECT_EQ(eight.layout->frame_bytecode_offset, -32);
  EXPECT_EQ(nine.layout->frame_bytecodes, -32);
  EXPECT_EQ(nine.layout->frame_bytecode_offset, -40);
  EXPECT_EQ(eight.layout->scope_data, 16U);
  EXPECT_EQ(nine.layout->scope_data, 8U);
}

TEST(V8Before10, OtherVersionsAreRefused) {
  for (const auto& [major, minor] : {std::pair{7, 4}, {8, 1}, {8, 6}, {9, 0}, {9, 6}, {6, 8}}) {
    const Process process(major, minor);
    ASSERT_FALSE(process.layout) << major << '.' << minor;
    EXPECT_EQ(process.layout.error().what, kUnknownVersion);
  }
}

// Code::Kind of V8 7 and 8, behind a bit, as the kinds of V8 10.
TEST(V8Before10, KindsOfCodeAreThoseOfLaterVersions) {
  const Process eight(8, 4), nine(9, 4);
  const Layout& old = *eight.layout;
  EXPECT_GT(old.kind_of(0x3c0), old.kind_baseline) << "a function";
  EXPECT_EQ(old.kind_of(0x8000'0346), 2U) << "a builtin";
  EXPECT_EQ(old.kind_of(0x8), old.kind_regexp);
  EXPECT_EQ(old.kind_of(0x350), old.kind_wasm_entry);
  EXPECT_EQ(old.kind_of(0x4), 0U) << "a stub";
  EXPECT_EQ(nine.layout->kind_of(0x11d), 13U);
  EXPECT_EQ(nine.layout->kind_of(0xb), nine.layout->kind_baseline);
}

// Instructions begin on a multiple of 32 bytes.
TEST(V8Before10, CodeIsFoundOnMultiplesOf32Bytes) {
  Process process(8, 4);
  process.memory.put_object(fake::kInstructions - kHeader, fake::kBytes, {});
  put_code(process.memory, fake::kInstructions + 32, process.memory.map(fake::kCodeType), kOptimised);
  EXPECT_NE(process.at(fake::kInstructions + 33), "none");
  EXPECT_EQ(process.at(fake::kInstructions + 31), "none");
}

// Each isolate has maps of its own.
TEST(V8Before10, CodeOfASecondIsolateIsFound) {
  constexpr std::uint64_t kOtherMap = fake::kMaps + 0x300, kOther = fake::kInstructions + 0x100;
  Process process(9, 4);
  process.memory.put(kOtherMap, fake::kMaps + 1), process.memory.put(kOtherMap + 12, std::uint16_t{fake::kCodeType});
  for (const std::uint64_t instructions : {fake::kInstructions, kOther}) {
    put_code(process.memory, instructions, process.memory.map(fake::kCodeType), 0);
    process.memory.put(instructions - kHeader + 48, std::uint32_t{13});
  }
  process.memory.put(kOther - kHeader, kOtherMap + 1);
  const auto first = process.map->find(*process.heap, fake::kInstructions, fake::kBase);
  const auto second = process.map->find(*process.heap, kOther + 3, fake::kBase);
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->begin, kOther);
  EXPECT_TRUE(process.map->is_still(*process.heap, *first));
  EXPECT_TRUE(process.map->is_still(*process.heap, *second));
}

}  // namespace
}  // namespace windlass::runtimes::v8
