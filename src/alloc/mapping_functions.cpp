// mmap(), munmap() and mremap() as this library has them. Anonymous memory counts, as the program maps it. Two kinds of
// callers do not count: allocators, whose memory counts when they hand it out, and runtimes with a heap of their own.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstring>

#include "alloc/interpose.h"
#include "walk/own/modules.h"

namespace windlass::alloc {
namespace {

using Map = void*(void*, std::size_t, int, int, int, off_t);
using Remap = void*(void*, std::size_t, std::size_t, int, ...);
constinit Next<Map> next_mmap("mmap");
constinit Next<int(void*, std::size_t)> next_munmap("munmap");
constinit Next<Remap> next_mremap("mremap");

struct Range {
  std::uint64_t begin = 0, end = 0;
  [[nodiscard]] bool contains(std::uint64_t address) const { return address - begin < end - begin; }
};
// This library, the allocator behind it, one in the program, and a program of Go's.
constexpr std::size_t kNotCounted = 4;
constinit Range not_counted[kNotCounted];

Range module_of(const void* address) {
  walk::LoadedObject object;
  if (address == nullptr || !walk::find_loaded(reinterpret_cast<std::uint64_t>(address), object)) return {};
  return {object.begin, object.end};
}

// Go's linker leaves a note. With cgo Go's heap comes from libc's mmap().
bool is_go_program() {
  const auto headers = ::getauxval(AT_PHDR);
  const auto* segments = reinterpret_cast<const ElfW(Phdr)*>(headers);
  const std::uint64_t count = ::getauxval(AT_PHNUM);
  std::uint64_t bias = 0;
  for (std::uint64_t i = 0; i < count; ++i)
    if (segments[i].p_type == PT_PHDR) bias = headers - segments[i].p_vaddr;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (segments[i].p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const unsigned char*>(bias + segments[i].p_vaddr);
    for (std::uint64_t left = segments[i].p_memsz; left >= sizeof(ElfW(Nhdr));) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const std::uint64_t size = sizeof note + ((note.n_namesz + std::uint64_t{3}) & ~std::uint64_t{3}) +
                                 ((note.n_descsz + std::uint64_t{3}) & ~std::uint64_t{3});
      if (note.n_namesz == 4 && size <= left && std::memcmp(at + sizeof note, "Go\0", 4) == 0) return true;
      if (size > left) break;
      at += size;
      left -= size;
    }
  }
  return false;
}

// Those whose heap `record` names.
bool is_managed_runtime([[maybe_unused]] std::uint64_t caller) {
#if defined(DLFO_STRUCT_HAS_EH_DBASE)
  dl_find_object found;
  if (_dl_find_object(reinterpret_cast<void*>(caller), &found) != 0 || found.dlfo_link_map == nullptr) return false;
  const char* const path = found.dlfo_link_map->l_name;
  if (path == nullptr) return false;
  const char* const slash = std::strrchr(path, '/');
  const char* const name = slash != nullptr ? slash + 1 : path;
  for (const char* const runtime : {"libjvm.so", "libcoreclr.so", "libclrgc.so", "libnode.so"})
    if (std::strncmp(name, runtime, std::strlen(runtime)) == 0) return true;
#endif
  return false;
}

bool is_counted(const void* caller) {
  const auto pc = reinterpret_cast<std::uint64_t>(caller) - 1;
  for (const Range& range : not_counted)
    if (range.contains(pc)) return false;
  return !is_managed_runtime(pc);
}

// A call of the next function, or of the kernel where that is not known yet.
void* call_mmap(void* at, std::size_t size, int protection, int flags, int file, off_t offset) {
  if (auto* const next = next_mmap.known(); next != nullptr) return next(at, size, protection, flags, file, offset);
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, size, protection, flags, file, offset));
}

inline void* counted_mmap(const void* caller, void* at, std::size_t size, int protection, int flags, int file,
                          off_t offset) {
  void* const made = call_mmap(at, size, protection, flags, file, offset);
  if (made == MAP_FAILED || next_mmap.known() == nullptr) return made;
  if ((flags & MAP_ANONYMOUS) != 0 && protection != PROT_NONE && is_counted(caller))
    mapped(made, size);
  else if ((flags & MAP_FIXED) != 0 && follows_mappings())
    unmapped(made, size);
  return made;
}

}  // namespace

void find_next_mappers(const void* allocator) {
  if (next_mmap.known() != nullptr) return;
  not_counted[0] = module_of(reinterpret_cast<const void*>(&find_next_mappers));
  not_counted[1] = module_of(allocator);
  not_counted[2] = module_of(dlsym(RTLD_DEFAULT, "malloc"));
  if (is_go_program()) not_counted[3] = module_of(reinterpret_cast<const void*>(::getauxval(AT_ENTRY)));
  (void)next_munmap.get();
  (void)next_mremap.get();
  (void)next_mmap.get();
}

// The program may map memory before it allocates any.
[[gnu::constructor]] static void find_early() { (void)find_next_functions(); }

}  // namespace windlass::alloc

using namespace windlass::alloc;

#define WINDLASS_EXPORTED extern "C" [[gnu::visibility("default")]]

WINDLASS_EXPORTED void* mmap(void* at, std::size_t size, int protection, int flags, int file, off_t offset) noexcept {
  return counted_mmap(__builtin_return_address(0), at, size, protection, flags, file, offset);
}
WINDLASS_EXPORTED void* mmap64(void* at, std::size_t size, int protection, int flags, int file, off_t offset) noexcept {
  return counted_mmap(__builtin_return_address(0), at, size, protection, flags, file, offset);
}

WINDLASS_EXPORTED int munmap(void* at, std::size_t size) noexcept {
  if (follows_mappings()) unmapped(at, size);
  if (auto* const next = next_munmap.known(); next != nullptr) return next(at, size);
  return static_cast<int>(syscall(SYS_munmap, at, size));
}

// As realloc(): the old mapping ends and a new one begins, even if they are at one address.
WINDLASS_EXPORTED void* mremap(void* at, std::size_t old_size, std::size_t size, int flags, ...) noexcept {
  va_list arguments;
  va_start(arguments, flags);
  void* const wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void*) : nullptr;
  va_end(arguments);
  Ended ended;
  if (follows_mappings()) ended = take_mappings(at, old_size);
  auto* const next = next_mremap.known();
  void* const moved = next != nullptr ? next(at, old_size, size, flags, wanted)
                                      : reinterpret_cast<void*>(syscall(SYS_mremap, at, old_size, size, flags, wanted));
  if (moved == MAP_FAILED) {
    put_back(ended);
    return moved;
  }
  count_ended(ended);
  if (ended.count != 0)
    mapped(moved, size);
  else if (follows_mappings())
    unmapped(moved, size);
  return moved;
}
