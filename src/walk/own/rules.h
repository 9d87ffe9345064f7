// The rules that walks of the own process keep: pc -> how to find the caller's pc, sp and frame pointer, shared by all
// threads without locks.
#pragma once

#include <atomic>
#include <cstdint>

#include "table/trace_row.h"
#include "walk/own/memory.h"
#include "windlass/backtrace.h"

namespace windlass::walk {

// What a look-up is made by: the pc, and whether it is an instruction (bit 63) or a return address.
inline constexpr std::uint64_t kInstructionBit = std::uint64_t{1} << 63;

// A rule in one word. Nearly all are "CFA = sp or fp + n, return address and frame pointer at CFA - m", in words of 8
// bytes; the others are kept in full in a palette (signal frames, PLT entries, realigned frames) or left to the walker
// of all registers.
//   bits 0-1 kind; 2-17 tag of the module; 18 the frame pointer is saved; 19-30 (CFA - return address slot) / 8;
//   31-43 (CFA - frame pointer slot) / 8; 44-63 CFA offset / 8, or the index in the palette
class PackedStep {
 public:
  enum Kind : std::uint64_t { kFromSp = 0, kFromFp = 1, kPalette = 2, kAllRegisters = 3 };

  constexpr PackedStep() = default;
  constexpr explicit PackedStep(std::uint64_t word) : word_(word) {}
  // The form of a rule; false where it needs the palette or all registers.
  [[nodiscard]] static bool pack(const table::TraceRule& rule, std::uint16_t tag, PackedStep& step);
  [[nodiscard]] static constexpr PackedStep other(Kind kind, std::uint16_t tag, std::uint64_t index = 0) {
    return PackedStep(kind | std::uint64_t{tag} << 2 | index << 44);
  }

  [[nodiscard]] constexpr std::uint64_t word() const { return word_; }
  [[nodiscard]] constexpr std::uint64_t kind() const { return word_ & 3; }
  [[nodiscard]] constexpr bool from_fp() const { return (word_ & 1) != 0; }
  [[nodiscard]] constexpr bool simple() const { return (word_ & 2) == 0; }
  [[nodiscard]] constexpr bool simple_of(std::uint16_t tag) const {
    return (word_ & 0x3fffe) == std::uint64_t{tag} << 2;
  }
  [[nodiscard]] constexpr std::uint16_t tag() const { return static_cast<std::uint16_t>(word_ >> 2); }
  [[nodiscard]] constexpr bool fp_saved() const { return (word_ >> 18 & 1) != 0; }
  // Bytes.
  [[nodiscard]] constexpr std::uint64_t return_below_cfa() const { return word_ >> 16 & 0x7ff8; }
  [[nodiscard]] constexpr std::uint64_t fp_below_cfa() const { return word_ >> 28 & 0xfff8; }
  [[nodiscard]] constexpr std::uint64_t cfa_offset() const { return word_ >> 41 & ~std::uint64_t{7}; }
  [[nodiscard]] constexpr std::uint64_t index() const { return word_ >> 44; }

 private:
  std::uint64_t word_ = 0;
};

// A set-associative table of 16,384 rules in 256 KiB. An entry is two words that prove each other: [0] = key ^
// mix([1]), so that a pair torn by another thread's store is a miss. Neighbouring code lies in neighbouring entries, so
// that the first walks of a process touch few pages.
class RuleCache {
 public:
  static constexpr std::size_t kSets = 8192;
  static constexpr std::size_t kFirstSets = 128;

  // The table, as large as it is now.
  class View {
   public:
    [[nodiscard]] WINDLASS_READS_STACKS bool find(std::uint64_t key, PackedStep& step) const {
      const Set& set = sets_[hash(key) & mask_];
      std::uint64_t word = set.way[0].rule.load(std::memory_order_relaxed);
      if ((set.way[0].check.load(std::memory_order_relaxed) ^ mix(word)) != key) [[unlikely]] {
        word = set.way[1].rule.load(std::memory_order_relaxed);
        if ((set.way[1].check.load(std::memory_order_relaxed) ^ mix(word)) != key) return false;
      }
      step = PackedStep(word);
      return true;
    }

   private:
    const std::size_t mask_ = RuleCache::mask_.load(std::memory_order_relaxed);
  };
  // Before the first walk: writes to the first page, which a read would only map to be mapped again by the write.
  static void touch() {
    if (remaining_.load(std::memory_order_relaxed) == kFirstSets) [[unlikely]]
      sets_[0].way[0].rule.fetch_add(0, std::memory_order_relaxed);
  }
  static void insert(std::uint64_t key, PackedStep step);

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
  [[nodiscard]] static std::size_t hash(std::uint64_t key) { return key >> 3 ^ key >> 10 ^ key >> 17; }
  // So that keys and rules that differ in few bits do not make up for each other. Never a key for the empty entry: 0.
  [[nodiscard]] static std::uint64_t mix(std::uint64_t word) { return word * 0x9e3779b97f4a7c15; }

  static void place(std::uint64_t key, PackedStep step, std::size_t mask);
  static void grow(std::size_t mask);

  static Set sets_[kSets];
  static std::atomic<std::size_t> mask_;       // sets in use - 1
  static std::atomic<std::size_t> remaining_;  // inserts until it grows: one a set, half full
};

}  // namespace windlass::walk
