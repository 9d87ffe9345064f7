// Methods with ARM64's Windows unwind information, in made-up memory and so on any machine: walked as by rows that say
// the same, at every instruction, and their roots found. Exceptions over such methods are thrown by lilt
// (test_example_runtime, --windows-unwind).
#include <gtest/gtest.h>

#include <array>

#include "made_up_stack.h"
#include "windlass/managed/gc_roots.h"
#include "windlass/prologue.h"

namespace windlass::managed {
namespace {

using prologue::Allocate;
using prologue::Save;
using prologue::SetFramePointer;

constexpr RegisterNumber kX19 = 19, kX29 = 29, kX30 = 30, kPc = 32;
constexpr std::uint64_t kInfo = kStackTop - kStackSize;  // unwind records are in the same memory as the stack
constexpr std::uint32_t kSize = 0x40;

// Its epilogue, at the end or earlier.
Prologue described(std::vector<prologue::Op> ops, std::uint32_t earlier = 0) {
  Prologue made{.architecture = Architecture::kAArch64, .code_size = kSize, .ops = std::move(ops)};
  made.epilogues = {mirrored(made, kSize - 4 * (static_cast<std::uint32_t>(made.ops.size()) + 1) - earlier)};
  return made;
}

// Methods that are described in both ways: which of them counts is chosen by whether `windows` is set.
class TwoWays : public Runtime {
 public:
  Method& add(std::uint64_t id, const Prologue& prologue, MadeUpMemory& memory) {
    Method& method = methods_.emplace_back();
    method.id = id;
    method.begin = kCode + methods_.size() * kCodeSize;
    method.end = method.begin + kSize;
    rows_.push_back(prologue::rows_of(prologue).value());
    const winarm64::WriteOptions options{.function = static_cast<std::uint32_t>(method.begin - kCode),
                                         .info = static_cast<std::uint32_t>(kInfo + used_ - kCode)};
    auto written = winarm64::write(prologue, options);
    EXPECT_TRUE(written) << written.error().text();
    for (const std::byte each : written->bytes) memory.put(kInfo + used_++, each);
    used_ = (used_ + 3) / 4 * 4;
    entries_.push_back(std::move(written->entries));
    method.windows = {.base = kCode, .function = {}, .entries = entries_.back()};
    return method;
  }
  void by_rows() {
    for (Method& method : methods_) method.windows = {};
  }
  const Method* find(std::uint64_t pc) const override {
    for (const Method& method : methods_)
      if (pc >= method.begin && pc < method.end) return &method;
    return nullptr;
  }
  Expected<void> row_at(const AddressSpace&, const Method& method, std::uint64_t pc, FrameRow& to) const override {
    for (const FrameRow& row : rows_[(method.begin - kCode) / kCodeSize - 1])
      if (pc - method.begin >= row.begin && pc - method.begin < row.end) return to = row, Expected<void>();
    return fail(ErrorCode::kNotFound, "no row", pc);
  }

 private:
  std::deque<Method> methods_;
  std::deque<std::vector<winarm64::RuntimeFunction>> entries_;
  std::deque<std::vector<FrameRow>> rows_;
  std::uint64_t used_ = 0;
};

struct WindowsArm64 : testing::Test {
  WindowsArm64() {
    auto memory = std::make_unique<MadeUpMemory>();
    mem = memory.get();
    for (std::uint64_t at = kInfo + 0x1000; at + 8 <= kStackTop; at += 8)
      mem->put(at, kStackTop - 0x1000 + (at & 0xff0));
    space = std::make_unique<AddressSpace>(Architecture::kAArch64, std::move(memory));
    outer = &runtime.add(1, outer_prologue, *mem);
    middle = &runtime.add(2, described({{4, Save{kX29, 0, 32, kX30}}, {8, Save{kX19, 16}}}), *mem);
    inner = &runtime.add(3, described({{4, Save{kX29, 0, 16, kX30}}, {8, SetFramePointer{kX29}}}), *mem);
    thread = {.space = space.get(), .runtime = &runtime};
    registers.set_sp(kStackTop - 0x800);
    registers.set(kX19, 0x1919);
    registers.set(kX29, registers.sp());
    registers.set(kX30, middle->begin + 0x14);
  }
  void call(std::uint64_t slot, const Method& from) { mem->put(slot, from.begin + 0x14); }

