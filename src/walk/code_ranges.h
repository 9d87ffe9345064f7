// Code ranges that come and go while walkers look for them: one registry in each address space, and one for the own
// process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/grace_period.h"
#include "base/static_mutex.h"
#include "walk/module.h"
#include "windlass/jit/code_range.h"

namespace windlass::walk {

// When ranges that were taken away may be freed: one for all registries, so that a walker may outlive a space.
[[nodiscard]] GracePeriod& code_grace_period();

// Ranges of code without a file. Memory that a look-up reads is never written again. A change makes a new index (of the
// ranges' places, 128 in a block, and of the blocks) and a new block. It publishes both by a single store, and retires
// the old ones. A range is a Module, whose id no other module of any space ever gets. So everything that is kept under
// the id ends with the range.
class CodeRanges {
 public:
  constexpr CodeRanges() = default;
  // No walk may be under way in the space.
  ~CodeRanges();
  CodeRanges(const CodeRanges&) = delete;
  CodeRanges& operator=(const CodeRanges&) = delete;

  // ---- writers: locks, allocates ----
  [[nodiscard]] Expected<CodeRangeId> add(CodeRange range, Architecture architecture);
  // The same for a source whose rows change during its life. Its module has no id, and walkers keep rows as long as the
  // source has taken nothing away.
  [[nodiscard]] Expected<CodeRangeId> add_changing(ModuleInfo info, std::unique_ptr<sources::UnwindSource> source,
                                                   std::shared_ptr<sources::NameSource> names = nullptr);
  Expected<void> retire(CodeRangeId id);
  // The id of the range that begins at an address. kNone if there is none, or if its source changes.
  [[nodiscard]] CodeRangeId at(std::uint64_t begin) const;
  // kMalformed, with where it begins, if a range lies in [begin, end), which is not empty.
  [[nodiscard]] Expected<void> check_free(std::uint64_t begin, std::uint64_t end) const;

 private:
  struct Index;

 public:
  // ---- readers: lock-free, signal-safe ----
  // The ranges at one moment. What it finds stays while it lives, or while a GracePeriod::Reader that came before does.
  class View {
   public:
    // One atomic load where there is no range.
    explicit View(const CodeRanges& ranges) {
      if (ranges.index_.load(std::memory_order_acquire) == nullptr) return;
      reader_.enter(code_grace_period());
      index_ = ranges.index_.load(std::memory_order_acquire);
    }
    [[nodiscard]] bool empty() const { return index_ == nullptr; }
    // Logarithmic. Null where no range contains the address.
    [[nodiscard]] const Module* find(std::uint64_t address) const {
      return index_ != nullptr ? search(*index_, address) : nullptr;
    }
    // By ascending address.
    template <typename Callback>
    void for_each(Callback&& callback) const;

   private:
    GracePeriod::Reader reader_;
    const Index* index_ = nullptr;
  };

 private:
  struct Entry {
    std::uint64_t begin;
    std::uint64_t end;
    const Module* module;
  };
  // A balance: a change copies one block and the index, of 1 / 64 to 1 / 128 of the ranges.
  static constexpr std::size_t kBlock = 128;
  using Block = std::vector<Entry>;  // ascending; 1 to kBlock
  struct Place {
    std::uint64_t begin;  // of the block's first range
    const Block* block;
  };
  struct Index {
    std::vector<Place> places;  // ascending, at least one
  };
  struct Replaced;

  [[nodiscard]] static const Module* search(const Index& index, std::uint64_t address);
  [[nodiscard]] static std::size_t place_of(const Index& index, std::uint64_t address);
  [[nodiscard]] Expected<CodeRangeId> insert(std::unique_ptr<const Module> module, std::uint64_t id);
  void replace(std::size_t place, const Block& block, const Module* gone);

  std::atomic<const Index*> index_ = nullptr;  // null: no range
  mutable StaticMutex lock_;                   // of writers
  // Where each range begins, by id. Made by the first add.
  std::unique_ptr<std::unordered_map<std::uint64_t, std::uint64_t>> begin_of_;
};

template <typename Callback>
void CodeRanges::View::for_each(Callback&& callback) const {
  if (index_ == nullptr) return;
  for (const Place& place : index_->places)
    for (const Entry& entry : *place.block) callback(*entry.module);
}

// The own process's. Never destroyed.
[[nodiscard]] CodeRanges& own_code_ranges();

}  // namespace windlass::walk
