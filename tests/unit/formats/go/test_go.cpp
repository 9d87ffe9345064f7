// Go programs' table of functions, made up here: values at each instruction; the code that goes to another stack, and
// the rule that leads back.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "formats/dwarf/expression.h"
#include "formats/dwarf/switched_stack.h"
#include "formats/go/code_map.h"
#include "formats/go/stack_switch.h"
#include "lookup/table/project.h"
#include "support/fake_go.h"

namespace windlass {
namespace {

using runtimes::go::CodeMap;
using runtimes::go::StackPlace;
using test::fake_go::kKeeps;
using test::fake_go::kSwitch;

ByteView view(const std::vector<std::uint8_t>& bytes) {
  return ByteView(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
}

const dwarf::SwitchedStack kWay{-8, {0x30, 0xb8, 0x38}, 16};

struct Expressions {
  dwarf::Block cfa, back;
};
Expressions expressions_of(const dwarf::SwitchedStack& stack) {
  Expressions made;
  dwarf::append_cfa(stack, made.cfa);
  dwarf::append_return_address(stack, made.back);
  return made;
}

TEST(SwitchedStack, IsRecognised) {
  for (const dwarf::SwitchedStack& stack :
       {kWay, dwarf::SwitchedStack{-4096, {0, 0x1234, 200}, 0}, dwarf::SwitchedStack{40, {128, 64, 8}, 56},
        dwarf::SwitchedStack{-8, {0x30, 0xb8, 0x38}, 0, true},
        dwarf::SwitchedStack{0, {0x30, 0x90, 0x38}, 16, false, {.offset = 0x28}},
        dwarf::SwitchedStack{0, {0x30, 0x88, 0x38}, 0, true, {.variable = 0xb41ce0}}}) {
    const Expressions made = expressions_of(stack);
    EXPECT_EQ(dwarf::switched_stack(view(made.cfa), view(made.back)), stack);
  }
}

// Any byte that is different makes another expression, or another way.
TEST(SwitchedStack, NothingElseIs) {
  const Expressions made = expressions_of(kWay);
  for (std::size_t i = 0; i < made.cfa.size(); ++i) {
    Expressions other = made;
    other.cfa[i] ^= 0x55;
    EXPECT_NE(dwarf::switched_stack(view(other.cfa), view(other.back)), kWay) << i;
    other.cfa.resize(i);
    EXPECT_EQ(dwarf::switched_stack(view(other.cfa), view(made.back)), std::nullopt) << i;
  }
  for (std::size_t i = 0; i < made.back.size(); ++i) {
    Expressions other = made;
    other.back[i] ^= 1;
    EXPECT_EQ(dwarf::switched_stack(view(made.cfa), view(other.back)), std::nullopt) << i;
  }
}

table::TraceRule rule_of(const dwarf::SwitchedStack& stack) {
  const Expressions made = expressions_of(stack);
  dwarf::Block all = made.cfa;
  all.insert(all.end(), made.back.begin(), made.back.end());
  FrameRow row;
  row.expressions = view(all);
  const auto size = static_cast<std::uint16_t>(made.cfa.size());
  row.cfa = CfaRule::expression({0, size});
  row.return_address = RegisterRule::expression_value({size, static_cast<std::uint16_t>(made.back.size())});
  return table::project(row, Architecture::kX86_64, WL_NO_XREG);
}

TEST(SwitchedStack, FitsARule) {
  const table::TraceRule rule = rule_of(kWay);
  EXPECT_EQ(rule.cfa_kind, WL_CFA_THREAD);
  EXPECT_EQ(rule.way_first, -8);
  EXPECT_EQ(rule.way_second, 0x30 / 8);
  EXPECT_EQ(rule.last.words, 0xb8 / 8);
  EXPECT_EQ(rule.last.addend, 16 / 8);
  EXPECT_EQ(rule.way_sp, 0x38 / 8);
  EXPECT_EQ(rule.ra_kind, WL_REG_CFA);
  EXPECT_EQ(rule.ra_offset, -8);
  const table::TraceRule saved = rule_of({-8, {0x30, 0xb8, 0x38}, 0, true});
  EXPECT_EQ(saved.cfa_kind, WL_CFA_THREAD);
  EXPECT_EQ(saved.ra_kind, WL_REG_BASE);
  EXPECT_EQ(saved.ra_offset, 8);
}

TEST(SwitchedStack, IsNoneForCallersOfWhoLeavesIt) {
  FrameRow row;
  row.cfa = CfaRule::at(7, 24);
  row.return_address = RegisterRule::at_cfa(-8);
  EXPECT_FALSE(dwarf::leaves_switched_stack(row));
  EXPECT_EQ(table::project(row, Architecture::kX86_64, WL_NO_XREG).flags, 0);
  dwarf::leave_switched_stack(row, false);
  EXPECT_TRUE(dwarf::leaves_switched_stack(row));
  const table::TraceRule rule = table::project(row, Architecture::kX86_64, WL_NO_XREG);
  EXPECT_EQ(rule.cfa_kind, WL_CFA_REG);
  EXPECT_EQ(rule.flags, WL_RULE_LEFT);

  // fs.base is 0 for them, and so are values that count from it, whatever the memory has there.
  const auto fs_base = [](std::uint64_t value) {
    return [value](std::uint64_t) -> Expected<std::uint64_t> { return value; };
  };
  const auto memory = [](std::uint64_t, unsigned) -> Expected<std::uint64_t> { return 0x1000; };
  const auto none = [](std::uint64_t, unsigned) -> Expected<std::uint64_t> {
    return fail(ErrorCode::kUnreadable, "nothing is read", 0);
  };
  const Expressions made = expressions_of({-8, {0x30, 0xb8, 0x38}, 0, true});
  for (const ByteView expression : {view(made.cfa), view(made.back)}) {
    EXPECT_EQ(dwarf::evaluate_expression(expression, {fs_base(0), none, std::nullopt, 0, 8}).value(), 0U);
    EXPECT_EQ(dwarf::evaluate_expression(expression, {fs_base(0x2000), memory, std::nullopt, 0, 8}).value(), 0x1000U);
  }
}

constexpr dwarf::MovableStack kMovable = {0x30, 8, 0x28, 16};

dwarf::Block expression_of(const dwarf::MovableStack& stack) {
  dwarf::Block made;
  dwarf::append_cfa(stack, made);
  return made;
}

table::TraceRule rule_of(const dwarf::MovableStack& stack) {
  const dwarf::Block made = expression_of(stack);
  FrameRow row;
  row.expressions = view(made);
  row.cfa = CfaRule::expression({0, static_cast<std::uint16_t>(made.size())});
  row.return_address = RegisterRule::at_cfa(-8);
  return table::project(row, Architecture::kX86_64, WL_NO_XREG);
}

TEST(MovableStack, IsKnownAgain) {
  const dwarf::Block made = expression_of(kMovable);
  EXPECT_EQ(dwarf::movable_stack(view(made)), kMovable);
  for (std::size_t i = 0; i < made.size(); ++i) {
    dwarf::Block other = made;
    other[i] ^= 0x55;
    EXPECT_NE(dwarf::movable_stack(view(other)), kMovable) << i;
    other.resize(i);
    EXPECT_EQ(dwarf::movable_stack(view(other)), std::nullopt) << i;
  }
}

TEST(MovableStack, FitsARule) {
  const table::TraceRule rule = rule_of(kMovable);
  EXPECT_EQ(rule.cfa_kind, WL_CFA_MOVABLE);
  EXPECT_EQ(rule.cfa_reg, 7);
  EXPECT_EQ(rule.owner, 0x30);
  EXPECT_EQ(rule.top, 1);
  EXPECT_EQ(rule.last.words, 0x28 / 8);
  EXPECT_EQ(rule.last.addend, 2);
  EXPECT_EQ(rule.x_kind, WL_REG_UNDEFINED);
  EXPECT_EQ(rule.ra_kind, WL_REG_CFA);
  EXPECT_EQ(rule.ra_offset, -8);
  for (const dwarf::MovableStack& other : {dwarf::MovableStack{0x8000, 8, 0x28, 8},
                                           {0x30, 0x800, 0x28, 8},
                                           {0x30, 8, 0x8000, 8},
                                           {0x30, 8, 0x28, 64},
                                           {0x30, 8, 0x2c, 8}})
    EXPECT_EQ(rule_of(other).cfa_kind, WL_CFA_UNSUPPORTED);
}

struct Told {
  std::uint64_t begin, end;
  StackPlace place;
};
std::vector<Told> places_of(const std::vector<std::uint8_t>& code, bool by_thread, std::int32_t depth) {
  std::vector<Told> told;
  const auto depth_at = [&](std::uint64_t) { return depth; };
  const auto tell = [&](std::uint64_t begin, std::uint64_t end, const StackPlace& place) {
    told.push_back({begin, end, place});
  };
  runtimes::go::for_each_place(view(code), 0x1000, by_thread, depth_at, tell);
  return told;
}

TEST(GoStackSwitch, FindsTheWayBack) {
  const auto way = runtimes::go::find_way_back(view(kSwitch), 0x1000);
  ASSERT_TRUE(way.has_value());
  EXPECT_EQ(*way, (dwarf::SwitchedStack{-8, {0x30, 0xb8, 0x38}, 0}));
  const std::vector<std::uint8_t> away(kSwitch.begin(), kSwitch.begin() + 42);  // and no way back
  EXPECT_EQ(runtimes::go::find_way_back(view(away), 0x1000), std::nullopt);
}

// Go's code for Windows up to 1.19, and since: mov rcx, gs:0x28, or mov rcx, [rip + tls_g]; mov rcx, gs:[rcx]. Then:
// mov rax, [rcx]; mov rbx, [rax + 0x30]; mov rdx, [rbx]; mov rsp, [rdx + 0x38]; call rdi; and the way back.
TEST(GoStackSwitch, FindsTheWayBackOfWindows) {
  const std::vector<std::uint8_t> fixed = {0x65, 0x48, 0x8b, 0x0c, 0x25, 0x28, 0, 0, 0};
  const std::vector<std::uint8_t> variable = {0x48, 0x8b, 0x0d, 0x10, 0x20, 0, 0, 0x65, 0x48, 0x8b, 0x09};
  const std::vector<std::uint8_t> away = {0x48, 0x8b, 0x01, 0x48, 0x8b, 0x58, 0x30, 0x48,
                                          0x8b, 0x13, 0x48, 0x8b, 0x62, 0x38, 0xff, 0xd7};
  const std::vector<std::uint8_t> back = {0x48, 0x8b, 0x01, 0x48, 0x8b, 0x58, 0x30, 0x48, 0x8b, 0x83,
                                          0x90, 0,    0,    0,    0x48, 0x8b, 0x60, 0x38, 0xc3};
  const auto code_with = [&](const std::vector<std::uint8_t>& pointer) {
    std::vector<std::uint8_t> code;
    for (const auto* part : {&pointer, &away, &pointer, &back}) code.insert(code.end(), part->begin(), part->end());
    return code;
  };
  const std::vector<std::uint8_t> old = code_with(fixed);
  EXPECT_EQ(runtimes::go::find_way_back(view(old), 0x1000),
            (dwarf::SwitchedStack{0, {0x30, 0x90, 0x38}, 0, false, {.offset = 0x28}}));
  const std::vector<std::uint8_t> now = code_with(variable);
  const std::uint64_t of_second = 0x1000 + variable.size() + away.size() + 7 + 0x2010;
  EXPECT_EQ(runtimes::go::find_way_back(view(now), 0x1000),
            (dwarf::SwitchedStack{0, {0x30, 0x90, 0x38}, 0, false, {.variable = of_second}}));
}

TEST(GoStackSwitch, TellsWhichStackTheCodeIsOn) {
  const auto told = places_of(kSwitch, true, 8);
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[0].end, 0x1014u);
  EXPECT_EQ(told[0].place, StackPlace{});
  EXPECT_EQ(told[1].end, 0x102eu);
  EXPECT_EQ(told[1].place.kind, StackPlace::kOther);
  EXPECT_EQ(told[1].place.depth, 8);
  EXPECT_EQ(told[2].place, StackPlace{});
  EXPECT_EQ(places_of(kSwitch, false, 8)[1].place.kind, StackPlace::kUnknown);
}

TEST(GoStackSwitch, TellsOfCodeThatIsNone) {
  const auto told = places_of({0x06, 0x06}, true, 0);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].begin, 0x1000u);
  EXPECT_EQ(told[0].end, 0x1002u);
}

