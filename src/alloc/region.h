// What libwindlass_alloc.so tells a recording: a file that all recorded processes map. It has the distinct stacks that
// allocated, and for each the sums of what was allocated and freed. Processes add, the recording reads at any time. So
// nothing waits for anybody, and a process that is killed leaves its sums.
//
//   Header | index: kIndexSize words | records, one behind the other
//
// A word of the index is the place of a record, 0 if there is none yet. A record is found by its hash, from its word of
// the index onwards. Places count units of kUnit bytes from the file's begin.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace windlass::alloc {

inline constexpr const char* kVariable = "WINDLASS_ALLOC";  // the file's path, in the environment
// Without a recording that started the process: bytes between samples, for whoever listens to the probes (probes.h).
inline constexpr const char* kPeriodVariable = "WINDLASS_ALLOC_PERIOD";
inline constexpr std::uint64_t kUsualPeriod = std::uint64_t{512} << 10;
inline constexpr std::uint64_t kMagic = 0x31636f6c6c616c77;  // "wlalloc1"
inline constexpr std::size_t kUnit = 8;
inline constexpr std::size_t kIndexSize = std::size_t{1} << 21;
inline constexpr std::size_t kRegionSize = std::size_t{512} << 20;  // memory that nobody touches costs nothing
inline constexpr std::uint32_t kMaxFrames = 512;
inline constexpr std::size_t kComm = 16;

struct Header {
  std::uint64_t magic;
  std::uint64_t period;                   // bytes between samples, on average; 1: every allocation is one
  std::atomic<std::uint64_t> used;        // units
  std::atomic<std::uint32_t> newest;      // the last of the records that the recording has not taken; 0: none
  std::atomic<std::uint32_t> processes;   // that have joined, which numbers them
  std::atomic<std::uint64_t> lost;        // samples whose stack found no room
  std::atomic<std::uint64_t> unfollowed;  // samples whose block found no room: they count as freed at once
};

struct Sums {
  std::atomic<std::uint64_t> count, bytes;
};

// A stack of a thread. Followed by u64 frames[depth], innermost first, as wl_stack_event has them: with WL_FRAME_EXACT
// where a signal has interrupted the frame. The sums are in one
// line of the cache. Only the thread itself adds to `allocated` and `freed`, so no addition there locks the line.
struct Record {
  std::uint64_t hash;
  Sums allocated, freed;
  Sums freed_elsewhere;  // by other threads
  std::uint64_t time;    // CLOCK_MONOTONIC, ns: when it was new
  std::uint32_t next;    // of the records not taken
  std::uint32_t tgid, tid;
  std::uint16_t depth;
  std::uint8_t end;     // wl_end
  std::uint8_t shared;  // by all threads of the process: all may add to all sums
  char comm[kComm];
};

inline constexpr std::size_t kIndexAt = 4096;
inline constexpr std::size_t kRecordsAt = kIndexAt + kIndexSize * sizeof(std::uint32_t);
inline constexpr std::size_t kMostUnits = (kRegionSize - kRecordsAt) / kUnit;
inline constexpr std::size_t kLineUnits = 64 / kUnit;  // a record begins with a line of the cache
static_assert(sizeof(Header) <= kIndexAt && sizeof(Record) % kUnit == 0 && kRecordsAt / kUnit % kLineUnits == 0);
static_assert(offsetof(Record, time) <= kLineUnits * kUnit);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace windlass::alloc
