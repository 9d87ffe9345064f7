// Ground truth by execution: snippets.S run in Unicorn, and at every instruction the synthesised row, applied to the
// registers and the stack as they are, must give the caller that a shadow stack has kept.
#include <gtest/gtest.h>
#include <unicorn/unicorn.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arch/registers.h"
#include "code/synthesis.h"
#include "walk/apply.h"

extern "C" const std::uint8_t snippets_begin[], snippets_end[];
// It would change its mind about these each time.
// clang-format off
#define SNIPPETS(X) \
  X(helper) X(framed) X(frameless) X(leave_and_enter) X(red_zone) X(shrink_wrapped) X(tail_jump) X(jump_by_local) \
  X(realigned) X(sp_in_memory) X(variable_size) X(jump_table) X(thunk) X(takes_pc) X(string_and_flags) \
  X(stack_probe) X(own_return) X(unwritten_pushes) X(linkage) X(never_returns)
// clang-format on
#define DECLARE(name) extern "C" const std::uint8_t snippet_##name[];
SNIPPETS(DECLARE)

namespace windlass::code {
namespace {

constexpr std::uint64_t kCode = 0x10000000, kStackLow = 0x20000000, kStackSize = 0x10000;
constexpr std::uint64_t kCallerCode = 0x30000000, kReturn = kCallerCode + 5;
constexpr RegisterNumber kPreserved[] = {3, 6, 12, 13, 14, 15};
constexpr int kUnicornByNumber[17] = {UC_X86_REG_RAX, UC_X86_REG_RDX, UC_X86_REG_RCX, UC_X86_REG_RBX, UC_X86_REG_RSI,
                                      UC_X86_REG_RDI, UC_X86_REG_RBP, UC_X86_REG_RSP, UC_X86_REG_R8,  UC_X86_REG_R9,
                                      UC_X86_REG_R10, UC_X86_REG_R11, UC_X86_REG_R12, UC_X86_REG_R13, UC_X86_REG_R14,
                                      UC_X86_REG_R15, UC_X86_REG_RIP};

struct Snippet {
  const char* name;
  const std::uint8_t* begin;
};
#define ENTRY(name) {#name, snippet_##name},
constexpr Snippet kSnippets[] = {SNIPPETS(ENTRY)};

// Rows from the code know when a register has been popped.
constexpr walk::ApplyContext kAllSlotsLive{.slots_below_sp_are_dead = false};

// A frame that waits for its callee.
struct Waiting {
  Registers registers;
};

class Machine {
 public:
  Machine() {
    EXPECT_EQ(uc_open(UC_ARCH_X86, UC_MODE_64, &uc_), UC_ERR_OK);
    const std::size_t size = static_cast<std::size_t>(snippets_end - snippets_begin);
    uc_mem_map(uc_, kCode, (size + 0xfff) & ~std::size_t{0xfff}, UC_PROT_ALL);
    uc_mem_write(uc_, kCode, snippets_begin, size);
    uc_mem_map(uc_, kStackLow, kStackSize, UC_PROT_ALL);
    uc_mem_map(uc_, kCallerCode, 0x1000, UC_PROT_ALL);
    const std::uint8_t caller[] = {0xe8, 0, 0, 0, 0, 0x90, 0x90};
    uc_mem_write(uc_, kCallerCode, caller, sizeof caller);
  }
  ~Machine() { uc_close(uc_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  static std::uint64_t address_of(const std::uint8_t* place) {
    return kCode + static_cast<std::uint64_t>(place - snippets_begin);
  }

  // The linkage table holds offsets.
  void relocate(std::uint64_t table, unsigned words) {
    for (unsigned i = 0; i < words; ++i) {
      std::uint64_t word = 0;
      uc_mem_read(uc_, table + 8 * i, &word, 8);
      word = word < kCode ? word + kCode : word;
      uc_mem_write(uc_, table + 8 * i, &word, 8);
    }
  }

  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const {
    return uc_mem_read(uc_, address, to, size) == UC_ERR_OK;
  }
  [[nodiscard]] Registers registers() const {
    Registers registers(Architecture::kX86_64);
    for (RegisterNumber reg = 0; reg < 16; ++reg) registers.set(reg, get(reg));
    registers.set_pc(CodeAddress::instruction(get(16)));
    return registers;
  }
  [[nodiscard]] std::uint64_t get(unsigned reg) const {
    std::uint64_t value = 0;
    uc_reg_read(uc_, kUnicornByNumber[reg], &value);
    return value;
  }

  // Runs the code at `begin`, called from kCallerCode, calling `at` before each instruction.
  void run(std::uint64_t begin, std::uint64_t argument, const std::function<void()>& at) {
    for (unsigned reg = 0; reg < 16; ++reg) {
      const std::uint64_t poison = 0xa5a5'0000'0000'0000 + reg * 0x1111;
      uc_reg_write(uc_, kUnicornByNumber[reg], &poison);
    }
    std::uint64_t sp = kStackLow + kStackSize - 0x1008;
    uc_reg_write(uc_, UC_X86_REG_RDI, &argument);
    uc_reg_write(uc_, UC_X86_REG_RSP, &sp);
    const std::uint64_t back = kReturn;
    uc_mem_write(uc_, sp, &back, sizeof back);
    uc_hook hook = 0;
    uc_hook_add(uc_, &hook, UC_HOOK_CODE, reinterpret_cast<void*>(&on_instruction),
                const_cast<std::function<void()>*>(&at), 1, 0);
    uc_emu_start(uc_, begin, kReturn, 0, 300);
    uc_hook_del(uc_, hook);
  }

 private:
  static void on_instruction(uc_engine*, std::uint64_t, std::uint32_t, void* at) {
    (*static_cast<std::function<void()>*>(at))();
  }
  uc_engine* uc_ = nullptr;
};

enum class Know { kNothing, kStack, kStackAndStarts };

class SynthesisExact : public testing::TestWithParam<std::tuple<Snippet, Know>> {
 protected:
  void check_instruction();
  void keep_shadow(const Registers& now);
  void expect_caller(const Registers& frame, const Waiting& truth);

  Machine machine;
  std::vector<Waiting> shadow;
  Registers before{Architecture::kX86_64};
  bool first = true, finished = false;
  unsigned instructions = 0;
  std::uint64_t popped_by_return = 0;
  bool calls_are_frames = true;
  Know know = Know::kNothing;
  struct Free {
    void operator()(SynthesisScratch* s) const { free_scratch(s); }
  };
  std::unique_ptr<SynthesisScratch, Free> scratch{make_scratch()};
};

void SynthesisExact::keep_shadow(const Registers& now) {
  if (first) {
    Waiting caller{now};
    caller.registers.set_sp(now.sp() + 8 + popped_by_return);
    caller.registers.set_pc(CodeAddress::return_address(kReturn));
    shadow.push_back(caller);
    first = false;
  } else {
    std::uint8_t opcode = 0;
    (void)machine.read(before.pc().value(), &opcode, 1);
    if (opcode == 0xe8 && calls_are_frames) {
      Waiting caller{before};
      std::uint64_t back = 0;
      (void)machine.read(now.sp(), &back, sizeof back);
      caller.registers.set_pc(CodeAddress::return_address(back));
      shadow.push_back(caller);
    }
    while (shadow.size() > 1 && shadow.back().registers.pc().value() == now.pc().value()) shadow.pop_back();
  }
  before = now;
}

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
  ASSERT_FALSE(found->outermost);
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
  keep_shadow(now);
  ++instructions;
  SCOPED_TRACE(testing::Message() << "offset " << std::hex
                                  << now.pc().value() - Machine::address_of(std::get<0>(GetParam()).begin));
  Registers frame = now;
  for (std::size_t i = shadow.size(); i-- > 0;) {
    expect_caller(frame, shadow[i]);
    if (HasFailure()) {
      finished = true;
      return;
    }
    frame = shadow[i].registers;
  }
}

TEST_P(SynthesisExact, EveryInstructionOfEveryFrame) {
  const auto& [snippet, what] = GetParam();
  know = what;
  const std::string name = snippet.name;
  calls_are_frames = name != "thunk" && name != "takes_pc";
  popped_by_return = name == "leave_and_enter" ? 16 : 0;
  if (name == "linkage") {
    const auto pushes = Machine::address_of(snippet.begin);
    std::int32_t distance = 0;
    (void)machine.read(pushes + 2, &distance, sizeof distance);
    machine.relocate(pushes + 6 + static_cast<std::uint64_t>(std::int64_t{distance}) - 16, 3);
  }
  for (const std::uint64_t argument : {0, 1, 2}) {
    first = true;
    shadow.clear();
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
}  // namespace windlass::code
