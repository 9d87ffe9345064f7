#include "walk/target/process_memory.h"

#include <algorithm>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include "process/process_memory.h"

namespace windlass::walk {

ProcessMemory::ProcessMemory(pid_t pid)
    : pid_(pid), bytes_(std::make_unique_for_overwrite<std::byte[]>(kSlots * kPage)) {}

ProcessMemory::~ProcessMemory() {
  if (file_ >= 0) ::close(file_);
}

void ProcessMemory::forget() {
  const std::lock_guard hold(lock_);
  slots_.fill({});
  if (file_ >= 0) ::close(file_);
  file_ = kNotOpened;
}

bool ProcessMemory::read_directly(std::uint64_t address, void* to, std::size_t size) const {
  ++system_calls_;
  if (process::read_memory(pid_, address, to, size)) return true;
  // Execute-only code, or a kernel without process_vm_readv.
  if (file_ == kNotOpened) file_ = ::open(fmt::format("/proc/{}/mem", pid_).c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0 || address > static_cast<std::uint64_t>(INT64_MAX)) return false;
  ++system_calls_;
  return ::pread(file_, to, size, static_cast<off_t>(address)) == static_cast<ssize_t>(size);
}

// Fills the slot of `number`, and those of the pages behind it as far as they can be read.
void ProcessMemory::fetch(std::uint64_t number) const {
  iovec local[kAhead];
  iovec remote[kAhead];
  const std::size_t count = std::min<std::uint64_t>(kAhead, (kEmpty / kPage) - number);
  for (std::size_t i = 0; i < count; ++i) {
    local[i] = {bytes_.get() + (number + i) % kSlots * kPage, kPage};
    remote[i] = {reinterpret_cast<void*>((number + i) * kPage), kPage};
    // Whatever was there is overwritten, perhaps in part.
    slots_[(number + i) % kSlots] = {};
  }
  ++system_calls_;
  // It stops at the first page that cannot be read.
  const ssize_t got = ::process_vm_readv(pid_, local, count, remote, count, 0);
  const std::size_t pages = got > 0 ? static_cast<std::size_t>(got) / kPage : 0;
  for (std::size_t i = 0; i < pages; ++i) slots_[(number + i) % kSlots] = {number + i, true};
  if (pages == 0)
    slots_[number % kSlots] = {number, read_directly(number * kPage, bytes_.get() + number % kSlots * kPage, kPage)};
}

const std::byte* ProcessMemory::page(std::uint64_t number) const {
  const Slot& slot = slots_[number % kSlots];
  if (slot.page != number) fetch(number);
  return slot.readable ? bytes_.get() + number % kSlots * kPage : nullptr;
}

bool ProcessMemory::read(std::uint64_t address, void* to, std::size_t size) const {
  if (size == 0) return true;
  if (address > kEmpty - size) return false;
  const std::lock_guard hold(lock_);
  if (size > kSlots * kPage / 4) return read_directly(address, to, size);
  for (auto* out = static_cast<std::byte*>(to); size > 0;) {
    const std::byte* bytes = page(address / kPage);
    if (bytes == nullptr) return false;
    const std::size_t piece = std::min<std::size_t>(size, kPage - address % kPage);
    std::memcpy(out, bytes + address % kPage, piece);
    out += piece;
    address += piece;
    size -= piece;
  }
  return true;
}

}  // namespace windlass::walk
