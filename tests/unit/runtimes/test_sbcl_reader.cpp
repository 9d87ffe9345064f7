// What an SBCL says of its functions, their frames and names, in memory made up by hand: whole, changed, lying.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "base/registers.h"
#include "runtimes/sbcl/code_map.h"
#include "runtimes/sbcl/find.h"
#include "support/fake_sbcl.h"
#include "support/methods_of.h"

namespace windlass::runtimes::sbcl {
namespace {

namespace fake = test::fake_sbcl;
constexpr RegisterNumber kRbx = 3;

struct Machine {
  std::shared_ptr<fake::FakeMemory> memory = std::make_shared<fake::FakeMemory>(fake::make());
  std::unique_ptr<Runtime> runtime = open(memory, fake::kImage);

  [[nodiscard]] std::optional<FrameRow> row(std::uint64_t pc) const {
    FrameRow found;
    const auto method = runtime->method_at(pc);
    EXPECT_TRUE(method) << std::hex << pc;
    if (method && (*method)->row_at(pc, found)) return found;
    return std::nullopt;
  }
  [[nodiscard]] std::string name(std::uint64_t pc) const {
    const auto method = runtime->method_at(pc);
    return method ? (*method)->name : "none";
  }
  // Where the function at pc begins; 0: none is there.
  [[nodiscard]] std::uint64_t begin(std::uint64_t pc) const {
    const auto method = runtime->method_at(pc);
    return method ? (*method)->begin : 0;
  }
};

TEST(SbclReader, FunctionsAreThoseOfTheirCodeObject) {
  const Machine machine;
  EXPECT_TRUE(find_exports(*machine.memory, fake::kImage));
  EXPECT_EQ(machine.begin(fake::kText - 1), 0U) << "constants";
  EXPECT_EQ(machine.begin(fake::kText), fake::kText) << "what stands before the first function is the first one's";
  EXPECT_EQ(machine.begin(fake::kFunction + 5), fake::kText);
  EXPECT_EQ(machine.begin(fake::kText + fake::kSecond - 1), fake::kText);
  EXPECT_EQ(machine.begin(fake::kOther), fake::kText + fake::kSecond);
  EXPECT_EQ(machine.begin(fake::kObject + fake::kObjectSize - 17), fake::kText + fake::kSecond);
  EXPECT_EQ(machine.begin(fake::kObject + fake::kObjectSize - 16), 0U) << "the table of functions";
  EXPECT_EQ(machine.begin(fake::kRoutines + 8), 0U) << "the assembler's routines have no frames of Lisp";
}

TEST(SbclReader, NamesAreAsLispPrintsThem) {
  const Machine machine;
  EXPECT_EQ(machine.name(fake::kFunction), "SB-IMPL::FIND");
  EXPECT_EQ(machine.name(fake::kOther), "(SETF SB-IMPL::FIND 7)");
  machine.memory->put(fake::kList + 8, fake::kList + 7);  // a list without an end
  EXPECT_EQ(machine.name(fake::kOther), "");
  machine.memory->put_string(fake::kStrings, "KEYWORD");
  EXPECT_EQ(machine.name(fake::kFunction), ":FIND");
  machine.memory->put_string(fake::kStrings, "COMMON-LISP");
  EXPECT_EQ(machine.name(fake::kFunction), "FIND");
  machine.memory->put(fake::kStrings + 32, std::uint64_t{0xe5});  // four bytes a character
  machine.memory->put(fake::kStrings + 40, std::uint64_t{2 * 2});
  machine.memory->put(fake::kStrings + 48, std::uint64_t{0xfc} << 32 | 'L');
  EXPECT_EQ(machine.name(fake::kFunction), "L\u00fc");
}

// SBCL 2.5 and 2.6: the fixups stand before the debug information, which has what the functions are called. The header
// of a symbol has its package. 2.6 puts NIL anywhere.
TEST(SbclReader, LaterReleasesHaveNamesInTheDebugInformation) {
  constexpr std::uint64_t kDebug = fake::kBase + 1024, kNil = fake::kBase + 1280 + 7, kFields = 5;
  constexpr std::uint64_t kFields13 = std::uint64_t{13} << 10 | 0x39;
  const Machine machine;
  fake::FakeMemory& memory = *machine.memory;
  memory.put(fake::kObject + 16, std::uint64_t{2 * 411}), memory.put(fake::kObject + 24, kDebug + 3);
  memory.put(kDebug, kFields13);
  memory.put(kDebug + 8 + kFields * 8, fake::kSymbol + 15), memory.put(kDebug + 8 + (kFields + 4) * 8, fake::kList + 7);
  memory.put(fake::kObject + 4 * 8, std::uint64_t{2}), memory.put(fake::kObject + 8 * 8, std::uint64_t{4});
  memory.put(fake::kSymbol, std::uint64_t{0x4600'0100 | fake::kSymbolKind});
  memory.put(fake::kSymbol + 40, fake::kStrings + 32 + 15);
  memory.put(fake::kList + 40, kNil), memory.put(kNil - 7, kNil), memory.put(kNil + 1, kNil);
  EXPECT_EQ(machine.name(fake::kFunction), "SB-IMPL::FIND");
  EXPECT_EQ(machine.name(fake::kOther), "(SETF SB-IMPL::FIND 7)");
  memory.put(kNil + 1, std::uint64_t{0});
  EXPECT_EQ(machine.name(fake::kOther), "") << "a list that does not end in NIL";
  memory.put(kNil + 1, kNil);
  memory.put(kDebug, kFields13 - (4 << 10));
  EXPECT_EQ(machine.name(fake::kFunction), "SB-IMPL::FIND");
  EXPECT_EQ(machine.name(fake::kOther), "") << "behind the information";
  memory.put(kDebug, kFields13 - 1);
  EXPECT_EQ(machine.name(fake::kFunction), "") << "no instance";
  EXPECT_EQ(machine.begin(fake::kFunction), fake::kText) << "its frames are known all the same";
}

// Its constants alone may be fewer than a function of 2.2.9 has.
TEST(SbclReader, LaterReleasesNeedNoConstants) {
  const auto begins = [](std::uint64_t fixups, std::uint64_t debug) {
    const Machine machine;
    constexpr std::uint64_t kSize = fake::kObject + fake::kObjectSize - (fake::kText - 32);
    constexpr std::uint64_t kObject = fake::kText - 32;
    fake::FakeMemory& memory = *machine.memory;
    memory.put(kObject, (kSize / 8) << 32 | fake::kCodeKind), memory.put(kObject + 8, std::uint64_t{32});
    memory.put(kObject + 16, fixups), memory.put(kObject + 24, debug);
    for (const std::uint64_t at : {fake::kFirst, fake::kSecond})
      memory.put(fake::kText + at, (32 + at) / 8 << 8 | fake::kFunctionKind);
    return machine.begin(fake::kFunction);
  };
  EXPECT_EQ(begins(2 * 411, fake::kBase + 3), fake::kText);
  EXPECT_EQ(begins(fake::kBase + 3, 2 * 411), 0U) << "2.2.9's has four of each function";
}

TEST(SbclReader, FramesAreThoseOfTheFramePointer) {
  const Machine machine;
  const auto body = machine.row(fake::kFunction + 3);
  ASSERT_TRUE(body);
  EXPECT_EQ(body->cfa, CfaRule::at(x86_64::kRbp, 16));
  EXPECT_EQ(body->return_address, RegisterRule::at_cfa(-8));
  EXPECT_EQ(*body->registers.find(x86_64::kRbp), RegisterRule::at_cfa(-16));
  EXPECT_EQ(*body->registers.find(kRbx), RegisterRule::undefined());
  for (const std::uint64_t at : {fake::kFunction + 15, fake::kFunction + fake::kBehindCall, fake::kFunction + 27})
    EXPECT_EQ(machine.row(at)->cfa, body->cfa) << std::hex << at;
}

TEST(SbclReader, TheReturnAddressIsOnTheStackAtBothEnds) {
  const Machine machine;
  const auto first = machine.row(fake::kFunction);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->cfa, CfaRule::at(x86_64::kRbp, 16));
  EXPECT_EQ(first->return_address, RegisterRule::at_register(x86_64::kRsp, 0));
  const auto last = machine.row(fake::kFunction + fake::kReturnAt);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->cfa, CfaRule::at(x86_64::kRsp, 8));
  EXPECT_EQ(last->return_address, RegisterRule::at_cfa(-8));
  EXPECT_EQ(*last->registers.find(x86_64::kRbp), RegisterRule::same_value());
  const auto values = machine.row(fake::kOther + 7);
  ASSERT_TRUE(values);
  EXPECT_EQ(values->cfa, CfaRule::at(kRbx, 0)) << "between the old frame pointer and the return address";
  machine.memory->put(fake::kOther + 3, std::uint8_t{0x4c});  // mov r13, [rbp]: the frame pointer has not changed
  EXPECT_EQ(machine.row(fake::kOther + 7)->cfa, CfaRule::at(x86_64::kRbp, 16));
}

TEST(SbclReader, BeforeACallTheFramePointerIsTheCallees) {
  const Machine machine;
  for (std::uint64_t at = 18; at <= fake::kCallAt; ++at) {
    if (at == 19) continue;  // within an instruction
    EXPECT_EQ(machine.row(fake::kFunction + at)->cfa, CfaRule::loaded(x86_64::kRbp, 0, 16)) << at;
  }
}

// jz 1f; call rax; jmp 2f; 1: call rbx; 2: The second form of the call is reached past the first. Behind a call and a
// jump elsewhere begins other code.
TEST(SbclReader, ACallMayHaveTwoForms) {
  const auto at_second = [](std::uint8_t distance) {
    const Machine machine;
    machine.memory->put_code(fake::kFunction + 18, {0x74, distance, 0xff, 0xd0, 0xeb, 0x02, 0xff, 0xd3});
    return machine.row(fake::kFunction + 24)->cfa;
  };
  EXPECT_EQ(at_second(4), CfaRule::loaded(x86_64::kRbp, 0, 16));
  EXPECT_EQ(at_second(9), CfaRule::at(x86_64::kRbp, 16));
}

TEST(SbclReader, WhatDoesNotAgreeIsNoCodeObject) {
  const auto with = [](std::uint64_t at, auto value) {
    const Machine machine;
    machine.memory->put(at, value);
    return machine.begin(fake::kFunction);
  };
  const std::uint64_t end = fake::kObject + fake::kObjectSize;
  EXPECT_EQ(with(fake::kBase + 48, std::uint8_t{1}), fake::kText) << "elsewhere";
  EXPECT_EQ(with(fake::kObject, std::uint8_t{0x36}), 0U);
  EXPECT_EQ(with(fake::kObject + 4, std::uint32_t{20}), 0U) << "too small for the pc";
  EXPECT_EQ(with(fake::kObject + 8, fake::kBoxed + 8), 0U) << "the functions lead elsewhere";
  EXPECT_EQ(with(fake::kText + fake::kFirst, std::uint64_t{0x41}), 0U);
  EXPECT_EQ(with(fake::kText + fake::kSecond, std::uint64_t{0x41}), 0U);
  EXPECT_EQ(with(end - 4, std::uint16_t{0}), 0U) << "no functions";
  EXPECT_EQ(with(end - 2, std::uint16_t{8}), 0U) << "a table without room for both";
  EXPECT_EQ(with(end - 12, std::uint32_t{8}), 0U) << "descending";
}

TEST(SbclReader, NamesAreOfBoundedSize) {
  const Machine machine;
  const auto name_of_length = [&](std::uint64_t length) {
    machine.memory->put(fake::kStrings + 40, 2 * length);
    return machine.name(fake::kFunction).size();
  };
  EXPECT_EQ(name_of_length(512), std::string("SB-IMPL::").size() + 512);
  EXPECT_EQ(name_of_length(513), 0U);
  machine.memory->put(fake::kStrings + 8, std::uint64_t{2 * 513});
  EXPECT_EQ(name_of_length(4), std::string("FIND").size()) << "a package whose name is none";
}

// A list of 62 elements has 63 objects, and 64 is the most. Lists within lists: seven.
TEST(SbclReader, NamesHaveSoManyParts) {
  const Machine machine;
  const std::uint64_t cells = fake::kBase + 4096 + 1024;
  const auto name_of_list = [&](std::uint64_t length) {
    for (std::uint64_t i = 0; i < length; ++i) {
      machine.memory->put(cells + i * 16, std::uint64_t{2});
      machine.memory->put(cells + i * 16 + 8, i + 1 < length ? cells + (i + 1) * 16 + 7 : fake::kNil);
    }
    machine.memory->put(fake::kObject + 8 * 8, cells + 7);
    return machine.name(fake::kOther);
  };
  EXPECT_EQ(name_of_list(2), "(1 1)");
  EXPECT_EQ(name_of_list(63).size(), 2U * 63 + 1);
  EXPECT_EQ(name_of_list(64), "");
  const auto name_of_nest = [&](std::uint64_t depth) {
    for (std::uint64_t i = 0; i < depth; ++i) {
      machine.memory->put(cells + i * 16, i + 1 < depth ? cells + (i + 1) * 16 + 7 : fake::kNil);
      machine.memory->put(cells + i * 16 + 8, fake::kNil);
    }
    return machine.name(fake::kOther);
  };
  EXPECT_EQ(name_of_nest(6), "((((((NIL))))))");
  EXPECT_EQ(name_of_nest(7), "");
}

TEST(SbclReader, CodeIsSoughtSoFar) {
  const auto with_size = [](std::uint64_t words) {
    const Machine machine;
    machine.memory->put(fake::kObject + 4, static_cast<std::uint32_t>(words));
    return machine.begin(fake::kFunction);
  };
  EXPECT_EQ(with_size(fake::kObjectSize / 8), fake::kText);
  EXPECT_EQ(with_size(fake::kObjectSize / 8 + 1), 0U) << "its table is elsewhere";
  EXPECT_EQ(with_size(0xffffffff), 0U);
}

TEST(SbclReader, ReadsLispOnceItIsLoaded) {
  auto memory = std::make_shared<fake::FakeMemory>(fake::make());
  memory->put(fake::kVariables, std::uint64_t{0});
  const auto runtime = open(memory, fake::kImage);
  EXPECT_TRUE(runtime->is_starting());
  EXPECT_FALSE(runtime->method_at(fake::kFunction));
  memory->put(fake::kVariables, fake::kRoutines);
  for (const std::uint64_t end : {std::uint64_t{0}, fake::kRoutines}) {
    memory->put(fake::kVariables + 8, end);
    EXPECT_TRUE(runtime->is_starting()) << "no routines end at " << end;
  }
  memory->put(fake::kVariables + 8, fake::kRoutinesEnd);
  EXPECT_FALSE(runtime->is_starting());
  EXPECT_TRUE(runtime->method_at(fake::kFunction));
}

TEST(SbclReader, OtherCodeAtThePlaceIsSeen) {
  const Machine machine;
  const auto method = machine.runtime->method_at(fake::kFunction);
  ASSERT_TRUE(method);
  EXPECT_FALSE((*method)->lasting);
  EXPECT_TRUE(machine.runtime->is_still(**method));
  machine.memory->put(fake::kText + 4, std::uint32_t{9});  // its number
  EXPECT_FALSE(machine.runtime->is_still(**method));
}

TEST(SbclReader, BearsMemoryThatLies) {
  const auto make = [](const auto& memory) { return open(memory, fake::kImage); };
  EXPECT_GT(test::rows_of_changed_memory<Machine>(fake::kDataSize, make, fake::kText, fake::kText + 192, 7), 1000U);
}

}  // namespace
}  // namespace windlass::runtimes::sbcl
