// Rows that the code of their function contradicts, and such as it only seems to.
#include <gtest/gtest.h>

#include "base/registers.h"
#include "formats/dwarf/constants.h"
#include "runtimes/runtime_code.h"
#include "support/walk_target.h"
#include "walk/unwinders.h"

namespace windlass {
namespace {

using namespace dwarf;
using test::Bytes;
using test::WalkTarget;
using Code = std::vector<std::uint8_t>;

constexpr std::uint64_t kSp = 0x7fff'0000'1000;
constexpr std::uint8_t kRip = 16;
constexpr std::uint64_t kCaller = 0x45;  // behind the caller's call

// A function at 0; what calls it, at 0x40; another one, at 0x80.
class CodeAgainstRows : public ::testing::Test {
 protected:
  void make(Code code, const Bytes& instructions) {
    target_.function(0, code.size(), instructions);
    target_.function(0x40, 0x10, {});
    target_.function(0x80, 0x10, {});
    code.resize(0x40, 0xcc);
    code.insert(code.end(), {0xe8, 0xbb, 0xff, 0xff, 0xff, 0xc3});  // call 0; ret
    code.resize(0x80, 0xcc);
    code.push_back(0xc3);
    target_.start(code);
  }
  void word(std::uint64_t offset, std::uint64_t value) { target_.memory().set(kSp + offset, value); }
  // What calls the frame at hand, and how certain that is; nothing where the walk ends.
  struct Caller {
    std::uint64_t pc, sp;
    FrameCertainty certainty;
    bool operator==(const Caller&) const = default;
  };
  std::optional<Caller> caller_of(CodeAddress pc) {
    Registers registers = target_.at(pc, kSp);
    registers.set(0, WalkTarget::pc(0x80));
    StackWalker walker(target_.space(), registers);
    const bool stepped = walker.step();
    end_ = walker.end_reason();
    if (!stepped) return std::nullopt;
    return Caller{walker.frame().pc().value(), walker.frame().sp(), walker.frame().certainty};
  }
  static CodeAddress instruction(std::uint64_t offset) { return CodeAddress::instruction(WalkTarget::pc(offset)); }
  static CodeAddress behind_call(std::uint64_t offset) { return CodeAddress::return_address(WalkTarget::pc(offset)); }

  WalkTarget target_;
  WalkEnd end_ = WalkEnd::kRunning;
};

// sub rsp, 40; call; add rsp, 40; ret
const Code kFrame{0x48, 0x83, 0xec, 0x28, 0xe8, 0x37, 0, 0, 0, 0x48, 0x83, 0xc4, 0x28, 0xc3};

TEST_F(CodeAgainstRows, ARowThatSaysThatThereIsNoCallerIsNoneOfAFunctionThatReturns) {
  make(kFrame, {DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 48, DW_CFA_undefined, kRip});
  word(40, WalkTarget::pc(kCaller));
  const Caller caller{WalkTarget::pc(kCaller), kSp + 48, FrameCertainty::kProved};
  EXPECT_EQ(caller_of(behind_call(9)), caller);
  EXPECT_EQ(caller_of(instruction(9)), caller);
}

TEST_F(CodeAgainstRows, ARowThatSaysThatThereIsNoCallerIsBelievedOfOneThatDoesNot) {
  Code start = kFrame;
  start.back() = 0xf4;  // hlt
  make(start, {DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 48, DW_CFA_undefined, kRip});
  word(40, WalkTarget::pc(kCaller));
  EXPECT_EQ(caller_of(behind_call(9)), std::nullopt);
  EXPECT_EQ(end_, WalkEnd::kComplete);
}

// GHC's StgRun has a CFA that is 16 KiB off.
TEST_F(CodeAgainstRows, AnAddressOfZeroIsNoEndWhereTheCodeHasTheReturnAddressElsewhere) {
  make(kFrame, {DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 64});
  word(40, WalkTarget::pc(kCaller));
  word(56, 0);
  EXPECT_EQ(caller_of(behind_call(9)), (Caller{WalkTarget::pc(kCaller), kSp + 48, FrameCertainty::kProved}));
  word(40, 0);
  EXPECT_EQ(caller_of(behind_call(9)), std::nullopt);
}

// A retpoline goes to where rax says by a return: what lies on top of the stack is no return address of a call.
TEST_F(CodeAgainstRows, AReturnThatJumpsIsNoEpilogue) {
  const Code thunk{0xe8, 0x07, 0,    0,    0,      // 0: call 12
                   0xf3, 0x90, 0x0f, 0xae, 0xe8,   // 5: pause; lfence
                   0xeb, 0xf9,                     // 10: jmp 5
                   0x48, 0x89, 0x04, 0x24, 0xc3};  // 12: mov [rsp], rax; ret
  make(thunk, {DW_CFA_advance_loc | 12, DW_CFA_def_cfa_offset, 16});
  const Caller caller{WalkTarget::pc(kCaller), kSp + 16, FrameCertainty::kDescribed};
  word(0, WalkTarget::pc(5));
  word(8, WalkTarget::pc(kCaller));
  EXPECT_EQ(caller_of(instruction(12)), caller);
  word(0, WalkTarget::pc(0x80));
  EXPECT_EQ(caller_of(instruction(16)), caller);
}

// A runtime with a leaf at WalkTarget::pc(0). Exact ones know their code.
class Leaf final : public runtimes::Method {
 public:
  Expected<void> row_at(std::uint64_t, FrameRow& to) const override {
    to = FrameRow();
    to.begin = begin;
    to.end = end;
    to.cfa = CfaRule::at(x86_64::kRsp, 8);
    to.return_address = RegisterRule::at_cfa(-8);
    return {};
  }
  void for_each_row(sources::RowSink, sources::ErrorSink) const override {}
  [[nodiscard]] std::size_t bytes() const override { return 1; }
};
class LeafRuntime final : public runtimes::Runtime {
 public:
  explicit LeafRuntime(bool exact) : exact_(exact) {}
  [[nodiscard]] Architecture architecture() const override { return Architecture::kX86_64; }
  [[nodiscard]] bool is_exact() const override { return exact_; }
  Expected<std::unique_ptr<runtimes::Method>> method_at(std::uint64_t) override {
    auto leaf = std::make_unique<Leaf>();
    leaf->begin = WalkTarget::pc(0);
    leaf->end = WalkTarget::pc(0x10);
    return leaf;
  }
  bool is_still(const runtimes::Method&) override { return true; }

 private:
  bool exact_;
};

// Something has always entered it.
TEST_F(CodeAgainstRows, AManagedRuntimesCodeHasNoEndAtZero) {
  make({}, {});
  word(0, 0);
  for (const auto& [exact, end] : {std::pair{true, WalkEnd::kGuessed}, {false, WalkEnd::kComplete}}) {
    const auto code = std::make_shared<runtimes::RuntimeCode>(std::make_unique<LeafRuntime>(exact),
                                                              std::make_shared<test::WordMemory>(), os::ProcMap());
    const auto rows = code->make_source();
    const walk::Module module({WalkTarget::pc(0), WalkTarget::pc(0x10), 0, "managed", {}}, *rows, 0, {}, true);
    Frame frame;
    frame.registers = target_.at(behind_call(9), kSp);
    walk::Scratch scratch;
    walk::Step step;
    walk::find_caller(target_.space(), frame, &module, {100, false}, scratch, step);
    EXPECT_EQ(step.status.end, end) << exact;
  }
}

}  // namespace
}  // namespace windlass
