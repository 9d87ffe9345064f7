#include "os/reader_process.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/monotonic.h"
#include "os/proc_file.h"
#include "os/reader_protocol.h"
#include "os/reader_rights.h"

namespace windlass::os {
namespace {

constexpr std::size_t kLargestCopy = std::size_t{512} << 20;
constexpr std::size_t kMostCopies = 16;  // that a reader keeps
constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::uint64_t kWorkingInterval = 50'000'000;  // between two messages that bytes are arriving

// ---- which files never block ----------------------------------------------------------------------------------------

// File systems whose bytes are in memory or on a block device.
bool is_local_type(long type) {
  constexpr long kLocal[] = {EXT4_SUPER_MAGIC,  XFS_SUPER_MAGIC,      BTRFS_SUPER_MAGIC,    TMPFS_MAGIC,
                             RAMFS_MAGIC,       HUGETLBFS_MAGIC,      SQUASHFS_MAGIC,       F2FS_SUPER_MAGIC,
                             ISOFS_SUPER_MAGIC, MSDOS_SUPER_MAGIC,    EXFAT_SUPER_MAGIC,    EROFS_SUPER_MAGIC_V1,
                             PROC_SUPER_MAGIC,  REISERFS_SUPER_MAGIC, 0x2fc12fc1 /* ZFS */, 0xca451a4e /* bcachefs */};
  return std::ranges::find(kLocal, type) != std::end(kLocal);
}

// An overlay's layers may be anywhere: it is trusted where it is mounted for the reader, too, and so by the system.
bool is_mounted_here(dev_t device, std::string_view type) {
  const std::string mounts = read_proc_file("/proc/self/mountinfo");
  const std::string number = fmt::format(" {}:{} ", major(device), minor(device));
  const std::string name = fmt::format(" - {} ", type);
  for (std::size_t at = 0; at < mounts.size();) {
    const std::size_t end = std::min(mounts.find('\n', at), mounts.size());
    const std::string_view line = std::string_view(mounts).substr(at, end - at);
    if (line.find(number) != std::string_view::npos && line.find(name) != std::string_view::npos) return true;
    at = end + 1;
  }
  return false;
}

bool is_local(int file, const struct stat& status) {
  struct statfs system {};
  if (::fstatfs(file, &system) != 0) return false;
  if (system.f_type == OVERLAYFS_SUPER_MAGIC) return is_mounted_here(status.st_dev, "overlay");
  return is_local_type(static_cast<long>(system.f_type));
}

// Bytes that are not zeroed before they are written.
class Buffer {
 public:
  void clear() { size_ = 0; }
  // What it held is lost.
  std::span<std::byte> make(std::size_t size) {
    if (size > room_) {
      bytes_ = std::make_unique_for_overwrite<std::byte[]>(size);
      room_ = size;
    }
    size_ = size;
    return {bytes_.get(), size};
  }
  void shrink(ssize_t size) { size_ = size > 0 ? static_cast<std::size_t>(size) : 0; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t room_ = 0, size_ = 0;
};

// ---- one reader -----------------------------------------------------------------------------------------------------

class Reader {
 public:
  explicit Reader(int socket) : socket_(socket) {}

  [[noreturn]] void run() {
    say_who();
    keep_rights_of_reader();
    for (;;) {
      ReaderRequest request;
      Descriptor file;
      if (!receive(std::as_writable_bytes(std::span(&request, 1)), file) || request.follows > kMostRequest) _exit(0);
      std::string rest(request.follows, '\0');
      Descriptor none;
      if (!receive(std::as_writable_bytes(std::span(rest)), none)) _exit(0);
      text_.clear();
      bytes_.clear();
      ReaderAnswer answer;
      errno = 0;
      const Descriptor opened = perform(request, file, rest, answer);
      const auto follows = !text_.empty() ? std::as_bytes(std::span(text_)) : bytes_.bytes();
      answer.follows = follows.size();
      if (!send_message(socket_, std::as_bytes(std::span(&answer, 1)), follows, opened.get())) _exit(0);
    }
  }

 private:
  bool receive(std::span<std::byte> to, Descriptor& file) {
    while (!to.empty()) {
      const ssize_t got = receive_some(socket_, to, {}, file, 0);
      if (got <= 0) return false;
      to = to.subspan(static_cast<std::size_t>(got));
    }
    return true;
  }

