#include "runtimes/sbcl/code_map.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "runtimes/memory_reader.h"

namespace windlass::runtimes::sbcl {
namespace {

constexpr std::uint64_t kWord = 8, kAligned = 16;
constexpr std::uint64_t kConstants = 4 * kWord, kConstantsOfFunction = 4 * kWord;  // a function's first one is its name
constexpr std::uint64_t kEntry = 2 * kWord;                                        // behind a function's header
constexpr std::uint32_t kMaxFunctions = 1U << 11;                                  // its number has 11 bits

constexpr std::uint64_t kDebugFields = 5;  // of the debug information itself

std::uint64_t size_of(std::uint64_t header) { return (header >> 32) * kWord; }
std::uint64_t boxed_of(std::uint64_t sizes) { return sizes & 0xffffffff; }

// Two words follow the sizes: the debug information, which is an instance, and the fixups, which are a number. SBCL 2.5
// and 2.6 have the fixups first. Empty: they cannot be read.
struct Debug {
  std::uint64_t instance = 0;
  bool is_apart = false;
};
std::optional<Debug> debug_of(const Memory& memory, std::uint64_t object) {
  const auto words = read_value<std::array<std::uint64_t, 2>>(memory, object + 2 * kWord);
  if (!words) return std::nullopt;
  const auto is_instance = [](std::uint64_t word) { return (word & kTagMask) == kInstanceTag; };
  const auto& [first, second] = *words;
  const bool is_apart = is_instance(second) && !is_instance(first);
  return Debug{is_apart ? second : first, is_apart};
}

// The word with the name of a function that has its constants in the debug information. 0: the information is shorter.
std::uint64_t name_apart(const Memory& memory, std::uint64_t instance, std::size_t function) {
  constexpr std::uint8_t kInstance = 0x39;
  const std::uint64_t at = instance - kInstanceTag, field = kDebugFields + function * (kConstantsOfFunction / kWord);
  const auto header = read_value<std::uint32_t>(memory, at);  // the kind, and the number of fields in 14 bits
  if (!header || (*header & 0xff) != kInstance || field >= (*header >> 10 & 0x3fff)) return 0;
  return at + kWord + field * kWord;
}

}  // namespace

bool CodeMap::is_still(const Memory& memory, const CodeObject& object) {
  std::array<std::uint64_t, 2> now{};
  return memory.read(object.address, now.data(), sizeof now) && now[0] == object.header && now[1] == object.sizes &&
         read_value<std::uint64_t>(memory, object.address + boxed_of(object.sizes)) == object.serial;
}

bool CodeMap::find_in(const Memory& memory, const CodeObject& object, std::uint64_t pc, Function& to) const {
  const std::uint64_t size = size_of(object.header), boxed = boxed_of(object.sizes);
  if (size > kMaxObject || boxed < kConstants || boxed % kWord != 0 || boxed >= size) return false;
  const std::uint64_t text = object.address + boxed, behind = object.address + size;
  std::uint16_t trailer[2];  // the number of functions, in the high 11 bits; the size of the table in bytes
  if (pc < text || pc >= behind || !memory.read(behind - sizeof trailer, trailer, sizeof trailer)) return false;
  const std::uint32_t count = trailer[0] >> 5;
  const auto debug = debug_of(memory, object.address);
  if (!debug) return false;
  const std::uint64_t constants = debug->is_apart ? 0 : count * kConstantsOfFunction;
  if (count == 0 || count >= kMaxFunctions || trailer[1] < sizeof trailer + count * std::uint64_t{4} ||
      trailer[1] > size - boxed || boxed < kConstants + constants)
    return false;
  std::vector<std::uint32_t> offsets(count);  // the last one's first
  const std::uint64_t table = behind - sizeof trailer - count * std::uint64_t{4};
  if (!memory.read(table, offsets.data(), count * std::size_t{4})) return false;
  std::ranges::reverse(offsets);
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto header = read_value<std::uint64_t>(memory, text + offsets[i]);
    if (!header || (*header >> 8 & 0xffffff) * kWord != boxed + offsets[i] || (i > 0 && offsets[i] <= offsets[i - 1]))
      return false;
    if (text + offsets[i] <= pc) at = i;
  }
  to.object = object;
  to.object.serial = read_value<std::uint64_t>(memory, text).value_or(0);
  to.entry = text + offsets[at] + kEntry;
  to.begin = at == 0 ? text : text + offsets[at];
  to.end = at + 1 < count ? text + offsets[at + 1] : behind - trailer[1];
  to.is_apart = debug->is_apart;
  to.name = debug->is_apart ? name_apart(memory, debug->instance, at)
                            : object.address + kConstants + at * kConstantsOfFunction;
  return pc < to.end;
}

Expected<Function> CodeMap::find(const Memory& memory, std::uint64_t pc) const {
  if (pc >= layout_.routines_begin && pc < layout_.routines_end)
    return fail(ErrorCode::kNotFound, "a routine of SBCL's assembler", pc);
  constexpr std::uint64_t kPiece = 4096;
  std::array<std::uint64_t, kPiece / kWord> words{};
  const std::uint64_t lowest = pc - std::min(pc, kMaxCode);
  for (std::uint64_t piece = pc - pc % kPiece; piece >= lowest && piece != 0; piece -= kPiece) {
    if (!memory.read(piece, words.data(), sizeof words)) break;
    for (std::size_t i = words.size(); i != 0; i -= kAligned / kWord) {
      const std::size_t first = i - kAligned / kWord;
      const CodeObject object{piece + first * kWord, words[first], words[first + 1], 0};
      const bool can_be = (object.header & 0xff) == layout_.code_kind && object.address < pc &&
                          pc - object.address < size_of(object.header);
      Function found;
      if (can_be && find_in(memory, object, pc, found)) return found;
    }
  }
  return fail(ErrorCode::kNotFound, "no function of SBCL's", pc);
}

}  // namespace windlass::runtimes::sbcl
