// The entries of a hash map of BPF, thousands at a system call.
#pragma once

#include <bpf/bpf.h>

#include <cerrno>
#include <cstdint>
#include <vector>

namespace windlass::profiler {

// Calls `handler(key, value)` for each entry; what is in the map all the time is among them. `take`: what is read is
// taken away at the same moment, so that no count is lost between. False: an error ended it early.
template <typename Key, typename Value, typename Handler>
bool for_each_entry(int map, const Handler& handler, bool take = false) {
  constexpr __u32 kAtOnce = 4096;
  std::vector<Key> keys(kAtOnce);
  std::vector<Value> values(kAtOnce);
  std::uint32_t position = 0;
  void* from = nullptr;
  for (int error = 0; error == 0; from = &position) {
    __u32 size = kAtOnce;
    error = take ? bpf_map_lookup_and_delete_batch(map, from, &position, keys.data(), values.data(), &size, nullptr)
                 : bpf_map_lookup_batch(map, from, &position, keys.data(), values.data(), &size, nullptr);
    if (error != 0 && error != -ENOENT) return false;  // ENOENT: these were the last
    for (__u32 i = 0; i < size; ++i) handler(keys[i], values[i]);
  }
  return true;
}

}  // namespace windlass::profiler
