// All ways of x86-64 code.
#pragma once

#include <Zydis/Zydis.h>

#include <algorithm>
#include <optional>

#include "support/ways.h"

namespace windlass::test {

class X64Ways : public Ways {
 public:
  static constexpr Architecture kArchitecture = Architecture::kX86_64;
  static constexpr RegisterNumber kPreserved[] = {3, 6, 12, 13, 14, 15};

  X64Ways() : Ways(Architecture::kX86_64) {
    ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  }

 private:
  void enter(std::uint64_t top) override {
    for (RegisterNumber reg = 0; reg < 16; ++reg) now_.set(reg, pointer());
    now_.set_sp(top - 8);
    uc_mem_write(engine_, top - 8, &kReturn, sizeof kReturn);
    caller_ = now_;
    caller_.set_sp(top);
    caller_.set_pc(CodeAddress::return_address(kReturn));
  }

  bool step(std::uint32_t offset, const ComesBack& comes_back) override {
    ZydisDecodedInstruction info;
    std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
    if (!ZYAN_SUCCESS(
            ZydisDecoderDecodeFull(&decoder_, code_.data() + offset, code_.size() - offset, &info, operands.data())))
      return false;
    const std::uint64_t pc = begin_ + offset, next = pc + info.length;
    std::uint64_t target = 0;
    const bool direct = operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
                        ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(&info, operands.data(), pc, &target));
    switch (info.meta.category) {
      case ZYDIS_CATEGORY_COND_BR:
        // A stack is probed page by page up to where sp is to be, which is known behind that loop only.
        if (compared_ && info.mnemonic == ZYDIS_MNEMONIC_JNZ) {
          repeat(now_.sp() != now_.get(*compared_) ? target : next);
          return true;
        }
        wait_at(next);
        go(target);
        if (target - begin_ >= code_.size()) return false;
        return true;
      case ZYDIS_CATEGORY_UNCOND_BR: go(target); return direct;
      case ZYDIS_CATEGORY_CALL:
        if (direct && target == next) break;
        if (!comes_back(offset, offset + info.length)) return false;
        pass_call(next);
        return true;
      case ZYDIS_CATEGORY_RET:
      case ZYDIS_CATEGORY_INTERRUPT:
      case ZYDIS_CATEGORY_SYSTEM: return false;
      default: break;
    }
    if (info.mnemonic == ZYDIS_MNEMONIC_UD2) return false;
    compared_.reset();
    if (info.mnemonic == ZYDIS_MNEMONIC_CMP && operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
        operands[0].reg.value == ZYDIS_REGISTER_RSP && operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER)
      compared_ = number_of(operands[1].reg.value);
    const bool repeats =
        (info.attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)) != 0;
    if (!repeats && execute(pc)) return true;
    return pretend(info, operands, next);
  }

  bool execute(std::uint64_t pc) {
    std::array<std::uint64_t, 16> values;
    std::array<void*, 16> places;
    for (unsigned reg = 0; reg < 16; ++reg) {
      values[reg] = now_.get(reg);
      places[reg] = &values[reg];
    }
    uc_reg_write_batch(engine_, kIds.data(), places.data(), 16);
    const uc_err error = uc_emu_start(engine_, pc, ~std::uint64_t{0}, 0, 1);
    if (error != UC_ERR_OK) return false;
    uc_reg_read_batch(engine_, kIds.data(), places.data(), 16);
    for (unsigned reg = 0; reg < 16; ++reg) now_.set(reg, values[reg]);
    std::uint64_t after = 0;
    uc_reg_read(engine_, UC_X86_REG_RIP, &after);
    go(after);
    return true;
  }

  // Other values in the registers that it writes; none may be sp.
  bool pretend(const ZydisDecodedInstruction& info, std::span<const ZydisDecodedOperand> operands, std::uint64_t next) {
    for (unsigned i = 0; i < info.operand_count; ++i) {
      const ZydisDecodedOperand& operand = operands[i];
      if (operand.type != ZYDIS_OPERAND_TYPE_REGISTER || (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) == 0)
        continue;
      const ZydisRegister whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, operand.reg.value);
      if (whole == ZYDIS_REGISTER_RSP) return false;
      if (const auto reg = number_of(whole)) now_.set(*reg, pointer());
    }
    go(next);
    return true;
  }

  void pass_call(std::uint64_t next) {
    for (RegisterNumber reg = 0; reg < 16; ++reg)
      if (reg != 7 && std::find(std::begin(kPreserved), std::end(kPreserved), reg) == std::end(kPreserved))
        now_.set(reg, pointer());
    forget_below();
    go(next);
  }

  [[nodiscard]] static std::optional<RegisterNumber> number_of(ZydisRegister whole) {
    const auto found = std::find(kZydisIds.begin(), kZydisIds.end(), whole);
    if (found == kZydisIds.end()) return std::nullopt;
    return static_cast<RegisterNumber>(found - kZydisIds.begin());
  }

  // By DWARF number.
  static constexpr std::array<ZydisRegister, 16> kZydisIds = {
      ZYDIS_REGISTER_RAX, ZYDIS_REGISTER_RDX, ZYDIS_REGISTER_RCX, ZYDIS_REGISTER_RBX,
      ZYDIS_REGISTER_RSI, ZYDIS_REGISTER_RDI, ZYDIS_REGISTER_RBP, ZYDIS_REGISTER_RSP,
      ZYDIS_REGISTER_R8,  ZYDIS_REGISTER_R9,  ZYDIS_REGISTER_R10, ZYDIS_REGISTER_R11,
      ZYDIS_REGISTER_R12, ZYDIS_REGISTER_R13, ZYDIS_REGISTER_R14, ZYDIS_REGISTER_R15};
  std::array<int, 16> kIds = {UC_X86_REG_RAX, UC_X86_REG_RDX, UC_X86_REG_RCX, UC_X86_REG_RBX,
                              UC_X86_REG_RSI, UC_X86_REG_RDI, UC_X86_REG_RBP, UC_X86_REG_RSP,
                              UC_X86_REG_R8,  UC_X86_REG_R9,  UC_X86_REG_R10, UC_X86_REG_R11,
                              UC_X86_REG_R12, UC_X86_REG_R13, UC_X86_REG_R14, UC_X86_REG_R15};

  ZydisDecoder decoder_;
  std::optional<RegisterNumber> compared_;  // with sp, by the instruction before
};

}  // namespace windlass::test
