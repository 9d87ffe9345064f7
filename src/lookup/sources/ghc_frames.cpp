#include "lookup/sources/ghc_frames.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "formats/winx64/instruction_length.h"
#include "formats/winx64/registers.h"

namespace windlass::sources {
namespace {

// StgReturn: mov rax, rbx; add rsp, imm32; mov rbx, [rsp].
constexpr std::array<std::uint8_t, 6> kReturnStart = {0x48, 0x89, 0xd8, 0x48, 0x81, 0xc4};
constexpr std::array<std::uint8_t, 4> kFirstLoad = {0x48, 0x8b, 0x1c, 0x24};
constexpr std::array<std::uint8_t, 3> kAddRsp = {0x48, 0x81, 0xc4};
constexpr std::size_t kFirstLoadAt = kReturnStart.size() + 4;
// StgRun stands before StgReturn: it saves the same registers.
constexpr std::uint32_t kMostRun = 256;
constexpr std::size_t kSavedRegisters = 8;

template <std::size_t kSize>
bool has(ByteView code, std::uint64_t at, const std::array<std::uint8_t, kSize>& bytes) {
  return at + kSize <= code.size() && std::memcmp(code.data() + at, bytes.data(), kSize) == 0;
}

// Where a StgReturn may begin next; the end of the code if nowhere. The last byte is the rarest in code.
std::uint64_t find_return(ByteView code, std::uint64_t at) {
  constexpr std::size_t kLast = kReturnStart.size() - 1;
  while (at + kLast < code.size()) {
    const void* found = std::memchr(code.data() + at + kLast, kReturnStart[kLast], code.size() - at - kLast);
    if (found == nullptr) break;
    at = static_cast<std::uint64_t>(static_cast<const std::byte*>(found) - code.data()) - kLast;
    if (has(code, at, kReturnStart)) return at;
    ++at;
  }
  return code.size();
}

// Compilers of other languages give nearly every function an entry.
bool has_few_entries(const image::PeImage& image, std::uint64_t code_size) {
  constexpr std::uint64_t kEntry = 12, kCodeAnEntry = 4096;
  return image.exception_directory().size() / kEntry < code_size / kCodeAnEntry;
}

// What an instruction does to rsp, or to where the code goes on.
struct GhcEffect {
  enum Kind : std::uint8_t {
    kNone,
    kMove,     // adds `value` to rsp
    kJump,     // goes on at `value` behind the instruction
    kLeave,    // a computed jump
    kForeign,  // not in Haskell's code
  };
  Kind kind = kNone;
  std::int32_t value = 0;
};
GhcEffect effect_of(ByteView code, unsigned length) {
  using Kind = GhcEffect::Kind;
  const std::uint8_t* bytes = code.u8();
  const std::uint8_t rex = (bytes[0] & 0xf0) == 0x40 ? bytes[0] : std::uint8_t{0};
  const unsigned at = rex != 0 ? 1 : 0;
  if (length <= at || (bytes[0] == 0xf3 && bytes[1] == 0xc3)) return {Kind::kForeign};
  const std::uint8_t opcode = bytes[at];
  const std::uint8_t modrm = length > at + 1 ? bytes[at + 1] : std::uint8_t{0};
  const auto immediate = [&](unsigned size) {
    std::int32_t value = 0;
    if (size == 1) return std::int32_t{static_cast<std::int8_t>(bytes[length - 1])};
    std::memcpy(&value, bytes + length - sizeof value, sizeof value);
    return value;
  };
  const bool to_rsp = modrm >> 6 == 3 && (modrm & 7) == 4 && (rex & 1) == 0;
  switch (opcode) {
    case 0x83:
    case 0x81: {  // of rsp: add, sub; nothing else
      if (!to_rsp || (modrm & 0x38) == 0x38) return {};
      const std::int32_t value = immediate(opcode == 0x83 ? 1 : 4);
      if ((modrm & 0x38) == 0) return {Kind::kMove, value};
      return (modrm & 0x38) == 0x28 ? GhcEffect{Kind::kMove, -value} : GhcEffect{Kind::kForeign};
    }
    case 0x89: return {to_rsp || ((modrm >> 3 & 7) == 4 && (rex & 4) == 0) ? Kind::kForeign : Kind::kNone};
    case 0x8b:
    case 0x8d: return {(modrm >> 3 & 7) == 4 && (rex & 4) == 0 ? Kind::kForeign : Kind::kNone};
    case 0xe9: return {Kind::kJump, immediate(4)};
    case 0xeb: return {Kind::kJump, immediate(1)};
    case 0xff:
      if ((modrm & 0x38) == 0x30) return {Kind::kForeign};  // push
      if ((modrm & 0x30) != 0x20) return {};
      return {(modrm & 0xc7) == 5 ? Kind::kForeign : Kind::kLeave};  // a jump by an import's pointer is C's
    case 0xc2:
    case 0xc3:
    case 0xc9:
    case 0xcc:
    case 0xf4:
    case 0x68:
    case 0x6a:
    case 0x8f:
    case 0x9c:
    case 0x9d: return {Kind::kForeign};
    default: return {opcode >= 0x50 && opcode <= 0x5f ? Kind::kForeign : Kind::kNone};
  }
}

}  // namespace

GhcFrames GhcFrames::read(const image::PeImage& image) {
  for (const image::PeSection& section : image.sections()) {
    if (!section.executable() || !has_few_entries(image, section.virtual_size)) continue;
    const ByteView code = image.rest_from(section.rva);
    for (std::uint64_t at = find_return(code, 0); at < code.size(); at = find_return(code, at + 1)) {
      GhcFrames frames;
      const auto rva = section.rva + static_cast<std::uint32_t>(at);
      if (frames.read_return({code.data() + at, code.size() - at}, rva)) return frames;
    }
  }
  return {};
}

bool GhcFrames::read_return(ByteView code, std::uint32_t rva) {
  if (!has(code, kFirstLoadAt, kFirstLoad)) return false;
  reserved_ = *code.at<std::uint32_t>(kReturnStart.size());
  for (std::uint64_t at = kFirstLoadAt; at + 8 < code.size() && at < kMostRun;) {
    if (has(code, at, kAddRsp)) {
      frame_ = *code.at<std::uint32_t>(at + kAddRsp.size());
      constexpr std::uint32_t kMost = 1 << 20;
      const bool returns = code.u8()[at + kAddRsp.size() + 4] == 0xc3;
      if (!returns || saved_.size() != kSavedRegisters || reserved_ > kMost || frame_ > kMost) return false;
      return_rva_ = rva;
      return_end_ = rva + static_cast<std::uint32_t>(at) + 8;
      run_rva_ = rva - std::min(rva, kMostRun);
      return true;
    }
    // mov reg, [rsp], or [rsp + disp8]; movaps is passed over.
    const std::uint8_t* bytes = code.u8() + at;
    const bool loads = (bytes[0] == 0x48 || bytes[0] == 0x4c) && bytes[1] == 0x8b && bytes[3] == 0x24;
    const unsigned mode = bytes[2] >> 6;
    if (loads && (bytes[2] & 7) == 4 && mode < 2)
      saved_.push_back({(bytes[2] >> 3 & 7U) | (bytes[0] == 0x4c ? 8U : 0U), mode == 1 ? bytes[4] : 0U});
    const unsigned length = winx64::instruction_length({code.data() + at, code.size() - at});
    if (length == 0 || saved_.size() > kSavedRegisters) return false;
    at += length;
  }
  return false;
}

std::optional<std::uint32_t> GhcFrames::depth_at(const image::PeImage& image, std::uint64_t address,
                                                 HasEntry has_entry) const {
  constexpr unsigned kMostInstructions = 4096, kMostJumps = 16;
  constexpr std::int32_t kMostDepth = 4096;
  if (return_rva_ == 0 || address >> 32 != 0) return std::nullopt;
  auto rva = static_cast<std::uint32_t>(address);
  if (has_entry(rva)) return std::nullopt;
  ByteView code = image.rest_from(rva);
  std::int32_t added = 0;
  const auto depth = [&] { return added >= 0 ? std::optional(static_cast<std::uint32_t>(added)) : std::nullopt; };
  for (unsigned i = 0, jumps = 0; i < kMostInstructions; ++i) {
    if (rva == return_rva_ && jumps != 0) return depth();
    if (is_entry_code(rva)) break;
    const unsigned length = winx64::instruction_length(code);
    if (length == 0) break;
    const GhcEffect effect = effect_of(code, length);
    rva += length;
    code = {code.data() + length, code.size() - length};
    if (effect.kind == GhcEffect::kLeave) return depth();
    if (effect.kind == GhcEffect::kForeign) break;
    if (effect.kind == GhcEffect::kMove) added += effect.value;
    if (added > kMostDepth || added < -kMostDepth) break;
    if (effect.kind != GhcEffect::kJump) continue;
    rva += static_cast<std::uint32_t>(effect.value);
    if (++jumps > kMostJumps || has_entry(rva)) break;
    code = image.rest_from(rva);
  }
  return std::nullopt;
}

Expected<void> GhcFrames::unwind(const image::PeImage& image, std::uint64_t bias, const Memory& memory,
                                 const Registers& registers, HasEntry has_entry, winx64::Unwound& to,
                                 winx64::SavedAddresses& saved) const {
  const std::uint64_t pc = registers.pc().value();
  const auto below = depth_at(image, pc - bias, has_entry);
  const auto other = [&] { return fail(ErrorCode::kMalformed, "no call of StgRun leads to Haskell's code", pc); };
  if (!below) return other();
  const std::uint64_t kept_at = registers.sp() + *below + reserved_;
  const auto read = [&](std::uint64_t at, std::uint64_t& value) { return memory.read(at, &value, sizeof value); };
  const auto unreadable = [&](std::uint64_t at) { return fail(ErrorCode::kUnreadable, "stack unreadable", at); };
  std::uint64_t value = 0;
  saved.return_address = kept_at + frame_;
  if (!read(saved.return_address, value)) return unreadable(saved.return_address);
  // call rel32, to the begin of StgRun or a little behind.
  constexpr std::uint32_t kCallSize = 5;
  const std::uint64_t behind = value - bias;
  const ByteView call =
      behind >> 32 == 0 ? image.rest_from(static_cast<std::uint32_t>(behind) - kCallSize) : ByteView();
  if (call.size() < kCallSize || call.u8()[0] != 0xe8) return other();
  const std::uint32_t target = static_cast<std::uint32_t>(behind) + *call.at<std::uint32_t>(1);
  if (target < run_rva_ || target >= return_rva_) return other();
  to.caller = Registers(Architecture::kX86_64);
  to.caller.set_pc(CodeAddress::return_address(value));
  to.caller.set_sp(saved.return_address + sizeof value);
  for (const Saved& place : saved_) {
    const std::uint64_t at = kept_at + place.place;
    if (!read(at, value)) return unreadable(at);
    to.caller.set(winx64::dwarf_number(place.number), value);
    saved.integer[place.number] = at;
  }
  to.establisher = registers.sp();
  return {};
}

}  // namespace windlass::sources
