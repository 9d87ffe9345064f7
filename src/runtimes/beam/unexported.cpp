#include "runtimes/beam/unexported.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <vector>

#include "base/address_range.h"
#include "runtimes/accessor.h"
#include "runtimes/beam/code_map.h"
#include "runtimes/beam/names.h"
#include "runtimes/dynamic_symbol.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes::beam {
namespace {

constexpr std::uint64_t kMostCode = std::uint64_t{32} << 20, kMostData = std::uint64_t{4} << 20;  // bytes, in all
constexpr std::size_t kMostLooks = 1U << 16;  // words that may be what is searched
constexpr std::size_t kMostPlaces = 4096;
constexpr std::size_t kSharedCode = 64U << 10;  // in front of the first module
constexpr const char* kBegun = "the Erlang virtual machine has just begun";

struct Piece {
  std::uint64_t begin = 0;
  std::vector<std::uint8_t> bytes;

  [[nodiscard]] bool contains(std::uint64_t address) const { return address - begin < bytes.size(); }
};

// The image's code and its data, as they are mapped.
struct Pieces {
  std::vector<Piece> code, data;

  [[nodiscard]] bool in_data(std::uint64_t address) const {
    return std::ranges::any_of(data, [&](const Piece& piece) { return piece.contains(address); });
  }
  template <typename Visit>
  void for_each_word(Visit&& visit) const {
    for (const Piece& piece : data)
      for (std::size_t at = 0; at + 8 <= piece.bytes.size(); at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, piece.bytes.data() + at, sizeof word);
        visit(word);
      }
  }
};

Pieces read_pieces(const Memory& memory, std::uint64_t image) {
  Pieces pieces;
  const std::vector<Elf64_Phdr> segments = program_headers(memory, image);
  const auto bias = load_bias(segments, image);
  if (!bias) return pieces;
  std::uint64_t code_left = kMostCode, data_left = kMostData;
  for (const Elf64_Phdr& segment : segments) {
    const bool is_code = (segment.p_flags & PF_X) != 0;
    std::uint64_t& left = is_code ? code_left : data_left;
    if (segment.p_type != PT_LOAD || segment.p_memsz > left || (!is_code && (segment.p_flags & PF_W) == 0)) continue;
    Piece piece{*bias + segment.p_vaddr, std::vector<std::uint8_t>(segment.p_memsz)};
    if (!memory.read(piece.begin, piece.bytes.data(), piece.bytes.size())) continue;
    left -= piece.bytes.size();
    (is_code ? pieces.code : pieces.data).push_back(std::move(piece));
  }
  return pieces;
}

// What `code`, an instruction whose displacement is its last four bytes, refers to.
std::uint64_t referred(const std::uint8_t* code, std::size_t size, std::uint64_t address) {
  std::int32_t displacement = 0;
  std::memcpy(&displacement, code + size - sizeof displacement, sizeof displacement);
  return address + size + static_cast<std::uint64_t>(std::int64_t{displacement});
}

// In an exported function: what the first instruction with these three bytes refers to; 0: there is none.
std::uint64_t first_reference(const Memory& memory, std::uint64_t image, const char* function,
                              const std::array<std::uint8_t, 3>& opcode) {
  constexpr std::size_t kSize = 7;
  std::array<std::uint8_t, 96> code{};
  const auto at = find_dynamic_symbol(memory, image, function);
  if (!at || !memory.read(*at, code.data(), code.size())) return 0;
  const auto found = std::ranges::search(code, opcode).begin();
  if (code.end() - found < static_cast<std::ptrdiff_t>(kSize)) return 0;
  return referred(&*found, kSize, *at + static_cast<std::uint64_t>(found - code.begin()));
}