// mov r12, rsp; and rsp, -16; call rax; mov rsp, r12; ret
TEST(GoStackSwitch, FollowsACopyOfTheStackPointer) {
  const auto told =
      places_of({0x49, 0x89, 0xe4, 0x48, 0x83, 0xe4, 0xf0, 0xff, 0xd0, 0x4c, 0x89, 0xe4, 0xc3}, false, 24);
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[1].begin, 0x1007u);
  EXPECT_EQ(told[1].end, 0x100cu);
  EXPECT_EQ(told[1].place, (StackPlace{StackPlace::kCopied, 12, 0, 32, 0}));
}

// As runtime.cgocallback: push rbp; mov rbp, rsp; mov rsp, rdi; call rax; mov rsp, [rsi + 56]; pop rbp; ret.
// Behind that the table is right again.
TEST(GoStackSwitch, FollowsTheFramePointerToWhereItWasCalled) {
  const std::vector<std::uint8_t> code = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xfc, 0xff,
                                          0xd0, 0x48, 0x8b, 0x66, 0x38, 0x5d, 0xc3};
  const auto told = places_of(code, false, 8);
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[1].begin, 0x1007u);
  EXPECT_EQ(told[1].end, 0x100eu);
  EXPECT_EQ(told[1].place, (StackPlace{StackPlace::kCopied, 6, 0, 16, 0}));
  EXPECT_EQ(told[2].place, StackPlace{});
  EXPECT_EQ(places_of(code, true, 8)[1].place.kind, StackPlace::kOther);
}

