// The kept results of unwinding from a pc: where each register was saved, as a distance from a register of the frame.
//
// A result depends on the image and the pc alone: on the codes, on how much of the prologue ran, and on whether the
// code is an epilogue. Walkers meet the same pcs again and again, and using a result is a third of the work.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/target_memory.h"
#include "formats/winx64/registers.h"
#include "formats/winx64/unwound.h"

namespace windlass::winx64 {

// One unwind of a frame in which rsp and all preserved registers are known. What cannot be said so (machine frames,
// registers restored twice or used after that) is done by codes each time.
class KnownUnwind {
 public:
  static constexpr std::size_t kWords = 7;
  using Words = std::array<std::uint64_t, kWords>;

  constexpr explicit KnownUnwind(const Words& words) : words_(words) {}
  // From what an unwind of tagged_frame() by TaggedMemory gave, which was read so often; `done`: it was no error.
  KnownUnwind(std::uint64_t key, bool done, const Unwound& unwound, const SavedAddresses& addresses, unsigned reads);

  [[nodiscard]] const Words& words() const { return words_; }
  [[nodiscard]] std::uint64_t key() const { return words_[0]; }  // UnwindCache::key_of
  [[nodiscard]] bool by_codes() const { return words_[6] == 0; }

  // False, with nothing changed but `addresses`, where the stack is not readable. `to.caller` may be the frame.
  template <TargetMemory M>
  [[nodiscard]] bool run(const M& memory, const Registers& frame, Unwound& to, SavedAddresses* addresses) const {
    const std::uint64_t return_at = frame.stored(words_[6] & 15) + low(words_[1]);
    const std::uint64_t establisher = frame.stored(words_[6] >> 4 & 15) + high(words_[1]);
    std::uint64_t rip;
    std::uint64_t values[kPreservedCount];
    each_preserved([&](auto i) { values[i] = as_word(frame.stored(kPreservedSlots[i])); });
    for (auto rest = static_cast<unsigned>(words_[6] >> kSavedAt & 255); rest != 0; rest &= rest - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(rest));
      const std::uint64_t at = return_at + 8 * small(i < 4 ? words_[3] : words_[4], i % 4);
      if (!memory.read(at, &values[i], sizeof *values)) return false;
      if (addresses != nullptr) addresses->integer[kPreservedNumbers[i]] = at;
    }
    if (!memory.read(return_at, &rip, sizeof rip)) return false;
    if (addresses != nullptr) {
      addresses->return_address = return_at;
      std::uint64_t at = establisher + 16 * small(words_[5], 1);
      for (auto rest = static_cast<unsigned>(words_[5] & 0xffff); rest != 0; rest &= rest - 1) {
        addresses->xmm[std::countr_zero(rest)] = at;
        at += 16 * small(words_[5], 2);
      }
    }
    each_preserved([&](auto i) { to.caller.set_slot(kPreservedSlots[i], as_word(values[i])); });
    to.caller.keep_slots(kPreservedKnown);
    to.caller.set_sp(return_at + 8 + (words_[5] >> 48));
    to.caller.set_pc(CodeAddress::return_address(rip));
    to.establisher = establisher;
    to.position = static_cast<Position>(words_[6] >> kPositionAt & 3);
    to.machine_frame = false;
    to.handler = static_cast<std::uint32_t>(words_[2]);
    to.handler_data = static_cast<std::uint32_t>(words_[2] >> 32);
    to.handler_flags = words_[6] >> kHandlerFlagsAt & 3;
    return true;
  }

 private:
  // Parts of words, with their signs.
  [[nodiscard]] static std::uint64_t low(std::uint64_t word) {
    return static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(word)});
  }
  [[nodiscard]] static std::uint64_t high(std::uint64_t word) { return low(word >> 32); }
  [[nodiscard]] static std::uint64_t small(std::uint64_t word, unsigned index) {
    return static_cast<std::uint64_t>(std::int64_t{static_cast<std::int16_t>(word >> 16 * index)});
  }
  template <typename Callback>
  static void each_preserved(Callback&& callback) {
    [&]<unsigned... kIndex>(std::integer_sequence<unsigned, kIndex...>) {
      (callback(std::integral_constant<unsigned, kIndex>()), ...);
    }
    (std::make_integer_sequence<unsigned, kPreservedCount>());
  }
  bool derive(const Unwound& unwound, const SavedAddresses& addresses, unsigned reads);
  bool derive_xmm(const Unwound& unwound, const SavedAddresses& addresses);

  // Packed into words, which are copied and taken apart in registers:
  //   0     the key
  //   1     offsets: 32 bits of the return address's slot from its register, 32 of the establisher from its own
  //   2     RVAs of the handler and of its data
  //   3, 4  16 bits a preserved register: its slot from the return address's, in words
  //   5     16 bits: which xmm registers are saved;
  //         16: the slot of the lowest of these from the establisher, in units of 16 bytes;
  //         16: the distance from one slot to the next, likewise;
  //         16: bytes popped behind the return address
  //   6     the two registers, as slots of `Registers` (4 bits each), which preserved ones are saved (8 bits),
  //         position (2), in which passes the handler is called (2). No register has slot 0 here; all 0: by codes
  static constexpr int kSavedAt = 8, kPositionAt = 16, kHandlerFlagsAt = 18;
  Words words_;
};
// ---- how it is found out ------------------------------------------------------------------------------------------

