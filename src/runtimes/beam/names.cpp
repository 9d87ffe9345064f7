#include "runtimes/beam/names.h"

#include <optional>

#include "runtimes/memory_reader.h"

namespace windlass::runtimes::beam {

namespace {

// The text of a term of bits on the heap: its head, and the number of bits in front of them (erl_bits.h, ErlHeapBits).
std::optional<std::uint64_t> begin_of_bits(const Memory& memory, std::uint64_t term) {
  constexpr std::uint64_t kBoxed = 2, kTagMask = 3, kHeapBits = 0x20, kHeadMask = 0x3f, kText = 0x10;
  if ((term & kTagMask) != kBoxed) return std::nullopt;
  const auto head = read_value<std::uint64_t>(memory, term - kBoxed);
  if (!head || (*head & kHeadMask) != kHeapBits) return std::nullopt;
  return term - kBoxed + kText;
}

}  // namespace

// erl_term.h: six bits of tag (_TAG_IMMED2_ATOM); index.h: pages of 1024 pointers; an atom has 255 characters at most.
std::string atom_text(const Memory& memory, const Layout& layout, std::uint64_t term) {
  constexpr std::uint64_t kTag = 0x0b, kTagMask = 0x3f;
  constexpr unsigned kTagBits = 6, kPageShift = 10, kLongest = 255 * 4;
  const std::uint64_t index = term >> kTagBits;
  const auto count = read_value<std::uint32_t>(memory, layout.atoms + Layout::kAtomCount);
  if ((term & kTagMask) != kTag || !count || index >= *count) return {};
  const auto pages = read_value<std::uint64_t>(memory, layout.atoms + Layout::kAtomPages);
  const auto page = pages ? read_value<std::uint64_t>(memory, *pages + (index >> kPageShift) * 8) : std::nullopt;
  const auto atom =
      page ? read_value<std::uint64_t>(memory, *page + (index & ((1U << kPageShift) - 1)) * 8) : std::nullopt;
  const auto length = atom ? read_value<std::int16_t>(memory, *atom + Layout::kAtomLength) : std::nullopt;
  auto text = length ? read_value<std::uint64_t>(memory, *atom + Layout::kAtomName) : std::nullopt;
  if (text && layout.has_name_terms) text = begin_of_bits(memory, *text);
  if (!text || *length < 0 || *length > static_cast<std::int16_t>(kLongest)) return {};
  std::string read(static_cast<std::size_t>(*length), '\0');
  return memory.read(*text, read.data(), read.size()) ? read : std::string();
}

std::string name_of(const Memory& memory, const Layout& layout, const Function& function) {
  const std::string module = atom_text(memory, layout, function.module);
  const std::string name = atom_text(memory, layout, function.name);
  if (module.empty() || name.empty()) return {};
  return module + ":" + name + "/" + std::to_string(function.arity);
}

}  // namespace windlass::runtimes::beam
