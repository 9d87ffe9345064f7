#include <algorithm>
#include <cstring>

#include "base/x86_64_call.h"
#include "formats/winx64/epilogue.h"
#include "formats/winx64/registers.h"
#include "windlass/format/winx64.h"

namespace windlass::winx64 {
namespace {

// Behind a call: is the rest of an epilogue there, that leaves the function?
bool leaves_at(ByteView code, std::uint32_t at, unsigned frame_register) {
  std::uint8_t before[x86_64::kLongestCall] = {};
  const std::uint32_t known = std::min<std::uint32_t>(at, sizeof before);
  std::memcpy(before + sizeof before - known, code.data() + at - known, known);
  if (!x86_64::ends_with_call(before)) return false;
  EpilogueMatch match;
  const auto size = static_cast<std::uint32_t>(code.size());
  const ByteView rest(code.data() + at, std::min(size - at, kEpilogueWindow));
  // Unwinders here know a nop in front of the return. Windows does not, so its handler is asked.
  if (!match_epilogue(rest, frame_register, size - at, match) || match.nop_first) return false;
  const std::int64_t target = at + match.target;
  return match.exit != EpilogueMatch::Exit::kJump || target <= 0 || target >= size;
}

}  // namespace

std::vector<std::uint32_t> handlers_not_asked(const Prologue& prologue, std::span<const std::byte> code) {
  std::vector<std::uint32_t> found;
  if (!prologue.handler || code.size() != prologue.code_size) return found;
  unsigned frame_register = 0;
  for (const prologue::Op& op : prologue.ops)
    if (const auto* set = std::get_if<prologue::SetFramePointer>(&op.action))
      frame_register = instruction_number(set->reg);
  const ByteView bytes(code.data(), code.size());
  const auto look = [&](const std::vector<prologue::Epilogue>& epilogues) {
    for (const prologue::Epilogue& epilogue : epilogues)
      if (epilogue.begin < code.size() && leaves_at(bytes, epilogue.begin, frame_register))
        found.push_back(epilogue.begin);
  };
  look(prologue.epilogues);
  for (const prologue::Part& part : prologue.parts) look(part.epilogues);
  std::ranges::sort(found);
  return found;
}

}  // namespace windlass::winx64
