#include "walk/target/process_memory.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include <sys/uio.h>

namespace windlass::walk {

ProcessMemory::ProcessMemory(pid_t pid)
    : pid_(pid), bytes_(std::make_unique_for_overwrite<std::byte[]>(kSlots * kPage)) {
  slots_.reserve(kSlots);
}

void ProcessMemory::forget() {
  const std::lock_guard hold(lock_);
  expected_.clear();
  for (const Slot& slot : slots_)
    if (slot.used && slot.readable) expected_.push_back(slot.page);
  clear();
  file_.reset();
}

void ProcessMemory::expect(std::uint64_t address) {
  const std::lock_guard hold(lock_);
  expected_.push_back(address / kPage);
}

bool ProcessMemory::read_directly(std::uint64_t address, void* to, std::size_t size) const {
  ++system_calls_;
  if (os::read_memory(pid_, address, to, size)) return true;
  // Execute-only code, or a kernel without process_vm_readv.
  if (file_ == nullptr) file_ = std::make_unique<os::MemoryFile>(pid_);
  if (!*file_) return false;
  ++system_calls_;
  return file_->read(address, to, size);
}

// ---- the pages ------------------------------------------------------------------------------------------------------

ProcessMemory::Slot* ProcessMemory::find(std::uint64_t number) const {
  for (std::size_t at = number * 0x9e37'79b9'7f4a'7c15 >> 40;; ++at) {
    const std::uint16_t slot = index_[at % kIndex];
    if (slot == 0) return nullptr;
    if (slots_[slot - 1U].page == number) return &slots_[slot - 1U];
  }
}

// Its bytes are behind those of all others.
void ProcessMemory::add(std::uint64_t number, bool readable) const {
  slots_.push_back({number, readable});
  std::size_t at = number * 0x9e37'79b9'7f4a'7c15 >> 40;
  while (index_[at % kIndex] != 0) ++at;
  index_[at % kIndex] = static_cast<std::uint16_t>(slots_.size());
}

void ProcessMemory::clear() const {
  slots_.clear();
  index_.fill(0);
}

// Ascending ones, none of which is there, as far as they can be read: how many. One system call.
std::size_t ProcessMemory::read_pages(const std::uint64_t* numbers, std::size_t count) const {
  iovec remote[IOV_MAX];
  static_assert(kMostExpected <= IOV_MAX);
  std::size_t runs = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (i == 0 || numbers[i] != numbers[i - 1] + 1)
      remote[runs++] = {reinterpret_cast<void*>(numbers[i] * kPage), kPage};
    else
      remote[runs - 1].iov_len += kPage;
  }
  ++system_calls_;
  const ssize_t got = os::read_ranges(pid_, {remote, runs}, {bytes_of(slots_.size()), count * kPage});
  const std::size_t pages = got > 0 ? static_cast<std::size_t>(got) / kPage : 0;
  for (std::size_t i = 0; i < pages; ++i) add(numbers[i], true);
  return pages;
}

// The page and those behind it as far as they can be read.
void ProcessMemory::fetch(std::uint64_t number) const {
  if (slots_.size() + kAhead > kSlots) clear();
  std::uint64_t numbers[kAhead] = {number};
  std::size_t count = 1;
  for (; count < kAhead && number + count < kPages && find(number + count) == nullptr; ++count)
    numbers[count] = number + count;
  if (read_pages(numbers, count) == 0) add(number, read_directly(number * kPage, bytes_of(slots_.size()), kPage));
}

void ProcessMemory::fetch_expected() const {
  std::ranges::sort(expected_);
  expected_.erase(std::ranges::unique(expected_).begin(), expected_.end());
  std::erase_if(expected_, [&](std::uint64_t page) { return find(page) != nullptr; });
  if (expected_.size() > kMostExpected) expected_.resize(kMostExpected);
  if (slots_.size() + expected_.size() > kSlots) clear();
  unsigned unreadable = 0;
  for (std::size_t at = 0; at < expected_.size() && unreadable < kMostUnreadable; ++unreadable)
    at += read_pages(&expected_[at], expected_.size() - at) + 1;
  expected_.clear();
}

const std::byte* ProcessMemory::page(std::uint64_t number) const {
  Slot* slot = find(number);
  if (slot == nullptr && !expected_.empty()) {
    fetch_expected();
    slot = find(number);
  }
  if (slot == nullptr) {
    fetch(number);
    slot = find(number);
  }
  slot->used = true;
  return slot->readable ? bytes_of(static_cast<std::size_t>(slot - slots_.data())) : nullptr;
}

bool ProcessMemory::read(std::uint64_t address, void* to, std::size_t size) const {
  if (size == 0) return true;
  if (address > ~std::uint64_t{0} - size) return false;
  const std::lock_guard hold(lock_);
  if (size > kSlots * kPage / 16) return read_directly(address, to, size);
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
