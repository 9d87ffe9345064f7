#include "runtimes/evaluator.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <vector>

#include "formats/dwarf/eh_frame_hdr.h"
#include "formats/winx64/instruction_length.h"
#include "runtimes/dynamic_symbol.h"

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

// What an image says of where functions' parts begin and end: its call frame information, as it is loaded.
class Parts {
 public:
  Parts(const Memory& memory, std::uint64_t base) {
    const std::vector<Elf64_Phdr> segments = program_headers(memory, base);
    const auto loaded = load_bias(segments, base);
    const auto index = std::ranges::find(segments, std::uint32_t{PT_GNU_EH_FRAME}, &Elf64_Phdr::p_type);
    if (!loaded || index == segments.end()) return;
    const std::uint64_t bias = *loaded;
    const std::uint64_t begin = bias + index->p_vaddr;
    if (!read(memory, begin, index->p_memsz, index_)) return;
    const auto parsed = dwarf::EhFrameHdr::parse(ByteView(index_.data(), index_.size()), begin);
    if (!parsed) return;
    const std::uint64_t entries = parsed->eh_frame_address;
    const auto holding = std::ranges::find_if(segments, [&](const Elf64_Phdr& segment) {
      return segment.p_type == PT_LOAD && entries - (bias + segment.p_vaddr) < segment.p_filesz;
    });
    if (holding == segments.end() ||
        !read(memory, entries, bias + holding->p_vaddr + holding->p_filesz - entries, entries_))
      return;
    section_.bytes = ByteView(entries_.data(), entries_.size());
    section_.address = entries;
    parsed_ = *parsed;
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  // Empty: not known.
  [[nodiscard]] AddressRange at(std::uint64_t address) const {
    dwarf::LocatedFde found;
    if (!parsed_ || !parsed_->find(section_, address, found)) return {};
    return {found.fde.begin, found.fde.end};
  }

 private:
  static bool read(const Memory& memory, std::uint64_t begin, std::uint64_t size, std::vector<std::byte>& to) {
    constexpr std::uint64_t kMost = std::uint64_t{16} << 20;
    if (size == 0 || size > kMost) return false;
    to.resize(size);
    return memory.read(begin, to.data(), size);
  }

  std::vector<std::byte> index_, entries_;
  std::optional<dwarf::EhFrameHdr> parsed_;
  dwarf::CfiSection section_;
};

Expected<Evaluator> evaluator_of(const Memory& memory, std::uint64_t base, AddressRange hot) {
  const std::uint64_t size = hot.end - hot.begin;
  if (size == 0 || size > kLongest)
    return fail(ErrorCode::kMalformed, "the evaluator has no usable size", hot.begin, size);
  Evaluator evaluator{.hot = hot, .cold = {}};
  std::vector<std::byte> code(size);
  if (!memory.read(hot.begin, code.data(), code.size()))
    return fail(ErrorCode::kUnreadable, "the evaluator's code cannot be read", hot.begin, code.size());
  std::set<std::uint64_t> targets;
  for_each_jump(hot.begin, ByteView(code.data(), code.size()), [&](std::uint64_t to, std::uint64_t, bool) {
    if (!hot.contains(to)) targets.insert(to);
    return targets.size() < kMaxTargets;
  });
  AddressRange& cold = evaluator.cold;
  std::optional<Parts> parts;
  for (const std::uint64_t target : targets) {
    if (cold.contains(target)) continue;
    const std::uint64_t end = end_of_cold(memory, evaluator, target);
    if (end == 0) continue;
    if (!parts) parts.emplace(memory, base);
    // All of the part is the function's. Where it is not known, as far as the code comes back.
    AddressRange part = parts->at(target);
    if (part.begin == part.end || part.contains(hot.begin)) part = {target, end};
    cold.begin = cold.end == 0 ? part.begin : std::min(cold.begin, part.begin);
    cold.end = std::max(cold.end, part.end);
  }
  if (cold.end - cold.begin > kLongest) cold = {};
  return evaluator;
}

}  // namespace

Expected<Evaluator> find_evaluator(const Memory& memory, std::uint64_t base, const char* name) {
  const auto function = find_dynamic_object(memory, base, name);
  if (!function) return Failure(function.error());
  return evaluator_of(memory, base, {function->address, function->address + function->size});
}

Expected<Evaluator> find_evaluator_at(const Memory& memory, std::uint64_t base, std::uint64_t address) {
  const AddressRange part = Parts(memory, base).at(address);
  return evaluator_of(memory, base, {address, part.begin == address ? part.end : address});
}

}  // namespace windlass::runtimes
