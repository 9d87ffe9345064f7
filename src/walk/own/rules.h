// The rules that walks of the own process keep: pc -> how to find the caller's pc, sp and frame pointer, shared by all
// threads without locks.
#pragma once

#include <atomic>
#include <cstdint>

#include "lookup/table/trace_row.h"
#include "walk/own/memory.h"
#include "windlass/backtrace.h"

namespace windlass::walk {

// What a look-up is made by: the pc, and whether it is an instruction (bit 63) or a return address.
inline constexpr std::uint64_t kInstructionBit = std::uint64_t{1} << 63;
// The address whose row is meant: a call's is before its return address.
constexpr std::uint64_t lookup_address(std::uint64_t key) {
  return (key & kInstructionBit) != 0 ? key & ~kInstructionBit : key - 1;
}

// A rule in one word. Nearly all rules are "CFA = sp or fp + n, return address and frame pointer at CFA - m", in words
// of 8 bytes. Others are kept in full in a palette (signal frames, PLT entries, realigned frames), or are left to the
// walker of all registers. No slot of a rule that counts from sp is below it.
//   bits 0-1 kind; 2-17 tag of the module; 18 the frame pointer is saved; 19-30 (CFA - return address slot) / 8;
//   31-42 (return address slot - frame pointer slot) / 8; 43-45 zero; 46-63 return address slot from sp or fp / 8, or
//   the index in the palette
// The next step waits for the return address: so its slot is one shift and one addition away.
class PackedStep {
 public:
  enum Kind : std::uint64_t { kFromSp = 0, kFromFp = 1, kPalette = 2, kAllRegisters = 3 };
  static constexpr std::uint64_t kOutermost = (1 << 18) - 1;  // index of the rule that says: there is no caller

  constexpr PackedStep() = default;
  constexpr explicit PackedStep(std::uint64_t word) : word_(word) {}
  // The form of a rule for an instruction (`exact`) or a return address; false where it needs the palette or all
  // registers.
  [[nodiscard]] static bool pack(const table::TraceRule& rule, bool exact, std::uint16_t tag, PackedStep& step);
  [[nodiscard]] static constexpr PackedStep other(Kind kind, std::uint16_t tag, std::uint64_t index = 0) {
    return PackedStep(kind | std::uint64_t{tag} << 2 | index << 46);
  }

  [[nodiscard]] constexpr std::uint64_t word() const { return word_; }
  [[nodiscard]] constexpr std::uint64_t kind() const { return word_ & 3; }
  [[nodiscard]] constexpr bool from_fp() const { return (word_ & 1) != 0; }
  [[nodiscard]] constexpr bool simple() const { return (word_ & 2) == 0; }
  [[nodiscard]] constexpr bool is(Kind kind, std::uint16_t tag) const {
    return (word_ & 0x3ffff) == (kind | std::uint64_t{tag} << 2);
  }
  [[nodiscard]] constexpr std::uint16_t tag() const { return static_cast<std::uint16_t>(word_ >> 2); }
  [[nodiscard]] constexpr bool fp_saved() const { return (word_ >> 18 & 1) != 0; }
  // Bytes.
  [[nodiscard]] constexpr std::uint64_t return_offset() const { return word_ >> 43; }
  [[nodiscard]] constexpr std::uint64_t return_below_cfa() const {
    return kOwnArchitecture == Architecture::kX86_64 ? 8 : word_ >> 16 & 0x7ff8;
  }
  [[nodiscard]] constexpr std::uint64_t fp_below_return() const { return word_ >> 28 & 0x7ff8; }
  [[nodiscard]] constexpr std::uint64_t index() const { return word_ >> 46; }

 private:
  std::uint64_t word_ = 0;
};

// A set-associative table of 16,384 rules in 256 KiB. An entry is two words that prove each other: [0] = key ^
// mix([1]), so that a pair torn by another thread's store is a miss. Neighbouring code lies in neighbouring entries, so
// that the first walks of a process touch few pages.
class RuleCache {
  struct Set;

 public:
  static constexpr std::size_t kSets = 8192;
  static constexpr std::size_t kFirstSets = 64;
  static constexpr std::size_t kPreparedSets = 2048;

