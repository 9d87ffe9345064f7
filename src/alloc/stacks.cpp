#include "alloc/stacks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <ranges>

#include "base/aarch64_signal_frame.h"
#include "base/monotonic.h"
#include "base/x86_signal_return.h"
#include "windlass/backtrace.h"
#include "windlass_event_layout.h"

namespace windlass::alloc {
namespace {

constexpr std::size_t kMaxProbes = 64;
// Few stacks have their words in few pages, as the first touch of a page costs more than the rest of a sample. With all
// allocations as samples there are not few. Each part of the index begins with the one before.
constexpr std::size_t kParts[] = {kIndexSize >> 11, kIndexSize >> 5, kIndexSize};

// Is it the code that a signal handler returns to? `pc` is a return address of this thread's, so there is code.
bool is_signal_return(std::uint64_t pc) {
  const auto read = [](std::uint64_t address, void* to, std::size_t size) {
    std::memcpy(to, reinterpret_cast<const void*>(address), size);
    return true;
  };
  if constexpr (kOwnArchitecture == Architecture::kX86_64)
    return x86::at_signal_return(read, kOwnArchitecture, pc);
  else
    return aarch64::at_signal_return(read, pc);
}

// Is it such a file as a recording of this user or of root makes? A process starts others when the recording has ended.
// Then the path may lead to another process's file.
bool is_region(int file) {
  struct stat status {};
  const int seals = fcntl(file, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(file, &status) == 0 &&
         (status.st_uid == 0 || status.st_uid == geteuid()) && static_cast<std::size_t>(status.st_size) == kRegionSize;
}

}  // namespace

std::uint64_t hash_of_stack(const Stack& stack) {
  std::uint64_t hash = kHashOfNoFrames;
  for (const std::uint64_t frame : std::views::reverse(stack.frames)) hash = mixed(hash, frame);
  return hash_of_stack(hash, stack);
}

void mark_interrupted(std::span<std::uint64_t> pcs) {
  bool interrupted = false;  // what a signal handler returns to
  for (std::uint64_t& pc : pcs) {
    const bool returns_to_next = is_signal_return(pc);
    if (interrupted) pc |= WL_FRAME_EXACT;
    interrupted = returns_to_next;
  }
}

bool Stacks::open(const char* path) {
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  void* memory = MAP_FAILED;
  if (is_region(file)) memory = mmap(nullptr, kRegionSize, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return false;
  (void)madvise(memory, kRegionSize, MADV_DONTDUMP);
  base_ = static_cast<std::byte*>(memory);
  return header().magic == kMagic;
}

std::uint32_t Stacks::find(const Stack& stack, std::uint64_t hash) {
  auto* const index = reinterpret_cast<std::atomic<std::uint32_t>*>(base_ + kIndexAt);
  std::uint32_t made = 0;
  std::size_t part = header().period <= 1 ? std::size(kParts) - 1 : 0;
  for (std::size_t probe = 0;; ++probe) {
    if (probe == kMaxProbes) {
      if (++part == std::size(kParts)) return 0;
      probe = 0;
    }
    auto& word = index[((hash >> 32 ^ hash) + probe) & (kParts[part] - 1)];
    std::uint32_t place = word.load(std::memory_order_acquire);
    if (place == 0) {
      if (made == 0) made = make(stack, hash);
      if (made == 0) return 0;
      if (word.compare_exchange_strong(place, made, std::memory_order_acq_rel)) {
        Record& added = record(made);
        added.next = header().newest.load(std::memory_order_relaxed);
        while (!header().newest.compare_exchange_weak(added.next, made, std::memory_order_release)) continue;
        return made;
      }
    }
    // Two threads may have made the same record: the one that comes later uses the first.
    if (is_record(place) && record(place).hash == hash) return place;
  }
}

std::uint32_t Stacks::make(const Stack& stack, std::uint64_t hash) {
  std::size_t units = sizeof(Record) / kUnit + stack.frames.size();
  units += -units % kLineUnits;
  if (header().used.load(std::memory_order_relaxed) > kMostUnits - units) return 0;
  const std::uint64_t used = header().used.fetch_add(units, std::memory_order_relaxed);
  if (used > kMostUnits - units) return 0;
  const auto place = static_cast<std::uint32_t>(kRecordsAt / kUnit + used);
  Record& made = record(place);
  made.hash = hash;
  made.time = monotonic_ns();
  made.tgid = stack.tgid;
  made.tid = stack.tid;
  made.depth = static_cast<std::uint16_t>(stack.frames.size());
  made.end = stack.end;
  made.shared = stack.shared ? 1 : 0;
  (void)prctl(PR_GET_NAME, made.comm);
  std::ranges::copy(stack.frames, reinterpret_cast<std::uint64_t*>(&made + 1));
  return place;
}

}  // namespace windlass::alloc
