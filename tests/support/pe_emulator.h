// Real PE functions run by Unicorn on a fabricated stack. The caller is made up, so its registers are known while the
// function runs, instruction by instruction.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "formats/winx64/registers.h"
#include "support/emulator_core.h"
#include "windlass/registers.h"

namespace windlass::test {

// Registers by instruction number, as the machine has them at one instruction.
struct MachineState {
  std::array<std::uint64_t, 16> integer{};
  std::array<std::array<std::uint64_t, 2>, 16> xmm{};
  std::uint64_t rip = 0;

  [[nodiscard]] std::uint64_t rsp() const { return integer[winx64::kRsp]; }
  [[nodiscard]] Registers registers() const {
    Registers result(Architecture::kX86_64);
    for (unsigned i = 0; i < 16; ++i) result.set(winx64::dwarf_number(i), integer[i]);
    result.set_pc(CodeAddress::instruction(rip));
    return result;
  }
};

class PeEmulator : public EmulatorCore {
 public:
  static constexpr std::uint64_t kReturn = 0x1122'3344'5566;  // the caller's; nothing is mapped there
  static constexpr std::uint64_t kTeb = 0x2100'0000'0000;

  explicit PeEmulator(const image::PeImage& image) : EmulatorCore(UC_ARCH_X86, UC_MODE_64, image) {
    if (!ok_) return;
    ok_ = map(0, 0x10000) && map(kTeb, 0x2000);  // what zeroes point to
    std::uint64_t teb = kTeb;
    uc_reg_write(engine_, UC_X86_REG_GS_BASE, &teb);  // gs:[16], the stack's limit, is 0: __chkstk is content
    uc_hook hook = 0;
    uc_hook_add(engine_, &hook, UC_HOOK_CODE, reinterpret_cast<void*>(&on_code), this, 1, 0);
  }

  // A call from nowhere: other values for every one, so that none is right by what an earlier run left behind. General
  // registers point into readable memory.
  MachineState call(std::uint32_t rva) {
    MachineState state;
    for (std::uint64_t& value : state.integer) value = kArena + 0x1000 + (random_() % (kArenaSize / 2) & ~7ULL);
    for (auto& value : state.xmm) value = {random_(), random_()};
    state.integer[winx64::kRsp] = kTop - 8;
    state.rip = base_ + rva;
    stack_.write(kTop - 8, kReturn);
    return state;
  }

  // Runs from `state` until `until` (not run), or `visit` says false at some instruction, or `limit` instructions.
  // Returns the state then; `clean` says whether it ended for the first reason.
  MachineState run(const MachineState& state, std::uint64_t until, std::size_t limit,
                   const std::function<bool(const MachineState&)>& visit, bool& clean) {
    set(state);
    visit_ = &visit;
    until_ = until;
    stopped_ = reached_ = false;
    (void)uc_emu_start(engine_, state.rip, until, 0, limit);
    visit_ = nullptr;
    const MachineState end = reached_ ? last_ : get();
    clean = !stopped_ && end.rip == until;  // what is not mapped (kReturn) ends it by itself
    return end;
  }

 private:
  static constexpr int kNumbers[16] = {UC_X86_REG_RAX, UC_X86_REG_RCX, UC_X86_REG_RDX, UC_X86_REG_RBX,
                                       UC_X86_REG_RSP, UC_X86_REG_RBP, UC_X86_REG_RSI, UC_X86_REG_RDI,
                                       UC_X86_REG_R8,  UC_X86_REG_R9,  UC_X86_REG_R10, UC_X86_REG_R11,
                                       UC_X86_REG_R12, UC_X86_REG_R13, UC_X86_REG_R14, UC_X86_REG_R15};

  static void on_code(uc_engine*, std::uint64_t address, std::uint32_t, void* self) {
    auto* emulator = static_cast<PeEmulator*>(self);
    if (emulator->stopped_ || emulator->reached_) return;
    MachineState state = emulator->get();
    state.rip = address;
    // Unicorn itself knows an end only where it has not translated the code behind it before.
    if (address == emulator->until_) {
      emulator->reached_ = true;
      emulator->last_ = state;
    } else if (!(*emulator->visit_)(state)) {
      emulator->stopped_ = true;
    }
    if (emulator->stopped_ || emulator->reached_) uc_emu_stop(emulator->engine_);
  }

  void set(const MachineState& state) {
    for (unsigned i = 0; i < 16; ++i) {
      uc_reg_write(engine_, kNumbers[i], &state.integer[i]);
      uc_reg_write(engine_, UC_X86_REG_XMM0 + static_cast<int>(i), &state.xmm[i]);
    }
  }
  MachineState get() {
    MachineState state;
    for (unsigned i = 0; i < 16; ++i) {
      uc_reg_read(engine_, kNumbers[i], &state.integer[i]);
      if (i >= 6) uc_reg_read(engine_, UC_X86_REG_XMM0 + static_cast<int>(i), &state.xmm[i]);
    }
    uc_reg_read(engine_, UC_X86_REG_RIP, &state.rip);
    return state;
  }

  const std::function<bool(const MachineState&)>* visit_ = nullptr;
  std::uint64_t until_ = 0;
  bool stopped_ = false;  // by `visit`
  bool reached_ = false;  // `until`, in the state last_
  MachineState last_;
};

}  // namespace windlass::test