// Where the index that is active and the modules' ranges are. find_range() loads a number of 32 bits and takes an
// address next. The number is the one whose address the shared code holds.
struct RangesPlace {
  std::uint64_t index = 0, ranges = 0;
  bool operator<(const RangesPlace& other) const {
    return index != other.index ? index < other.index : ranges < other.ranges;
  }
};
std::set<RangesPlace> possible_ranges(const Pieces& pieces) {
  std::set<RangesPlace> found;
  constexpr std::size_t kLoad = 6, kAddress = 7;  // mov r32, [rip + N], without its prefix; lea r64, [rip + N]
  const auto is_relative = [](std::uint8_t modrm) { return (modrm & 0xc7) == 5; };
  for (const Piece& piece : pieces.code) {
    const std::uint8_t* const code = piece.bytes.data();
    for (std::size_t at = 0; at + kLoad + kAddress <= piece.bytes.size() && found.size() < kMostPlaces; ++at) {
      const std::uint8_t* const next = code + at + kLoad;
      if (code[at] != 0x8b || !is_relative(code[at + 1]) || (next[0] & 0xfb) != 0x48 || next[1] != 0x8d ||
          !is_relative(next[2]) || (at > 0 && (code[at - 1] & 0xf8) == 0x48))
        continue;
      const RangesPlace place{referred(code + at, kLoad, piece.begin + at),
                              referred(next, kAddress, piece.begin + at + kLoad)};
      if (pieces.in_data(place.index) && pieces.in_data(place.ranges)) found.insert(place);
    }
  }
  return found;
}

// The begin of the first module by these ranges; 0: they are none.
std::uint64_t first_module(const Memory& memory, const RangesPlace& place) {
  constexpr std::uint32_t kIndexes = 3;
  const auto index = read_value<std::uint32_t>(memory, place.index);
  if (!index || *index >= kIndexes) return 0;
  struct ModuleList {
    std::uint64_t modules, count, allocated;
  };
  const auto ranges = read_value<ModuleList>(memory, place.ranges + std::uint64_t{*index} * Layout::kRangesSize);
  if (!ranges || ranges->count == 0 || ranges->count > ranges->allocated || ranges->allocated > CodeMap::kMaxModules)
    return 0;
  const auto range = read_value<AddressRange>(memory, ranges->modules);
  return range && range->begin < range->end ? range->begin : 0;
}

// The code in front of the first module, as far as it can be read.
Piece shared_code(const Memory& memory, std::uint64_t module) {
  constexpr std::size_t kPage = 4096;
  std::uint64_t begin = module;
  Piece piece;
  while (module - begin < kSharedCode) {
    const std::uint64_t lower = (begin - 1) / kPage * kPage;
    std::vector<std::uint8_t> page(begin - lower);
    if (!memory.read(lower, page.data(), page.size())) break;
    piece.bytes.insert(piece.bytes.begin(), page.begin(), page.end());
    begin = lower;
  }
  piece.begin = begin;
  return piece;
}

bool holds(const Piece& piece, std::uint64_t value) {
  std::array<std::uint8_t, sizeof value> bytes{};
  std::memcpy(bytes.data(), &value, sizeof value);
  return !std::ranges::search(piece.bytes, bytes).empty();
}

Expected<Piece> find_ranges(const Memory& memory, std::uint64_t image, const Pieces& pieces, Layout& to) {
  std::optional<Piece> shared;
  bool any = false;
  for (const RangesPlace& place : possible_ranges(pieces)) {
    any = true;
    const std::uint64_t module = first_module(memory, place);
    if (module == 0) continue;
    Piece code = shared_code(memory, module);
    if (!holds(code, place.index)) continue;
    if (shared)
      return fail(ErrorCode::kUnsupported, "the Erlang virtual machine finds its functions in another way", image);
    shared = std::move(code);
    to.code_index = place.index;
    to.ranges = place.ranges;
  }
  if (shared) return *std::move(shared);
  return fail(any ? ErrorCode::kUnreadable : ErrorCode::kUnsupported,
              any ? kBegun : "the Erlang virtual machine finds its functions in another way", image);
}

// Without frame pointers, shared code keeps the stack pointer in rbp when it calls C: mov rbp, rsp; lea rsp, [rbx - N].
bool has_frame_pointers(const Piece& shared) {
  constexpr std::array<std::uint8_t, 6> kKeep = {0x48, 0x89, 0xe5, 0x48, 0x8d, 0x63};
  return std::ranges::search(shared.bytes, kKeep).empty();
}

