// snippets.S run in Unicorn, and the callers that a shadow stack keeps of them.
#pragma once

#include <unicorn/unicorn.h>

#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "windlass/registers.h"

extern "C" const std::uint8_t snippets_begin[], snippets_end[];
// It would change its mind about these each time.
// clang-format off
#define SNIPPETS(X) \
  X(helper) X(framed) X(frameless) X(leave_and_enter) X(red_zone) X(shrink_wrapped) X(tail_jump) X(jump_by_local) \
  X(realigned) X(sp_in_memory) X(variable_size) X(jump_table) X(thunk) X(takes_pc) X(string_and_flags) \
  X(stack_probe) X(own_return) X(unwritten_pushes) X(linkage) X(scaled_index) X(never_returns)
// clang-format on
#define DECLARE(name) extern "C" const std::uint8_t snippet_##name[];
SNIPPETS(DECLARE)

namespace windlass::flow {

inline constexpr std::uint64_t kCode = 0x10000000, kStackLow = 0x20000000, kStackSize = 0x10000;
inline constexpr std::uint64_t kCallerCode = 0x30000000, kReturn = kCallerCode + 5;
inline constexpr RegisterNumber kPreserved[] = {3, 6, 12, 13, 14, 15};
inline constexpr int kUnicornByNumber[17] = {
    UC_X86_REG_RAX, UC_X86_REG_RDX, UC_X86_REG_RCX, UC_X86_REG_RBX, UC_X86_REG_RSI, UC_X86_REG_RDI,
    UC_X86_REG_RBP, UC_X86_REG_RSP, UC_X86_REG_R8,  UC_X86_REG_R9,  UC_X86_REG_R10, UC_X86_REG_R11,
    UC_X86_REG_R12, UC_X86_REG_R13, UC_X86_REG_R14, UC_X86_REG_R15, UC_X86_REG_RIP};

struct Snippet {
  const char* name;
  const std::uint8_t* begin;
};
#define ENTRY(name) {#name, snippet_##name},
inline constexpr Snippet kSnippets[] = {SNIPPETS(ENTRY)};

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

// The frames that wait, as they are seen at each instruction.
class ShadowStack {
 public:
  // `popped_by_return`: bytes of arguments. Without `calls_are_frames` calls only push.
  void start(std::uint64_t popped_by_return, bool calls_are_frames) {
    first_ = true;
    popped_by_return_ = popped_by_return;
    calls_are_frames_ = calls_are_frames;
    frames_.clear();
  }
  void at_instruction(const Machine& machine, const Registers& now) {
    if (first_) {
      Waiting caller{now};
      caller.registers.set_sp(now.sp() + 8 + popped_by_return_);
      caller.registers.set_pc(CodeAddress::return_address(kReturn));
      frames_.push_back(caller);
      first_ = false;
    } else {
      std::uint8_t opcode = 0;
      (void)machine.read(before_.pc().value(), &opcode, 1);
      if (opcode == 0xe8 && calls_are_frames_) {
        Waiting caller{before_};
        std::uint64_t back = 0;
        (void)machine.read(now.sp(), &back, sizeof back);
        caller.registers.set_pc(CodeAddress::return_address(back));
        frames_.push_back(caller);
      }
      while (frames_.size() > 1 && frames_.back().registers.pc().value() == now.pc().value()) frames_.pop_back();
    }
    before_ = now;
  }
  // The outermost first; the last one is the caller of the code that runs.
  [[nodiscard]] const std::vector<Waiting>& frames() const { return frames_; }

 private:
  std::vector<Waiting> frames_;
  Registers before_{Architecture::kX86_64};
  bool first_ = true, calls_are_frames_ = true;
  std::uint64_t popped_by_return_ = 0;
};

// As the snippet has it.
inline void start(ShadowStack& shadow, std::string_view snippet) {
  shadow.start(snippet == "leave_and_enter" ? 16 : 0, snippet != "thunk" && snippet != "takes_pc");
}

// The linkage snippet's table is not relocated by anybody else.
inline void relocate_linkage(Machine& machine, const Snippet& snippet) {
  const auto pushes = Machine::address_of(snippet.begin);
  std::int32_t distance = 0;
  (void)machine.read(pushes + 2, &distance, sizeof distance);
  machine.relocate(pushes + 6 + static_cast<std::uint64_t>(std::int64_t{distance}) - 16, 3);
}

}  // namespace windlass::flow
