// Ground truth by execution. snippets.S runs in Unicorn. At every instruction, the row of describe(), applied to the
// registers and the stack of that moment, must give the caller of a shadow stack. So must the rows of its Prologue. The
// parts without a description must be those for which the snippet is known.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/registers.h"
#include "snippet_machine.h"
#include "walk/apply.h"
#include "windlass/jit/describe.h"

namespace windlass::flow {
namespace {

constexpr walk::ApplyContext kAllSlotsLive{.slots_below_sp_are_dead = false};

struct Reader {
  const Machine& machine;
  bool read(std::uint64_t address, void* to, std::size_t size) const { return machine.read(address, to, size); }
};

struct Code {
  std::uint64_t begin;
  std::vector<std::byte> bytes;
};

Code code_of(const Machine& machine, const Snippet& snippet) {
  const std::uint8_t* end = snippets_end;
  for (const Snippet& other : kSnippets)
    if (other.begin > snippet.begin) end = std::min(end, other.begin);
  Code code{Machine::address_of(snippet.begin), {}};
  code.bytes.resize(static_cast<std::size_t>(end - snippet.begin));
  EXPECT_TRUE(machine.read(code.begin, code.bytes.data(), code.bytes.size()));
  return code;
}

const FrameRow* row_at(const std::vector<FrameRow>& rows, std::uint64_t offset) {
  for (const FrameRow& row : rows)
    if (offset >= row.begin && offset < row.end) return &row;
  return nullptr;
}

class DescribeExact : public testing::TestWithParam<std::tuple<Snippet, bool>> {
 protected:
  void check(const FrameRow& row, const Registers& now, const char* what) {
    Registers caller;
    const Registers& truth = shadow.frames().back().registers;
    const walk::StepStatus status = walk::apply(row, Reader{machine}, kAllSlotsLive, now, caller, nullptr);
    ASSERT_TRUE(status.ok()) << what << status.error.text();
    EXPECT_EQ(caller.pc().value(), truth.pc().value()) << what;
    EXPECT_EQ(caller.sp(), truth.sp()) << what;
    for (const RegisterNumber reg : kPreserved) {
      EXPECT_TRUE(caller.has(reg)) << what << register_text(Architecture::kX86_64, reg);
      EXPECT_EQ(caller.get(reg), truth.get(reg)) << what << register_text(Architecture::kX86_64, reg);
    }
  }

  Machine machine;
  ShadowStack shadow;
};

// The others jump to where nobody knows, or begin with what another function has left on the stack.
bool is_told(std::string_view name) {
  return name != "takes_pc" && name != "thunk" && name != "own_return" && name != "linkage";
}

TEST_P(DescribeExact, EveryInstruction) {
  const auto& [snippet, by_frame_pointer] = GetParam();
  const std::string name = snippet.name;
  const Code code = code_of(machine, snippet);
  DescribeOptions options{.by_frame_pointer = by_frame_pointer};
  options.read = [this](std::uint64_t address, void* to, std::size_t size) { return machine.read(address, to, size); };
  const auto found = describe(code.bytes, code.begin, Architecture::kX86_64, options);
  ASSERT_TRUE(found) << found.error().text();
  std::vector<FrameRow> prologue_rows;
  if (found->prologue) prologue_rows = *rows_of(*found->prologue);
  unsigned checked = 0, left_out = 0;
  for (const std::uint64_t argument : {0, 1, 2}) {
    shadow.start(0, name != "thunk" && name != "takes_pc");  // arguments are there until the return
    machine.run(code.begin, argument, [&] {
      const Registers now = machine.registers();
      shadow.at_instruction(machine, now);
      const std::uint64_t offset = now.pc().value() - code.begin;
      if (HasFailure() || offset >= code.bytes.size()) return;
      SCOPED_TRACE(testing::Message() << "offset " << std::hex << offset);
      const FrameRow* const row = row_at(found->rows, offset);
      ++(row != nullptr ? checked : left_out);
      if (row == nullptr) return;
      check(*row, now, "row: ");
      if (found->prologue) {
        const FrameRow* const said = row_at(prologue_rows, offset);
        ASSERT_NE(said, nullptr);
        check(*said, now, "prologue: ");
      }
    });
  }
  EXPECT_GT(checked, 2u);
  if (is_told(name)) {
    EXPECT_EQ(left_out, 0u);
    // Behind it stands another function.
    const std::size_t others = name == "unwritten_pushes" ? 1 : 0;
    EXPECT_EQ(found->unproved.size(), others);
    if (others == 0)
      for (const Unproved& stretch : found->unproved)
        ADD_FAILURE() << std::hex << stretch.begin << " to " << stretch.end << ": " << reason_text(stretch.reason);
  }
}

std::string test_name(const testing::TestParamInfo<std::tuple<Snippet, bool>>& info) {
  return std::string(std::get<0>(info.param).name) + (std::get<1>(info.param) ? "" : "_by_sp");
}

INSTANTIATE_TEST_SUITE_P(Snippets, DescribeExact, testing::Combine(testing::ValuesIn(kSnippets), testing::Bool()),
                         test_name);

}  // namespace
}  // namespace windlass::flow
