// Wine's RtlVirtualUnwind as its source says it works (dlls/ntdll, 8.0), in Windlass's terms. It decides nothing:
// a difference between the two is explained only if this model predicts what Wine answered, and names why.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/winx64/exec.h"
#include "outcome.h"

namespace windlass::test {

// Wine's reading of the code from an address on. Unlike Windows it follows jumps within the function, takes any
// register for the base of `lea rsp`, overlooks REX prefixes, and ignores the function's end. It knows no tail call, no
// `bnd ret`, and no other instruction in between.
class WineScan {
 public:
  WineScan(const winx64::Functions& functions, const winx64::RuntimeFunction& function, std::uint32_t rva)
      : functions_(functions), function_(function), rva_(rva) {
    epilogue_ = read_release() && read_pops();
  }
  [[nodiscard]] bool epilogue() const { return epilogue_; }
  // Jumps lead in a circle, as data and the middles of instructions can look like: Wine does not come back from that.
  [[nodiscard]] bool endless() const { return endless_; }
  [[nodiscard]] bool follows_jumps() const { return jumps_ != 0; }
  [[nodiscard]] int base() const { return base_; }  // of lea; -1: none
  [[nodiscard]] std::uint16_t return_pops() const { return return_pops_; }
  [[nodiscard]] bool pops_rsp() const { return pops_rsp_; }
  [[nodiscard]] bool prefixed() const { return prefixed_; }  // a REX prefix before what is no pop
  [[nodiscard]] std::uint32_t end() const { return rva_; }   // of the last instruction, its first byte

  // False where the stack cannot be read.
  [[nodiscard]] bool execute(const MadeUpStack& stack, Outcome& to) const {
    std::uint64_t& rsp = to.integer[winx64::kRsp];
    if (base_ >= 0) rsp = to.integer[base_];
    rsp += static_cast<std::uint64_t>(release_);
    for (const std::uint8_t reg : pops_) {
      const std::uint64_t at = rsp;
      if (!stack.read(at, &to.integer[reg], 8)) return false;
      rsp += 8;
      to.integer_at[reg] = at;
    }
    if (!stack.read(rsp, &to.rip, 8)) return false;
    rsp += 8ULL + return_pops_;
    return true;
  }

 private:
  template <typename T>
  [[nodiscard]] T at(std::uint32_t ahead) const {
    return functions_.bytes(rva_ + ahead, sizeof(T)).template at<T>(0).value_or(T{});
  }
  [[nodiscard]] std::uint8_t byte(std::uint32_t ahead) const { return at<std::uint8_t>(ahead); }
  void take_displacement(bool wide) {
    release_ = wide ? at<std::int32_t>(3) : at<std::int8_t>(3);
    rva_ += wide ? 7 : 4;
  }

  bool read_release() {
    const std::uint8_t rex = byte(0), operation = byte(1), modrm = byte(2);
    if ((rex & 0xf8) != 0x48) return true;
    if (operation == 0x81 || operation == 0x83) {
      if (rex != 0x48 || modrm != 0xc4) return false;
      take_displacement(operation == 0x81);
    } else if (operation == 0x8d) {
      if ((rex & 6) != 0 || (modrm >> 3 & 7) != winx64::kRsp || (modrm & 7) == winx64::kRsp) return false;
      if (modrm >> 6 != 1 && modrm >> 6 != 2) return false;
      base_ = (modrm & 7) + (rex & 1) * 8;
      take_displacement(modrm >> 6 == 2);
    }
    return true;
  }

  bool read_pops() {
    constexpr unsigned kMostJumps = 64;
    while (jumps_ < kMostJumps) {
      const bool prefix = (byte(0) & 0xf0) == 0x40;
      const unsigned extended = prefix ? (byte(0) & 1U) * 8 : 0;
      rva_ += prefix;
      const std::uint8_t operation = byte(0);
      if (operation >= 0x58 && operation <= 0x5f) {
        pops_.push_back(static_cast<std::uint8_t>(operation - 0x58 + extended));
        pops_rsp_ = pops_rsp_ || pops_.back() == winx64::kRsp;
        ++rva_;
        continue;
      }
      prefixed_ = prefixed_ || prefix;
      if (operation != 0xe9 && operation != 0xeb) {
        if (operation == 0xc2) return_pops_ = at<std::uint16_t>(1);
        return operation == 0xc2 || operation == 0xc3 || (operation == 0xf3 && byte(1) == 0xc3);
      }
      const std::int32_t distance = operation == 0xe9 ? 5 + at<std::int32_t>(1) : 2 + at<std::int8_t>(1);
      rva_ += static_cast<std::uint32_t>(distance);
      if (rva_ < function_.begin || rva_ >= function_.end) return false;
      ++jumps_;
    }
    endless_ = true;
    return false;
  }

