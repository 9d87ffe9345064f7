// What a Mono says of its methods and trampolines, their frames and names, in memory made up by hand: whole, changed,
// lying.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "base/registers.h"
#include "runtimes/mono/code_map.h"
#include "runtimes/mono/find.h"
#include "support/fake_mono.h"
#include "support/methods_of.h"

namespace windlass::runtimes::mono {
namespace {

namespace fake = test::fake_mono;

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
  // Where the code at pc begins; 0: none is there.
  [[nodiscard]] std::uint64_t begin(std::uint64_t pc) const {
    const auto method = runtime->method_at(pc);
    if (method) return (*method)->begin;
    EXPECT_EQ(method.error().code, ErrorCode::kNotFound);
    return 0;
  }
};

TEST(MonoReader, FindsTheFieldsInTheAccessors) {
  const fake::FakeMemory memory = fake::make();
  ASSERT_TRUE(find_exports(memory, fake::kImage));
  const auto layout = Layout::read(memory, fake::kImage);
  ASSERT_TRUE(layout) << layout.error().text();
  EXPECT_EQ(layout->root_domain, fake::kBase);
  EXPECT_EQ(layout->code_start, fake::kCodeStart);
  EXPECT_EQ(layout->code_size, fake::kCodeSize);
  EXPECT_EQ(layout->kind_byte, fake::kKindByte);
  EXPECT_EQ(layout->trampoline_bit, fake::kTrampolineBit);
  EXPECT_EQ(layout->method_name, fake::kMethodName);
  EXPECT_EQ(layout->method_class, fake::kMethodClass);
  EXPECT_EQ(layout->class_name, fake::kClassName);
  EXPECT_EQ(layout->class_namespace, fake::kClassNamespace);
  EXPECT_EQ(layout->class_outer, fake::kClassOuter);
}

TEST(MonoReader, ARuntimeWhoseAccessorsAreOthersIsRefused) {
  for (std::uint64_t at = fake::kAccessors; at < fake::kAccessors + 9 * fake::kAccessorSize;
       at += fake::kAccessorSize) {
    fake::FakeMemory memory = fake::make();
    memory.put_code(at, {0x31, 0xc0, 0xc3});  // xor eax, eax; ret
    const auto layout = Layout::read(memory, fake::kImage);
    ASSERT_FALSE(layout) << std::hex << at;
    EXPECT_EQ(layout.error().code, ErrorCode::kUnsupported);
  }
}

// ---- where code is --------------------------------------------------------------------------------------------------

TEST(MonoReader, CodeBeginsAndEndsWhereTheTableSays) {
  const Machine machine;
  EXPECT_EQ(machine.begin(fake::kCode - 1), 0U);
  EXPECT_EQ(machine.begin(fake::kCode), fake::kCode);
  EXPECT_EQ(machine.begin(fake::kTrampolineCode - 1), fake::kCode);
  EXPECT_EQ(machine.begin(fake::kTrampolineCode), fake::kTrampolineCode);
  EXPECT_EQ(machine.begin(fake::kCodeEnd - 1), fake::kTrampolineCode);
  EXPECT_EQ(machine.begin(fake::kCodeEnd), 0U);
}

TEST(MonoReader, WhatWasFreedIsPassed) {
  const Machine machine;
  machine.memory->put(fake::kMethodInfo, std::uint64_t{0});
  EXPECT_EQ(machine.begin(fake::kCode), 0U);
  EXPECT_EQ(machine.begin(fake::kTrampolineCode), fake::kTrampolineCode);
}

TEST(MonoReader, TheTableIsTheOneThatPointsBackToItsDomain) {
  const Machine machine;
  constexpr std::uint64_t kOther = fake::kSpare;  // another domain's, with a chunk of its own
  machine.memory->put(fake::kDomain + fake::kDomainTable - 8, kOther);
  machine.memory->put(kOther, fake::kDomain + 8);
  machine.memory->put(kOther + 8, std::uint32_t{1});
  EXPECT_EQ(machine.begin(fake::kCode), fake::kCode);
}

// Three chunks: of the first two nothing is asked but where they end.
TEST(MonoReader, OnlyTheChunkWithTheAddressIsRead) {
  const Machine machine;
  fake::FakeMemory& memory = *machine.memory;
  constexpr std::uint64_t kFirst = fake::kSpare, kSecond = kFirst + 64, kUnreadable = 8;
  memory.put_chunk(kFirst, fake::kCode - 64, std::array{kUnreadable});
  memory.put_chunk(kSecond, fake::kCode - 32, std::array{kUnreadable});
  memory.put_table(std::array{kFirst, kSecond, fake::kChunk});
  EXPECT_EQ(machine.begin(fake::kCode), fake::kCode);
  EXPECT_EQ(machine.begin(fake::kTrampolineCode), fake::kTrampolineCode);
}

// The first chunk claims to end behind the address, and does not. The next one begins with a method that should have
// come before. Each method is asked whether it has the address.
TEST(MonoReader, InATableWithoutOrderNothingIsFoundThatDoesNotHaveTheAddress) {
  const Machine machine;
  fake::FakeMemory& memory = *machine.memory;
  constexpr std::uint64_t kFirst = fake::kSpare, kSecond = kFirst + 64;
  memory.put_chunk(kFirst, fake::kCodeEnd, std::array{fake::kMethodInfo});
  memory.put_chunk(kSecond, fake::kCodeEnd, std::array{fake::kMethodInfo});
  memory.put_table(std::array{kFirst, kSecond});
  EXPECT_EQ(machine.begin(fake::kTrampolineCode), 0U);
}

TEST(MonoReader, TablesThatLieAreNotFollowed) {
  const auto error_with = [](std::uint64_t at, auto value) {
    fake::FakeMemory memory = fake::make();
    memory.put(at, value);
    const auto found = CodeMap(*Layout::read(memory, fake::kImage)).find(memory, fake::kCode);
    return found ? std::nullopt : std::optional(found.error().code);
  };
  EXPECT_EQ(error_with(fake::kBase, std::uint64_t{0}), ErrorCode::kNotFound) << "no domain yet";
  EXPECT_EQ(error_with(fake::kTable + 8, CodeMap::kMaxChunks + 1), ErrorCode::kNotFound) << "no table";
  EXPECT_EQ(error_with(fake::kTable + 16, std::uint64_t{8}), ErrorCode::kMalformed);
  EXPECT_EQ(error_with(fake::kChunk + 4, std::uint32_t{65}), ErrorCode::kMalformed) << "more than a chunk has";
  EXPECT_EQ(error_with(fake::kTrampolineInfo + fake::kCodeSize, CodeMap::kMaxCode + 1), ErrorCode::kMalformed);
  EXPECT_EQ(error_with(fake::kChunk + 32, std::uint64_t{8}), ErrorCode::kUnreadable);
}

TEST(MonoReader, AMethodIsStillThereAsLongAsItIsTheSame) {
  const Machine machine;
  const auto method = machine.runtime->method_at(fake::kCode);
  ASSERT_TRUE(method);
  EXPECT_TRUE(machine.runtime->is_still(**method));
  machine.memory->put(fake::kMethodInfo, fake::kMethod + 8);
  EXPECT_FALSE(machine.runtime->is_still(**method)) << "another method at the same place";
}

// ---- names and frames -----------------------------------------------------------------------------------------------

TEST(MonoReader, MethodsAndTrampolinesHaveNames) {
  const Machine machine;
  EXPECT_EQ(machine.name(fake::kCode), "Space.Class.method");
  EXPECT_EQ(machine.name(fake::kTrampolineCode), "[method]");
  machine.memory->put(fake::kTrampoline, fake::kCode);
  EXPECT_EQ(machine.name(fake::kTrampolineCode), "[trampoline]") << "information of other code";
  constexpr std::uint64_t kOuter = fake::kSpare;
  machine.memory->put(fake::kClass + fake::kClassOuter, kOuter);
  machine.memory->put(kOuter + fake::kClassName, fake::kText + 16);
  machine.memory->put(kOuter + fake::kClassNamespace, fake::kText + 7);  // none
  EXPECT_EQ(machine.name(fake::kCode), "Space.Class.method") << "a class Space around it, in no namespace";
}

TEST(MonoReader, FramesAreWhatTheCodeMakes) {
  const Machine machine;
  EXPECT_EQ(machine.row(fake::kCode)->cfa, CfaRule::at(x86_64::kRsp, 8));
  EXPECT_EQ(machine.row(fake::kCode + 1)->cfa, CfaRule::at(x86_64::kRsp, 16));
  EXPECT_EQ(machine.row(fake::kCode + 8)->cfa, CfaRule::at(x86_64::kRbp, 16));
  EXPECT_EQ(machine.row(fake::kCode + 11)->cfa, CfaRule::at(x86_64::kRsp, 8));
}

TEST(MonoReader, HandlersOfExceptionsHaveTheFrameOfTheirMethod) {
  const Machine machine;
  const auto row = machine.row(fake::kHandler);
  ASSERT_TRUE(row);
  EXPECT_EQ(row->cfa, CfaRule::at(x86_64::kRbp, 16));
  EXPECT_EQ(row->return_address, RegisterRule::at_cfa(-8));
  ASSERT_TRUE(row->registers.find(x86_64::kRbp));
  EXPECT_EQ(*row->registers.find(x86_64::kRbp), RegisterRule::at_cfa(-16));
}

// push rbp; mov rbp, rsp; xor eax, eax; push rbx; xor ebx, ebx; pop rbx; pop rbp; ret: the handler may run in either
// frame.
TEST(MonoReader, WhereAMethodHasSeveralFramesHandlersHaveNone) {
  const Machine machine;
  machine.memory->put_code(fake::kCode, {0x55, 0x48, 0x89, 0xe5, 0x31, 0xc0, 0x53, 0x31, 0xdb, 0x5b, 0x5d, 0xc3});
  EXPECT_EQ(machine.row(fake::kCode + 4)->cfa, CfaRule::at(x86_64::kRbp, 16));
  EXPECT_TRUE(machine.row(fake::kCode + 7)->registers.find(x86_64::kRbx));
  EXPECT_FALSE(machine.row(fake::kHandler));
}

TEST(MonoReader, ATrampolinePopsWhereItWasCalledFrom) {
  const Machine machine;
  EXPECT_EQ(machine.row(fake::kTrampolineCode)->cfa, CfaRule::at(x86_64::kRsp, 16));
  EXPECT_EQ(machine.row(fake::kTrampolineCode)->return_address, RegisterRule::at_cfa(-8));
  EXPECT_EQ(machine.row(fake::kTrampolineCode + 2)->cfa, CfaRule::at(x86_64::kRsp, 8));
  machine.memory->put_code(fake::kCode, {0x41, 0x5b, 0x41, 0xff, 0xe3});
  EXPECT_NE(machine.row(fake::kCode)->cfa, CfaRule::at(x86_64::kRsp, 16)) << "a method does not";
}

TEST(MonoReader, MemoryThatChangesAtRandom) {
  const auto open_memory = [](const auto& memory) { return open(memory, fake::kImage); };
  const std::size_t found =
      test::rows_of_changed_memory<Machine>(fake::kSize, open_memory, fake::kCode, fake::kCodeEnd, 4);
  EXPECT_GT(found, 3000U);
}

}  // namespace
}  // namespace windlass::runtimes::mono
