#include "lookup/table/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace windlass::table {
namespace {
constexpr std::uint32_t kUnitsPerChunk = WL_CHUNK_SIZE >> WL_REF_SHIFT;

std::uint32_t units_of(std::size_t size) {
  return size == 0 ? 1 : static_cast<std::uint32_t>((size + 7) >> WL_REF_SHIFT);
}
}  // namespace

Expected<std::unique_ptr<Arena>> Arena::create(Backing backing, std::uint32_t max_chunks) {
  const std::size_t reserved = (std::size_t{max_chunks} << WL_CHUNK_SHIFT) + WL_CHUNK_SIZE;
  void* at = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return fail(ErrorCode::kSystem, "address space for the arena", 0, static_cast<unsigned>(errno));
  std::unique_ptr<Arena> arena(new Arena);
  arena->base_ = static_cast<std::byte*>(at);
  arena->reserved_ = reserved;
  arena->max_chunks_ = max_chunks;
  arena->backing_ = std::move(backing);
  return arena;
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, reserved_);
}

Expected<void> Arena::grow() {
  if (chunks_ == max_chunks_) return fail(ErrorCode::kLimit, "the arena is full", chunks_);
  std::byte* at = base_ + (std::size_t{chunks_} << WL_CHUNK_SHIFT);
  if (backing_) {
    if (auto done = backing_(chunks_, at); !done) return done;
  } else if (mprotect(at, WL_CHUNK_SIZE, PROT_READ | PROT_WRITE) != 0) {
    return fail(ErrorCode::kSystem, "memory for the arena", 0, static_cast<unsigned>(errno));
  }
  const std::uint32_t first = chunks_ * kUnitsPerChunk;
  // Ref 0 means "none", so unit 0 of the arena is never handed out.
  insert_free(chunks_ == 0 ? 1 : first, chunks_ == 0 ? kUnitsPerChunk - 1 : kUnitsPerChunk);
  ++chunks_;
  return {};
}

// Merges with its free neighbours, never over a chunk boundary.
void Arena::insert_free(std::uint32_t unit, std::uint32_t units) {
  auto next = free_by_unit_.lower_bound(unit);
  if (next != free_by_unit_.end() && next->first == unit + units && next->first % kUnitsPerChunk != 0) {
    units += next->second;
    free_by_size_.erase({next->second, next->first});
    next = free_by_unit_.erase(next);
  }
  if (next != free_by_unit_.begin() && unit % kUnitsPerChunk != 0) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == unit) {
      free_by_size_.erase({previous->second, previous->first});
      unit = previous->first;
      units += previous->second;
      free_by_unit_.erase(previous);
    }
  }
  free_by_unit_.emplace(unit, units);
  free_by_size_.emplace(units, unit);
}

Expected<std::uint32_t> Arena::allocate(std::size_t size) {
  if (size > WL_CHUNK_SIZE - 8) return fail(ErrorCode::kLimit, "object larger than a chunk of the arena", 0, size);
  const std::uint32_t units = units_of(size);
  const std::lock_guard lock(mutex_);
  auto found = free_by_size_.lower_bound({units, 0});
  if (found == free_by_size_.end()) {
    if (auto grown = grow(); !grown) return Failure(grown.error());
    found = free_by_size_.lower_bound({units, 0});
  }
  const std::uint32_t unit = found->second;
  const std::uint32_t available = found->first;
  free_by_size_.erase(found);
  free_by_unit_.erase(unit);
  if (available > units) {
    free_by_unit_.emplace(unit + units, available - units);
    free_by_size_.emplace(available - units, unit + units);
  }
  bytes_used_ += std::uint64_t{units} << WL_REF_SHIFT;
  std::memset(at(unit), 0, std::size_t{units} << WL_REF_SHIFT);
  return unit;
}

void Arena::free(std::uint32_t ref, std::size_t size) {
  if (ref == 0) return;
  const std::uint32_t units = units_of(size);
  const std::lock_guard lock(mutex_);
  bytes_used_ -= std::uint64_t{units} << WL_REF_SHIFT;
  insert_free(ref, units);
}

}  // namespace windlass::table
