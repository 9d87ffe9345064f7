// What is read of a V8's heap and tables, made up in memory: whole, cut off and lying.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "runtimes/v8/code_map.h"
#include "runtimes/v8/described.h"
#include "runtimes/v8/functions.h"
#include "runtimes/v8/heap.h"
#include "runtimes/v8/image_facts.h"
#include "runtimes/v8/names.h"
#include "runtimes/v8/positions.h"
#include "runtimes/v8/rows.h"
#include "runtimes/v8/wasm_map.h"
#include "runtimes/v8/wasm_names.h"
#include "support/failing_memory.h"
#include "support/fake_v8.h"

namespace windlass::runtimes::v8 {
namespace {

namespace fake = test::fake_v8;

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

constexpr std::uint16_t kMapType = 300, kCons = 33, kSequential = 40, kThin = 45, kSliced = 43, kScope = 301,
                        kShared = 302, kScript = 303, kArray = 304, kNumbers = 305, kStream = 306, kCode = 307;

Layout made_up_layout() {
  Layout layout;
  layout.map_type = 12;
  layout.string_length = 12;
  layout.one_byte_chars = layout.two_byte_chars = 16;
  layout.cons_first = layout.sliced_parent = layout.thin_actual = layout.external_resource = 16;
  layout.cons_second = layout.sliced_offset = 24;
  layout.representation_mask = 7;
  layout.encoding_mask = layout.one_byte = 8;
  layout.cons = 1;
  layout.external = 2;
  layout.sliced = 3;
  layout.thin = 5;
  layout.first_nonstring = 128;
  layout.map = kMapType;
  layout.scope_type = kScope;
  layout.shared_type = kShared;
  layout.script_type = kScript;
  layout.stream_type = kStream;
  layout.code_type = kCode;
  layout.byte_arrays = {kNumbers, kNumbers};
  layout.fixed_arrays = {kArray, kArray, kArray};
  layout.array_length = 8;
  layout.array_data = 16;
  layout.scope_locals = 2;
  layout.scope_first = 3;
  layout.shared_name = 16;
  layout.shared_script = 24;
  layout.script_source = 8;
  layout.script_name = 16;
  return layout;
}

// Memory from 0x10000 on, in which objects are put one behind another.
class Objects final : public Memory {
 public:
  static constexpr std::uint64_t kBase = 0x10000;
  Objects() {
    meta_ = put({0, std::uint64_t{kMapType} << 32});
    words(meta_)[0] = meta_;
  }

  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    if (address < kBase || address - kBase > bytes_.size() || size > bytes_.size() - (address - kBase)) return false;
    if (size != 0) std::memcpy(to, bytes_.data() + (address - kBase), size);
    return true;
  }
  Tagged put(const std::vector<std::uint64_t>& values) {
    const Tagged object = kBase + bytes_.size() + 1;
    bytes_.resize(bytes_.size() + values.size() * 8);
    std::memcpy(words(object), values.data(), values.size() * 8);
    return object;
  }
  // The instance type is at 12 of a map.
  Tagged map(std::uint16_t type) { return put({meta_, std::uint64_t{type} << 32}); }
  Tagged object(std::uint16_t type, std::vector<std::uint64_t> fields) {
    fields.insert(fields.begin(), map(type));
    return put(fields);
  }
  Tagged string(const std::string& text) {
    std::vector<std::uint64_t> fields = {std::uint64_t{text.size()} << 32};
    fields.resize(2 + text.size() / 8);
    std::memcpy(fields.data() + 1, text.data(), text.size());
    return object(kSequential, fields);
  }
  [[nodiscard]] std::uint64_t* words(Tagged object) {
    return reinterpret_cast<std::uint64_t*>(bytes_.data() + (object - 1 - kBase));
  }

