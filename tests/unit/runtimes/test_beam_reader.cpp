// An Erlang virtual machine's own data, its modules' functions, their names and frames, in memory made up by hand:
// whole, changed, lying.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "base/registers.h"
#include "runtimes/beam/find.h"
#include "runtimes/beam/names.h"
#include "runtimes/beam/rows.h"
#include "support/fake_beam.h"
#include "support/methods_of.h"

namespace windlass::runtimes::beam {
namespace {

namespace fake = test::fake_beam;

// What it is of a virtual machine that has another value somewhere.
template <typename T>
std::optional<ErrorCode> error_with(std::uint64_t at, T value) {
  fake::FakeMemory memory = fake::make();
  memory.put(at, value);
  const auto layout = Layout::read(memory, fake::kImage);
  if (layout) return std::nullopt;
  return layout.error().code;
}

TEST(BeamReader, FindsWhatItExportsAndWhereItsSchedulersAre) {
  const fake::FakeMemory memory = fake::make();
  ASSERT_TRUE(find_exports(memory, fake::kImage));
  const auto layout = Layout::read(memory, fake::kImage);
  ASSERT_TRUE(layout) << layout.error().text();
  EXPECT_EQ(layout->code_index, fake::kCodeIndex);
  EXPECT_EQ(layout->ranges, fake::kRanges);
  EXPECT_EQ(layout->atoms, fake::kAtoms);
  EXPECT_EQ(layout->normal_exit, fake::kNormalExit);
  EXPECT_EQ(layout->scheduler_return, fake::kSchedulerCall + 5);
  EXPECT_EQ(layout->scheduler_distance, fake::kDistance);
  EXPECT_EQ(layout->thread_scheduler, fake::kThreadData);
}

TEST(BeamReader, OneThatExportsNothingToDebuggersIsFoundByItsCode) {
  const fake::FakeMemory memory = fake::make_unexported();
  ASSERT_TRUE(find_exports(memory, fake::kImage));
  const auto layout = Layout::read(memory, fake::kImage);
  ASSERT_TRUE(layout) << layout.error().text();
  EXPECT_EQ(layout->code_index, fake::kCodeIndex);
  EXPECT_EQ(layout->ranges, fake::kRanges);
  EXPECT_EQ(layout->atoms, fake::kAtoms);
  EXPECT_EQ(layout->normal_exit, fake::kNormalExit);
  EXPECT_EQ(layout->process_main, fake::kProcessMain);
  EXPECT_EQ(layout->scheduler_return, fake::kSchedulerCall + 5);
  EXPECT_EQ(layout->thread_scheduler, fake::kThreadData);
  EXPECT_EQ(layout->process_end, fake::k29.process_end);
  const auto found = CodeMap(*layout).find(memory, fake::kSecond);
  ASSERT_TRUE(found);
  EXPECT_EQ(name_of(memory, *layout, *found), "lists:filter/3");
}

TEST(BeamReader, WhatIsNotExportedIsNotGuessed) {
  const auto error_of = [](auto&& change) -> std::optional<ErrorCode> {
    fake::FakeMemory memory = fake::make_unexported();
    change(memory);
    const auto layout = Layout::read(memory, fake::kImage);
    if (layout) return std::nullopt;
    return layout.error().code;
  };
  EXPECT_EQ(error_of([](auto& memory) { memory.put_bytes(fake::kRelease, "28"); }), ErrorCode::kUnsupported);
  EXPECT_EQ(error_of([](auto& memory) { memory.put(fake::kGetAtom, 0); }), ErrorCode::kUnsupported);
  EXPECT_EQ(error_of([](auto& memory) { memory.put(fake::kKeepInRbp, 0); }), ErrorCode::kUnsupported)
      << "with frame pointers";
  EXPECT_EQ(error_of([](auto& memory) { memory.put(fake::kFindRange, 0); }), ErrorCode::kUnsupported);
  EXPECT_EQ(error_of([](auto& memory) { memory.put(fake::kIndexInCode, std::uint64_t{0}); }), ErrorCode::kUnreadable)
      << "which index is active is not known";
  EXPECT_EQ(error_of([](auto& memory) {
              memory.put_relative(fake::kSystemInfo + 0x100, {0x8b, 0x05}, fake::kExit + 4);
              memory.put_relative(fake::kSystemInfo + 0x106, {0x48, 0x8d, 0x15}, fake::kRanges + Layout::kRangesSize);
              memory.put(fake::kIndexInOther, fake::kExit + 4);
            }),
            ErrorCode::kUnsupported)
      << "two are as good";
  EXPECT_EQ(error_of([](auto& memory) { memory.put(fake::kNormalExit - 0x10, fake::kMap); }), ErrorCode::kUnreadable);
  EXPECT_EQ(error_of([](auto& memory) { memory.put(fake::kThread + 0x10, fake::kThread + 8); }),
            ErrorCode::kUnreadable);
  EXPECT_EQ(error_of([](auto& memory) { memory.put(fake::kProcessMain + 12, 0); }), ErrorCode::kUnreadable);
}

TEST(BeamReader, ReleasesDifferInAFewFields) {
  for (const fake::Release& release : {fake::k25, fake::k27}) {
    const fake::FakeMemory memory = fake::make(release);
    const auto layout = Layout::read(memory, fake::kImage);
    ASSERT_TRUE(layout) << layout.error().text();
    EXPECT_EQ(layout->process_end, release.process_end);
    const auto found = CodeMap(*layout).find(memory, fake::kSecond);
    ASSERT_TRUE(found) << release.name;
    EXPECT_EQ(name_of(memory, *layout, *found), "lists:filter/3");
  }
}

TEST(BeamReader, AnotherVirtualMachineIsRefused) {
  EXPECT_EQ(error_with(fake::kRelease, std::array<char, 2>{'2', '6'}), ErrorCode::kUnsupported);
  EXPECT_EQ(error_with(fake::kMachine, 'a'), ErrorCode::kUnsupported);
  EXPECT_EQ(error_with(fake::kBits, 32), ErrorCode::kUnsupported);
  EXPECT_EQ(error_with(fake::kBeamAsm, 0), ErrorCode::kUnsupported) << "an interpreter";
  for (const auto fact : {fake::kDebug, fake::kLockCheck, fake::kLockCount, fake::kFrameLayout})
    EXPECT_EQ(error_with(fact, 1), ErrorCode::kUnsupported) << fact;
  EXPECT_EQ(error_with(fake::kLookup + 1, 0x90909090), ErrorCode::kUnsupported) << "calls nothing";
  EXPECT_EQ(error_with(fake::kFindRange + 2, 0), ErrorCode::kUnsupported) << "loads something else";
}

TEST(BeamReader, OneThatHasJustBegunIsAskedAgain) {
  EXPECT_EQ(error_with(fake::kExit, std::uint64_t{0}), ErrorCode::kUnreadable);
  EXPECT_EQ(error_with(fake::kSchedulers, std::uint64_t{0}), ErrorCode::kUnreadable);
  EXPECT_EQ(error_with(fake::kRegisters + fake::kDistance, std::uint64_t{0}), ErrorCode::kUnreadable);
}

TEST(BeamReader, TheThreadsBlockPointsToItself) {
  fake::FakeMemory memory = fake::make();
  memory.put(fake::kThread + 0x10, fake::kThread + 8);
  EXPECT_EQ(Layout::read(memory, fake::kImage)->thread_scheduler, 0U);
}

// The function's begin; 0: none.
std::uint64_t begin_at(std::uint64_t pc) {
  const fake::FakeMemory memory = fake::make();
  const auto found = CodeMap(*Layout::read(memory, fake::kImage)).find(memory, pc);
  if (found) return found->begin;
  EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
  return 0;
}

TEST(BeamReader, FunctionsBeginAndEndWhereTheTableSays) {
  EXPECT_EQ(begin_at(fake::kFirst - 1), 0U);
  EXPECT_EQ(begin_at(fake::kFirst), fake::kFirst);
  EXPECT_EQ(begin_at(fake::kSecond - 1), fake::kFirst);
  EXPECT_EQ(begin_at(fake::kSecond), fake::kSecond);
  EXPECT_EQ(begin_at(fake::kStub), fake::kSecond);
  EXPECT_EQ(begin_at(fake::kCodeEnd - 1), fake::kSecond);
  EXPECT_EQ(begin_at(fake::kCodeEnd), 0U);
  EXPECT_EQ(begin_at(fake::kOtherModule), 0U) << "a module without functions";
  EXPECT_EQ(begin_at(fake::kOtherModule + fake::kModuleSize), 0U);
}

TEST(BeamReader, ModulesEndWhereTheirRangesDo) {
  const fake::FakeMemory memory = fake::make();
  const CodeMap map(*Layout::read(memory, fake::kImage));
  EXPECT_FALSE(map.in_module(memory, fake::kModule - 1));
  EXPECT_TRUE(map.in_module(memory, fake::kModule));
  EXPECT_TRUE(map.in_module(memory, fake::kOtherModule + fake::kModuleSize - 1));
  EXPECT_FALSE(map.in_module(memory, fake::kOtherModule + fake::kModuleSize));
}

template <typename T>
std::optional<ErrorCode> find_error_with(std::uint64_t at, T value) {
  fake::FakeMemory memory = fake::make();
  const CodeMap map(*Layout::read(memory, fake::kImage));
  memory.put(at, value);
  const auto found = map.find(memory, fake::kFirst);
  if (found) return std::nullopt;
  return found.error().code;
}

TEST(BeamReader, TablesThatLieAreNotFollowed) {
  EXPECT_EQ(find_error_with(fake::kCodeIndex, 3), ErrorCode::kUnreadable);
  EXPECT_EQ(find_error_with(fake::kRanges + Layout::kRangesSize + 8, CodeMap::kMaxModules + 1), ErrorCode::kLimit);
  EXPECT_EQ(find_error_with(fake::kRanges + Layout::kRangesSize, std::uint64_t{8}), ErrorCode::kUnreadable);
  EXPECT_EQ(find_error_with(fake::kModule, CodeMap::kMaxFunctions + 1), ErrorCode::kLimit);
  EXPECT_EQ(find_error_with(fake::kModule + fake::k25.functions + 8, fake::kFirst + CodeMap::kMaxCode + 1),
            ErrorCode::kLimit);
  EXPECT_EQ(find_error_with(fake::kModule + fake::k25.functions, std::uint64_t{8}), ErrorCode::kLimit);
}

TEST(BeamReader, AtomsAreTextsByTheirNumber) {
  fake::FakeMemory memory = fake::make();
  const Layout layout = *Layout::read(memory, fake::kImage);
  EXPECT_EQ(atom_text(memory, layout, fake::kFilter), "filter");
  EXPECT_EQ(atom_text(memory, layout, fake::kFilter ^ 4), "") << "another kind of term";
  EXPECT_EQ(atom_text(memory, layout, fake::atom(fake::kAtomCount)), "") << "behind the last";
  memory.put(fake::kAtomList + 0x80 + Layout::kAtomLength, std::int16_t{-1});
  EXPECT_EQ(atom_text(memory, layout, fake::kLists), "");
  memory.put(fake::kAtomList + 0x80 + Layout::kAtomLength, std::int16_t{1021});
  EXPECT_EQ(atom_text(memory, layout, fake::kLists), "") << "longer than an atom may be";
}

// ---- the frames ---------------------------------------------------------------------------------------------------

struct Machine {
  std::shared_ptr<fake::FakeMemory> memory = std::make_shared<fake::FakeMemory>(fake::make());
  std::unique_ptr<Runtime> runtime = open(memory, fake::kImage);

