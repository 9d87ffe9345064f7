#include "os/process_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/monotonic.h"
#include "os/living_thread.h"
#include "os/readers.h"

namespace windlass::os {

namespace {

ssize_t read_by_thread(pid_t pid, std::span<const iovec> from, std::span<std::byte> to) {
  if (readers() != nullptr && pid != ::getpid()) {
    const ssize_t got = readers()->memory(pid, from, to);
    // Yama lets a process's ancestors read it alone, and a reader is none.
    if (got >= 0 || errno != EPERM) return got;
  }
  const iovec local{to.data(), to.size()};
  return ::process_vm_readv(pid, &local, 1, from.data(), from.size(), 0);
}

}  // namespace

ssize_t read_ranges(pid_t pid, std::span<const iovec> from, std::span<std::byte> to) {
  const ssize_t got = read_by_thread(pid, from, to);
  if (got >= 0 || errno != ESRCH) return got;
  const pid_t thread = living_thread(pid);
  return thread != pid ? read_by_thread(thread, from, to) : got;
}

bool read_memory(pid_t pid, std::uint64_t address, void* to, std::size_t size) {
  const iovec remote{reinterpret_cast<void*>(address), size};
  return read_ranges(pid, {&remote, 1}, {static_cast<std::byte*>(to), size}) == static_cast<ssize_t>(size);
}

namespace {

Descriptor open_memory(pid_t pid) {
  const std::string path = fmt::format("/proc/{}/mem", living_thread(pid));
  if (readers() != nullptr && pid != ::getpid()) {
    Descriptor file = readers()->open(path);
    if (file || (errno != EPERM && errno != EACCES)) return file;
  }
  return Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

}  // namespace

// A request to a reader process costs far more than the reading. So the first page of a moment is requested together
// with the pages that were used in the moment before. All are kept as long as the moment lasts. One thread.
class MemoryFile::Batches {
 public:
  Batches(int file, std::string subject, std::uint64_t moment)
      : file_(file), subject_(std::move(subject)), moment_(moment) {}

  void set_time(std::uint64_t time) { needed_ = std::max(needed_, time); }
  // Null where it cannot be read.
  const std::byte* page(std::uint64_t number) {
    if (!pages_.empty() && (begun_ < needed_ || monotonic_ns() - begun_ > moment_)) next_moment();
    auto known = pages_.find(number);
    if (known == pages_.end()) {
      if (pages_.size() + 1 + expected_.size() > kMostPages) next_moment();
      if (pages_.empty()) begun_ = monotonic_ns();
      fetch(number);
      known = pages_.find(number);
    }
    known->second.used = true;
    return known->second.bytes;
  }

 private:
  static constexpr std::size_t kMostPages = 512, kMostExpected = 20;
  struct Page {
    const std::byte* bytes;  // in bytes_; null: it cannot be read
    bool used;
  };

  void next_moment() {
    expected_.clear();
    for (const auto& [number, page] : pages_)
      if (page.used && page.bytes != nullptr && expected_.size() < kMostExpected) expected_.push_back(number);
    pages_.clear();
    bytes_.clear();
  }
  void fetch(std::uint64_t number) {
    std::erase(expected_, number);
    expected_.insert(expected_.begin(), number);
    auto& bytes = bytes_.emplace_back(expected_.size() * kReaderPage);
    const std::uint64_t got = readers()->pages(file_, subject_, expected_, bytes);
    for (std::size_t i = 0; i < expected_.size(); ++i)
      pages_[expected_[i]] = {(got >> i & 1) != 0 ? bytes.data() + i * kReaderPage : nullptr, false};
    expected_.clear();
  }

  int file_;
  std::string subject_;
  std::uint64_t moment_;                           // ns
  std::uint64_t begun_ = 0, needed_ = 0;           // when the moment began, and when it may begin at the earliest
  std::unordered_map<std::uint64_t, Page> pages_;  // by number
  std::vector<std::vector<std::byte>> bytes_;      // of each request
  std::vector<std::uint64_t> expected_;            // numbers
};

MemoryFile::MemoryFile(pid_t pid, std::uint64_t moment) : pid_(pid), file_(open_memory(pid)) {
  if (readers() != nullptr && pid != ::getpid())
    batches_ = std::make_unique<Batches>(file_.get(), fmt::format("/proc/{}/mem", pid), moment);
}
MemoryFile::~MemoryFile() = default;

void MemoryFile::set_time(std::uint64_t time) const {
  if (batches_ != nullptr) batches_->set_time(time);
}

bool MemoryFile::read_by_readers(std::uint64_t address, std::span<std::byte> to) const {
  if (to.size() > kReaderPage)
    return readers()->read_at(file_.get(), fmt::format("/proc/{}/mem", pid_), address, to) ==
           static_cast<ssize_t>(to.size());
  while (!to.empty()) {
    const std::byte* page = batches_->page(address / kReaderPage);
    if (page == nullptr) return false;
    const std::size_t piece = std::min<std::size_t>(to.size(), kReaderPage - address % kReaderPage);
    std::memcpy(to.data(), page + address % kReaderPage, piece);
    address += piece;
    to = to.subspan(piece);
  }
  return true;
}

bool MemoryFile::read(std::uint64_t address, void* to, std::size_t size) const {
  if (!file_ || address > static_cast<std::uint64_t>(INT64_MAX)) return size == 0;
  if (batches_ != nullptr) return read_by_readers(address, {static_cast<std::byte*>(to), size});
  return ::pread(file_.get(), to, size, static_cast<off_t>(address)) == static_cast<ssize_t>(size);
}

}  // namespace windlass::os
