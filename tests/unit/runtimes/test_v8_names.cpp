// Which function of JavaScript a frame runs, and where: by the slots of the interpreter's frames and of baseline
// code's, by the tables of optimised code. The heap is made up in memory.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "runtimes/v8/code_map.h"
#include "runtimes/v8/heap.h"
#include "runtimes/v8/image_facts.h"
#include "runtimes/v8/names.h"
#include "runtimes/v8/rows.h"
#include "support/fake_v8.h"

namespace windlass::runtimes::v8 {
namespace {

namespace fake = test::fake_v8;

// A builtin's code, of which nothing is described: in its frame everywhere, or nowhere.
class MadeUpCode final : public Code {
 public:
  static constexpr std::uint64_t kAt = 0x7000'0000;
  explicit MadeUpCode(bool interprets = true, bool frames = true)
      : Code(kAt, 256, nullptr, frames), interprets_(interprets) {}
  bool interprets() const override { return interprets_; }

 private:
  bool interprets_;
};

// Bytecodes of 1, 2, 1 and 5 bytes from 4 on; behind Wide 2, 3, 1 and 9; the first four are prefixes.
constexpr std::string_view kSizes("\1\1\1\1\1\2\1\5\1\1\1\1\2\3\1\x9\1\1\1\1\4\5\1\x11", 24);
constexpr std::uint64_t kPositions = fake::kTables + 0x100, kOffsets = fake::kTables + 0x140;
constexpr std::uint32_t kFirstBytecode = 63;  // what the slot has at the first: its offset from the tagged pointer

struct Process {
  fake::FakeMemory memory = fake::make();
  std::vector<std::byte> file;
  Expected<ImageFacts> facts = fail(ErrorCode::kNotFound, "no file", 0);
  std::optional<Layout> layout;
  std::optional<Heap> heap;
  std::optional<Names> names;

  explicit Process(const fake::Facts& given = fake::facts()) : file(fake::file_of(given, kSizes)) {
    facts = ImageFacts::read({file.data(), file.size()});
    layout = Layout::make(*facts).value();
    heap.emplace(memory, *layout);
    names.emplace(*heap, *facts);
    // 12 bytes of bytecodes, of 2, 2, 5 and 3 (a prefix), with positions 20 (line 2) at 0 and 26 (line 3) at 4.
    memory.put_object(fake::kBytecodes, fake::kBytecodeArray, {fake::number(12), fake::kTables + 1, kPositions + 1});
    memory.put_bytes(fake::kBytecodes + 64, {"\5\1\5\2\7\1\2\3\4\0\5\0", 12});
    memory.put_object(kPositions, fake::kBytes, {fake::number(4)});
    memory.put_bytes(kPositions + 16, "\x02\x54\x08\x18");
  }
  Process(const Process&) = delete;

  [[nodiscard]] Registers frame(std::uint64_t sp = fake::kStack - 64) const {
    Registers registers(Architecture::kX86_64);
    registers.set(6, fake::kStack), registers.set(7, sp);
    return registers;
  }
  // "f 3": its name and its line; "none".
  std::string at(const Code& code, const Registers& frame, std::uint64_t address) {
    const auto place = names->by_slots(code, address, frame, memory);
    if (!place) return "none";
    if (place->position < 0) return names->named(place->function, 0).name;
    const auto line = names->functions().line_of(place->function, place->position);
    const auto named = names->named(place->function, line);
    return named.name + ' ' + std::to_string(named.line) + ' ' + std::to_string(place->position);
  }
  std::string interpreted(const Registers& frame) { return at(MadeUpCode(), frame, MadeUpCode::kAt + 8); }
  std::string interpreted() { return interpreted(frame()); }
  void put_offset(std::uint32_t offset) { memory.put(fake::kStack - 40, fake::number(offset)); }

