// The collector's half of objects: Cheney's copying algorithm. Where the roots are it is told.
#include <sys/mman.h>

#include <cstring>

#include "runtime.h"

namespace lilt {

namespace {

std::byte* reserve(std::size_t size) {
  void* made = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) throw std::runtime_error("no memory for the heap");
  return static_cast<std::byte*>(made);
}

}  // namespace

std::size_t size_of(const TypeInfo& type, Word length) {
  if (type.shape == TypeInfo::kFields) return 8 * (1 + std::max<std::size_t>(1, type.references.size()));
  return 16 + (type.shape == TypeInfo::kBytes ? (length + 7) / 8 * 8 : length * 8);
}

Heap::Heap(std::size_t half) : half_(half), now_(reserve(half)), other_(reserve(half)) {}

Object* Heap::allocate(std::size_t size) {
  const std::size_t at = used_.fetch_add(size, std::memory_order_relaxed);
  if (at + size > half_) {
    used_.fetch_sub(size, std::memory_order_relaxed);
    return nullptr;
  }
  return reinterpret_cast<Object*>(now_ + at);
}

// All threads are stopped.
void Heap::flip() {
  std::swap(now_, other_);
  old_begin_ = other_;
  scanned_ = now_;
  used_ = 0;
}

void Heap::forward(Word& reference) {
  const auto begin = reinterpret_cast<Word>(old_begin_);
  if (reference - begin >= half_) return;  // null, a literal, or moved already
  auto* object = reinterpret_cast<Object*>(reference);
  if ((object->header & 1) == 0) {
    const std::size_t size = size_of(object->type(), object->words[0]);
    void* to = allocate(size);
    std::memcpy(to, object, size);
    object->header = reinterpret_cast<Word>(to) | 1;
  }
  reference = object->header & ~Word{1};
}

void Heap::scan() {
  while (scanned_ < now_ + used_) {
    auto* object = reinterpret_cast<Object*>(scanned_);
    const TypeInfo& type = object->type();
    if (type.shape == TypeInfo::kReferences)
      for (Word i = 0; i < object->words[0]; ++i) forward(object->words[1 + i]);
    if (type.shape == TypeInfo::kFields)
      for (std::size_t i = 0; i < type.references.size(); ++i)
        if (type.references[i]) forward(object->words[i]);
    scanned_ += size_of(type, object->words[0]);
  }
  // What was left is zero from now on: allocation counts on that, and who has kept an old reference notices.
  madvise(other_, half_, MADV_DONTNEED);
  old_begin_ = nullptr;
  ++collections;
}

}  // namespace lilt