  [[nodiscard]] FrameRow row(std::uint64_t pc) const {
    FrameRow found;
    const auto method = runtime->method_at(pc);
    EXPECT_TRUE(method && (*method)->row_at(pc, found)) << std::hex << pc;
    return found;
  }
  [[nodiscard]] std::string name(std::uint64_t pc) const {
    const auto method = runtime->method_at(pc);
    return method ? (*method)->name : "none";
  }
};

TEST(BeamReader, FramesAreAsDeepAsTheCodeMakesThem) {
  const Machine machine;
  constexpr std::uint64_t kBody = fake::kFirst + Layout::kInfoSize;
  EXPECT_EQ(machine.row(kBody).cfa, CfaRule::at(x86_64::kRsp, 8));
  EXPECT_EQ(machine.row(kBody + 4).cfa, CfaRule::at(x86_64::kRsp, 24));
  EXPECT_EQ(machine.row(kBody + 13).cfa, CfaRule::at(x86_64::kRsp, 8));
  EXPECT_EQ(machine.row(fake::kShared + 1).cfa, CfaRule::at(x86_64::kRsp, 16)) << "what all share";
  const FrameRow row = machine.row(kBody + 4);
  EXPECT_EQ(row.return_address, RegisterRule::at_cfa(-8));
  for (const RegisterNumber reg : {x86_64::kRbp, x86_64::kR12, RegisterNumber{14}, x86_64::kR15})
    EXPECT_TRUE(row.registers.find(reg) && *row.registers.find(reg) == RegisterRule::undefined()) << reg;
}

// All functions of a module jump there, with frames of any depth.
TEST(BeamReader, WhatStandsBehindTheLastFunctionIsSharedCode) {
  const Machine machine;
  EXPECT_EQ(machine.name(fake::kStub - 1), "lists:filter/3");
  EXPECT_EQ(machine.name(fake::kStub), "[BEAM]");
  EXPECT_EQ(machine.row(fake::kStub).cfa, CfaRule::at(x86_64::kRsp, 8));
  const auto stub = machine.runtime->method_at(fake::kStub);
  ASSERT_TRUE(stub);
  EXPECT_TRUE(machine.runtime->is_still(**stub));
  machine.memory->put(fake::kCodeIndex, std::uint32_t{0});
  EXPECT_FALSE(machine.runtime->is_still(**stub)) << "purged";
}

TEST(BeamReader, AJumpIntoTheFunctionIsTheFunctions) {
  const Machine machine;
  constexpr std::int32_t kBack = -0x20;
  machine.memory->put(fake::kStub + 2, kBack);
  EXPECT_EQ(machine.name(fake::kStub), "lists:filter/3");
}

TEST(BeamReader, FunctionsAndWhatIsNoneHaveNames) {
  const Machine machine;
  EXPECT_EQ(machine.name(fake::kFirst + Layout::kInfoSize), "lists:map/2");
  EXPECT_EQ(machine.name(fake::kSecond), "lists:filter/3");
  EXPECT_EQ(machine.name(fake::kShared), "[BEAM]");
  EXPECT_EQ(machine.name(fake::kNormalExit - 1), "[process]");
}

TEST(BeamReader, ProcessesEndWhereTheyReturnToTheScheduler) {
  const Machine machine;
  const FrameRow row = machine.row(fake::kNormalExit - 1);
  EXPECT_EQ(row.return_address, RegisterRule::undefined());
}

TEST(BeamReader, NoFunctionHasACallerInC) {
  const Machine machine;
  const auto is_outermost = [&](std::uint64_t pc) { return (*machine.runtime->method_at(pc))->may_be_outermost(pc); };
  EXPECT_TRUE(is_outermost(fake::kNormalExit - 1));
  EXPECT_FALSE(is_outermost(fake::kFirst + Layout::kInfoSize));
  EXPECT_FALSE(is_outermost(fake::kShared)) << "what all share";
}

TEST(BeamReader, AFunctionIsStillThereAsLongAsItIsTheSame) {
  const Machine machine;
  const auto method = machine.runtime->method_at(fake::kFirst);
  ASSERT_TRUE(method);
  EXPECT_TRUE(machine.runtime->is_still(**method));
  machine.memory->put(fake::kFirst + Layout::kInfoFunction, fake::kFilter);
  EXPECT_FALSE(machine.runtime->is_still(**method)) << "another function";
  machine.memory->put(fake::kCodeIndex, std::uint32_t{0});
  EXPECT_FALSE(machine.runtime->is_still(**method)) << "purged";
}

TEST(BeamReader, MemoryThatChangesAtRandom) {
  const auto open_memory = [](const auto& memory) { return open(memory, fake::kImage); };
  const std::size_t found =
      test::rows_of_changed_memory<Machine>(fake::kSize, open_memory, fake::kFirst, fake::kCodeEnd, 8);
  EXPECT_GT(found, 3000U);
}

}  // namespace
}  // namespace windlass::runtimes::beam
