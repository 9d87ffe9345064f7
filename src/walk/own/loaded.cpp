// What is loaded around an address: from glibc, or from a snapshot.
#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "walk/own/modules.h"

namespace windlass::walk {

#if defined(DLFO_STRUCT_HAS_EH_DBASE) && !defined(WINDLASS_NO_DL_FIND_OBJECT)

namespace {

// The extent of the program, including gaps between its segments. If there are gaps, glibc tells only the segment that
// contains the address (elf/dl-find_object.c), and its .eh_frame_hdr may be in another segment. Libraries are mapped
// without gaps.
struct Program {
  std::atomic<std::uint64_t> begin, end, eh_frame_hdr;
};
constinit Program program;

// Enters the program if `object` is of it, or a segment of it.
[[gnu::hot]] void find_program(const LoadedObject& object) {
  const std::uint64_t headers = ::getauxval(AT_PHDR);
  const auto* segments = reinterpret_cast<const ElfW(Phdr)*>(headers);
  std::uint64_t begin = ~std::uint64_t{0}, end = 0, eh_frame_hdr = 0;
  for (std::uint64_t i = 0, count = ::getauxval(AT_PHNUM); i < count; ++i) {
    const auto& segment = segments[i];
    if (segment.p_type == PT_GNU_EH_FRAME) eh_frame_hdr = segment.p_vaddr;
    if (segment.p_type != PT_LOAD) continue;
    begin = std::min<std::uint64_t>(begin, segment.p_vaddr & ~std::uint64_t{0xfff});
    end = std::max<std::uint64_t>(end, segment.p_vaddr + segment.p_memsz);
  }
  if (object.eh_frame_hdr != eh_frame_hdr + object.bias || headers - (begin + object.bias) >= end - begin) return;
  program.begin.store(begin + object.bias, std::memory_order_relaxed);
  program.end.store(end + object.bias, std::memory_order_relaxed);
  program.eh_frame_hdr.store(object.eh_frame_hdr, std::memory_order_release);
}

[[gnu::hot]] void join_segments_of_program(LoadedObject& object) {
  if (object.eh_frame_hdr == 0) return;
  if (program.eh_frame_hdr.load(std::memory_order_relaxed) == 0) [[unlikely]]
    find_program(object);
  if (program.eh_frame_hdr.load(std::memory_order_acquire) != object.eh_frame_hdr) return;
  object.begin = program.begin.load(std::memory_order_relaxed);
  object.end = program.end.load(std::memory_order_relaxed);
}

}  // namespace

[[gnu::hot]] bool find_loaded(std::uint64_t address, LoadedObject& object) {
  dl_find_object found;
  if (_dl_find_object(reinterpret_cast<void*>(address), &found) != 0) return false;
  object.begin = reinterpret_cast<std::uint64_t>(found.dlfo_map_start);
  object.end = reinterpret_cast<std::uint64_t>(found.dlfo_map_end);
  object.eh_frame_hdr = reinterpret_cast<std::uint64_t>(found.dlfo_eh_frame);
  object.bias = found.dlfo_link_map != nullptr ? found.dlfo_link_map->l_addr : 0;
  join_segments_of_program(object);
  return true;
}

void refresh_loaded() {}

bool is_program(const LoadedObject& object) { return program.begin.load(std::memory_order_relaxed) == object.begin; }

// So that the first walk finds the function bound and the program known: each page that it is the first to use takes
// longer than a frame.
[[gnu::constructor(101)]] static void find_program_early() {
  LoadedObject object;
  (void)find_loaded(::getauxval(AT_ENTRY), object);
}

#else

namespace {

// Two snapshots: readers use the one that `current` names while the other is made. A reader that is overtaken twice
// would see a mixture; it then finds nothing or a module that has just gone.
struct Snapshot {
  static constexpr std::size_t kCapacity = 1024;
  LoadedObject objects[kCapacity];
  std::size_t count = 0;
};
Snapshot snapshots[2];
std::atomic<Snapshot*> current = nullptr;
std::mutex making;

int collect(dl_phdr_info* info, std::size_t, void* context) {
  auto& snapshot = *static_cast<Snapshot*>(context);
  if (snapshot.count == Snapshot::kCapacity) return 1;
  LoadedObject& object = snapshot.objects[snapshot.count++];
  object = {~std::uint64_t{0}, 0, info->dlpi_addr, 0};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_LOAD) {
      object.begin = std::min<std::uint64_t>(object.begin, object.bias + segment.p_vaddr);
      object.end = std::max<std::uint64_t>(object.end, object.bias + segment.p_vaddr + segment.p_memsz);
    } else if (segment.p_type == PT_GNU_EH_FRAME) {
      object.eh_frame_hdr = object.bias + segment.p_vaddr;
    }
  }
  object.begin &= ~std::uint64_t{0xfff};
  return 0;
}

}  // namespace

bool find_loaded(std::uint64_t address, LoadedObject& object) {
  const Snapshot* snapshot = current.load(std::memory_order_acquire);
  if (snapshot == nullptr) return false;
  for (std::size_t i = 0; i < snapshot->count; ++i) {
    const LoadedObject& candidate = snapshot->objects[i];
    if (address - candidate.begin < candidate.end - candidate.begin) {
      object = candidate;
      return true;
    }
  }
  return false;
}

bool is_program(const LoadedObject&) { return true; }  // its name does not say

[[gnu::constructor(101)]] void refresh_loaded() {
  const std::lock_guard hold(making);
  Snapshot& next = current.load() == &snapshots[0] ? snapshots[1] : snapshots[0];
  next.count = 0;
  dl_iterate_phdr(collect, &next);
  current.store(&next, std::memory_order_release);
}

#endif

}  // namespace windlass::walk