 private:
  std::vector<std::byte> bytes_;
  Tagged meta_ = 0;
};

constexpr Tagged number(std::int32_t value) { return static_cast<std::uint64_t>(std::uint32_t(value)) << 32; }

TEST(V8Positions, AreReadInBothForms) {
  // Code 0 (one behind the entry, -1), position 5; code 4, position 7.
  const auto by_sign = read_positions(bytes_of({0x02, 0x18, 0x08, 0x08}), PositionForm::kSign);
  // Of deno: 6 places in 24 bytes of bytecodes.
  const auto by_three =
      read_positions(bytes_of({0x02, 0xe0, 0x18, 0x0b, 0x18, 0x2a, 0x1c, 0x4a, 0x2c, 0x22, 0x2b, 0x2b, 0x3c}),
                     PositionForm::kThreeBits);
  ASSERT_TRUE(by_three);
  ASSERT_EQ(by_three->size(), 6U);
  EXPECT_EQ(by_three->front().code, -1);
  EXPECT_EQ(by_three->front().position, 791);
  EXPECT_EQ(by_three->back().code, 23);
  EXPECT_EQ(by_three->back().position, 791 + 6 + 7 + 11 - 11 + 15);
  const auto by_bits = read_positions(bytes_of({0x05, 0x18, 0x11, 0x08}), PositionForm::kTwoBits);
  for (const auto& found : {by_sign, by_bits}) {
    ASSERT_TRUE(found && found->size() == 2);
    EXPECT_EQ((*found)[0].code, 0);
    EXPECT_EQ((*found)[0].position, 5);
    EXPECT_EQ((*found)[1].code, 4);
    EXPECT_EQ((*found)[1].position, 7);
    EXPECT_EQ((*found)[1].inlining, -1);
    EXPECT_EQ(position_at(*found, 3)->position, 5);
    EXPECT_EQ(position_at(*found, 4)->position, 7);
    EXPECT_EQ(position_at(*found, -1), nullptr);
  }
}

TEST(V8Positions, AreOfCallsByTheirSignAndMayBeInNoScript) {
  // Numbers below 0 mark what is no statement, one further than they say.
  const auto found = read_positions(bytes_of({0x02, 0x18, 0x09, 0x08}), PositionForm::kSign);
  ASSERT_TRUE(found && found->size() == 2);
  EXPECT_EQ((*found)[1].code, 4);
  EXPECT_EQ(unpacked(7, 6 << 1).position, 5);
  EXPECT_EQ(unpacked(7, 6 << 1 | 1).position, -1);
}

TEST(V8Positions, ThatAreNoneAreRefused) {
  for (const auto& bad :
       {bytes_of({0x02}), bytes_of({0x82}),
        bytes_of({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00}),
        bytes_of({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}), bytes_of({0x02, 0x01})})
    EXPECT_FALSE(read_positions(bad, PositionForm::kSign));
  EXPECT_TRUE(read_positions({}, PositionForm::kSign)->empty());
}

TEST(V8Positions, BaselineCodeLeadsToItsBytecode) {
  // Two bytecodes, the second behind a Wide prefix; 10 bytes of entry, 4 and 6 of theirs.
  const std::vector<std::uint8_t> sizes = {1, 1, 1, 1, 2, 1, 1, 1, 1, 3, 1, 1, 1, 1, 5};
  const auto bytecodes = bytes_of({4, 9, 0, 4, 1, 1, 4, 7});
  const auto table = bytes_of({10, 4, 6, 2});
  EXPECT_FALSE(bytecode_at(table, 10, bytecodes, sizes));
  EXPECT_EQ(bytecode_at(table, 11, bytecodes, sizes), 0U);
  EXPECT_EQ(bytecode_at(table, 14, bytecodes, sizes), 0U);
  EXPECT_EQ(bytecode_at(table, 15, bytecodes, sizes), 2U);
  EXPECT_EQ(bytecode_at(table, 22, bytecodes, sizes), 6U);
  EXPECT_FALSE(bytecode_at(table, 23, bytecodes, sizes));
  EXPECT_FALSE(bytecode_at(table, 15, bytes_of({200}), sizes));
  EXPECT_FALSE(bytecode_at({}, 15, bytecodes, sizes));
  EXPECT_FALSE(bytecode_at(table, 15, bytecodes, {}));
}

TEST(V8Heap, StringsAreReadWhateverTheyArePutTogetherOf) {
  Objects objects;
  const Tagged first = objects.string("Array."), second = objects.string("map");
  const Tagged both = objects.object(kCons, {std::uint64_t{9} << 32, first, second});
  const Tagged thin = objects.object(kThin, {std::uint64_t{6} << 32, first});
  const Tagged piece = objects.object(kSliced, {std::uint64_t{3} << 32, first, number(2)});
  const Tagged beyond = objects.object(kSliced, {std::uint64_t{3} << 32, first, number(4)});
  const Layout layout = made_up_layout();
  const Heap heap(objects, layout);
  EXPECT_EQ(heap.text(both, 100), "Array.map");
  EXPECT_EQ(heap.text(both, 7), "Array.m");
  EXPECT_EQ(heap.text(thin, 100), "Array.");
  EXPECT_EQ(heap.text(piece, 100), "ray");
  EXPECT_FALSE(heap.text(beyond, 100));
  EXPECT_FALSE(heap.text(number(3), 100));
  EXPECT_FALSE(heap.text(0x99999999999999 | 1, 100));
}

TEST(V8Heap, HalfAPairOfSurrogatesIsNoCharacter) {
  constexpr std::uint16_t kTwoBytes = 32;
  Objects objects;
  const auto text = [&](std::uint64_t units) {
    const Tagged string = objects.object(kTwoBytes, {std::uint64_t{2} << 32, units});
    const Layout layout = made_up_layout();
    return Heap(objects, layout).text(string, 100);
  };
  EXPECT_EQ(text(0x0061'd83d),
            "\xef\xbf\xbd"
            "a");
  EXPECT_EQ(text(0xde00'd83d), "\xf0\x9f\x98\x80");
}

TEST(V8Heap, StringsInStringsEnd) {
  Objects objects;
  const auto nested = [&](std::uint32_t depth) {
    Tagged string = objects.string("");
    for (std::uint32_t i = 1; i <= depth; ++i)
      string = objects.object(kCons, {std::uint64_t{i} << 32, string, objects.string("a")});
    const Layout layout = made_up_layout();
    return Heap(objects, layout).text(string, 1000);
  };
  EXPECT_EQ(nested(20), std::string(20, 'a'));
  EXPECT_FALSE(nested(100));
}

// One that is put together of itself, and one of so many empty ones that following all would never end.
TEST(V8Heap, StringsThatLieEnd) {
  Objects objects;
  const Tagged self = objects.object(kCons, {std::uint64_t{9} << 32, 0, 0});
  objects.words(self)[2] = objects.words(self)[3] = self;
  Tagged doubled = objects.object(kCons, {std::uint64_t{1} << 32, objects.string(""), objects.string("")});
  for (int i = 0; i < 60; ++i) doubled = objects.object(kCons, {std::uint64_t{9} << 32, doubled, doubled});
  const Layout layout = made_up_layout();
  const Heap heap(objects, layout);
  EXPECT_FALSE(heap.text(self, 100));
  EXPECT_FALSE(heap.text(doubled, 100));
}

TEST(V8Functions, HaveTheNameAndTheLineOfTheirScope) {
  Objects objects;
  const Tagged source = objects.string("let a;\nfunction f() {\r\n  return 1;\n}\n");
  const Tagged script = objects.object(kScript, {source, objects.string("/a.js")});
  const Tagged outer = objects.object(kScope, {number(0)});
  const auto scope = [&](std::vector<std::uint64_t> behind) {
    std::vector<std::uint64_t> words = {number(0), number(0), number(1), objects.string("local"), number(0)};
    words.insert(words.end(), behind.begin(), behind.end());
    words.resize(words.size() + 12);
    return objects.object(kScope, words);
  };
  const Tagged named = scope({objects.string("f"), number(0), number(17), number(37), outer});
  const Tagged inferred = scope({objects.string(""), number(0), objects.string("a.b"), number(17), number(37), outer});
  const Tagged shared = objects.object(kShared, {0, named, script}),
               other = objects.object(kShared, {0, inferred, script});
  const Layout layout = made_up_layout();
  const Heap heap(objects, layout);
  Functions functions;
  const std::uint32_t f = functions.number_of(heap, shared), g = functions.number_of(heap, other);
  ASSERT_NE(f, Functions::kNone);
  ASSERT_NE(g, Functions::kNone);
  EXPECT_EQ(functions.function(f).name, "f");
  EXPECT_EQ(functions.function(g).name, "a.b");
  EXPECT_EQ(functions.file_of(f), "/a.js");
  EXPECT_EQ(functions.line_of(f, 26), 3U);
  EXPECT_EQ(functions.line_of(f, -1), 2U);   // where it begins
  EXPECT_EQ(functions.line_of(f, 400), 2U);  // not one of its own
  EXPECT_EQ(functions.number_of(heap, shared), f);
  // Another function has come to where it was.
  objects.words(shared)[2] = inferred;
  EXPECT_EQ(functions.number_of(heap, shared), g);
  EXPECT_EQ(functions.number_of(heap, script), Functions::kNone);
  EXPECT_EQ(functions.number_of(heap, number(7)), Functions::kNone);
}

// ECMA-262 12.3: lines end at LF, CR, CR LF, U+2028 and U+2029. Other characters have their bytes, too.
TEST(V8Functions, LinesEndAtAllOfJavaScriptsLineTerminators) {
  constexpr std::uint16_t kTwoBytes = 32;
  const std::u16string_view text = u"a\u2028b\u2029c\rd\r\ne\n\u0a0af\u2027\u202ag";
  Objects objects;
  std::vector<std::uint64_t> fields = {std::uint64_t{text.size()} << 32};
  fields.resize(2 + text.size() / 4);
  std::memcpy(fields.data() + 1, text.data(), text.size() * 2);
  const Tagged source = objects.object(kTwoBytes, fields);
  const Tagged script = objects.object(kScript, {source, objects.string("/a.js")});
  const Tagged outer = objects.object(kScope, {number(0)});
  std::vector<std::uint64_t> words = {number(0),
                                      number(0),
                                      number(1),
                                      objects.string("local"),
                                      number(0),
                                      objects.string("f"),
                                      number(0),
                                      number(0),
                                      number(static_cast<std::int32_t>(text.size())),
                                      outer};
  words.resize(words.size() + 12);
  const Tagged shared = objects.object(kShared, {0, objects.object(kScope, words), script});
  const Layout layout = made_up_layout();
  const Heap heap(objects, layout);
  Functions functions;
  const std::uint32_t f = functions.number_of(heap, shared);
  ASSERT_NE(f, Functions::kNone);
  std::string lines;
  for (std::size_t at = 0; at < text.size(); ++at)
    if (text[at] >= 'a' && text[at] <= 'g')
      lines += static_cast<char>(text[at]) + std::to_string(functions.line_of(f, static_cast<std::int32_t>(at))) + ' ';
  EXPECT_EQ(lines, "a1 b2 c3 d4 e5 f6 g6 ");
}

// As V8's CallFunction: on one way it makes room for arguments, how many is not known, before it jumps to the function.
TEST(V8Rows, CodeThatLeavesByAJumpHasItsReturnAddressOnTop) {
  std::vector<std::byte> code = bytes_of({0x48, 0x2b, 0xd8,                                // sub rbx, rax
                                          0x7e, 0x0b,                                      // jle 16
                                          0x4c, 0x8d, 0x14, 0xdd, 0x00, 0x00, 0x00, 0x00,  // lea r10, [rbx * 8]
                                          0x49, 0x2b, 0xe2,                                // sub rsp, r10
                                          0x48, 0x8b, 0x4f, 0x2f,                          // mov rcx, [rdi + 47]
                                          0xff, 0xe1});                                    // jmp rcx
  constexpr std::uint64_t kJoined = 16, kLast = 20;
  const auto cfa_at = [&](std::uint64_t at) -> std::optional<CfaRule> {
    const auto description = describe_code({code.data(), code.size()}, 0x10000, false, {});
    EXPECT_TRUE(description);
    for (const FrameRow& row : description->rows)
      if (at >= row.begin && at < row.end) return row.cfa;
    return std::nullopt;
  };
  for (const std::uint64_t at : {std::uint64_t{0}, kJoined, kLast}) EXPECT_EQ(cfa_at(at), CfaRule::at(7, 8)) << at;
  code[kLast] = std::byte{0xc3};  // it returns: by sp as it is, which nobody knows
  EXPECT_FALSE(cfa_at(kJoined));
  EXPECT_EQ(cfa_at(0), CfaRule::at(7, 8));
}

// "NAME FILE" of WebAssembly's code at an address; empty: there is none.
std::string wasm_at(const Memory& memory, std::uint64_t pc, std::int32_t version = 13) {
  WasmMap map(memory, fake::kWasmVariable, version);
  const auto range = map.range_of(pc);
  const auto object = range ? map.find(*range, pc) : fail(ErrorCode::kNotFound, "no WebAssembly", pc);
  if (!object || !map.is_still(*object)) return {};
  EXPECT_TRUE(object->begin <= pc && pc < object->end);
  const auto code = WasmCode::read(memory, *object);
  if (!code) return {};
  FrameRow row;
  EXPECT_TRUE(!(*code)->row_at(pc, row) || (row.begin <= pc && pc < row.end));
  if (object->index == WasmObject::kNone) return (*code)->name;
  const auto named = WasmNames(memory).name_of(*object);
  return named.name + ' ' + named.file;
}

TEST(V8Wasm, CodeIsFoundWhereverV8HasIt) {
  const fake::FakeMemory memory = fake::make();
  EXPECT_EQ(wasm_at(memory, fake::kWasmCode + 5), "f wasm://wasm/m");
  EXPECT_EQ(wasm_at(memory, fake::kWasmNewCode + 63), "wasm-function[2] wasm://wasm/m") << "not sorted in yet";
  EXPECT_EQ(wasm_at(memory, fake::kWasmJumps), "[WebAssembly jump table]");
  EXPECT_EQ(wasm_at(memory, fake::kWasmShared), "[WebAssembly to JavaScript]") << "of no module";
  EXPECT_EQ(wasm_at(memory, fake::kWasmShared + 64), "");
  EXPECT_EQ(wasm_at(memory, fake::kWasmJumps - 1), "");
  EXPECT_EQ(wasm_at(memory, fake::kWasmCode + 5, 15), "") << "another version";
}

// Code of another place than the address is never found, whatever cannot be read.
TEST(V8Wasm, WhatCannotBeReadIsNotGuessed) {
  const fake::FakeMemory memory = fake::make();
  for (const std::uint64_t pc : {fake::kWasmCode + 5, fake::kWasmNewCode + 63, fake::kWasmJumps, fake::kWasmShared}) {
    const auto ask = [&](const Memory& of) {
      WasmMap map(of, fake::kWasmVariable, 13);
      const auto range = map.range_of(pc);
      if (!range) return std::optional<WasmObject>();
      EXPECT_TRUE(range->begin <= pc && pc < range->end);
      const auto object = map.find(*range, pc);
      return object && map.is_still(*object) ? std::optional(*object) : std::nullopt;
    };
    const auto right = ask(memory);
    ASSERT_TRUE(right);
    std::size_t found = 0;
    const std::size_t reads = test::each_failing_read(memory, ask, [&](const auto& object, std::size_t failing) {
      EXPECT_TRUE(!object || *object == *right) << std::hex << pc << ": read " << std::dec << failing;
      found += object ? 1 : 0;
    });
    EXPECT_GT(reads, 5U);
    EXPECT_LT(found, reads / 2) << "what was needed was read";
  }
}

// The bounds that a piece of code must keep: those of its memory, and the lengths and numbers that V8 has.
TEST(V8Wasm, CodeThatCannotBeIsNone) {
  const auto finds = [](auto&& change) {
    fake::FakeMemory memory = fake::make();
    change(memory);
    WasmMap map(memory, fake::kWasmVariable, 13);
    const auto range = map.range_of(fake::kWasmCode);
    return range && map.find(*range, fake::kWasmCode);
  };
  constexpr std::uint64_t kObject = fake::kWasmObjects;  // module, begin; at 32 the length, at 56 the index
  EXPECT_TRUE(finds([](auto&) {}));
  EXPECT_FALSE(finds([](auto& memory) { memory.put(kObject, fake::kWasmModule + 8); })) << "of another module";
  EXPECT_FALSE(finds([](auto& memory) { memory.put(kObject + 32, std::uint32_t{0}); }));
  EXPECT_FALSE(finds([](auto& memory) { memory.put(kObject + 32, std::uint32_t{0x1000}); }))
      << "longer than its memory";
  EXPECT_FALSE(finds([](auto& memory) { memory.put(kObject + 8, fake::kWasmCode + 1); })) << "it begins behind";
  EXPECT_FALSE(finds([](auto& memory) { memory.put(kObject + 8, fake::kWasmJumps - 8); })) << "in front of its memory";
  EXPECT_TRUE(finds([](auto& memory) { memory.put(kObject + 56, std::int32_t{WasmMap::kMostFunctions - 1}); }));
  EXPECT_FALSE(finds([](auto& memory) { memory.put(kObject + 56, std::int32_t{WasmMap::kMostFunctions}); }));
  EXPECT_TRUE(finds([](auto& memory) { memory.put(kObject + 56, std::int32_t{-1}); }));
  EXPECT_FALSE(finds([](auto& memory) { memory.put(kObject + 56, std::int32_t{-2}); }));
  EXPECT_FALSE(finds([](auto& memory) { memory.put(fake::kWasmVariable, std::uint64_t{0}); })) << "no state yet";
}

TEST(V8Wasm, ImportedAndExportedFunctionsAreKnown) {
  fake::FakeMemory memory = fake::make();
  memory.put(fake::kWasmObjects + 56, std::int32_t{0});
  EXPECT_EQ(wasm_at(memory, fake::kWasmCode), "[WebAssembly to JavaScript] ");
  memory = fake::make();
  memory.put_bytes(fake::kWasmBytes + 8 + 9 + 7 + 3, "other");  // no name section
  EXPECT_EQ(wasm_at(memory, fake::kWasmCode), "x wasm://wasm");
}

TEST(V8Wasm, RowsAreThoseOfJumpsAndOfLiftoff) {
  const fake::FakeMemory memory = fake::make();
  WasmMap map(memory, fake::kWasmVariable, 13);
  const auto cfa_at = [&](std::uint64_t pc) {
    const auto object = map.find(map.range_of(pc).value(), pc);
    FrameRow row;
    EXPECT_TRUE(WasmCode::read(memory, object.value()).value()->row_at(pc, row));
    return row.cfa;
  };
  for (const std::uint64_t slot : {0, 10}) {
    EXPECT_EQ(cfa_at(fake::kWasmJumps + slot), CfaRule::at(7, 8));
    EXPECT_EQ(cfa_at(fake::kWasmJumps + slot + 5), CfaRule::at(7, 16)) << "a number is pushed";
  }
  EXPECT_EQ(cfa_at(fake::kWasmCode + 3), CfaRule::at(7, 8));
  EXPECT_EQ(cfa_at(fake::kWasmCode + 8), CfaRule::at(6, 16));
  EXPECT_EQ(cfa_at(fake::kWasmCode + 13), CfaRule::at(7, 8));
}

TEST(V8Wasm, TreesThatLieEnd) {
  fake::FakeMemory memory = fake::make();
  for (const unsigned child : {16U, 24U}) memory.put(fake::kWasmNodes + 0x80 + child, fake::kWasmNodes + 0x80);
  EXPECT_EQ(wasm_at(memory, fake::kWasmJumps), "") << "a node that is its own child";
  memory.put(fake::kWasmModule + 0x170, ~std::uint64_t{7});  // no end of new code
  EXPECT_EQ(wasm_at(memory, fake::kWasmJumps), "");
  std::mt19937 random(7);  // NOLINT(bugprone-random-generator-seed): the same each time
  std::size_t named = 0;
  for (int round = 0; round < 3000; ++round) {
    memory = fake::make();
    for (std::size_t i = random() % 12; i-- > 0;)
      memory.bytes[0x2000 + random() % 0x1500] ^= static_cast<std::uint8_t>(1U << random() % 8);
    for (std::uint64_t pc = fake::kWasmJumps; pc < fake::kWasmShared + 80; pc += 16)
      named += wasm_at(memory, pc) == "f wasm://wasm/m" ? 1 : 0;
  }
  EXPECT_GT(named, 3000U);
  EXPECT_LT(named, 12000U);
}

// As V8's bytecode handlers: they give the frame pointer back first, and a call on one way has lost sp.
TEST(V8Rows, CodeThatLeavesHasItsReturnAddressAboveWhatItTakesDown) {
  const std::vector<std::byte> code = bytes_of({0x55,                          // push rbp
                                                0x48, 0x89, 0xe5,              // mov rbp, rsp
                                                0x48, 0x83, 0xec, 0x40,        // sub rsp, 64
                                                0x74, 0x05,                    // je 15
                                                0xe8, 0x00, 0x01, 0x00, 0x00,  // call
                                                0x48, 0x8b, 0x6d, 0x00,        // mov rbp, [rbp]
                                                0x4d, 0x89, 0xc4,              // mov r12, r8
                                                0x48, 0x83, 0xc4, 0x48,        // add rsp, 72
                                                0xff, 0xe1});                  // jmp rcx
  const auto description = describe_code({code.data(), code.size()}, 0x10000, false, {});
  ASSERT_TRUE(description);
  const auto row_at = [&](std::uint64_t at) {
    const auto found =
        std::ranges::find_if(description->rows, [&](const FrameRow& row) { return at >= row.begin && at < row.end; });
    EXPECT_NE(found, description->rows.end()) << at;
    return found != description->rows.end() ? *found : FrameRow();
  };
  EXPECT_EQ(row_at(15).cfa, CfaRule::at(6, 16));
  for (const std::uint64_t at : {19U, 22U}) {
    EXPECT_EQ(row_at(at).cfa, CfaRule::at(7, 80)) << at;
    const FrameRow row = row_at(at);
    const RegisterRule* frame_pointer = row.registers.find(6);
    EXPECT_TRUE(frame_pointer == nullptr || frame_pointer->is(RegisterRule::kSameValue)) << at;
  }
  EXPECT_EQ(row_at(26).cfa, CfaRule::at(7, 8));
}

// They push arguments and a copy of the return address, which is above them.
TEST(V8Rows, CodeThatLeavesWithArgumentsHasItsReturnAddressAboveThem) {
  const std::vector<std::byte> code = bytes_of({0x55,                          // push rbp
                                                0x48, 0x89, 0xe5,              // mov rbp, rsp
                                                0x74, 0x05,                    // je 11
                                                0xe8, 0x00, 0x01, 0x00, 0x00,  // call
                                                0x48, 0x8b, 0x6d, 0x00,        // mov rbp, [rbp]
                                                0x48, 0x83, 0xc4, 0x18,        // add rsp, 24
                                                0x51,                          // push rcx
                                                0x52,                          // push rdx
                                                0xff, 0x74, 0x24, 0x10,        // push [rsp + 16]
                                                0xff, 0xe1});                  // jmp rcx
  const auto description = describe_code({code.data(), code.size()}, 0x10000, false, {});
  ASSERT_TRUE(description);
  const std::pair<std::uint64_t, std::int32_t> cfas[] = {{15, 32}, {19, 8}, {20, 16}, {21, 24}, {25, 8}};
  for (const auto& [at, offset] : cfas) {
    const auto found = std::ranges::find_if(
        description->rows, [&, at = at](const FrameRow& row) { return at >= row.begin && at < row.end; });
    ASSERT_NE(found, description->rows.end()) << at;
    EXPECT_EQ(found->cfa, CfaRule::at(7, offset)) << at;
  }
}

TEST(V8Image, FilesThatSayNothingAreRefused) {
  EXPECT_FALSE(ImageFacts::read({}));
  ImageFacts nothing;
  EXPECT_EQ(Layout::make(nothing).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(CodeMap::make(nothing).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace windlass::runtimes::v8
