#include <windows.h>

#include <cstring>

#include "walk/own/own_memory.h"
#include "walk/own_modules.h"

namespace windlass::walk {

void copy_own(std::uint64_t address, void* to, std::size_t size) {
  std::memcpy(to, reinterpret_cast<const void*>(address), size);
}

const std::byte* OwnMemory::in_place(std::uint64_t address, std::size_t size) const {
  // Above the stack's limit all pages are committed; a fiber's stack is the thread's while it runs.
  const NT_TIB* block;
  asm("movq %%gs:0x30, %0" : "=r"(block));  // NT_TIB::Self
  const auto low = reinterpret_cast<std::uint64_t>(block->StackLimit);
  const auto high = reinterpret_cast<std::uint64_t>(block->StackBase);
  const bool known = address >= low && address < high && size <= high - address;
  return known ? reinterpret_cast<const std::byte*>(address) : nullptr;
}

bool OwnMemory::read(std::uint64_t address, void* to, std::size_t size) const {
  if (const std::byte* from = in_place(address, size); from != nullptr) [[likely]] {
    if (size == sizeof(std::uint64_t))  // as one load
      std::memcpy(to, from, sizeof(std::uint64_t));
    else
      std::memcpy(to, from, size);
    return true;
  }
  SIZE_T done = 0;
  return ReadProcessMemory(GetCurrentProcess(), reinterpret_cast<const void*>(address), to, size, &done) != 0 &&
         done == size;
}

}  // namespace windlass::walk