// lea rbp, [rsp + 24]; mov rsp, rdi; ret
TEST(GoStackSwitch, FollowsAFramePointerAboveTheStackPointer) {
  const auto told = places_of({0x48, 0x8d, 0x6c, 0x24, 0x18, 0x48, 0x89, 0xfc, 0xc3}, false, 32);
  ASSERT_GE(told.size(), 2u);
  EXPECT_EQ(told[1].place, (StackPlace{StackPlace::kCopied, 6, 0, 16, 0}));
}

TEST(GoStackSwitch, FindsWhatIsKeptOfAStackThatMayMove) {
  EXPECT_EQ(runtimes::go::find_kept_stack(view(kKeeps), 0x1000), (dwarf::MovableStack{0x30, 8, 0x28, 0}));
  EXPECT_EQ(runtimes::go::find_kept_stack(view(kSwitch), 0x1000), std::nullopt);
  std::vector<std::uint8_t> other = kKeeps;
  other[26] = 0x03;  // add instead of sub
  EXPECT_EQ(runtimes::go::find_kept_stack(view(other), 0x1000), std::nullopt);
  const auto told = places_of(kKeeps, true, 0);
  ASSERT_EQ(told.size(), 4u);
  EXPECT_EQ(told[1].place.kind, StackPlace::kOther);
  EXPECT_EQ(told[2].begin, 0x100eu) << "behind the second store";
  EXPECT_EQ(told[2].end, 0x1021u);
  EXPECT_EQ(told[2].place.kind, StackPlace::kKept);
  EXPECT_EQ(told[3].place, StackPlace{});
}

