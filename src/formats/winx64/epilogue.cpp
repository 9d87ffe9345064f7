#include "formats/winx64/epilogue.h"

#include <cstring>

namespace windlass::winx64 {
namespace {

constexpr std::uint16_t kMostArguments = 1024;  // bytes

// A cursor over code. Bytes past the end read as 0. After refill() the first kReach bytes of an instruction can be
// looked at.
class Code {
 public:
  static constexpr std::size_t kReach = 8;

  explicit Code(const ByteView& bytes) : at_(bytes.u8()), end_(at_ + bytes.size()), begin_(at_) {}

  void refill() {
    if (!padded_ && static_cast<std::size_t>(end_ - at_) < kReach) [[unlikely]]
      pad();
  }
  [[nodiscard]] std::uint8_t operator[](unsigned i) const { return at_[i]; }
  [[nodiscard]] std::int32_t byte(unsigned i) const { return static_cast<std::int8_t>(at_[i]); }
  [[nodiscard]] std::int32_t word(unsigned i) const {
    std::int32_t value;
    std::memcpy(&value, at_ + i, sizeof value);
    return value;
  }
  void skip(unsigned count) { at_ += count; }
  [[nodiscard]] unsigned position() const { return before_ + static_cast<unsigned>(at_ - begin_); }

 private:
  // Every instruction that matches begins with a byte that is not 0, so three times the reach is enough.
  void pad() {
    std::memset(tail_, 0, sizeof tail_);
    if (at_ != end_) std::memcpy(tail_, at_, static_cast<std::size_t>(end_ - at_));
    before_ += static_cast<unsigned>(at_ - begin_);
    begin_ = at_ = tail_;
    padded_ = true;
  }