// Unwinding is linear in one register. So one run on a frame whose registers are far apart shows which register that
// is, and the distance.
inline constexpr unsigned kTagShift = 56;
inline constexpr std::uint64_t kTaggedValue = std::uint64_t{0x40} << kTagShift;  // what is read from the stack
[[nodiscard]] Registers tagged_frame(CodeAddress pc);
struct TaggedMemory {
  unsigned* reads;
  bool read(std::uint64_t, void* to, std::size_t size) const;
};

// ---- where it is kept ---------------------------------------------------------------------------------------------

// Shared by all images and threads: 8,192 unwinds in 512 KiB. A pc has two places. An unwind that is met again is kept,
// as it is likely to be met once more. Lock-free, signal-safe: a reader copies an entry between two looks at its
// version. An entry that is being written counts as absent; the writer may be another thread, or code that a signal
// handler has interrupted.
class UnwindCache {
 public:
  // `identity`: Functions::identity(). Never 0.
  [[nodiscard]] static std::uint64_t key_of(std::uint32_t identity, std::uint32_t rva, bool is_return) {
    return std::uint64_t{identity} << 33 | std::uint64_t{is_return} << 32 | rva;
  }
  // What is kept under a key; nothing: another key.
  [[nodiscard]] static KnownUnwind find(std::uint64_t key) {
    const Entry* entry = sets_[place_of(key)].way;
    if (entry->words[0].load(std::memory_order_relaxed) != key) ++entry;
    return copy_of(*entry, key, std::make_index_sequence<KnownUnwind::kWords>());
  }
  // Should a pc that is not kept be kept now? Yes at the second time it is met, or at the fifth if another pc would
  // have to go. So if there are many more pcs than places, few are worked out in vain. Other pcs of the same place that
  // are met in between begin the count anew.
  [[nodiscard]] static bool is_to_be_kept(std::uint64_t key) {
    Set& set = sets_[place_of(key)];
    constexpr std::uint32_t kCount = 3;
    const auto looks = static_cast<std::uint32_t>(mix(key)) & ~kCount;
    const std::uint32_t met = set.way[0].met.load(std::memory_order_relaxed);
    const bool again = (met & ~kCount) == looks && met != 0;
    const bool has_room = set.way[1].words[0].load(std::memory_order_relaxed) == 0;
    if (again && (has_room || (met & kCount) == kCount)) return true;
    set.way[0].met.store(again ? met + 1 : looks, std::memory_order_relaxed);
    return false;
  }
  static void keep(const KnownUnwind& known);

 private:
  static constexpr unsigned kSetBits = 12;
  struct alignas(64) Entry {
    std::atomic<std::uint32_t> version;  // odd while it is written
    std::atomic<std::uint32_t> met;      // in the first way: who was met last that is not kept, and how often
    std::atomic<std::uint64_t> words[KnownUnwind::kWords];
  };
  static_assert(sizeof(Entry) == 64);
  struct alignas(128) Set {
    Entry way[2];
  };
  template <std::size_t... kIndex>
  [[nodiscard]] static KnownUnwind copy_of(const Entry& entry, std::uint64_t key, std::index_sequence<kIndex...>) {
    const std::uint32_t version = entry.version.load(std::memory_order_acquire);
    KnownUnwind::Words words{entry.words[kIndex].load(std::memory_order_relaxed)...};
    std::atomic_thread_fence(std::memory_order_acquire);
    const bool whole = (version & 1) == 0 && entry.version.load(std::memory_order_relaxed) == version;
    if (!whole) words[0] = ~key;
    return KnownUnwind(words);
  }
  [[nodiscard]] static std::uint64_t mix(std::uint64_t key) { return key * 0x9e3779b97f4a7c15; }
  [[nodiscard]] static std::size_t place_of(std::uint64_t key) { return mix(key) >> (64 - kSetBits); }
  static void write(Entry& entry, const KnownUnwind& known);

  static Set sets_[1 << kSetBits];
};

}  // namespace windlass::winx64