  const winx64::Functions& functions_;
  const winx64::RuntimeFunction function_;
  std::uint32_t rva_;
  bool epilogue_ = false, endless_ = false, pops_rsp_ = false, prefixed_ = false;
  unsigned jumps_ = 0;
  int base_ = -1;
  std::int64_t release_ = 0;
  std::vector<std::uint8_t> pops_;
  std::uint16_t return_pops_ = 0;
};

class WineModel {
 public:
  WineModel(const winx64::Functions& functions, std::uint64_t base, const MadeUpStack& stack)
      : functions_(functions), base_(base), stack_(stack) {}

  // False where Wine cannot be asked: it would read what is not mapped, or never come back.
  bool run(winx64::RuntimeFunction function, const CONTEXT& from) {
    for (unsigned i = 0; i < 16; ++i) {
      to_.integer[i] = (&from.Rax)[i];
      to_.xmm[i] = (&from.Xmm0)[i];
    }
    const auto rva = static_cast<std::uint32_t>(from.Rip - base_);
    std::uint64_t frame = to_.establisher = rsp();
    for (links_ = 0; links_ <= winx64::kMaxChain; ++links_) {
      const auto info = winx64::info_of(functions_, function);
      if (!info) return false;
      if (info->frame_register != 0) frame = to_.integer[info->frame_register] - info->frame_offset * 16U;
      const bool in_prologue = rva >= function.begin && rva - function.begin < info->prolog_size;
      // "Since Windows 10 1809", and only behind the prologue.
      if (!in_prologue && info->slot_count != 0) {
        scan_.emplace(functions_, function, rva);
        if (scan_->endless()) return false;
        if (scan_->epilogue()) {
          to_.establisher = frame;
          return scan_->execute(stack_, to_);
        }
      }
      scan_.reset();
      if (!undo(*info, in_prologue ? rva - function.begin : ~0U, frame)) return false;
      if (!info->chained) return leave(*info, in_prologue);
      function = *info->chained;
    }
    return false;
  }
  [[nodiscard]] const Outcome& outcome() const { return to_; }
  // Why it took the address for one in an epilogue; null: it did not.
  [[nodiscard]] const WineScan* epilogue() const { return scan_ ? &*scan_ : nullptr; }
  [[nodiscard]] unsigned links() const { return links_; }  // of the chain that it had gone by then

 private:
  [[nodiscard]] std::uint64_t& rsp() { return to_.integer[winx64::kRsp]; }

  bool load(unsigned reg, std::uint64_t address) {
    to_.integer_at[reg] = address;
    return stack_.read(address, &to_.integer[reg], 8);
  }

  bool undo(const winx64::UnwindInfo& info, std::uint32_t offset, std::uint64_t frame) {
    using winx64::Operation;
    bool ok = true;
    const auto done = winx64::each_code(info, [&](const winx64::UnwindCode& code) {
      if (!ok || offset < code.offset) return;
      switch (code.operation) {
        case Operation::kPushNonvol: {
          const std::uint64_t at = rsp();
          rsp() += 8;
          ok = load(code.info, at);
          break;
        }
        case Operation::kAllocLarge:
        case Operation::kAllocSmall: rsp() += code.value; break;
        case Operation::kSetFpreg: rsp() = to_.establisher = frame; break;
        case Operation::kSaveNonvol:
        case Operation::kSaveNonvolFar: ok = load(code.info, frame + code.value); break;
        case Operation::kSaveXmm128:
        case Operation::kSaveXmm128Far:
          to_.xmm_at[code.info] = frame + code.value;
          ok = stack_.read(frame + code.value, &to_.xmm[code.info], sizeof(M128A));
          break;
        case Operation::kPushMachframe: {
          const std::uint64_t at = rsp() + (code.info != 0 ? 8 : 0);
          ok = stack_.read(at, &to_.rip, 8) && stack_.read(at + 24, &rsp(), 8);
          machine_frame_ = true;
          break;
        }
        default: break;
      }
    });
    return done && ok;
  }

  bool leave(const winx64::UnwindInfo& info, bool in_prologue) {
    if (!machine_frame_) {
      if (!stack_.read(rsp(), &to_.rip, 8)) return false;
      rsp() += 8;
    }
    if (info.handler != 0 && !in_prologue) {
      to_.handler = base_ + info.handler;
      to_.handler_data = base_ + info.handler_data;
    }
    return true;
  }

  const winx64::Functions& functions_;
  const std::uint64_t base_;
  const MadeUpStack& stack_;
  Outcome to_;
  std::optional<WineScan> scan_;
  unsigned links_ = 0;
  bool machine_frame_ = false;
};

}  // namespace windlass::test
