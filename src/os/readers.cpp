#include "os/readers.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "base/monotonic.h"
#include "os/mapped_files.h"
#include "os/proc_file.h"
#include "os/reader_process.h"
#include "os/silent.h"

namespace windlass::os {
namespace {

constexpr std::size_t kMostLate = 64;

std::string device_subject(dev_t device) { return fmt::format("device {}:{}", major(device), minor(device)); }

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

bool send_order(int control, StarterOrder order, int socket) {
  return send_message(control, std::as_bytes(std::span(&order, 1)), {}, socket);
}

bool connect(Descriptor& ours, Descriptor& theirs) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  ours = Descriptor(ends[0]);
  theirs = Descriptor(ends[1]);
  return true;
}

OpenedRegular duplicate_of(const OpenedRegular& opened) {
  return {Descriptor(::fcntl(opened.file.get(), F_DUPFD_CLOEXEC, 0)), opened.status, opened.remote};
}

int milliseconds_until(std::uint64_t now, std::uint64_t time) {
  return now >= time ? 0 : static_cast<int>((time - now + 999'999) / 1'000'000);
}

}  // namespace

bool is_own(const std::string& path) {
  return path.starts_with("/proc/self/") || path.starts_with("/proc/thread-self/") ||
         path.starts_with(fmt::format("/proc/{}/", ::getpid()));
}

bool is_of_other(const std::string& path) {
  constexpr std::string_view kProc = "/proc/";
  return path.starts_with(kProc) && path.size() > kProc.size() && path[kProc.size()] >= '1' &&
         path[kProc.size()] <= '9' && !is_own(path);
}

std::string subject_of(const std::string& path) {
  constexpr std::string_view kProc = "/proc/";
  if (!path.starts_with(kProc)) return path;
  const std::size_t pid_end = path.find('/', kProc.size());
  return pid_end == std::string::npos ? path : path.substr(0, path.find('/', pid_end + 1));
}

// ---- starting -------------------------------------------------------------------------------------------------------

std::unique_ptr<Readers> Readers::start(ReaderTimes times) {
  std::unique_ptr<Readers> readers(new Readers(times));
  return readers->start_starter() ? std::move(readers) : nullptr;
}

std::unique_ptr<Readers> Readers::start_one(ReaderTimes times) {
  std::unique_ptr<Readers> readers(new Readers(times));
  Descriptor theirs;
  if (!connect(readers->current_, theirs)) return nullptr;
  readers->first_ = ::fork();
  if (readers->first_ == 0) run_reader(theirs.get(), readers->owner_);
  return readers->first_ > 0 ? std::move(readers) : nullptr;
}

Readers::Readers(ReaderTimes times) : owner_(::getpid()), times_(times) {}

// The end of the sockets is the end of the starter, and of all readers but one in a wait.
Readers::~Readers() {
  if (::getpid() != owner_) return;  // a child's copy
  current_ = Descriptor();
  left_.clear();
  control_ = Descriptor();
  if (first_ > 0) {
    (void)::kill(first_, SIGKILL);
    (void)::waitpid(first_, nullptr, WNOHANG);
  }
  while (starter_ > 0 && ::waitpid(starter_, nullptr, 0) < 0 && errno == EINTR) continue;
}

bool Readers::start_starter() {
  Descriptor ours, theirs;
  if (!connect(ours, theirs)) return false;
  const pid_t starter = ::fork();
  if (starter == 0) run_reader_starter(theirs.get());
  if (starter < 0) return false;
  starter_ = starter;
  control_ = std::move(ours);
  return true;
}

bool Readers::has_reader() {
  if (current_) return true;
  if (ending_.size() >= kMostEnding) return false;
  Descriptor ours, theirs;
  if ((starter_ == 0 && !start_starter()) || !connect(ours, theirs)) return false;
  if (!send_order(control_.get(), {}, theirs.get())) return false;
  current_ = std::move(ours);
  process_ = Descriptor();
  return true;
}

void Readers::set_priority(int value) {
  const std::lock_guard hold(lock_);
  (void)send_order(control_.get(), {StarterOrder::kPriority, value}, -1);
  current_ = Descriptor();  // the next one has it
}

void Readers::end_at(int stop, std::uint64_t time) {
  const std::lock_guard hold(lock_);
  stop_ = stop;
  end_ = time;
  hurried_ = false;
}

// ---- one call -------------------------------------------------------------------------------------------------------

Readers::Answer Readers::ask(ReaderRequest request, std::string_view follows, int file, const std::string& subject,
                             std::span<std::byte> to, const std::string& device) {
  const std::lock_guard hold(lock_);
  Answer answer;
  collect();
  // Which server a path is on matters once one is silent.
  if (!silent_.empty() && (silent(subject_at(subject)) || silent(device))) {
    answer.head.error = ETIMEDOUT;
    return answer;
  }
  request.follows = static_cast<std::uint32_t>(follows.size());
  if (follows.size() > kMostRequest || !has_reader()) {
    answer.head.error = EAGAIN;
    return answer;
  }
  Got got = Got::kGone;
  if (send_message(current_.get(), std::as_bytes(std::span(&request, 1)), bytes_of(follows), file))
    got = receive(answer, to);
  if (got == Got::kAnswer) return answer;
  const bool reached = answer.reached;
  answer = Answer();
  answer.head.error = got == Got::kTimeout ? ETIMEDOUT : EIO;
  const bool keeps = request.call == ReaderCall::kOpenRegular && file < 0;
  if (got == Got::kTimeout)
    leave_behind(reached ? device : subject_at(subject), keeps ? std::string(follows) : std::string());
  current_ = Descriptor();
  return answer;
}

// False: the deadline has passed.
bool Readers::wait_readable(std::uint64_t first, std::uint64_t& deadline, std::uint64_t latest) {
  for (;;) {
    const std::uint64_t now = monotonic_ns();
    if (!hurried_ && end_ != 0 && now >= end_) hurried_ = true;
    const auto hurry = static_cast<std::uint64_t>(times_.hurry.count());
    if (hurried_) deadline = std::min(deadline, std::max(now, first) + hurry);
    std::uint64_t until = std::min(deadline, latest);
    if (!hurried_ && end_ != 0) until = std::min(until, end_);
    pollfd wanted[2] = {{current_.get(), POLLIN, 0}, {hurried_ ? -1 : stop_, POLLIN, 0}};
    const int ready = ::poll(wanted, 2, milliseconds_until(now, until));
    if (ready > 0 && wanted[0].revents != 0) return true;
    if (ready > 0 && wanted[1].revents != 0) {
      hurried_ = true;
      deadline = monotonic_ns() + hurry;
    } else if (ready == 0 && monotonic_ns() >= std::min(deadline, latest)) {
      return false;
    }
  }
}

Readers::Got Readers::receive(Answer& answer, std::span<std::byte> to) {
  const std::uint64_t first = monotonic_ns();
  const auto patience = left_.size() < kPatientWith ? times_.patience : times_.hurry;
  std::uint64_t deadline = first + static_cast<std::uint64_t>((process_ ? patience : times_.starting).count());
  const std::uint64_t latest = first + static_cast<std::uint64_t>(times_.arriving.count());
  const std::span head = std::as_writable_bytes(std::span(&answer.head, 1));
  std::size_t had = 0;
  while (had < head.size()) {
    if (!wait_readable(first, deadline, latest)) return Got::kTimeout;
    const ssize_t got = receive_some(current_.get(), head.subspan(had), to, answer.file, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) continue;
    if (got <= 0) return Got::kGone;
    had += static_cast<std::size_t>(got);
    if (had < head.size() || !answer.head.working) continue;
    if (answer.file) process_ = std::move(answer.file);
    answer.reached |= answer.head.reached;
    answer.head = ReaderAnswer();
    had = 0;
    deadline = monotonic_ns() + static_cast<std::uint64_t>(patience.count());
  }
  answer.size = std::min<std::size_t>(had - head.size(), to.size());
  // Nothing blocks a reader that has begun to answer.
  const std::size_t total = answer.head.follows;
  const std::size_t placed = std::min(total, to.size());
  answer.rest.resize(total - placed);
  for (std::size_t at = answer.size; at < total;) {
    pollfd wanted{current_.get(), POLLIN, 0};
    if (::poll(&wanted, 1, -1) < 0 && errno != EINTR) return Got::kGone;
    const std::span<std::byte> part =
        at < placed ? to.subspan(at, placed - at) : std::as_writable_bytes(std::span(answer.rest)).subspan(at - placed);
    Descriptor none;
    const ssize_t got = receive_some(current_.get(), part, {}, none, 0);
    if (got <= 0) return Got::kGone;
    at += static_cast<std::size_t>(got);
  }
  answer.size = placed;
  return Got::kAnswer;
}

// ---- those that were left behind ------------------------------------------------------------------------------------

void Readers::leave_behind(const std::string& subject, const std::string& path) {
  left_.push_back({std::move(current_), std::move(process_), subject, path});
  ++silent_[subject].readers;
  if (!hurried_ && said_ < kMostSaid && std::ranges::find(unsaid_, subject) == unsaid_.end()) {
    ++said_;
    unsaid_.push_back(subject);
  }
  if (left_.size() > kMostLeft) kill_first();
}

// Most waits end with their process, those for a page among them. Some do not, as for a FUSE server that has taken the
// request.
void Readers::kill_first() {
  Left& first = left_.front();
  if (first.process) (void)::syscall(SYS_pidfd_send_signal, first.process.get(), SIGKILL, nullptr, 0);
  ending_.push_back(std::move(first.process));
  forget(first.subject, monotonic_ns() + static_cast<std::uint64_t>(kSilentFor.count()));
  left_.pop_front();
}

// One reader fewer waits for it.
void Readers::forget(const std::string& subject, std::uint64_t until) {
  const auto silent = silent_.find(subject);
  if (silent == silent_.end()) return;
  silent->second.until = std::max(silent->second.until, until);
  if (--silent->second.readers == 0 && until == 0) silent_.erase(silent);
}

bool Readers::silent(const std::string& subject) {
  const auto silent = silent_.find(subject);
  if (silent == silent_.end()) return false;
  if (silent->second.readers != 0 || monotonic_ns() < silent->second.until) return true;
  silent_.erase(silent);
  return false;
}

// Those whose wait has ended: what they waited for answers.
void Readers::collect() {
  std::erase_if(ending_, [](const Descriptor& process) {
    pollfd ended{process.get(), POLLIN, 0};
    return ::poll(&ended, 1, 0) > 0;
  });
  std::erase_if(left_, [this](Left& left) {
    for (;;) {
      Answer answer;
      const std::span head = std::as_writable_bytes(std::span(&answer.head, 1));
      const ssize_t got = receive_some(left.socket.get(), head, {}, answer.file, MSG_DONTWAIT);
      if (got < 0 && errno == EAGAIN) return false;
      if (got == static_cast<ssize_t>(head.size()) && answer.head.working) {
        if (answer.file) left.process = std::move(answer.file);
        continue;
      }
      if (answer.file && !left.path.empty() && late_.size() < kMostLate)
        late_[left.path] = {std::move(answer.file), answer.head.status, answer.head.remote};
      forget(left.subject, 0);
      return true;
    }
  });
}

std::vector<std::string> Readers::take_silent() {
  const std::lock_guard hold(lock_);
  collect();
  std::erase_if(unsaid_, [this](const std::string& subject) { return !silent(subject); });
  return std::exchange(unsaid_, {});
}

bool Readers::is_silent(pid_t pid, dev_t device) {
  const std::lock_guard hold(lock_);
  collect();
  if (silent_.empty()) return false;
  return silent(fmt::format("/proc/{}/mem", pid)) || silent(fmt::format("/proc/{}/maps", pid)) ||
         (device != 0 && silent(device_subject(device)));
}

std::size_t Readers::left_behind() {
  const std::lock_guard hold(lock_);
  collect();
  return left_.size() + ending_.size();
}

// ---- the calls ------------------------------------------------------------------------------------------------------

// All that a server has is silent, or nothing.
std::string Readers::subject_at(const std::string& path) {
  if (path.starts_with("/proc/")) return subject_of(path);
  if (const std::uint64_t now = monotonic_ns(); now >= mounts_until_) {
    mounts_ = ServerMounts(read_proc_file("/proc/self/mountinfo"));
    mounts_until_ = now + static_cast<std::uint64_t>(kMountsFor.count());
  }
  std::string server = mounts_.server_of(path);
  return server.empty() ? path : server;
}

void Readers::keep_mapped_files_of(pid_t pid) {
  const std::lock_guard hold(lock_);
  kept_.clear();
  kept_below_ = pid != 0 ? fmt::format("/proc/{}/map_files/", pid) : std::string();
}

// A file that was opened before; none: it has to be.
OpenedRegular Readers::take_known(const std::string& path) {
  const std::lock_guard hold(lock_);
  collect();
  if (const auto late = late_.find(path); late != late_.end()) {
    OpenedRegular opened = std::move(late->second);
    late_.erase(late);
    return opened;
  }
  const auto kept = kept_.find(path);
  return kept != kept_.end() ? duplicate_of(kept->second) : OpenedRegular();
}

// Calls take(index, answer) for each that is answered. How many: one that is not, and all behind it, may be asked
// again.
std::size_t Readers::ask_together(std::span<const Together> wanted, FunctionRef<void(std::size_t, Answer&)> take) {
  collect();
  if (wanted.empty() || silent(wanted.front().subject) || !has_reader()) return 0;
  std::size_t sent = 0;
  const auto send_more = [&](std::size_t behind) {
    for (; sent < std::min(wanted.size(), behind); ++sent) {
      ReaderRequest request = wanted[sent].request;
      request.follows = static_cast<std::uint32_t>(wanted[sent].follows.size());
      if (!send_message(current_.get(), std::as_bytes(std::span(&request, 1)), bytes_of(wanted[sent].follows),
                        wanted[sent].file))
        return false;
    }
    return true;
  };
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    Answer answer;
    const Got got = send_more(i + kMostTogether) ? receive(answer, {}) : Got::kGone;
    if (got == Got::kTimeout) leave_behind(wanted[i].subject, wanted[i].late);
    if (got != Got::kAnswer) {
      current_ = Descriptor();
      return i;
    }
    take(i, answer);
  }
  return wanted.size();
}

void Readers::open_kept(std::span<const std::string> paths) {
  const std::lock_guard hold(lock_);
  std::vector<Together> wanted;
  for (const std::string& path : paths)
    if (is_kept(path) && !kept_.contains(path) && kept_.size() + wanted.size() < kMostKept)
      wanted.push_back({{.call = ReaderCall::kOpenRegular}, path, -1, subject_of(path), path});
  (void)ask_together(wanted, [&](std::size_t i, Answer& answer) {
    if (answer.file) kept_[wanted[i].follows] = {std::move(answer.file), answer.head.status, false};
  });
}

OpenedRegular Readers::open_regular(const std::string& path, dev_t device, bool certain) {
  if (OpenedRegular known = take_known(path); known.file) return known;
  Answer answer = ask({.call = ReaderCall::kOpenRegular, .tells_reached = certain && device != 0}, path, -1, path, {},
                      device != 0 ? device_subject(device) : std::string());
  OpenedRegular opened{std::move(answer.file), answer.head.status, false};
  if (opened.file) {
    const std::lock_guard hold(lock_);
    if (is_kept(path) && kept_.size() < kMostKept) kept_[path] = duplicate_of(opened);
  }
  errno = answer.head.error;
  return opened;
}

OpenedRegular Readers::open_growing(const std::string& path) {
  Answer answer = ask({.call = ReaderCall::kOpenGrowing}, path, -1, path, {});
  errno = answer.head.error;
  return {std::move(answer.file), answer.head.status, answer.head.remote};
}

Descriptor Readers::open(const std::string& path, int folder, pid_t pid) {
  const std::string subject = folder < 0 ? path : subject_of(fmt::format("/proc/{}/{}", pid, path));
  Answer answer = ask({.call = ReaderCall::kOpen}, path, folder, subject, {});
  errno = answer.head.error;
  return std::move(answer.file);
}

bool Readers::status(const std::string& path, struct stat& to) {
  const Answer answer = ask({.call = ReaderCall::kStatus}, path, -1, path, {});
  to = answer.head.status;
  errno = answer.head.error;
  return answer.head.error == 0;
}

std::string Readers::text(const std::string& path, std::size_t limit) {
  Answer answer = ask({.call = ReaderCall::kText, .size = limit}, path, -1, path, {});
  errno = answer.head.error;
  return std::move(answer.rest);
}

std::string Readers::text(int file, pid_t pid, std::size_t limit) {
  Answer answer = ask({.call = ReaderCall::kText, .size = limit}, {}, file, fmt::format("/proc/{}/maps", pid), {});
  errno = answer.head.error;
  return std::move(answer.rest);
}

std::vector<std::string> Readers::texts(int folder, pid_t pid, std::span<const std::string> names, std::size_t limit) {
  std::vector<Together> wanted;
  for (const std::string& name : names)
    wanted.push_back({{.call = ReaderCall::kText, .size = limit},
                      name,
                      folder,
                      subject_of(fmt::format("/proc/{}/{}", pid, name)),
                      {}});
  std::vector<std::string> texts(names.size());
  std::size_t answered = 0;
  {
    const std::lock_guard hold(lock_);
    answered = ask_together(wanted, [&](std::size_t i, Answer& answer) { texts[i] = std::move(answer.rest); });
  }
  for (std::size_t i = answered; i < wanted.size(); ++i)
    texts[i] = ask(wanted[i].request, wanted[i].follows, folder, wanted[i].subject, {}).rest;
  return texts;
}

ssize_t Readers::memory(pid_t pid, std::span<const iovec> from, std::span<std::byte> to) {
  const std::string_view ranges(reinterpret_cast<const char*>(from.data()), from.size_bytes());
  const Answer answer =
      ask({.call = ReaderCall::kMemory, .pid = pid}, ranges, -1, fmt::format("/proc/{}/mem", pid), to);
  errno = answer.head.error;
  return answer.head.error != 0 ? -1 : static_cast<ssize_t>(answer.size);
}

ssize_t Readers::read_at(int file, const std::string& subject, std::uint64_t offset, std::span<std::byte> to) {
  const Answer answer = ask({.call = ReaderCall::kBytes, .offset = offset, .size = to.size()}, {}, file, subject, to);
  errno = answer.head.error;
  return answer.head.error != 0 ? -1 : static_cast<ssize_t>(answer.size);
}

std::uint64_t Readers::pages(int file, const std::string& subject, std::span<const std::uint64_t> numbers,
                             std::span<std::byte> to) {
  const std::string_view list(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
  const Answer answer = ask({.call = ReaderCall::kPages}, list, file, subject, to);
  errno = answer.head.error;
  return answer.head.error == 0 ? answer.head.pages : 0;
}

bool Readers::file_status(int file, const std::string& subject, struct stat& to) {
  const Answer answer = ask({.call = ReaderCall::kFileStatus}, {}, file, subject, {});
  to = answer.head.status;
  errno = answer.head.error;
  return answer.head.error == 0;
}

// ---- those in use ---------------------------------------------------------------------------------------------------

namespace {
std::unique_ptr<Readers> used;

Expected<MappedFile> map_by_readers(const std::string& path) {
  const Descriptor file(open_regular(path));
  if (!file && errno == ENODEV) return fail(ErrorCode::kUnsupported, "not a regular file", 0);
  if (!file) return fail(ErrorCode::kSystem, "cannot open the file", 0, static_cast<std::uint64_t>(errno));
  return MappedFile::from_fd(file.get());
}
}  // namespace

Readers* readers() { return used.get(); }

bool is_silent(pid_t pid, dev_t device) { return used != nullptr && used->is_silent(pid, device); }

void use_readers(std::unique_ptr<Readers> readers) {
  MappedFile::set_opener(readers != nullptr ? map_by_readers : nullptr);
  used = std::move(readers);
}

}  // namespace windlass::os
