#include "jit/registries/windows/heap.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/static_mutex.h"
#include "jit/thunk.h"

namespace windlass::registries {
namespace {

constexpr std::uint64_t kPage = 0x1000, kGranularity = 0x10000;  // of reservations

constexpr std::uint64_t align(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

MEMORY_BASIC_INFORMATION region_at(std::uint64_t address) {
  MEMORY_BASIC_INFORMATION region{};
  if (VirtualQuery(reinterpret_cast<const void*>(address), &region, sizeof region) == 0) return {};
  return region;
}
std::uint64_t end_of(const MEMORY_BASIC_INFORMATION& region) {
  return reinterpret_cast<std::uint64_t>(region.BaseAddress) + region.RegionSize;
}

// The heaps of all registrars of the process.
struct Claims {
  StaticMutex lock;
  std::map<std::uint64_t, std::uint64_t> heaps;  // begin to end
};
Claims& claims() {
  static auto& all = *new Claims;
  return all;
}

std::span<const std::byte> code_of(const GeneratedFunction& function) {
  return {reinterpret_cast<const std::byte*>(function.address), function.size};
}

}  // namespace

// ---- memory ---------------------------------------------------------------------------------------------------------

Room::~Room() {
  for (const std::uint64_t address : reservations_) VirtualFree(reinterpret_cast<void*>(address), 0, MEM_RELEASE);
}

Expected<std::uint64_t> Room::reserve(std::size_t size) {
  for (std::uint64_t at = align(from_, kGranularity); at + size <= end_;) {
    const MEMORY_BASIC_INFORMATION region = region_at(at);
    if (region.RegionSize == 0) break;
    if (region.State == MEM_FREE && end_of(region) >= at + size &&
        VirtualAlloc(reinterpret_cast<void*>(at), size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE) != nullptr) {
      reservations_.push_back(at);
      return at;
    }
    at = align(std::max(end_of(region), at + 1), kGranularity);
  }
  return fail(ErrorCode::kLimit, "no memory behind the heap for unwind information, within 4 GiB of its begin", from_,
              size);
}

Expected<std::uint64_t> Room::take(std::size_t size) {
  size = align(size, 16);
  auto hole = std::ranges::find_if(free_, [&](const auto& range) { return range.second - range.first >= size; });
  if (hole == free_.end()) {
    const std::uint64_t more = align(std::max<std::uint64_t>(size, 16 * kGranularity), kGranularity);
    const auto at = reserve(more);
    if (!at) return at;
    give_back(*at, more);
    hole = std::ranges::find_if(free_, [&](const auto& range) { return range.second - range.first >= size; });
  }
  const auto [begin, end] = *hole;
  free_.erase(hole);
  if (begin + size < end) free_[begin + size] = end;
  return begin;
}

void Room::give_back(std::uint64_t address, std::size_t size) {
  if (size == 0) return;
  std::uint64_t end = address + align(size, 16);
  auto next = free_.lower_bound(address);
  if (next != free_.end() && next->first == end) {
    end = next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin() && std::prev(next)->second == address)
    std::prev(next)->second = end;
  else
    free_[address] = end;
}

// Each in a page of its own, as a page that others execute is not written again. Handlers are few.
Expected<std::uint64_t> Room::thunk(std::uint64_t target) {
  if (const auto known = thunks_.find(target); known != thunks_.end()) return known->second;
  if (next_thunk_ == thunks_end_) {
    const auto pages = reserve(kGranularity);
    if (!pages) return pages;
    next_thunk_ = *pages;
    thunks_end_ = *pages + kGranularity;
  }
  std::vector<std::byte> bytes;
  heap::append_thunk(bytes, Architecture::kX86_64, target);
  auto* const page = reinterpret_cast<void*>(next_thunk_);
  std::memcpy(page, bytes.data(), bytes.size());
  DWORD before = 0;
  if (VirtualProtect(page, kPage, PAGE_EXECUTE_READ, &before) == 0)
    return fail(ErrorCode::kSystem, "the system does not let a handler's thunk be executed", next_thunk_,
                GetLastError());
  FlushInstructionCache(GetCurrentProcess(), page, bytes.size());
  thunks_[target] = next_thunk_;
  next_thunk_ += kPage;
  return thunks_[target];
}

// ---- heaps ----------------------------------------------------------------------------------------------------------

HeapRegistrar::~HeapRegistrar() {
  if (!claimed_) return;
  const std::lock_guard guard(claims().lock);
  claims().heaps.erase(begin_);
}

Expected<void> HeapRegistrar::claim() {
  if (begin_ == 0 || begin_ >= end_ || begin_ % 4 != 0)
    return fail(ErrorCode::kMalformed, "a heap's begin and end, at multiples of 4, are wanted as options", begin_,
                end_);
  if (end_ - begin_ > 0xfffe'0000)
    return fail(ErrorCode::kOutOfRange, "a heap that leaves no room for unwind information within 4 GiB", begin_, end_);
  for (std::uint64_t at = begin_; at < end_;) {
    const MEMORY_BASIC_INFORMATION region = region_at(at);
    if (region.RegionSize == 0 || region.State == MEM_FREE)
      return fail(ErrorCode::kMalformed, "a heap that is not reserved", at, end_);
    if (region.Type == MEM_IMAGE)
      return fail(ErrorCode::kMalformed, "a heap in a loaded image, whose own function table is asked first", at, end_);
    at = end_of(region);
  }
  const std::lock_guard guard(claims().lock);
  auto& heaps = claims().heaps;
  const auto next = heaps.lower_bound(begin_);
  if (next != heaps.end() && next->first < end_)
    return fail(ErrorCode::kMalformed, "another registrar has code of this heap", next->first, begin_);
  if (next != heaps.begin() && std::prev(next)->second > begin_)
    return fail(ErrorCode::kMalformed, "another registrar has code of this heap", std::prev(next)->first, begin_);
  heaps[begin_] = end_;
  claimed_ = true;
  return {};
}

Expected<void> HeapRegistrar::check_code(std::span<const Run> runs) const {
  constexpr DWORD kExecutable = PAGE_EXECUTE | PAGE_EXECUTE_READ | PAGE_EXECUTE_READWRITE | PAGE_EXECUTE_WRITECOPY;
  std::uint64_t known = 0;  // executable up to here, from the last run's begin on
  for (const Run& run : runs) {
    if (run.begin < begin_ || run.end > end_)
      return fail(ErrorCode::kOutOfRange, "a function outside of the registrar's heap", run.begin, run.end);
    for (std::uint64_t at = std::max(run.begin, known); at < run.end; at = known) {
      const MEMORY_BASIC_INFORMATION region = region_at(at);
      if (region.State != MEM_COMMIT || (region.Protect & kExecutable) == 0)
        return fail(ErrorCode::kMalformed, "code that is not executable", at, run.begin);
      known = end_of(region);
    }
  }
  return {};
}

Expected<void> HeapRegistrar::write_one(const Function& function, std::uint64_t base, winx64::Writer& writer) {
  const GeneratedFunction& given = *function.given;
  const auto rva = static_cast<std::uint32_t>(function.begin() - base);
  const auto code = code_of(given);
  if (given.prologue == nullptr)
    return fail(ErrorCode::kUnsupported, "Windows' tables are written of prologues, not of rows", function.begin());
  if (given.personality == 0) {
    if (given.prologue->handler)
      return fail(ErrorCode::kMalformed, "a handler without a personality", function.begin());
    return writer.add(*given.prologue, rva, code);
  }
  const auto thunk = room_.thunk(given.personality);
  if (!thunk) return Failure(thunk.error());
  Prologue handled = *given.prologue;
  if (!handled.handler) handled.handler.emplace();
  handled.handler->rva = static_cast<std::uint32_t>(*thunk - base);
  return writer.add(handled, rva, code);
}

void HeapRegistrar::advise(std::span<const Function> functions) const {
  if (handler_not_asked_ == nullptr) return;
  for (const Function& function : functions) {
    const GeneratedFunction& given = *function.given;
    if (given.personality == 0) continue;
    Prologue handled = *given.prologue;
    if (!handled.handler) handled.handler.emplace();
    for (const std::uint32_t at : winx64::handlers_not_asked(handled, code_of(given)))
      handler_not_asked_(given.address + at, context_);
  }
}

Expected<TableEntries> HeapRegistrar::write(std::span<const Function> functions, std::uint64_t base) {
  // A guess at first: the bytes name where they stand, and equal ones are shared.
  for (std::size_t size = 64 * functions.size();;) {
    const auto at = room_.take(size);
    if (!at) return Failure(at.error());
    winx64::Writer writer({.info = static_cast<std::uint32_t>(*at - base)});
    for (const Function& function : functions)
      if (const auto ok = write_one(function, base, writer); !ok) {
        room_.give_back(*at, size);
        return Failure(ok.error());
      }
    const winx64::Written written = std::move(writer).take();
    if (written.bytes.size() > size) {
      room_.give_back(*at, size);
      size = written.bytes.size();
      continue;
    }
    TableEntries out{.entries = {}, .info = *at, .info_size = align(written.bytes.size(), 16)};
    room_.give_back(*at + out.info_size, align(size, 16) - out.info_size);
    std::memcpy(reinterpret_cast<void*>(*at), written.bytes.data(), written.bytes.size());
    out.entries.reserve(written.entries.size());
    for (const winx64::RuntimeFunction& entry : written.entries)
      out.entries.push_back({entry.begin, entry.end, {entry.info}});
    advise(functions);
    return out;
  }
}

Expected<void> check_found(const TableEntries& written, std::uint64_t base) {
  if (written.entries.empty()) return {};
  const RUNTIME_FUNCTION& wanted = written.entries.front();
  DWORD64 image = 0;
  const RUNTIME_FUNCTION* found = RtlLookupFunctionEntry(base + wanted.BeginAddress, &image, nullptr);
  if (found != nullptr && image == base && found->UnwindData == wanted.UnwindData) return {};
  return fail(ErrorCode::kMalformed, "a function table of somebody else's answers for this code",
              base + wanted.BeginAddress, image);
}

}  // namespace windlass::registries
