#include "formats/winx64/known_unwind.h"

#include <cstring>

namespace windlass::winx64 {
namespace {

constexpr unsigned kRspSlot = dwarf_number(kRsp);

// A value as a register of tagged_frame() and a distance from it.
struct Place {
  explicit Place(std::uint64_t value)
      : slot(static_cast<unsigned>((value + (std::uint64_t{1} << (kTagShift - 1))) >> kTagShift)),
        offset(static_cast<std::int64_t>(value - (std::uint64_t{slot} << kTagShift))) {}
  // rsp or a preserved register: not what was read from the stack.
  [[nodiscard]] bool is_known() const { return slot < 64 && ((kPreservedKnown | 1U << kRspSlot) >> slot & 1) != 0; }
  unsigned slot;
  std::int64_t offset;
};

// Puts a number of so many bits, with its sign, into a word. False: it is larger.
bool put(std::uint64_t& word, int at, int bits, std::int64_t value) {
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  word |= (static_cast<std::uint64_t>(value) & mask) << at;
  return value >> (bits - 1) == 0 || value >> (bits - 1) == -1;
}

// Likewise `at` from `from`, in units of `size`.
bool put_distance(std::uint64_t& word, int place, std::uint64_t at, std::uint64_t from, std::int64_t size) {
  const auto distance = static_cast<std::int64_t>(at - from);
  return distance % size == 0 && put(word, place, 16, distance / size);
}

}  // namespace

Registers tagged_frame(CodeAddress pc) {
  Registers frame(Architecture::kX86_64);
  for (const unsigned slot : kPreservedSlots) frame.set_slot(slot, std::uint64_t{slot} << kTagShift);
  frame.set_slot(kRspSlot, std::uint64_t{kRspSlot} << kTagShift);
  frame.set_pc(pc);
  return frame;
}

bool TaggedMemory::read(std::uint64_t, void* to, std::size_t size) const {
  if (size != sizeof kTaggedValue) return false;
  ++*reads;
  std::memcpy(to, &kTaggedValue, size);
  return true;
}

KnownUnwind::KnownUnwind(std::uint64_t key, bool done, const Unwound& unwound, const SavedAddresses& addresses,
                         unsigned reads)
    : words_{key} {
  if (!done || !derive(unwound, addresses, reads)) words_ = {key};
}

bool KnownUnwind::derive(const Unwound& unwound, const SavedAddresses& addresses, unsigned reads) {
  const Place return_at(addresses.return_address);
  const Place frame(unwound.establisher);
  if (unwound.machine_frame || !return_at.is_known() || !frame.is_known()) return false;
  if (!put(words_[1], 0, 32, return_at.offset) || !put(words_[1], 32, 32, frame.offset)) return false;
  const std::uint64_t popped = unwound.caller.sp() - (addresses.return_address + 8);
  if (popped > 0xffff) return false;
  words_[5] = popped << 48;
  words_[2] = unwound.handler | std::uint64_t{unwound.handler_data} << 32;
  unsigned saved = 0;
  for (unsigned i = 0; i < kPreservedCount; ++i) {
    const std::uint64_t at = addresses.integer[kPreservedNumbers[i]];
    if (at == 0) continue;
    const bool fits = put_distance(words_[3 + i / 4], static_cast<int>(i % 4 * 16), at, addresses.return_address, 8);
    if (!fits || Place(at).slot != return_at.slot) return false;
    saved |= 1U << i;
  }
  // Else others have been restored, too, or one more than once.
  if (reads != static_cast<unsigned>(std::popcount(saved)) + 1) return false;
  words_[6] = return_at.slot | frame.slot << 4 | saved << kSavedAt |
              static_cast<unsigned>(unwound.position) << kPositionAt |
              static_cast<unsigned>(unwound.handler_flags) << kHandlerFlagsAt;
  return derive_xmm(unwound, addresses);
}

// Those saved are evenly spaced.
bool KnownUnwind::derive_xmm(const Unwound& unwound, const SavedAddresses& addresses) {
  std::uint64_t step = 0, last = 0;
  for (unsigned i = 0; i < 16; ++i) {
    const std::uint64_t at = addresses.xmm[i];
    if (at == 0) continue;
    if (last == 0) {
      if (!put_distance(words_[5], 16, at, unwound.establisher, 16)) return false;
    } else if (step == 0) {
      step = at - last;
      if (!put_distance(words_[5], 32, at, last, 16)) return false;
    } else if (at - last != step) {
      return false;
    }
    words_[5] |= std::uint64_t{1} << i;
    last = at;
  }
  return true;
}

constinit UnwindCache::Set UnwindCache::sets_[1 << kSetBits];

// The newest is found first; the older of a full set goes.
void UnwindCache::keep(const KnownUnwind& known) {
  Set& set = sets_[place_of(known.key())];
  const std::uint64_t before = set.way[0].words[0].load(std::memory_order_relaxed);
  if (before != 0 && before != known.key()) {
    const KnownUnwind older = copy_of(set.way[0], before, std::make_index_sequence<KnownUnwind::kWords>());
    if (older.key() == before) write(set.way[1], older);
  }
  write(set.way[0], known);
}

void UnwindCache::write(Entry& entry, const KnownUnwind& known) {
  std::uint32_t version = entry.version.load(std::memory_order_relaxed);
  if ((version & 1) != 0 || !entry.version.compare_exchange_strong(version, version + 1, std::memory_order_acquire))
    return;
  std::atomic_thread_fence(std::memory_order_release);  // who reads a new word sees that it is being written
  for (std::size_t i = 0; i < KnownUnwind::kWords; ++i)
    entry.words[i].store(known.words()[i], std::memory_order_relaxed);
  entry.version.store(version + 2, std::memory_order_release);
}

}  // namespace windlass::winx64