// A variable that leads to shared code which has this name.
std::uint64_t find_normal_exit(const Memory& memory, const Pieces& pieces, const Piece& shared, const Layout& layout) {
  std::uint64_t found = 0;
  std::size_t looks = 0;
  pieces.for_each_word([&](std::uint64_t word) {
    if (found != 0 || !shared.contains(word) || ++looks > kMostLooks) return;
    const std::uint64_t info = word - Layout::kInfoSize;
    const auto term = [&](std::uint32_t offset) {
      return read_value<std::uint64_t>(memory, info + offset).value_or(0);
    };
    if (atom_text(memory, layout, term(Layout::kInfoFunction)) == "normal_exit" &&
        atom_text(memory, layout, term(Layout::kInfoModule)) == "erts_beamasm" && term(Layout::kInfoArity) == 0)
      found = word;
  });
  return found;
}

// A word that leads to a scheduler's data: these lead to its thread, which points to itself, and to its registers.
std::uint64_t find_scheduler(const Memory& memory, const Pieces& pieces) {
  constexpr std::uint32_t kSelf = 0x10, kType = 0xb0;  // tcbhead_t; ErtsSchedulerData: type, 0 of an ordinary one
  constexpr std::uint64_t kLine = 64, kLowest = 1U << 16;
  std::uint64_t found = 0;
  std::size_t looks = 0;
  pieces.for_each_word([&](std::uint64_t word) {
    if (found != 0 || word < kLowest || word % kLine != 0 || pieces.in_data(word) || ++looks > kMostLooks) return;
    const auto registers = read_value<std::uint64_t>(memory, word + Layout::kSchedulerRegisters);
    if (!registers || *registers < kLowest || *registers % kLine != 0) return;
    const auto thread = read_value<std::uint64_t>(memory, word + Layout::kSchedulerThread);
    if (!thread || *thread < kLowest || read_value<std::uint64_t>(memory, *thread + kSelf) != *thread) return;
    if (read_value<std::uint32_t>(memory, word + kType) == 0U) found = word;
  });
  return found;
}

}  // namespace

std::string unexported_release(const Memory& memory, std::uint64_t image) {
  // lea rax, [rip + N] of the text that it gives.
  const std::uint64_t text = first_reference(memory, image, "driver_system_info", {0x48, 0x8d, 0x05});
  return text != 0 ? read_text(memory, text, 8) : std::string();
}

Expected<Unexported> find_unexported(const Memory& memory, std::uint64_t image, Layout& to) {
  // mov rax, [rip + N] of the atoms' pages.
  const std::uint64_t pages = first_reference(memory, image, "enif_get_atom", {0x48, 0x8b, 0x05});
  if (pages == 0)
    return fail(ErrorCode::kUnsupported, "the Erlang virtual machine does not export what is needed", image);
  to.atoms = pages - Layout::kAtomPages;
  const Pieces pieces = read_pieces(memory, image);
  const auto shared = find_ranges(memory, image, pieces, to);
  if (!shared) return Failure(shared.error());
  to.normal_exit = find_normal_exit(memory, pieces, *shared, to);
  const std::uint64_t scheduler = find_scheduler(memory, pieces);
  if (to.normal_exit == 0 || scheduler == 0) return fail(ErrorCode::kUnreadable, kBegun, image);
  return Unexported{scheduler, has_frame_pointers(*shared)};
}

bool is_process_main(const Memory& memory, std::uint64_t function) {
  constexpr std::array<std::uint8_t, 3> kLoad = {0x48, 0x8b, 0x00};  // mov rax, [rax]
  constexpr std::array<std::uint8_t, 2> kJump = {0xff, 0xe0};        // jmp rax
  constexpr std::uint8_t kCall = 0xe8, kReturn = 0xc3;
  std::array<std::uint8_t, 64> code{};
  if (!memory.read(function, code.data(), code.size())) return false;
  const auto call = std::ranges::find(code, kCall);
  const auto load = std::search(call, code.end(), kLoad.begin(), kLoad.end());
  const auto jump = std::search(load, code.end(), kJump.begin(), kJump.end());
  return jump != code.end() && std::find(call, jump, kReturn) == jump;
}

}  // namespace windlass::runtimes::beam