// mov rdx, rsp; mov rdx, rdi; and rsp, -16; mov [rsp + 40], rdx; call rax; ret; and where a jump would lead.
TEST(GoStackSwitch, ForgetsCopiesThatAreOverwrittenAndWaysThatEnd) {
  const std::vector<std::uint8_t> code = {0x48, 0x89, 0xe2, 0x48, 0x89, 0xfa, 0x48, 0x83, 0xe4, 0xf0,
                                          0x48, 0x89, 0x54, 0x24, 0x28, 0xff, 0xd0, 0xc3, 0x90, 0x90};
  const auto told = places_of(code, false, 8);
  for (const Told& one : told) EXPECT_NE(one.place.kind, StackPlace::kStored);
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[1].place.kind, StackPlace::kUnknown);
  EXPECT_EQ(told[2].begin, 0x1012u);
  EXPECT_EQ(told[2].place, StackPlace{});
}

// test edi, edi; mov r12, rsp; mov rsp, rdi; je 1f; mov rsp, r12; ret; 1: call rax; mov rsp, r12; ret
TEST(GoStackSwitch, FollowsJumps) {
  const auto told = places_of({0x85, 0xff, 0x49, 0x89, 0xe4, 0x48, 0x89, 0xfc, 0x74, 0x04,
                               0x4c, 0x89, 0xe4, 0xc3, 0xff, 0xd0, 0x4c, 0x89, 0xe4, 0xc3},
                              false, 24);
  ASSERT_EQ(told.size(), 5u);
  EXPECT_EQ(told[1].place.kind, StackPlace::kCopied);
  EXPECT_EQ(told[1].end, 0x100du);
  EXPECT_EQ(told[2].place, StackPlace{});
  EXPECT_EQ(told[3].begin, 0x100eu) << "where the jump leads";
  EXPECT_EQ(told[3].end, 0x1013u);
  EXPECT_EQ(told[3].place, told[1].place);
}