  const std::uint8_t* at_;
  const std::uint8_t* end_;
  const std::uint8_t* begin_;  // position `before_`
  unsigned before_ = 0;
  bool padded_ = false;
  std::uint8_t tail_[3 * kReach];
};

void step(const Code& code, EpilogueMatch& match) {
  match.steps[match.step_count++] = {static_cast<std::uint8_t>(code.position()), match.pop_count};
}

// add rsp, imm8 | add rsp, imm32 | lea rsp, disp8[fp] | lea rsp, disp32[fp]
void match_release(Code& code, unsigned frame_register, EpilogueMatch& match) {
  using Release = EpilogueMatch::Release;
  if (code[0] == 0x48 && code[1] == 0x83 && code[2] == 0xc4) {
    match.release = Release::kAdd;
    match.displacement = code.byte(3);
    step(code, match);
    code.skip(4);
  } else if (code[0] == 0x48 && code[1] == 0x81 && code[2] == 0xc4) {
    match.release = Release::kAdd;
    match.displacement = code.word(3);
    step(code, match);
    code.skip(7);
  } else if ((code[0] & 0xfe) == 0x48 && code[1] == 0x8d) {
    const unsigned base = static_cast<unsigned>(code[0] & 1) << 3 | (code[2] & 7);
    const bool short_form = (code[2] & 0xf8) == 0x60;
    if (base == 0 || base != frame_register || (!short_form && (code[2] & 0xf8) != 0xa0)) return;
    // r12 as a base needs a SIB byte. Windows does not look for one and so misses these epilogues.
    const unsigned sib = (code[2] & 7) == 4 ? 1 : 0;
    if (sib != 0 && code[3] != 0x24) return;
    match.release = Release::kLea;
    match.base = static_cast<std::uint8_t>(base);
    match.displacement = short_form ? code.byte(3 + sib) : code.word(3 + sib);
    step(code, match);
    code.skip((short_form ? 4 : 7) + sib);
  }
}

bool match_pops(Code& code, std::uint32_t inside, EpilogueMatch& match) {
  for (;;) {
    code.refill();
    // This instruction is in no canonical epilogue. Windows takes such an address for the body and unwinds it wrongly.
    // But the effect of the code is plain. LLVM puts vzeroupper between the pops and the return (libvips and node have
    // hundreds); Go puts a nop there.
    if (code[0] == 0xc5 && code[1] == 0xf8 && code[2] == 0x77) {
      step(code, match);
      code.skip(3);
      continue;
    }
    // One behind the function's last call may be padding, with another function's ret behind it.
    if (code[0] == 0x90 && code[1] == 0xc3 && code.position() + 1 < inside) {
      match.nop_first = match.step_count == 0;
      step(code, match);
      code.skip(1);
      continue;
    }
    unsigned reg = 0;
    unsigned size = 0;
    if ((code[0] & 0xf8) == 0x58) {
      reg = code[0] & 7;
      size = 1;
    } else if ((code[0] & 0xf0) == 0x40 && (code[1] & 0xf8) == 0x58) {  // with any REX prefix
      reg = static_cast<unsigned>(code[0] & 1) << 3 | (code[1] & 7);
      size = 2;
    } else {
      return true;
    }
    if (reg == 4 || match.pop_count == sizeof match.pops) return false;  // pop rsp is in no epilogue
    step(code, match);
    match.pops[match.pop_count++] = static_cast<std::uint8_t>(reg);
    code.skip(size);
  }
}

bool match_exit(Code& code, EpilogueMatch& match) {
  using Exit = EpilogueMatch::Exit;
  code.refill();
  step(code, match);
  if (code[0] == 0xf2) code.skip(1);  // BND prefix (Intel MPX)
  if (code[0] == 0xc3 || (code[0] == 0xf3 && code[1] == 0xc3)) return true;
  if (code[0] == 0xc2) {
    match.return_pops = static_cast<std::uint16_t>(code[1] | code[2] << 8);
    // 64-bit code pushes nothing else, and never this much: C2 is the ModRM byte of many instructions.
    return match.return_pops % 8 == 0 && match.return_pops <= kMostArguments;
  }
  if (code[0] == 0xeb || code[0] == 0xe9) {
    match.exit = Exit::kJump;
    match.target = static_cast<std::int64_t>(code.position()) + (code[0] == 0xeb ? 2 + code.byte(1) : 5 + code.word(1));
    return true;
  }
  match.exit = Exit::kIndirectJump;
  if (code[0] == 0xff && code[1] == 0x25) return true;  // jmp [rip + disp32]
  // jmp r/m64 with REX.W, which changes nothing and so marks a tail call.
  return (code[0] & 0xf8) == 0x48 && code[1] == 0xff && (code[2] & 0x38) == 0x20;
}

}  // namespace

bool match_epilogue(const ByteView& bytes, unsigned frame_register, std::uint32_t inside, EpilogueMatch& match) {
  match.release = EpilogueMatch::Release::kNone;
  match.exit = EpilogueMatch::Exit::kReturn;
  match.displacement = 0;
  match.base = match.pop_count = match.step_count = 0;
  match.nop_first = false;
  match.return_pops = 0;
  match.target = 0;
  Code code(bytes);
  code.refill();
  match_release(code, frame_register, match);
  return match_pops(code, inside, match) && match_exit(code, match);
}

bool ends_with_release(ByteView code) {
  const std::uint8_t* b = code.u8();
  if ((b[6] & 0xf8) == 0x58) return true;
  if (b[3] == 0x48 && b[4] == 0x83 && b[5] == 0xc4) return true;                    // add rsp, imm8
  if (b[0] == 0x48 && b[1] == 0x81 && b[2] == 0xc4) return true;                    // add rsp, imm32
  if ((b[3] & 0xfe) == 0x48 && b[4] == 0x8d && (b[5] & 0xf8) == 0x60) return true;  // lea rsp, disp8[reg]
  return (b[0] & 0xfe) == 0x48 && b[1] == 0x8d && (b[2] & 0xf8) == 0xa0;            // lea rsp, disp32[reg]
}

}  // namespace windlass::winx64