  // What it opened, to be handed over.
  Descriptor perform(const ReaderRequest& request, const Descriptor& file, const std::string& rest,
                     ReaderAnswer& answer) {
    const int folder = file ? file.get() : AT_FDCWD;
    switch (request.call) {
      case ReaderCall::kOpenRegular:
      case ReaderCall::kOpenGrowing: return open_regular(folder, rest, request, answer);
      case ReaderCall::kOpen: {
        Descriptor opened(::openat(folder, rest.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
        if (!opened) answer.error = errno;
        return opened;
      }
      case ReaderCall::kStatus:
        if (::fstatat(folder, rest.c_str(), &answer.status, 0) != 0) answer.error = errno;
        return {};
      case ReaderCall::kFileStatus:
        if (::fstat(file.get(), &answer.status) != 0) answer.error = errno;
        return {};
      case ReaderCall::kText: read_text(file, folder, rest, request.size, answer); return {};
      case ReaderCall::kMemory: read_memory(request.pid, rest, answer); return {};
      case ReaderCall::kPages: read_pages(file, rest, answer); return {};
      case ReaderCall::kBytes: read_bytes(file, request, answer); return {};
    }
    answer.error = EINVAL;
    return {};
  }

  Descriptor open_regular(int folder, const std::string& path, const ReaderRequest& request, ReaderAnswer& answer) {
    Descriptor found;
    if (request.tells_reached) {
      found = Descriptor(::openat(folder, path.c_str(), O_PATH | O_CLOEXEC));
      if (found) say_working(true);
    }
    const std::string reached = found ? fmt::format("/proc/self/fd/{}", found.get()) : path;
    Descriptor opened(::openat(folder, reached.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!opened || ::fstat(opened.get(), &answer.status) != 0) {
      answer.error = errno;
      return {};
    }
    if (!S_ISREG(answer.status.st_mode)) {
      answer.error = ENODEV;
      return {};
    }
    answer.remote = !is_local(opened.get(), answer.status);
    if (!answer.remote || request.call == ReaderCall::kOpenGrowing) return opened;
    return copy_of(opened, answer);
  }

  // In memory, of a file whose own bytes may never come.
  Descriptor copy_of(const Descriptor& file, ReaderAnswer& answer) {
    const struct stat& now = answer.status;
    for (const Copy& copy : copies_)
      if (copy.of.st_dev == now.st_dev && copy.of.st_ino == now.st_ino && copy.of.st_size == now.st_size &&
          copy.of.st_mtim.tv_sec == now.st_mtim.tv_sec && copy.of.st_mtim.tv_nsec == now.st_mtim.tv_nsec)
        return Descriptor(::fcntl(copy.memory.get(), F_DUPFD_CLOEXEC, 0));
    Descriptor memory(::memfd_create("windlass-copy", MFD_CLOEXEC));
    answer.error = static_cast<std::size_t>(now.st_size) > kLargestCopy ? EFBIG : copy(file, memory);
    if (answer.error != 0) return {};
    copies_.push_back({now, Descriptor(::fcntl(memory.get(), F_DUPFD_CLOEXEC, 0))});
    if (copies_.size() > kMostCopies) copies_.pop_front();
    return memory;
  }

  // errno, or 0.
  int copy(const Descriptor& from, const Descriptor& to) {
    std::vector<char> piece(256 * 1024);
    std::uint64_t said = monotonic_ns();
    for (std::size_t done = 0; done < kLargestCopy;) {
      const ssize_t got = ::pread(from.get(), piece.data(), piece.size(), static_cast<off_t>(done));
      if (got < 0) return errno;
      if (got == 0) break;
      if (::write(to.get(), piece.data(), static_cast<std::size_t>(got)) != got) return errno != 0 ? errno : ENOSPC;
      done += static_cast<std::size_t>(got);
      if (monotonic_ns() < said + kWorkingInterval) continue;
      said = monotonic_ns();
      say_working(false);
    }
    return 0;
  }

  // So that it can be killed while it waits.
  void say_who() {
    const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    if (process) say_working(false, process.get());
  }

  void say_working(bool reached, int process = -1) {
    ReaderAnswer working;
    working.working = true;
    working.reached = reached;
    if (!send_message(socket_, std::as_bytes(std::span(&working, 1)), {}, process)) _exit(0);
  }

  void read_text(const Descriptor& file, int folder, const std::string& path, std::uint64_t size,
                 ReaderAnswer& answer) {
    const Descriptor opened(path.empty() ? -1 : ::openat(folder, path.c_str(), O_RDONLY | O_CLOEXEC));
    const int from = path.empty() ? file.get() : opened.get();
    if (from >= 0) text_ = read_proc_file(from, std::min<std::uint64_t>(size, kMostBytes));
    if (text_.empty()) answer.error = errno;
  }

  void read_memory(pid_t pid, const std::string& ranges, ReaderAnswer& answer) {
    iovec remote[IOV_MAX];
    const std::size_t count = std::min<std::size_t>(ranges.size() / sizeof(iovec), IOV_MAX);
    std::memcpy(remote, ranges.data(), count * sizeof(iovec));
    std::size_t size = 0;
    for (std::size_t i = 0; i < count; ++i) size += std::min(remote[i].iov_len, kMostBytes);
    const auto to = bytes_.make(std::min(size, kMostBytes));
    const iovec local{to.data(), to.size()};
    const ssize_t got = ::process_vm_readv(pid, &local, 1, remote, count, 0);
    if (got < 0) answer.error = errno;
    bytes_.shrink(got);
  }

  void read_pages(const Descriptor& file, const std::string& list, ReaderAnswer& answer) {
    std::uint64_t numbers[64];
    const std::size_t count = std::min<std::size_t>(list.size() / sizeof(std::uint64_t), 64);
    std::memcpy(numbers, list.data(), count * sizeof(std::uint64_t));
    const auto to = bytes_.make(count * kReaderPage);
    for (std::size_t i = 0; i < count; ++i) {
      const auto page = to.subspan(i * kReaderPage, kReaderPage);
      if (::pread(file.get(), page.data(), page.size(), static_cast<off_t>(numbers[i] * kReaderPage)) ==
          static_cast<ssize_t>(page.size()))
        answer.pages |= std::uint64_t{1} << i;
      else
        std::ranges::fill(page, std::byte{});
    }
  }

  void read_bytes(const Descriptor& file, const ReaderRequest& request, ReaderAnswer& answer) {
    const auto to = bytes_.make(std::min<std::uint64_t>(request.size, kMostBytes));
    const ssize_t got = ::pread(file.get(), to.data(), to.size(), static_cast<off_t>(request.offset));
    if (got < 0) answer.error = errno;
    bytes_.shrink(got);
  }

  struct Copy {
    struct stat of;
    Descriptor memory;
  };
  int socket_;
  std::string text_;  // follows the answer, or else these
  Buffer bytes_;
  std::deque<Copy> copies_;
};

// ---- the starter ----------------------------------------------------------------------------------------------------

constexpr int kFirstOther = 3;  // behind the standard files

// Nothing of the program's is held open, and no key pressed at its terminal is for this process.
int leave_the_program(int control) {
  ::setpgid(0, 0);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  ::signal(SIGCHLD, SIG_IGN);
  const int nothing = ::open("/dev/null", O_RDWR);
  for (int standard = 0; standard < kFirstOther; ++standard) ::dup2(nothing, standard);
  if (control != kFirstOther) ::dup2(control, kFirstOther);
  ::syscall(SYS_close_range, kFirstOther + 1, ~0U, 0);  // musl has no function for it
  ::prctl(PR_SET_NAME, "windlass-reader");
  return kFirstOther;
}

// The reader ends with its parent, even while it waits.
void end_with(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) _exit(0);
}

// They are a process group of their own. Nobody waits for those in a wait that no signal ends.
[[noreturn]] void end_with_readers() {
  if (::getpgrp() == ::getpid()) ::kill(0, SIGKILL);
  _exit(0);
}

}  // namespace

void run_reader(int socket, pid_t parent) {
  socket = leave_the_program(socket);
  end_with(parent);
  Reader(socket).run();
}

void run_reader_starter(int control) {
  control = leave_the_program(control);
  const pid_t self = ::getpid();
  for (;;) {
    StarterOrder order;
    Descriptor socket;
    if (receive_some(control, std::as_writable_bytes(std::span(&order, 1)), {}, socket, 0) != sizeof order)
      end_with_readers();
    if (order.kind == StarterOrder::kPriority) {
      (void)::setpriority(PRIO_PROCESS, 0, order.value);
    } else if (::fork() == 0) {
      end_with(self);
      ::close(control);
      Reader(socket.get()).run();
    }
  }
}

}  // namespace windlass::os