// mov rdx, rsp; and rsp, -16; mov [rsp + 40], rdx; call rax; mov rsi, [rsp + 40]; mov rsp, rsi; ret
TEST(GoStackSwitch, FollowsAStoredStackPointer) {
  const auto told = places_of({0x48, 0x89, 0xe2, 0x48, 0x83, 0xe4, 0xf0, 0x48, 0x89, 0x54, 0x24, 0x28,
                               0xff, 0xd0, 0x48, 0x8b, 0x74, 0x24, 0x28, 0x48, 0x89, 0xf4, 0xc3},
                              false, 0);
  ASSERT_EQ(told.size(), 4u);
  EXPECT_EQ(told[1].place.kind, StackPlace::kUnknown);
  EXPECT_EQ(told[2].place, (StackPlace{StackPlace::kStored, 0, 40, 8, 0}));
  EXPECT_EQ(told[3].place, StackPlace{});
}

// As runtime.asmstdcall: mov rax, rsp; and rsp, -16; mov [rsp + 8], rax; sub rsp, 0x150; call rax; add rsp, 0x150;
// mov rsp, [rsp + 8]; ret. Whether or not the table counts what is taken off behind the store.
TEST(GoStackSwitch, AStoredStackPointerStaysWhereItIs) {
  const std::vector<std::uint8_t> code = {0x48, 0x89, 0xe0, 0x48, 0x83, 0xe4, 0xf0, 0x48, 0x89, 0x44, 0x24, 0x08,
                                          0x48, 0x81, 0xec, 0x50, 0x01, 0,    0,    0xff, 0xd0, 0x48, 0x81, 0xc4,
                                          0x50, 0x01, 0,    0,    0x48, 0x8b, 0x64, 0x24, 0x08, 0xc3};
  for (const std::int32_t counted : {0x150, 0}) {
    std::vector<Told> told;
    const auto depth_at = [&](std::uint64_t at) { return at >= 0x1013 && at < 0x101c ? counted : 0; };
    const auto tell = [&](std::uint64_t begin, std::uint64_t end, const StackPlace& place) {
      told.push_back({begin, end, place});
    };
    runtimes::go::for_each_place(view(code), 0x1000, false, depth_at, tell);
    ASSERT_EQ(told.size(), 6u);
    EXPECT_EQ(told[2].place, (StackPlace{StackPlace::kStored, 0, 8, 8, 0}));
    EXPECT_EQ(told[3].begin, 0x1013u);
    EXPECT_EQ(told[3].end, 0x101cu);
    EXPECT_EQ(told[3].place, (StackPlace{StackPlace::kStored, 0, 0x158, 8, 0}));
    EXPECT_EQ(told[4].place, told[2].place);
    EXPECT_EQ(told[5].place, StackPlace{});
  }
}

// sub rsp, 0x150; call rax; add rsp, 0x150; ret: as up to Go 1.19, where the table counts none of it.
TEST(GoStackSwitch, WhatTheTableDoesNotCountIsOnTheStack) {
  const auto told =
      places_of({0x48, 0x81, 0xec, 0x50, 0x01, 0, 0, 0xff, 0xd0, 0x48, 0x81, 0xc4, 0x50, 0x01, 0, 0, 0xc3}, false, 8);
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[1].begin, 0x1007u);
  EXPECT_EQ(told[1].end, 0x1010u);
  EXPECT_EQ(told[1].place, (StackPlace{StackPlace::kOwn, 0, 0, 0x150, 0}));
  EXPECT_EQ(told[2].place, StackPlace{});
}

// Two functions at 0x1000 and 0x1020, up to 0x1030, of Go 1.20's form.
struct MadeUp {
  std::vector<std::uint8_t> functions, values, names;

