// A heap whose code is in one of Windows' tables: what the three have in common. Unwind information stands behind it,
// within what 32-bit RVAs from its begin reach.
#pragma once

#include <windows.h>

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "jit/registries/batch.h"
#include "windlass/format/winx64.h"

namespace windlass::registries {

// Memory behind a heap, taken from the system as it is needed. Under the registrar's lock.
class Room {
 public:
  Room(std::uint64_t heap_begin, std::uint64_t heap_end) : from_(heap_end), end_(heap_begin + 0xffff'0000) {}
  ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  // At a multiple of 16; readable and writable.
  [[nodiscard]] Expected<std::uint64_t> take(std::size_t size);
  void give_back(std::uint64_t address, std::size_t size);
  // A jump to `target`, in a page that is executable and not writable. One for each target, kept to the end.
  [[nodiscard]] Expected<std::uint64_t> thunk(std::uint64_t target);

 private:
  [[nodiscard]] Expected<std::uint64_t> reserve(std::size_t size);

  const std::uint64_t from_, end_;
  std::vector<std::uint64_t> reservations_;
  std::map<std::uint64_t, std::uint64_t> free_;    // begin to end, apart
  std::map<std::uint64_t, std::uint64_t> thunks_;  // by target
  std::uint64_t next_thunk_ = 0, thunks_end_ = 0;  // pages
};

// What was written of some functions.
struct TableEntries {
  std::vector<RUNTIME_FUNCTION> entries;  // ascending
  std::uint64_t info = 0;                 // of the room
  std::size_t info_size = 0;
};

class HeapRegistrar : public BatchRegistrar {
 protected:
  explicit HeapRegistrar(const RegistrarOptions& options, bool apart = false)
      : BatchRegistrar(apart),
        begin_(options.heap_begin),
        end_(options.heap_end),
        room_(begin_, end_),
        handler_not_asked_(options.handler_not_asked),
        context_(options.context) {}
  ~HeapRegistrar() override;

  // No two registrars have the same code, which one of them would hide from the other. No image is in the heap: its
  // own table is asked first, and alone.
  Expected<void> claim();
  // Is it code of the heap, and executable? A system call a region.
  [[nodiscard]] Expected<void> check_code(std::span<const Run> runs) const;
  // RVAs count from `base`.
  [[nodiscard]] Expected<TableEntries> write(std::span<const Function> functions, std::uint64_t base);
  void free(const TableEntries& written) { room_.give_back(written.info, written.info_size); }

  const std::uint64_t begin_, end_;

 private:
  Expected<void> write_one(const Function& function, std::uint64_t base, winx64::Writer& writer);

  void advise(std::span<const Function> functions) const;

  Room room_;
  void (*const handler_not_asked_)(std::uint64_t, void*);
  void* const context_;
  bool claimed_ = false;
};

// Does the system find these? Others' tables that were registered earlier come first on Wine.
[[nodiscard]] Expected<void> check_found(const TableEntries& written, std::uint64_t base);

// Of ntdll; null where this Windows has none.
template <typename F>
F from_ntdll(const char* name) {
  return reinterpret_cast<F>(reinterpret_cast<void*>(GetProcAddress(GetModuleHandleW(L"ntdll.dll"), name)));
}

}  // namespace windlass::registries
