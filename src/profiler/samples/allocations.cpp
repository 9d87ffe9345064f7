#include "profiler/samples/allocations.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>

#include <fmt/format.h>

#include "base/monotonic.h"
#include "profiler/samples/alloc_library_file.h"

namespace windlass::profiler {
namespace {

// A file without a name, which nobody can shorten or lengthen: that would end readers of it by SIGBUS.
std::expected<int, SystemError> make_file(const char* name, std::size_t size) {
  const int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file >= 0 && ftruncate(file, static_cast<off_t>(size)) == 0 &&
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
    return file;
  const int error = errno;
  if (file >= 0) close(file);
  if (error == EMFILE || error == ENFILE) return std::unexpected(too_many_open_files(error));
  return std::unexpected(system_error(fmt::format("memory for allocations: {}", std::strerror(error)), error));
}

// The processes write at the same time.
std::uint64_t read_now(const std::atomic<std::uint64_t>& value) { return value.load(std::memory_order_relaxed); }
wl_count read_now(const alloc::Sums& sums) { return {read_now(sums.count), read_now(sums.bytes), 0}; }

wl_count plus(const wl_count& a, const wl_count& b) { return {a.count + b.count, a.value + b.value, 0}; }
wl_count minus(const wl_count& a, const wl_count& b) {
  return {a.count - std::min(a.count, b.count), a.value - std::min(a.value, b.value), 0};
}

}  // namespace

std::expected<std::unique_ptr<Allocations>, SystemError> Allocations::open(std::uint64_t period) {
  auto made = std::unique_ptr<Allocations>(new Allocations);
  auto library = alloc_library_file();
  if (!library) return std::unexpected(std::move(library.error()));
  made->library_ = std::move(*library);
  auto region = make_file("windlass allocations", alloc::kRegionSize);
  if (!region) return std::unexpected(std::move(region.error()));
  made->region_ = *region;
  void* const memory = mmap(nullptr, alloc::kRegionSize, PROT_READ | PROT_WRITE, MAP_SHARED, *region, 0);
  if (memory == MAP_FAILED)
    return std::unexpected(system_error(fmt::format("memory for allocations: {}", std::strerror(errno)), errno));
  made->base_ = static_cast<std::byte*>(memory);
  auto* const header = new (memory) alloc::Header{};
  header->period = period;
  header->magic = alloc::kMagic;
  return made;
}

Allocations::~Allocations() {
  if (base_ != nullptr) munmap(base_, alloc::kRegionSize);
  if (region_ >= 0) close(region_);
}

std::vector<std::string> Allocations::environment() const {
  const char* const others = std::getenv("LD_PRELOAD");
  std::string preload = "LD_PRELOAD=" + library_;
  if (others != nullptr && *others != '\0') preload += fmt::format(":{}", others);
  return {std::move(preload), fmt::format("{}=/proc/{}/fd/{}", alloc::kVariable, getpid(), region_)};
}

// Null for a place where there can be none.
const alloc::Record* Allocations::record_at(std::uint32_t place) const {
  const std::size_t at = std::size_t{place} * alloc::kUnit;
  if (at < alloc::kRecordsAt || at > alloc::kRegionSize - sizeof(alloc::Record)) return nullptr;
  return reinterpret_cast<const alloc::Record*>(base_ + at);
}

void Allocations::poll(const RecordingEvents& events, const Handler& handler) {
  auto& newest = reinterpret_cast<alloc::Header*>(base_)->newest;
  if (newest.load(std::memory_order_relaxed) == 0) return;
  std::vector<std::uint64_t> bytes;
  std::uint32_t place = newest.exchange(0, std::memory_order_acquire);
  const std::uint64_t now = monotonic_ns();  // no record of before is later
  while (place != 0) {
    const alloc::Record* const at = record_at(place);
    if (at == nullptr || !taken_.try_emplace(place).second) {  // one that is there twice would lead round for ever
      ++malformed_;
      return;
    }
    // Copied first: what has been checked must not change.
    alloc::Record record;  // NOLINT(cppcoreguidelines-pro-type-member-init): all of it is copied
    std::memcpy(static_cast<void*>(&record), static_cast<const void*>(at), sizeof record);
    const auto* const frames = reinterpret_cast<const std::byte*>(at + 1);
    const auto room = static_cast<std::size_t>(base_ + alloc::kRegionSize - frames) / sizeof(std::uint64_t);
    const auto depth = std::min<std::size_t>({record.depth, alloc::kMaxFrames, room});
    const std::size_t size = sizeof(wl_stack_event) + depth * sizeof(std::uint64_t);
    bytes.assign((size + 7) / 8, 0);
    auto& event = *reinterpret_cast<wl_stack_event*>(bytes.data());
    event.head.type = WL_EVENT_STACK;
    event.head.event = events.allocated;
    event.head.time = std::min(record.time, now);
    event.head.tgid = record.tgid;
    event.head.tid = record.tid;
    std::memcpy(event.head.comm, record.comm, sizeof event.head.comm);
    event.hash = place;
    event.user_frames = static_cast<std::uint16_t>(depth);
    event.end = record.end < WL_END_COUNT ? static_cast<std::uint8_t>(record.end) : std::uint8_t{WL_END_INTERNAL};
    std::memcpy(static_cast<void*>(&event + 1), frames, depth * sizeof(std::uint64_t));
    handler(event.head, size);
    place = record.next;
  }
}

void Allocations::take(const wl_event_head& head, std::size_t size, const RecordingEvents& events,
                       const Targets& targets, SampleIntake& intake, Aggregator& aggregator) {
  const auto place = static_cast<std::uint32_t>(reinterpret_cast<const wl_stack_event&>(head).hash);
  const auto found = taken_.find(place);
  if (found == taken_.end()) return;
  if (!targets.contains(head.tgid)) {
    ++malformed_;
    return;
  }
  Taken& taken = found->second;
  intake.read_stack(head, size, [&](StackRecord& stack, const MapSet* maps) {
    // Two bits of an event are too few for this.
    if (stack.end == WL_END_GUESSED) stack.certainty = WL_GUESSED;
    if (stack.end == WL_END_CHAINED) stack.certainty = WL_CHAINED;
    stack.event = events.allocated;
    taken.allocated = aggregator.add(stack, maps, 0);
    stack.event = events.in_use;
    taken.in_use = aggregator.add(stack, maps, 0);
    taken.known = true;
  });
}

void Allocations::book(Aggregator& aggregator) {
  for (auto& [place, taken] : taken_) {
    if (!taken.known) continue;
    const alloc::Record& record = *record_at(place);
    // First: so it is no more than what was allocated.
    const wl_count freed = plus(read_now(record.freed), read_now(record.freed_elsewhere));
    const wl_count allocated = read_now(record.allocated), in_use = minus(allocated, freed);
    aggregator.change(taken.allocated, taken.booked.allocated, allocated);
    aggregator.change(taken.in_use, taken.booked.in_use, in_use);
    taken.booked = {allocated, in_use};
  }
}

AllocationStats Allocations::stats() const {
  return {.processes = header().processes.load(std::memory_order_relaxed),
          .lost = read_now(header().lost),
          .unfollowed = read_now(header().unfollowed),
          .malformed = malformed_};
}

}  // namespace windlass::profiler
