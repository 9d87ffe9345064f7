// The anonymous mappings that live: by address, with the stacks and weights of those that are samples. A call that
// makes or ends one takes a microsecond and more in the kernel, so here is a lock of nanoseconds. Who does not get it
// soon, as a signal handler above its holder, goes on without. The memory is empty in a child after fork().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "alloc/chance.h"
#include "windlass/function_ref.h"

namespace windlass::alloc {

struct Mapping {
  std::uint64_t begin = 0, end = 0;
  std::uint32_t record = 0;  // 0: no sample
  Weight weight{};
};

class Mappings {
 public:
  using Taken = FunctionRef<void(const Mapping&)>;
  static constexpr std::size_t kMost = 65536;  // what Linux gives a process (vm.max_map_count), about

  bool open();
  [[nodiscard]] bool any() const { return table_ != nullptr && table_->count.load(std::memory_order_relaxed) != 0; }

  // Takes out what was in its place, and enters it. False, without a change, if there is no room or no lock.
  bool put(const Mapping& mapping, Taken taken);
  // Takes out what lies in [begin, end). Of a mapping that lies there in part, its bytes are shared by length, and the
  // lowest part that stays keeps the count. False, without a change, if there is no lock.
  bool take(std::uint64_t begin, std::uint64_t end, Taken taken);

 private:
  struct Table {
    std::atomic<bool> busy;
    std::atomic<std::size_t> count;
    Mapping all[kMost];  // ascending, disjoint
  };
  [[nodiscard]] bool lock();
  void unlock() { table_->busy.store(false, std::memory_order_release); }
  [[nodiscard]] std::size_t first_behind(std::uint64_t address) const;
  void insert(std::size_t at, const Mapping& mapping);
  void erase(std::size_t from, std::size_t to);
  void cut(std::uint64_t begin, std::uint64_t end, Taken taken);

  Table* table_ = nullptr;
};

}  // namespace windlass::alloc
