#include "lookup/sources/stack_end.h"

#include <algorithm>
#include <optional>
#include <span>

#include "base/registers.h"
#include "flow/stack_effect.h"

namespace windlass::sources {
namespace {

using flow::StackEffect;
using Kind = StackEffect::Kind;

constexpr std::uint64_t kMostCode = 1 << 16;  // that is read of one function
constexpr std::size_t kLongestInstruction = 15;

// The instructions of [address, end), in a straight line: one a call.
class X86Code {
 public:
  X86Code(CodeReader read, std::uint64_t address, std::uint64_t end)
      : read_(read), address_(address), end_(std::min(end, address + kMostCode)) {}
  [[nodiscard]] std::optional<StackEffect> next() {
    const std::size_t size = std::min<std::uint64_t>(end_ - address_, sizeof bytes_);
    if (address_ >= end_ || !read_(address_, bytes_, size)) return std::nullopt;
    const auto effect = flow::stack_effect(ByteView(std::span<const std::uint8_t>(bytes_, size)), address_);
    if (!effect) return std::nullopt;
    address_ += effect->length;
    return *effect;
  }
  // Was the last one, of Kind::kReturn, a return and no trap?
  [[nodiscard]] bool at_return() const {
    const std::uint8_t code = bytes_[bytes_[0] == 0xf2 || bytes_[0] == 0xf3 ? 1 : 0];  // bnd, rep
    return code == 0xc3 || code == 0xc2;
  }

 private:
  CodeReader read_;
  std::uint64_t address_, end_;
  std::uint8_t bytes_[kLongestInstruction] = {};
};

// What rsp is above that at `address` where the code has come, past calls and branches not taken, to a return; nothing
// where it leads elsewhere.
std::optional<std::int64_t> straight_to_return(X86Code code) {
  std::int64_t moved = 0;
  while (const auto effect = code.next()) {
    switch (effect->kind) {
      case Kind::kNone:
      case Kind::kCall:
      case Kind::kBranch: break;
      case Kind::kMove:
      case Kind::kPush:
      case Kind::kPop: moved += effect->delta; break;
      case Kind::kReturn: return code.at_return() ? std::optional(moved) : std::nullopt;
      case Kind::kSet:
      case Kind::kUnknown:
      case Kind::kJump: return std::nullopt;
    }
  }
  return std::nullopt;
}

// True unless the code goes straight to a return, with the return address elsewhere.
bool agrees(const FrameRow& row, X86Code code) {
  if (!row.cfa.is_at(x86_64::kRsp) || !row.return_address.is(RegisterRule::kAtCfa)) return true;
  const auto moved = straight_to_return(code);
  return !moved || *moved == std::int64_t{row.cfa.offset()} + row.return_address.offset();
}

}  // namespace

bool is_called(const CfaRule& first, Architecture architecture) {
  const int pushed = architecture == Architecture::kAArch64 ? 0 : static_cast<int>(Registers::word_size(architecture));
  return first == CfaRule::at(Registers::sp_number(architecture), pushed);
}

bool returns(CodeReader read, std::uint64_t address, std::uint64_t end, Architecture architecture) {
  if (architecture == Architecture::kAArch64) {
    constexpr std::uint32_t kRet = 0xd65f0000, kAnyRegister = 0x3e0, kRetAa = 0xd65f0bff, kRetAb = 0xd65f0fff;
    std::uint32_t word = 0;
    for (end = std::min(end, address + kMostCode); address < end && read(address, &word, sizeof word);
         address += sizeof word)
      if ((word & ~kAnyRegister) == kRet || word == kRetAa || word == kRetAb) return true;
    return false;
  }
  if (architecture != Architecture::kX86_64) return false;
  X86Code code(read, address, end);
  while (const auto effect = code.next())
    if (effect->kind == Kind::kReturn && code.at_return()) return true;
  return false;
}

EndProof end_proof(const UnwindSource& source, CodeAddress pc) {
  FrameRow row;
  if (!source.architecture()) return EndProof::kProven;
  const auto found = source.row_at(pc.lookup(), row);
  if (source.is_windows() && !found && found.error().code == ErrorCode::kNotFound) return EndProof::kNone;
  if (!found) return EndProof::kProven;
  const auto function = source.function_at(pc.lookup());
  const Architecture architecture = *source.architecture();
  const auto read = [&source](std::uint64_t address, void* to, std::size_t size) {
    return source.read_image(address, to, size);
  };
  // Go's compiler marks the outermost frames (FuncFlagTopFrame), and puts a return that is never reached behind them.
  // No other frame of Go's is one, but where a thread has left its goroutine's stack: an expression leads to 0 there.
  const bool is_go = function && function->record.section == RecordPlace::kGoFunctions;
  if (source.is_windows() && !is_go) return EndProof::kProven;
  if (row.return_address.is(RegisterRule::kUndefined)) {
    const bool is_marked = source.is_exact() || is_go;
    const bool refuted = !is_marked && function && returns(read, row.begin, function->end, architecture);
    return refuted ? EndProof::kRefuted : EndProof::kProven;
  }
  FrameRow first;
  if (is_go && !row.cfa.is(CfaRule::kExpression)) return EndProof::kNone;
  if (!function || !source.row_at(function->begin, first)) return EndProof::kNone;
  if (!is_called(first.cfa, architecture)) return EndProof::kNone;
  const bool refuted = architecture == Architecture::kX86_64 && !source.is_exact() &&
                       !agrees(row, X86Code(read, pc.value(), function->end));
  return refuted ? EndProof::kRefuted : EndProof::kProven;
}

}  // namespace windlass::sources
