#include "walk/scratch_pool.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/pages.h"

namespace windlass::walk {
namespace {

// Walks at a time that find one ready; more than these get pages and give them back.
constexpr std::size_t kKept = 64;
constinit std::atomic<Scratch*> kept[kKept];

}  // namespace

Scratch* take_scratch() {
  for (auto& slot : kept)
    if (slot.load(std::memory_order_relaxed) != nullptr)
      if (Scratch* scratch = slot.exchange(nullptr, std::memory_order_acquire); scratch != nullptr) return scratch;
  void* pages = map_pages(sizeof(Scratch));
  if (pages == nullptr) std::abort();
  return new (pages) Scratch;
}

void return_scratch(Scratch* scratch) {
  for (auto& slot : kept) {
    Scratch* none = nullptr;
    if (slot.load(std::memory_order_relaxed) == nullptr &&
        slot.compare_exchange_strong(none, scratch, std::memory_order_release, std::memory_order_relaxed))
      return;
  }
  scratch->~Scratch();
  unmap_pages(scratch, sizeof(Scratch));
}

}  // namespace windlass::walk
