#include "cli/child_answer.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "os/readers.h"

namespace windlass::cli {
namespace {

using Clock = std::chrono::steady_clock;

// An answer may touch 100 MB within half a second, and small pages would take a quarter of that. So the heap of this
// process has large ones, in a room that is not touched as a whole, and keeps what is freed.
void take_large_pages() {
#ifdef __GLIBC__
  constexpr std::size_t kRoom = std::size_t{256} << 20, kLarge = std::size_t{2} << 20;
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, kRoom);
  const auto begin = reinterpret_cast<std::uintptr_t>(sbrk(0));
  void* volatile moves_end = std::malloc(kLarge);  // unless the heap has so much
  std::free(moves_end);
  const auto end = reinterpret_cast<std::uintptr_t>(sbrk(0));
  const std::uintptr_t first = (begin + kLarge - 1) / kLarge * kLarge;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
  mallopt(M_TOP_PAD, kLarge);
#endif
}

[[noreturn]] void work_it_out(const std::function<WorkedOut()>& work, int pipe, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);  // it ended before
  os::use_readers(nullptr);           // The readers answer the parent. This process may itself be left behind.
  // The browsers' connections would stay open here.
  dup2(pipe, STDERR_FILENO + 1);
  close_range(STDERR_FILENO + 2, ~0U, 0);
  take_large_pages();
  WorkedOut answer = work();
  answer.text += answer.good ? '+' : '-';
  for (std::size_t put = 0; put < answer.text.size();) {
    const ssize_t n = write(STDERR_FILENO + 1, answer.text.data() + put, answer.text.size() - put);
    if (n <= 0) break;
    put += static_cast<std::size_t>(n);
  }
  _exit(0);
}

}  // namespace

Expected<ChildAnswer> ChildAnswer::start(const std::function<WorkedOut()>& work, ChildLimits limits) {
  std::array<int, 2> ends{};
  const auto refused = [](const char* what) {
    return fail(ErrorCode::kSystem, what, 0, static_cast<std::uint64_t>(errno));
  };
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return refused("cannot make a pipe");
  os::Descriptor from(ends[0]), to(ends[1]);
  const pid_t parent = getpid(), child = fork();
  if (child < 0) return refused("cannot start a process");
  if (child == 0) work_it_out(work, to.get(), parent);
  fcntl(from.get(), F_SETFL, O_NONBLOCK);
  return ChildAnswer(child, std::move(from), limits);
}

ChildAnswer::ChildAnswer(pid_t child, os::Descriptor pipe, ChildLimits limits)
    : child_(child), pipe_(std::move(pipe)), limits_(limits), until_(Clock::now() + limits.patience) {}

ChildAnswer::ChildAnswer(ChildAnswer&& other) noexcept
    : child_(std::exchange(other.child_, -1)),
      pipe_(std::move(other.pipe_)),
      limits_(other.limits_),
      until_(other.until_),
      bytes_(std::move(other.bytes_)),
      late_(other.late_) {}

// A process that waits for a file server does not end before that answers, killed or not. So it is not waited for long.
ChildAnswer::~ChildAnswer() {
  if (child_ <= 0) return;
  kill(child_, SIGKILL);
  for (int i = 0; i < 50 && waitpid(child_, nullptr, WNOHANG) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

bool ChildAnswer::go_on() {
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t got = read(pipe_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      late_ = Clock::now() > until_;
      return !late_;
    }
    if (got <= 0) return false;
    bytes_.append(buffer.data(), static_cast<std::size_t>(got));
    if (bytes_.size() > limits_.most_bytes) return false;
  }
}

WorkedOut ChildAnswer::answer() const {
  if (late_)
    return {.text = fmt::format("This takes more than {} s here.{}", limits_.patience.count(), limits_.way_out)};
  if (bytes_.size() > limits_.most_bytes)
    return {.text = fmt::format("This is more than {} MiB.{}", limits_.most_bytes >> 20, limits_.way_out)};
  if (!bytes_.ends_with('+') && !bytes_.ends_with('-')) return {.text = "The process that works this out crashed."};
  return {.good = bytes_.back() == '+', .text = bytes_.substr(0, bytes_.size() - 1)};
}

}  // namespace windlass::cli
