#include "walk/own/never_unloaded.h"

#include <link.h>
#include <sys/auxv.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string_view>

namespace windlass::walk {
namespace {

constexpr std::size_t kMaxNeverUnloaded = 256;
std::uint64_t never_unloaded[kMaxNeverUnloaded];
std::atomic<std::size_t> never_unloaded_count = 0;

struct Candidate {
  std::uint64_t begin = ~std::uint64_t{0};
  std::uint64_t end = 0;
  std::uint64_t bias = 0;
  std::string_view name;  // without directories
  std::string_view soname;
  const ElfW(Dyn) * dynamic = nullptr;
  const char* strings = nullptr;
  bool reached = false;
};

struct Candidates {
  Candidate list[kMaxNeverUnloaded];
  std::size_t count = 0;
};

int collect(dl_phdr_info* info, std::size_t, void* context) {
  auto& all = *static_cast<Candidates*>(context);
  if (all.count == kMaxNeverUnloaded) return 1;
  Candidate& c = all.list[all.count++];
  c.bias = info->dlpi_addr;
  const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  c.name = path.substr(path.rfind('/') + 1);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_LOAD) {
      c.begin = std::min<std::uint64_t>(c.begin, c.bias + segment.p_vaddr);
      c.end = std::max<std::uint64_t>(c.end, c.bias + segment.p_vaddr + segment.p_memsz);
    } else if (segment.p_type == PT_DYNAMIC) {
      c.dynamic = reinterpret_cast<const ElfW(Dyn)*>(c.bias + segment.p_vaddr);
    }
  }
  c.begin &= ~std::uint64_t{0xfff};
  std::uint64_t soname = 0;
  std::uint64_t strings = 0;
  for (const auto* d = c.dynamic; d != nullptr && d->d_tag != DT_NULL; ++d) {
    if (d->d_tag == DT_SONAME) soname = d->d_un.d_val + 1;
    if (d->d_tag == DT_STRTAB) strings = d->d_un.d_ptr;
  }
  if (strings == 0) return 0;
  if (strings < c.begin) strings += c.bias;  // glibc has relocated it, musl and the vdso's have not
  if (strings < c.begin || strings >= c.end) return 0;
  c.strings = reinterpret_cast<const char*>(strings);
  if (soname != 0) c.soname = c.strings + (soname - 1);
  return 0;
}

void reach(Candidates& all, Candidate& from) {
  if (from.reached) return;
  from.reached = true;
  const std::size_t count = never_unloaded_count.load(std::memory_order_relaxed);
  never_unloaded[count] = from.begin;
  never_unloaded_count.store(count + 1, std::memory_order_release);
  if (from.strings == nullptr) return;
  for (const auto* d = from.dynamic; d != nullptr && d->d_tag != DT_NULL; ++d) {
    if (d->d_tag != DT_NEEDED) continue;
    std::string_view wanted = from.strings + d->d_un.d_val;
    wanted = wanted.substr(wanted.rfind('/') + 1);
    for (std::size_t i = 0; i < all.count; ++i) {
      Candidate& c = all.list[i];
      if (wanted == c.soname || wanted == c.name) {
        reach(all, c);
        break;
      }
    }
  }
}

}  // namespace

[[gnu::constructor(101)]] void find_never_unloaded() {
  if (never_unloaded_count.load(std::memory_order_relaxed) != 0) return;
  Candidates all;
  dl_iterate_phdr(collect, &all);
  const std::uint64_t roots[] = {getauxval(AT_ENTRY), reinterpret_cast<std::uint64_t>(&find_never_unloaded),
                                 getauxval(AT_BASE), getauxval(AT_SYSINFO_EHDR)};
  for (std::size_t i = 0; i < all.count; ++i) {
    Candidate& c = all.list[i];
    if (std::any_of(std::begin(roots), std::end(roots), [&](auto r) { return r - c.begin < c.end - c.begin; }))
      reach(all, c);
  }
}

[[gnu::hot]] bool is_never_unloaded(std::uint64_t begin) {
  const std::size_t count = never_unloaded_count.load(std::memory_order_acquire);
  return std::find(never_unloaded, never_unloaded + count, begin) != never_unloaded + count;
}

}  // namespace windlass::walk