  // The code that is there, as baseline code.
  std::unique_ptr<CompiledCode> baseline() {
    memory.put(fake::kCode + 8, fake::kBytecodes + 1), memory.put(fake::kCode + 16, kOffsets + 1);
    memory.put(fake::kCode + 40, std::uint32_t{9});
    // call, which sets up the frame; 6 nops; mov rsp, rbp; pop rbp; ret
    memory.put_bytes(fake::kInstructions, {"\xe8\0\1\0\0\x90\x90\x90\x90\x90\x90\x48\x89\xec\x5d\xc3", 16});
    // Instructions of the entry up to 5; of the bytecodes up to 6, 8, 12 and 13.
    memory.put_object(kOffsets, fake::kBytes, {fake::number(5)});
    memory.put_bytes(kOffsets + 16, "\5\1\2\4\1");
    return compiled();
  }
  std::unique_ptr<CompiledCode> compiled() {
    auto map = CodeMap::make(*facts);
    const auto object = map->find(*heap, fake::kInstructions, fake::kBase);
    EXPECT_TRUE(object);
    auto code = CompiledCode::read(*heap, *object);
    EXPECT_TRUE(code);
    names->fill(**code);
    return std::move(*code);
  }
};

TEST(V8Names, AnInterpretersFrameSaysWhichFunctionAndWhere) {
  Process process;
  process.put_offset(kFirstBytecode);
  EXPECT_EQ(process.interpreted(), "f 2 20");
  process.put_offset(kFirstBytecode + 3);
  EXPECT_EQ(process.interpreted(), "f 2 20");
  process.put_offset(kFirstBytecode + 4);
  EXPECT_EQ(process.interpreted(), "f 3 26");
  process.put_offset(kFirstBytecode - 1);
  EXPECT_EQ(process.interpreted(), "f") << "in front of the first bytecode";
  process.memory.put(fake::kStack - 40, std::uint64_t{fake::kFunction + 1});
  EXPECT_EQ(process.interpreted(), "f") << "the slot has no number";
}

TEST(V8Names, FramesThatAreNoFunctionsHaveNone) {
  Process process;
  ASSERT_NE(process.interpreted(), "none");
  EXPECT_EQ(process.at(MadeUpCode(false), process.frame(), MadeUpCode::kAt + 8), "none") << "it interprets nothing";
  EXPECT_EQ(process.at(MadeUpCode(true, false), process.frame(), MadeUpCode::kAt + 8), "none") << "it has no frame yet";
  Registers unknown(Architecture::kX86_64);
  unknown.set(7, fake::kStack - 64);
  EXPECT_EQ(process.interpreted(unknown), "none");
  const auto with = [](std::int32_t slot, std::uint64_t value) {
    Process other;
    other.memory.put(fake::kStack + static_cast<std::uint64_t>(std::int64_t{slot}), value);
    return other.interpreted();
  };
  EXPECT_EQ(with(-8, fake::number(20)), "none") << "a number stands for a frame of another kind";
  EXPECT_EQ(with(-16, fake::number(1)), "none");
  EXPECT_EQ(with(-16, fake::kScript + 1), "none") << "no function";
  EXPECT_EQ(with(-32, fake::kScript + 1), "none") << "no bytecodes";
}

// The collector has moved the function since, and another's is at its place.
TEST(V8Names, AFunctionWithOtherBytecodesIsNotTheFrames) {
  Process process;
  process.put_offset(kFirstBytecode);
  const std::uint64_t bytecodes = fake::kShared + 8;
  process.memory.put(bytecodes, fake::kScript + 1);
  EXPECT_EQ(process.interpreted(), "none");
  process.memory.put(bytecodes, fake::kBytecodes + 1);
  EXPECT_EQ(process.interpreted(), "f 2 20");
  process.memory.put(bytecodes, fake::kScript + 1);
  EXPECT_EQ(process.interpreted(), "f 2 20") << "the bytecodes were met with their function before";
  process.memory.put_bytes(fake::kBytecodes + 64, "\5\2");
  EXPECT_EQ(process.interpreted(), "none") << "and these are others";
}

// The collector has moved the function before anybody asked. Its script, of which another function was met, has it.
TEST(V8Names, AFunctionThatWasMovedIsFoundInItsScript) {
  constexpr std::uint64_t kList = fake::kTables + 0x180, kOther = fake::kBase + 0xe00;
  Process process;
  process.put_offset(kFirstBytecode);
  process.memory.put_object(kList, fake::kWeakArray, {fake::number(3), 3, fake::kScope + 1, kOther + 3});
  process.memory.put_object(kOther, fake::kSharedType, {fake::kBytecodes + 1, fake::kScope + 1, fake::kScript + 1});
  process.memory.put(fake::kShared + 8, fake::kScript + 1);
  process.memory.put(fake::kScript + 64, kList + 1);
  EXPECT_EQ(process.interpreted(), "none") << "no function of the script was met";
  process.memory.put(fake::kShared + 8, kOther + 0x81);
  process.memory.put_object(kOther + 0x80, fake::kBytecodeArray, {fake::number(1)});
  process.memory.put(fake::kStack - 32, kOther + 0x81);
  EXPECT_EQ(process.interpreted(), "f");
  process.memory.put(fake::kShared + 8, fake::kScript + 1);
  process.memory.put(fake::kStack - 32, fake::kBytecodes + 1);
  EXPECT_EQ(process.interpreted(), "f");
}

// The word that the kernel takes of a frame: of a function what it shares with others, which is not moved.
TEST(V8Names, WhatAFunctionSharesStandsForIt) {
  Process process;
  process.put_offset(kFirstBytecode);
  process.memory.put(fake::kFunction + 24, fake::kScript + 1);
  EXPECT_EQ(process.interpreted(), "none");
  process.memory.put(fake::kStack - 16, fake::kShared + 1);
  EXPECT_EQ(process.interpreted(), "f 2 20");
}

TEST(V8Names, AFunctionHasItsBytecodesByOtherObjects) {
  constexpr std::uint64_t kInterpreterData = fake::kTables + 0x1c0;
  Process process;
  process.put_offset(kFirstBytecode);
  const auto baseline = process.baseline();
  process.memory.put(fake::kShared + 8, fake::kCode + 1);
  EXPECT_EQ(process.interpreted(), "f 2 20") << "by its baseline code";
  process.memory.put(fake::kCode + 8, kInterpreterData + 1);
  process.memory.put_object(kInterpreterData, fake::kInterpreterData, {fake::kBytecodes + 1, 0});
  EXPECT_EQ(process.interpreted(), "f 2 20") << "and that by an InterpreterData";
  Process other;
  other.put_offset(kFirstBytecode);
  other.memory.put(fake::kShared + 8, fake::kCode + 1);
  EXPECT_EQ(other.interpreted(), "none") << "the code of another";
}

// Words below the stack pointer are left over from earlier calls.
TEST(V8Names, SlotsThatAreNotWrittenYetSayNothing) {
  Process process;
  process.put_offset(kFirstBytecode);
  EXPECT_EQ(process.interpreted(process.frame(fake::kStack - 40)), "f 2 20");
  EXPECT_EQ(process.interpreted(process.frame(fake::kStack - 39)), "f");
  EXPECT_EQ(process.interpreted(process.frame(fake::kStack - 31)), "none");
  EXPECT_EQ(process.interpreted(process.frame(fake::kStack - 15)), "none");
  EXPECT_EQ(process.interpreted(process.frame(fake::kStack)), "none");
}

TEST(V8Names, FunctionsWithoutANameAreAnonymous) {
  Process process;
  process.memory.put_text(fake::kSource + 0xc0, "");
  process.put_offset(kFirstBytecode);
  EXPECT_EQ(process.interpreted(), "(anonymous) 2 20");
}

// --enable-lazy-source-positions: it comes when somebody asks V8 for it.
TEST(V8Names, ATableOfPositionsThatComesLaterIsRead) {
  Process process;
  process.put_offset(kFirstBytecode + 4);
  process.memory.put(fake::kBytecodes + 24, std::uint64_t{0});
  EXPECT_EQ(process.interpreted(), "f");
  process.memory.put(fake::kBytecodes + 24, kPositions + 1);
  const auto asked = std::chrono::steady_clock::now();
  const std::string again = process.interpreted();
  if (std::chrono::steady_clock::now() - asked < std::chrono::nanoseconds(Names::kStaleAfter / 2)) {
    EXPECT_EQ(again, "f") << "it is not looked for at each sample";
  }
  std::this_thread::sleep_for(std::chrono::nanoseconds(Names::kStaleAfter + 10'000'000));
  EXPECT_EQ(process.interpreted(), "f 3 26");
  process.memory.put(fake::kBytecodes + 24, std::uint64_t{0});
  std::this_thread::sleep_for(std::chrono::nanoseconds(Names::kStaleAfter + 10'000'000));
  EXPECT_EQ(process.interpreted(), "f 3 26") << "what is known stays";
}

// Handlers of exceptions are in a table of bytes, too, and the other tables of other functions look alike.
TEST(V8Names, OnlyATableThatFitsIsOneOfPositions) {
  const auto with = [](std::string_view table, std::uint32_t bytecodes = 12) {
    Process process;
    process.memory.put(fake::kBytecodes + 8, fake::number(bytecodes));
    process.memory.put(kPositions + 8, fake::number(static_cast<std::uint32_t>(table.size())));
    process.memory.put_bytes(kPositions + 16, table);
    process.put_offset(kFirstBytecode + 4);
    return process.interpreted();
  };
  EXPECT_EQ(with("\x02\x54\x08\x18"), "f 3 26");
  EXPECT_EQ(with("\x02\x54\x08\x18", 5), "f 3 26");
  EXPECT_EQ(with("\x02\x54\x08\x18", 4), "f") << "behind the last bytecode";
  EXPECT_EQ(with("\x02\x48\x08\x24"), "f 3 26") << "where the function begins";
  EXPECT_EQ(with("\x02\x44\x08\x28"), "f") << "in front of the function";
  EXPECT_NE(with("\x02\x54\x08\x40"), "f") << "where it ends";
  EXPECT_EQ(with("\x02\x54\x08\x44"), "f") << "behind the function";
  EXPECT_EQ(with("\x02\x54\x08"), "f") << "cut off";
  EXPECT_EQ(with(""), "f");
}

TEST(V8Names, BaselineCodeIsAtABytecodeByItsInstruction) {
  Process process;
  const auto code = process.baseline();
  const auto at = [&](std::uint64_t offset) {
    // Looked up at the last byte of the call that is returned from.
    return process.at(*code, process.frame(), fake::kInstructions + offset - 1);
  };
  ASSERT_EQ(code->bytecodes.size(), 12U);
  ASSERT_EQ(code->offsets.size(), 5U);
  EXPECT_EQ(at(5), "none") << "it has no frame yet";
  EXPECT_EQ(at(6), "f 2 20");
  EXPECT_EQ(at(8), "f 2 20");
  EXPECT_EQ(at(9), "f 3 26");
  EXPECT_EQ(at(12), "f 3 26");
  process.memory.put(fake::kStack - 32, fake::kScript + 1);
  EXPECT_EQ(at(9), "f 3 26") << "the slot has none, and the code has";
}

TEST(V8Names, BaselineCodesBytecodesMayBeInAnInterpreterData) {
  Process process;
  (void)process.baseline();
  constexpr std::uint64_t kInterpreterData = fake::kTables + 0x1c0;
  process.memory.put_object(kInterpreterData, fake::kInterpreterData, {fake::kBytecodes + 1, 0});
  process.memory.put(fake::kCode + 8, kInterpreterData + 1);
  const auto code = process.compiled();
  EXPECT_EQ(code->bytecodes.size(), 12U);
  EXPECT_EQ(code->offsets.size(), 5U);
  process.memory.put(kInterpreterData + 8, fake::kScript + 1);
  EXPECT_TRUE(process.compiled()->bytecodes.empty());
}

TEST(V8Names, BaselineCodeWithTablesThatLieHasNone) {
  const auto bytecodes = [](auto change) {
    Process process;
    (void)process.baseline();
    change(process.memory);
    const auto code = process.compiled();
    return code->offsets.empty() ? 0 : code->bytecodes.size();
  };
  EXPECT_EQ(bytecodes([](fake::FakeMemory&) {}), 12U);
  EXPECT_EQ(bytecodes([](fake::FakeMemory& memory) { memory.put(fake::kBytecodes + 8, fake::number(0x7fff'ffff)); }),
            0U);
  EXPECT_EQ(bytecodes([](fake::FakeMemory& memory) { memory.put(fake::kBytecodes + 8, fake::number(1 << 20)); }), 0U)
      << "behind the end of memory";
  EXPECT_EQ(bytecodes([](fake::FakeMemory& memory) { memory.put(kOffsets + 8, fake::number(1 << 20)); }), 0U);
}

// "f 2 20 f 2 17": the functions at an instruction, innermost first.
std::string functions_at(Process& process, std::uint64_t offset) {
  const auto code = process.compiled();
  std::string found;
  code->each_function(offset, [&](std::uint32_t function, std::int32_t position) {
    found += function == Functions::kNone ? "none " : process.names->named(function, 0).name + ' ';
    found += std::to_string(position) + ' ';
  });
  return found;
}

TEST(V8Names, OptimisedCodeHasWhatIsInlinedByItsLiterals) {
  Process process;
  ASSERT_EQ(functions_at(process, 0), "f 20 f 20 ");
  // Two more: the function itself, inlined into the first, and a literal that is no function, into that.
  process.memory.put(fake::kTables + 0x88, fake::number(48));
  const auto inlining = [&](unsigned number, std::uint32_t position, std::uint64_t into, std::int32_t literal) {
    const std::uint64_t at = fake::kTables + 0x90 + number * 16;
    process.memory.put(at, std::uint64_t{position + 1} << 1 | (into + 1) << 31);
    process.memory.put(at + 8, literal);
  };
  inlining(1, 23, 0, -1), inlining(2, 24, 1, 7);
  // The first entry's position is inlined by the third: from 0x80 (a continued number) on.
  const auto positions = [&](std::uint64_t inlined) {
    const std::uint64_t raw = std::uint64_t{21} << 1 | (inlined + 1) << 31, zigzag = raw << 1;
    std::string table("\2", 1);
    for (std::uint64_t rest = zigzag;; rest >>= 7) {
      table += static_cast<char>((rest & 0x7f) | (rest >= 0x80 ? 0x80 : 0));
      if (rest < 0x80) break;
    }
    process.memory.put(fake::kTables + 8, fake::number(static_cast<std::uint32_t>(table.size())));
    process.memory.put_bytes(fake::kTables + 16, table);
  };
  positions(1);
  EXPECT_EQ(functions_at(process, 0), "f 20 f 23 f 20 ");
  positions(2);
  EXPECT_EQ(functions_at(process, 0), "none 20 f 24 f 23 f 20 ");
  positions(3);
  EXPECT_EQ(functions_at(process, 0), "f 20 ") << "there is no fourth";
  process.memory.put(fake::kTables + 0x88, fake::number(47));
  positions(2);
  EXPECT_EQ(functions_at(process, 0), "f 20 ") << "the third is cut off";
  positions(1);
  EXPECT_EQ(functions_at(process, 0), "f 20 f 23 f 20 ");
  inlining(1, 23, 1, -1);
  EXPECT_EQ(functions_at(process, 0), "f 20 f 23 f 23 ") << "one that is inlined into itself, once for each of two";
}

TEST(V8Names, OptimisedCodeWhoseFunctionIsNotKnownHasNone) {
  Process process;
  process.memory.put(fake::kData + 48, fake::kScript + 1);
  const auto code = process.compiled();
  EXPECT_EQ(code->function, Functions::kNone);
  EXPECT_TRUE(code->positions.empty());
  EXPECT_EQ(functions_at(process, 0), "");
}

// What the kernel takes of a frame: the words that tell it from another function's, or from another place in the same.
TEST(V8Names, TheWordsOfAFrameAreItsSlots) {
  Process process;
  const auto words = [&](const Code& code, std::uint64_t address) {
    const auto found = process.names->words_of(code, address);
    if (!found) return std::string("not here");
    std::string text;
    for (const wl_taken& word : *found) {
      EXPECT_EQ(word.reg, 6) << "rbp";
      const int behind = word.flags >> WL_TAKEN_BEHIND;
      text += std::to_string(word.offset) + (behind != 0 ? ">" + std::to_string(behind * 8) : "") +
              ((word.flags & WL_TAKEN_SILENT) != 0 ? "s " : " ");
      EXPECT_EQ(word.flags & WL_TAKEN_REGISTER, 0);
    }
    return text;
  };
  const Layout& layout = *process.layout;
  const std::string common = std::to_string(layout.frame_context) + "s " + std::to_string(layout.frame_function) +
                             ">24 " + std::to_string(layout.frame_bytecodes) + " ";
  EXPECT_EQ(words(MadeUpCode(), MadeUpCode::kAt + 8), common + std::to_string(layout.frame_bytecode_offset) + " ");
  EXPECT_EQ(words(MadeUpCode(true, false), MadeUpCode::kAt + 8), "not here") << "its frame is not set up";
  EXPECT_EQ(words(MadeUpCode(false), MadeUpCode::kAt + 8), "") << "a builtin's address says it all";
  const auto optimised = process.compiled();
  EXPECT_EQ(words(*optimised, optimised->begin + 8), "") << "and so does that of optimised code";
  const auto baseline = process.baseline();
  EXPECT_EQ(words(*baseline, baseline->begin + 8), common) << "its address says which bytecode";
  EXPECT_EQ(words(*baseline, baseline->begin), "not here");
}

// Literals point to functions weakly since V8 12: the second bit is set.
TEST(V8Names, WeakPointersAreFollowed) {
  Process process;
  process.memory.put(fake::kData + 48, fake::kShared + 3);
  EXPECT_EQ(functions_at(process, 5), "f 26 ");
}

// V8 13 has an object between them; 12.9 calls the place of it otherwise.
TEST(V8Names, WrappersAreFollowed) {
  constexpr std::uint16_t kWrapper = fake::kInterpreterData + 1;
  constexpr std::uint64_t kWrapperAt = fake::kTables + 0x1c0;
  for (const char* place :
       {"DeoptimizationDataWrappedSharedFunctionInfoIndex", "DeoptimizationDataSharedFunctionInfoWrapperIndex"}) {
    fake::Facts facts = fake::facts();
    facts.emplace_back("type_SharedFunctionInfoWrapper__SHARED_FUNCTION_INFO_WRAPPER_TYPE", kWrapper);
    facts.emplace_back("class_SharedFunctionInfoWrapper__shared_info__x", 8);
    facts.emplace_back(place, 4);
    Process process(facts);
    process.memory.put_object(kWrapperAt, kWrapper, {fake::kShared + 1});
    process.memory.put(fake::kData + 48, kWrapperAt + 1);
    EXPECT_EQ(functions_at(process, 5), "f 26 ") << place;
  }
  Process without;
  without.memory.put_object(kWrapperAt, kWrapper, {fake::kShared + 1});
  without.memory.put(fake::kData + 48, kWrapperAt + 1);
  EXPECT_EQ(functions_at(without, 5), "");
}

// Since V8 14.9 arrays have 32-bit numbers, with anything behind them, and bytecodes tagged ones.
TEST(V8Names, LengthsOfArraysMayBePlain) {
  fake::FakeMemory memory = fake::make();
  memory.put_object(fake::kBytecodes, fake::kBytecodeArray, {fake::number(12)});
  Layout layout = Layout::make(Process().facts.value()).value();
  for (const bool plain : {false, true}) {
    layout.has_plain_lengths = plain;
    const Heap heap(memory, layout);
    memory.put_object(fake::kTables, fake::kArray, {plain ? 0x43d7'0000'0002 : fake::number(2), 0, fake::number(8)});
    EXPECT_EQ(heap.length_of(fake::kTables + 1), 2U);
    EXPECT_EQ(heap.element(fake::kTables + 1, 1), fake::number(8));
    EXPECT_EQ(heap.element(fake::kTables + 1, 2), std::nullopt);
    EXPECT_EQ(heap.length_of_bytecodes(fake::kBytecodes + 1), 12U);
    memory.put_object(fake::kTables, fake::kArray, {plain ? 0x8000'0000 : 2});
    EXPECT_EQ(heap.length_of(fake::kTables + 1), std::nullopt);
    memory.put_object(fake::kTables, fake::kArray, {0});
    EXPECT_EQ(heap.length_of(fake::kTables + 1), 0U);
  }
}

}  // namespace
}  // namespace windlass::runtimes::v8