  MadeUp() {
    put({0, 24, 0x20, 24 + 44, 0x30, 0});  // the index: offsets and records
    functions.resize(24 + 2 * 44);
    const std::string_view text("\0main.first\0main.second\0", 24);
    names.assign(text.begin(), text.end());
    field(24, 1, 1), field(24, 4, 1);
    field(24 + 44, 1, 12), field(24 + 44, 4, 1);
    // 0 for 4 bytes (-1 + 1), 24 for 20, 0 for 4; then padding, and what another list begins with.
    values = {0, 2, 4, 48, 20, 47, 4, 0, 4, 4};
  }
  void put(std::initializer_list<std::uint32_t> words) {
    for (const std::uint32_t word : words)
      for (unsigned i = 0; i < 4; ++i) functions.push_back(static_cast<std::uint8_t>(word >> 8 * i));
  }
  void field(std::size_t record, std::size_t number, std::uint32_t value) {
    std::memcpy(functions.data() + record + 4 * number, &value, sizeof value);
  }
  [[nodiscard]] CodeMap map() const {
    runtimes::go::Table table;
    table.text = 0x1000;
    table.function_count = 2;
    table.index = *view(functions).sub(0, 20);
    table.functions = view(functions);
    table.names = view(names);
    table.values = view(values);
    return CodeMap(table);
  }
};

TEST(GoCodeMap, FindsFunctionsByAddress) {
  const MadeUp made;
  const CodeMap map = made.map();
  const auto first = map.function_at(0x101e), second = map.function_at(0x1020);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(map.function_at(0x101f)->begin, 0x1020u) << "what returns to its first instruction is looked up there";
  EXPECT_EQ(map.name(first->name), "main.first");
  EXPECT_EQ(map.name(second->name), "main.second");
  EXPECT_EQ(second->end, 0x1030u);
  EXPECT_EQ(map.function_at(0xfff).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(map.function_at(0x1030).error().code, ErrorCode::kNotFound);
}

TEST(GoCodeMap, HasAValueForEachInstruction) {
  const MadeUp made;
  const CodeMap map = made.map();
  const auto first = map.function_at(0x1000);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->stack, 1u);
  EXPECT_EQ(map.value_at(*first, 1, 0x1000), 0);
  EXPECT_EQ(map.value_at(*first, 1, 0x1003), 0);
  EXPECT_EQ(map.value_at(*first, 1, 0x1004), 24);
  EXPECT_EQ(map.value_at(*first, 1, 0x1017), 24);
  EXPECT_EQ(map.value_at(*first, 1, 0x1018), 0);
  EXPECT_EQ(map.value_at(*first, 1, 0x101c), -1) << "padding";
  EXPECT_EQ(map.value_at(*first, 0, 0x1000), -1) << "there is no list 0";
}

TEST(GoCodeMap, HasNumbersOf32Bits) {
  MadeUp made;
  made.values = {0, 0x80, 0x80, 0x80, 0xa0, 0x01, 4};  // 0x14000000: grows by half of it
  const CodeMap map = made.map();
  EXPECT_EQ(map.value_at(*map.function_at(0x1000), 1, 0x1000), 0x0a000000 - 1);
}

TEST(GoCodeMap, NumbersOfMoreThanFiveBytesEndAList) {
  MadeUp made;
  made.values = {0, 0x82, 0x80, 0x80, 0x80, 0x80, 0x00, 4};  // 2, in six bytes
  EXPECT_EQ(made.map().value_at(*made.map().function_at(0x1000), 1, 0x1000), -1);
  made.values = {0, 0x82, 0x80, 0x80, 0x80, 0x00, 4};  // in five
  EXPECT_EQ(made.map().value_at(*made.map().function_at(0x1000), 1, 0x1000), 0);
}

TEST(GoCodeMap, HasAsManyListsAsAFunctionSays) {
  MadeUp made;
  made.field(24, 7, 1), made.field(24 + 44, 0, 0x77);  // the list is behind the record
  const CodeMap map = made.map();
  const auto first = map.function_at(0x1000);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(map.value_list(*first, 0), 0x77u);
  EXPECT_EQ(map.value_list(*first, 1), 0u);
}

// Whatever byte is wrong: an answer or an error, and reads within the table.
TEST(GoCodeMap, BearsDamage) {
  const MadeUp right;
  for (std::size_t i = 0; i < right.functions.size(); ++i)
    for (const std::uint8_t value : {0x00, 0x7f, 0x80, 0xff}) {
      MadeUp made;
      made.functions[i] = value;
      const CodeMap map = made.map();
      for (const std::uint64_t address : {0x1000u, 0x1010u, 0x102fu}) {
        const auto found = map.function_at(address);
        if (!found) continue;
        (void)map.name(found->name).size();
        (void)map.value_at(*found, found->line, address);
        (void)map.value_list(*found, 2);
      }
    }
}

}  // namespace
}  // namespace windlass