  Prologue outer_prologue = [] {
    Prologue made =
        described({{4, Save{kX29, 0, 48, kX30}}, {8, Save{kX19, 16, 0, kX19 + 1}}, {12, Allocate{0x20}}}, 0x10);
    made.handler = prologue::Handler{.rva = 0x40};
    return made;
  }();
  MadeUpMemory* mem = nullptr;
  std::unique_ptr<AddressSpace> space;
  TwoWays runtime;
  Method *outer = nullptr, *middle = nullptr, *inner = nullptr;
  ManagedThread thread;
  Registers registers{Architecture::kAArch64};
};

TEST_F(WindowsArm64, EntriesAreOfBothKinds) {
  EXPECT_FALSE(outer->windows.entries[0].packed());
  EXPECT_TRUE(inner->windows.entries[0].packed());
}

// The caller of an interrupted method, and where its registers are, at each of its instructions.
TEST_F(WindowsArm64, CallersAreThoseOfTheRowsAtEveryInstruction) {
  const auto callers = [&] {
    std::vector<std::array<std::uint64_t, 8>> all;
    for (const Method* method : {outer, middle, inner}) {
      for (std::uint32_t offset = 0; offset < kSize; offset += 4) {
        registers.set_pc(CodeAddress::instruction(method->begin + offset));
        ManagedWalker walker(thread, registers, kAllowAsyncWalk | kNotifyOnUnmanagedToManaged);
        EXPECT_TRUE(walker.next()) << walker.error()->text();
        const std::uint64_t cfa = walker.frame().cfa;
        EXPECT_TRUE(walker.next()) << method->id << " " << offset << " " << walker.error()->text();
        const CrawlFrame& caller = walker.frame();
        all.push_back({cfa, caller.pc().value(), caller.registers.sp(), caller.registers.get(kX19),
                       caller.registers.get(kX29), caller.saved.at(caller.registers, kX19),
                       caller.saved.at(caller.registers, kX29), caller.saved.at(caller.registers, kPc)});
      }
    }
    return all;
  };
  const auto by_windows = callers();
  runtime.by_rows();
  EXPECT_EQ(by_windows, callers());
  EXPECT_EQ(by_windows.size(), 3 * kSize / 4);
}

// In front of its prologue a method's return address is in lr, and that where the thread's registers were saved.
TEST_F(WindowsArm64, AReturnAddressInARegisterIsWhereThatWasSaved) {
  registers.set_pc(CodeAddress::instruction(inner->begin));
  ContextFrame stopped(FrameKind::kRedirected, FrameForm::kContext);
  stopped.context.set(registers);
  const std::uint64_t at = registers.sp() - 0x400;
  stopped.header.next = kEndOfFrames;
  stopped.header.cookie = thread.cookie ^ at;
  mem->put(at, stopped);
  thread.frames = at;
  const auto lr = at + offsetof(ContextFrame, context) + offsetof(SavedContext, value) + kX30 * sizeof(std::uint64_t);
  ManagedWalker walker(thread, Registers(Architecture::kAArch64), kThreadIsSuspended | kFunctionsOnly);
  ASSERT_TRUE(walker.next()) << walker.error()->text();
  EXPECT_EQ(walker.frame().method, inner);
  ASSERT_TRUE(walker.next()) << walker.error()->text();
  EXPECT_EQ(walker.frame().method, middle);
  EXPECT_EQ(walker.frame().saved.at(walker.frame().registers, kPc), lr);
}

// inner stands in its body, called by middle, and that by outer, which keeps a reference in x19 and one on its stack.
TEST_F(WindowsArm64, WholeStacksAndTheirRoots) {
  const StackMap map{.code_size = kSize,
                     .sites = {{.offset = 0x14, .live = {{.place = in_register(kX19)}, {.place = at_sp(8)}}}}};
  const auto encoded = encode(map);
  ASSERT_TRUE(encoded);
  outer->roots = *encoded;
  const std::uint64_t inner_sp = kStackTop - 0x400, middle_sp = inner_sp + 16, outer_sp = middle_sp + 32;
  call(inner_sp + 8, *middle);
  call(middle_sp + 8, *outer);
  mem->put(middle_sp + 16, std::uint64_t{0xabc});  // outer's x19
  mem->put(outer_sp + 8, std::uint64_t{0xdef});
  mem->put(outer_sp + 0x20 + 8, kNativeCode);
  registers.set_sp(inner_sp);
  registers.set(kX29, inner_sp);
  registers.set_pc(CodeAddress::instruction(inner->begin + 0x10));
  std::string seen;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> roots;
  for (const CrawlFrame& frame : ManagedWalker(thread, registers, kAllowAsyncWalk)) {
    seen += std::to_string(frame.method->id);
    if (frame.method != outer) continue;
    ASSERT_TRUE(each_root(frame, *mem, [&](const Root& root) { roots.emplace_back(root.address, root.value); }));
  }
  EXPECT_EQ(seen, "321");
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> expected = {{middle_sp + 16, 0xabc},
                                                                         {outer_sp + 8, 0xdef}};
  EXPECT_EQ(roots, expected);
}

TEST_F(WindowsArm64, WhatCannotBeReadIsAnError) {
  const auto error = [&](const Method& method) {
    registers.set_pc(CodeAddress::instruction(method.begin + 0x10));
    ManagedWalker walker(thread, registers, kAllowAsyncWalk);
    EXPECT_FALSE(walker.next());
    return walker.error() ? std::string(walker.error()->what) : "";
  };
  const std::uint64_t record = kCode + outer->windows.entries[0].target();
  mem->put(record + 2, std::uint8_t{0x0c});  // version 3
  EXPECT_EQ(error(*outer), "unwind record of an unknown version");
  const winarm64::RuntimeFunction away[] = {{outer->windows.entries[0].begin, 0x1000}};
  outer->windows.entries = away;
  EXPECT_EQ(error(*outer), "unwind record reaches past the image");
  const winarm64::RuntimeFunction parent[] = {{outer->windows.entries[0].begin, 0x1003}};
  outer->windows.entries = parent;
  EXPECT_EQ(error(*outer), "entry of a method refers to another one");
  outer->windows = {.base = kCode, .function = {1, 2, 3}, .entries = {}};
  EXPECT_EQ(error(*outer), "Windows unwind information of a method is of another machine");
}

}  // namespace
}  // namespace windlass::managed
