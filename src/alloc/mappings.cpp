#include "alloc/mappings.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace windlass::alloc {
namespace {

constexpr int kSpins = 10'000;

// Takes [begin, end) of it away, which is at one of its ends.
Mapping split_off(Mapping& mapping, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t length = mapping.end - mapping.begin;
  Mapping part{begin, end, mapping.record, {0, 0}};
  __extension__ using Wide = unsigned __int128;
  part.weight.bytes = static_cast<std::uint64_t>(Wide{mapping.weight.bytes} * (end - begin) / length);
  mapping.weight.bytes -= part.weight.bytes;
  (begin == mapping.begin ? mapping.begin : mapping.end) = begin == mapping.begin ? end : begin;
  return part;
}

}  // namespace

bool Mappings::open() {
  void* const memory =
      mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  if (madvise(memory, sizeof(Table), MADV_WIPEONFORK) != 0) {
    munmap(memory, sizeof(Table));
    return false;
  }
  (void)madvise(memory, sizeof(Table), MADV_DONTDUMP);
  table_ = static_cast<Table*>(memory);
  return true;
}

bool Mappings::lock() {
  if (table_ == nullptr) return false;
  for (int i = 0; i < kSpins; ++i) {
    if (!table_->busy.load(std::memory_order_relaxed) && !table_->busy.exchange(true, std::memory_order_acquire))
      return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  return false;
}

// The first mapping whose end is above the address.
std::size_t Mappings::first_behind(std::uint64_t address) const {
  const Mapping* const all = table_->all;
  const auto ends_before = [](std::uint64_t value, const Mapping& mapping) { return value < mapping.end; };
  return static_cast<std::size_t>(
      std::upper_bound(all, all + table_->count.load(std::memory_order_relaxed), address, ends_before) - all);
}

void Mappings::insert(std::size_t at, const Mapping& mapping) {
  const std::size_t count = table_->count.load(std::memory_order_relaxed);
  std::copy_backward(table_->all + at, table_->all + count, table_->all + count + 1);
  table_->all[at] = mapping;
  table_->count.store(count + 1, std::memory_order_relaxed);
}

void Mappings::erase(std::size_t from, std::size_t to) {
  const std::size_t count = table_->count.load(std::memory_order_relaxed);
  std::copy(table_->all + to, table_->all + count, table_->all + from);
  table_->count.store(count - (to - from), std::memory_order_relaxed);
}

// With room for one more.
void Mappings::cut(std::uint64_t begin, std::uint64_t end, Taken taken) {
  std::size_t at = first_behind(begin);
  if (at < table_->count.load(std::memory_order_relaxed) && table_->all[at].begin < begin) {
    Mapping& mapping = table_->all[at++];
    Mapping rest = split_off(mapping, begin, mapping.end);
    if (rest.end > end) {
      const Mapping part = split_off(rest, begin, end);
      insert(at, rest);
      return taken(part);
    }
    taken(rest);
  }
  const std::size_t from = at;
  for (; at < table_->count.load(std::memory_order_relaxed) && table_->all[at].end <= end; ++at) taken(table_->all[at]);
  if (at < table_->count.load(std::memory_order_relaxed) && table_->all[at].begin < end)
    taken(split_off(table_->all[at], table_->all[at].begin, end));
  erase(from, at);
}

bool Mappings::put(const Mapping& mapping, Taken taken) {
  if (!lock()) return false;
  const bool has_room = table_->count.load(std::memory_order_relaxed) + 2 <= kMost;
  if (has_room) {
    cut(mapping.begin, mapping.end, taken);
    insert(first_behind(mapping.begin), mapping);
  }
  unlock();
  return has_room;
}

bool Mappings::take(std::uint64_t begin, std::uint64_t end, Taken taken) {
  if (!lock()) return false;
  const bool has_room = table_->count.load(std::memory_order_relaxed) + 1 <= kMost;
  if (has_room) cut(begin, end, taken);
  unlock();
  return has_room;
}

}  // namespace windlass::alloc
