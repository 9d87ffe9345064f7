// The kernel side's maps as its user side uses them: arrays in memory, the arena's chunks, and the map of processes.
#pragma once

#include <bpf/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_set>

#include "lookup/table/arena.h"
#include "profiler/kernel/map_entries.h"
#include "profiler/kernel/mapping_sets.h"

namespace windlass::profiler {

// The arena's chunks as BPF arrays, named by `outer`, an array of maps. `first`: it is there already; negative: it is
// not.
inline table::Arena::Backing chunks_of(int outer, int first) {
  return [outer, first](std::uint32_t index, std::byte* at) -> Expected<void> {
    const bool is_there = index == 0 && first >= 0;
    bpf_map_create_opts options{};
    options.sz = sizeof options;
    options.map_flags = BPF_F_MMAPABLE;
    const int inner =
        is_there ? first
                 : bpf_map_create(BPF_MAP_TYPE_ARRAY, "wl_chunk", 4, WL_CHUNK_SIZE + WL_CHUNK_SLACK, 1, &options);
    if (inner < 0) return fail(ErrorCode::kSystem, "memory for the arena", index, static_cast<unsigned>(-inner));
    Expected<void> result;
    if (mmap(at, WL_CHUNK_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, inner, 0) == MAP_FAILED) {
      result = fail(ErrorCode::kSystem, "mapping the arena", index, static_cast<unsigned>(errno));
    } else if (!is_there) {
      if (const int error = bpf_map_update_elem(outer, &index, &inner, BPF_ANY); error != 0)
        result = fail(ErrorCode::kSystem, "growing the arena", index, static_cast<unsigned>(-error));
    }
    if (!is_there) close(inner);  // the outer map and the mapping hold it
    return result;
  };
}

// The memory of a BPF array, shared.
template <typename T>
class MappedArray {
 public:
  MappedArray() = default;
  ~MappedArray() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  MappedArray(const MappedArray&) = delete;
  MappedArray& operator=(const MappedArray&) = delete;

  // False and errno if it cannot.
  bool map(int fd, std::size_t count, int protection) {
    const std::size_t bytes = ((sizeof(T) + 7) & ~std::size_t{7}) * count;
    void* at = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return false;
    data_ = static_cast<T*>(at);
    bytes_ = bytes;
    count_ = count;
    return true;
  }
  [[nodiscard]] std::span<T> items() const { return {data_, count_}; }

 private:
  T* data_ = nullptr;
  std::size_t bytes_ = 0, count_ = 0;
};

// After a change of what the maps say of processes (wl_process_changes).
inline void count_change(__u64& changes) { std::atomic_ref(changes).fetch_add(1, std::memory_order_release); }

class BpfProcessEntries final : public ProcessEntries {
 public:
  BpfProcessEntries(int map, __u64& changes) : map_(map), changes_(changes) {}
  int update(std::uint32_t tgid, const wl_process& process) override {
    const int error = bpf_map_update_elem(map_, &tgid, &process, BPF_ANY);
    count_change(changes_);
    return -error;
  }
  void erase(std::uint32_t tgid) override {
    bpf_map_delete_elem(map_, &tgid);
    count_change(changes_);
  }
  std::optional<std::unordered_set<std::uint32_t>> spaces() override {
    std::unordered_set<std::uint32_t> spaces;
    const auto add = [&](std::uint32_t, const wl_process& process) { spaces.insert(process.space); };
    if (!for_each_entry<std::uint32_t, wl_process>(map_, add)) return std::nullopt;
    return spaces;
  }

 private:
  int map_;
  __u64& changes_;
};

}  // namespace windlass::profiler
