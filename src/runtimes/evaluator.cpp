#include "runtimes/evaluator.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <set>
#include <vector>

#include "formats/dwarf/eh_frame_hdr.h"
#include "formats/winx64/instruction_length.h"
#include "runtimes/dynamic_symbol.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes {
namespace {

constexpr std::uint64_t kLongest = std::uint64_t{1} << 20;  // CPython's have 35 to 56 KB
constexpr std::size_t kLongestBlock = 512;                  // of cold code, until it comes back
constexpr std::size_t kMaxTargets = 4096;

struct Jump {
  std::int64_t distance = 0;  // from the instruction's end
  bool always = false;
};

// Direct ones, Intel SDM volume 2: JMP, Jcc. Compilers write them without prefixes.
std::optional<Jump> direct_jump(ByteView instruction) {
  const auto* bytes = instruction.u8();
  const auto near = [&](std::size_t at) {
    std::int32_t distance = 0;
    std::memcpy(&distance, bytes + at, sizeof distance);
    return distance;
  };
  const std::size_t size = instruction.size();
  const bool is_short = size == 2 && (bytes[0] == 0xeb || (bytes[0] & 0xf0) == 0x70);
  if (is_short) return Jump{static_cast<std::int8_t>(bytes[1]), bytes[0] == 0xeb};
  if (size == 5 && bytes[0] == 0xe9) return Jump{near(1), true};
  if (size == 6 && bytes[0] == 0x0f && (bytes[1] & 0xf0) == 0x80) return Jump{near(2), false};
  return std::nullopt;
}

// Calls visit(target, end of the jump, always) for the direct jumps of code read at an address, until it says false.
template <typename Visit>
void for_each_jump(std::uint64_t begin, ByteView code, Visit&& visit) {
  for (std::size_t at = 0; at < code.size();) {
    const ByteView rest(code.data() + at, code.size() - at);
    const unsigned length = winx64::instruction_length(rest);
    if (length == 0 || length > rest.size()) return;
    at += length;
    const auto jump = direct_jump(ByteView(rest.data(), length));
    if (!jump) continue;
    const std::uint64_t end = begin + at;
    if (!visit(end + static_cast<std::uint64_t>(jump->distance), end, jump->always)) return;
  }
}

// Code at a target of the evaluator's that jumps back into its middle is part of it: nobody else does. Where such code
// ends; 0: it is something else.
std::uint64_t end_of_cold(const Memory& memory, const Evaluator& evaluator, std::uint64_t target) {
  std::byte block[kLongestBlock];
  std::size_t size = sizeof block;
  while (size >= 64 && !memory.read(target, block, size)) size /= 2;
  if (size < 64) return 0;
  std::uint64_t found = 0;
  for_each_jump(target, ByteView(block, size), [&](std::uint64_t to, std::uint64_t end, bool always) {
    if (to > evaluator.hot.begin && to < evaluator.hot.end) found = end;
    return found == 0 && !always;
  });
  return found;
}

// Of the function that begins at `begin`, by the image's `.eh_frame_hdr` (LSB 5.0 section 10.6). 0: it does not tell.
// The FDE is read in the form that compilers give it on x86-64. In another form it would begin elsewhere.
std::uint64_t described_size(const Memory& memory, std::uint64_t base, std::uint64_t begin) {
  constexpr std::uint64_t kMostIndex = 16U << 20;  // bytes; libruby-3.3.so has 72,372
  struct Fde {
    std::uint32_t length, cie;
    std::int32_t begin;
    std::uint32_t size;
  };
  const std::vector<Elf64_Phdr> segments = program_headers(memory, base);
  const auto first = std::ranges::find(segments, std::uint32_t{PT_LOAD}, &Elf64_Phdr::p_type);
  const auto found = std::ranges::find(segments, std::uint32_t{PT_GNU_EH_FRAME}, &Elf64_Phdr::p_type);
  if (first == segments.end() || found == segments.end() || found->p_memsz > kMostIndex) return 0;
  const std::uint64_t at = base - (first->p_vaddr - first->p_offset) + found->p_vaddr;
  std::vector<std::byte> bytes(found->p_memsz);
  if (!memory.read(at, bytes.data(), bytes.size())) return 0;
  const auto index = dwarf::EhFrameHdr::parse(ByteView(bytes.data(), bytes.size()), at);
  const auto address = index ? index->fde_address(begin) : Expected<std::uint64_t>(Failure(index.error()));
  const auto fde = address ? read_value<Fde>(memory, *address) : std::nullopt;
  if (!fde) return 0;
  const std::uint64_t says = *address + offsetof(Fde, begin) + static_cast<std::uint64_t>(std::int64_t{fde->begin});
  return says == begin ? fde->size : 0;
}

Expected<Evaluator> evaluator_of(const Memory& memory, const DynamicSymbol& function) {
  if (function.size == 0 || function.size > kLongest)
    return fail(ErrorCode::kMalformed, "the evaluator has no usable size", function.address, function.size);
  const AddressRange hot{function.address, function.address + function.size};
  Evaluator evaluator{.hot = hot, .cold = {}};
  std::vector<std::byte> code(function.size);
  if (!memory.read(hot.begin, code.data(), code.size()))
    return fail(ErrorCode::kUnreadable, "the evaluator's code cannot be read", hot.begin, code.size());
  std::set<std::uint64_t> targets;
  for_each_jump(hot.begin, ByteView(code.data(), code.size()), [&](std::uint64_t to, std::uint64_t, bool) {
    if (!hot.contains(to)) targets.insert(to);
    return targets.size() < kMaxTargets;
  });
  AddressRange& cold = evaluator.cold;
  for (const std::uint64_t target : targets) {
    const std::uint64_t end = end_of_cold(memory, evaluator, target);
    if (end == 0) continue;
    cold.begin = cold.end == 0 ? target : std::min(cold.begin, target);
    cold.end = std::max(cold.end, end);
  }
  if (cold.end - cold.begin > kLongest) cold = {};
  return evaluator;
}

}  // namespace

Expected<Evaluator> find_evaluator(const Memory& memory, std::uint64_t base, const char* name) {
  const auto function = find_dynamic_object(memory, base, name);
  if (!function) return Failure(function.error());
  return evaluator_of(memory, *function);
}

Expected<Evaluator> find_evaluator_at(const Memory& memory, std::uint64_t base, std::uint64_t address) {
  return evaluator_of(memory, {address, described_size(memory, base, address)});
}

}  // namespace windlass::runtimes
