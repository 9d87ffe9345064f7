// Ground truth by execution. snippets.S runs in Unicorn. At every instruction, the synthesised row, applied to the
// registers and the stack of that moment, must give the caller of a shadow stack.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/registers.h"
#include "flow/synthesis.h"
#include "snippet_machine.h"
#include "walk/apply.h"

namespace windlass::flow {
namespace {

// Rows from the code know when a register has been popped.
constexpr walk::ApplyContext kAllSlotsLive{.slots_below_sp_are_dead = false};

enum class Know { kNothing, kStack, kStackAndStarts };

class SynthesisExact : public testing::TestWithParam<std::tuple<Snippet, Know>> {
 protected:
  void check_instruction();
  void expect_caller(const Registers& frame, const Waiting& truth);

  Machine machine;
  ShadowStack shadow;
  bool finished = false;
  unsigned instructions = 0;
  Know know = Know::kNothing;
  struct Free {
    void operator()(SynthesisScratch* s) const { free_scratch(s); }
  };
  std::unique_ptr<SynthesisScratch, Free> scratch{make_scratch()};
};

void SynthesisExact::expect_caller(const Registers& frame, const Waiting& truth) {
  const auto read = [this](std::uint64_t address, void* to, std::size_t size) {
    return machine.read(address, to, size);
  };
  const auto kind = [](std::uint64_t address) {
    return address - kCode < 0x10000 || address - kCallerCode < 0x1000 ? CodeKind::kFile : CodeKind::kNoCode;
  };
  const auto start_of = [](std::uint64_t address) {
    std::uint64_t best = 0;
    for (const Snippet& snippet : kSnippets) {
      const std::uint64_t start = Machine::address_of(snippet.begin);
      if (start <= address && start > best) best = start;
    }
    return best;
  };
  struct Reader {
    const Machine& machine;
    bool read(std::uint64_t address, void* to, std::size_t size) const { return machine.read(address, to, size); }
  };
  const Reader reader{machine};
  const CodeSource* self = nullptr;
  const auto plausible = [&](const FrameRow& row) {
    Registers to;
    if (know == Know::kNothing) return true;
    const walk::StepStatus status = walk::apply(row, reader, kAllSlotsLive, frame, to, nullptr);
    return status.ok() && to.sp() >= frame.sp() && may_be_return_address(*self, to.pc().value());
  };
  CodeSource source{Architecture::kX86_64, read, kind, plausible};
  if (know == Know::kStackAndStarts) source.function_start = start_of;
  self = &source;
  const auto found = synthesize(source, frame.pc(), *scratch);
  ASSERT_TRUE(found) << found.error().text();
  ASSERT_EQ(found->start, Start::kNone);
  Registers caller;
  const walk::StepStatus status = walk::apply(found->row, reader, kAllSlotsLive, frame, caller, nullptr);
  ASSERT_TRUE(status.ok()) << status.error.text();
  EXPECT_EQ(caller.pc().value(), truth.registers.pc().value());
  EXPECT_EQ(caller.sp(), truth.registers.sp());
  for (const RegisterNumber reg : kPreserved) {
    EXPECT_TRUE(caller.has(reg)) << register_text(Architecture::kX86_64, reg);
    EXPECT_EQ(caller.get(reg), truth.registers.get(reg)) << register_text(Architecture::kX86_64, reg);
  }
}

void SynthesisExact::check_instruction() {
  if (finished) return;
  const Registers now = machine.registers();
  shadow.at_instruction(machine, now);
  ++instructions;
  SCOPED_TRACE(testing::Message() << "offset " << std::hex
                                  << now.pc().value() - Machine::address_of(std::get<0>(GetParam()).begin));
  Registers frame = now;
  for (std::size_t i = shadow.frames().size(); i-- > 0;) {
    expect_caller(frame, shadow.frames()[i]);
    if (HasFailure()) {
      finished = true;
      return;
    }
    frame = shadow.frames()[i].registers;
  }
}

TEST_P(SynthesisExact, EveryInstructionOfEveryFrame) {
  const auto& [snippet, what] = GetParam();
  know = what;
  if (std::string_view(snippet.name) == "linkage") relocate_linkage(machine, snippet);
  for (const std::uint64_t argument : {0, 1, 2}) {
    start(shadow, snippet.name);
    machine.run(Machine::address_of(snippet.begin), argument, [this] { check_instruction(); });
    if (finished) break;
  }
  EXPECT_GT(instructions, 5u);
}

std::string test_name(const testing::TestParamInfo<std::tuple<Snippet, Know>>& info) {
  static const char* const kKnow[] = {"", "_stack", "_stack_and_starts"};
  return std::string(std::get<0>(info.param).name) + kKnow[static_cast<int>(std::get<1>(info.param))];
}

// Of some code only the way in, or the stack, says where it returns to.
bool can_be_told(std::string_view name, Know know) {
  if (name == "never_returns") return know == Know::kStackAndStarts;
  return (name != "thunk" && name != "own_return") || know != Know::kNothing;
}

std::vector<std::tuple<Snippet, Know>> cases() {
  std::vector<std::tuple<Snippet, Know>> all;
  for (const Snippet& snippet : kSnippets)
    for (const Know what : {Know::kNothing, Know::kStack, Know::kStackAndStarts})
      if (can_be_told(snippet.name, what)) all.emplace_back(snippet, what);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Snippets, SynthesisExact, testing::ValuesIn(cases()), test_name);

}  // namespace
}  // namespace windlass::flow