  // The table, as large as it is now.
  class View {
   public:
    [[nodiscard]] WINDLASS_READS_STACKS bool find(std::uint64_t key, PackedStep& step) const {
      return find_in(set_of(key, sets_, mask_), key, step);
    }
    // The same of a return address.
    [[nodiscard]] WINDLASS_READS_STACKS bool find_return(std::uint64_t key, PackedStep& step) const {
      return find_in(set_of_return(key, sets_, mask_), key, step);
    }

   private:
    [[nodiscard]] WINDLASS_READS_STACKS static bool find_in(const Set& set, std::uint64_t key, PackedStep& step) {
      std::uint64_t word = set.way[0].rule.load(std::memory_order_relaxed);
      if ((set.way[0].check.load(std::memory_order_relaxed) ^ mix(word)) != key) [[unlikely]] {
        word = set.way[1].rule.load(std::memory_order_relaxed);
        if ((set.way[1].check.load(std::memory_order_relaxed) ^ mix(word)) != key) return false;
        table_.second.store(table_.second.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      }
      step = PackedStep(word);
      return true;
    }

    Set* sets_ = table_.sets;
    std::size_t mask_ = RuleCache::mask_.load(std::memory_order_relaxed);
  };
  // Call before each walk. Writes to the first page of the cache while that is all of it: a read would map it only for
  // the first write to map it again. No branch predictor can know which of the two ways has a rule. So once finds in
  // the second way are frequent enough to pay for the pages of a larger cache, the cache grows.
  static void before_walk() {
    const std::size_t mask = mask_.load(std::memory_order_relaxed);
    if (mask == mask_of(kFirstSets)) table_.touched.store(1, std::memory_order_relaxed);
    if (table_.second.load(std::memory_order_relaxed) > mask) [[unlikely]]
      spread();
  }
  static void insert(std::uint64_t key, PackedStep step);
  // How many sets are in use: kSets at most.
  [[nodiscard]] static std::size_t sets_in_use() { return mask_.load(std::memory_order_relaxed) / sizeof(Set) + 1; }
  // For walks that shall not wait until it has grown: room for some thousand rules, whose pages are there. Safe beside
  // walks.
  static void prepare();

  // The palette: rules in full, never removed. False when it is full.
  [[nodiscard]] static bool intern(const table::TraceRule& rule, std::uint64_t& index);
  [[nodiscard]] static bool palette(std::uint64_t index, table::TraceRule& rule);

 private:
  struct Way {
    std::atomic<std::uint64_t> check, rule;
  };
  struct alignas(32) Set {
    Way way[2];
  };
  [[nodiscard]] static Set& set_at(std::size_t offset, Set* sets) {
    return *reinterpret_cast<Set*>(reinterpret_cast<std::byte*>(sets) + offset);
  }
  // By an offset in bytes, which takes three operations: a walk waits for each. Two return addresses are 2 bytes apart
  // at least, and mostly 5 or more: a set serves 8 bytes of code.
  [[nodiscard]] static Set& set_of_return(std::uint64_t key, Set* sets, std::size_t mask) {
    return set_at((key << 2 ^ key >> 5) & mask, sets);
  }
  // Interrupted instructions may be any, three in 4 bytes: each has a set of its own.
  [[nodiscard]] static Set& set_of(std::uint64_t key, Set* sets, std::size_t mask) {
    if ((key & kInstructionBit) == 0) return set_of_return(key, sets, mask);
    return set_at((key << 5 ^ key >> 2) & mask, sets);
  }
  static constexpr std::size_t mask_of(std::size_t sets) { return (sets - 1) * sizeof(Set); }
  // So that keys and rules that differ in few bits do not make up for each other. Never a key for the empty entry: 0.
  [[nodiscard]] static std::uint64_t mix(std::uint64_t word) { return word * 0x1e3779b1; }

  static void place(std::uint64_t key, PackedStep step, std::size_t mask);
  static void grow(std::size_t mask, std::size_t most = kSets);
  static void spread();

  // In one piece, so that the first walk touches one page. All zero, so that it is in no file.
  struct Table {
    std::atomic<std::size_t> inserted;             // since it grew: it grows at one a set, half full
    std::atomic<std::size_t> second;               // found in the second way since it grew; no matter if some are lost
    alignas(64) std::atomic<std::size_t> touched;  // written only: no walk waits for it
    alignas(64) Set sets[kSets];
  };
  static Table table_;
  static std::atomic<std::size_t> mask_;  // of offsets of sets in use
};

}  // namespace windlass::walk
