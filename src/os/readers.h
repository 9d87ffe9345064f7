// Reader processes: read files and memory of other processes, and can be left behind.
//
// A file on a server that has stopped holds every reader in a wait that no signal ends. So does memory that such a file
// or a userfaultfd backs. So opens, reads and page faults of foreign things happen in a reader process. A call waits
// for the answer for a bounded time. A reader that takes longer is left in its wait, and a new reader takes its place.
// Calls about the same thing then fail at once, until the old reader answers after all.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "os/descriptor.h"
#include "os/opened_regular.h"
#include "os/reader_protocol.h"
#include "os/silent.h"
#include "windlass/function_ref.h"

namespace windlass::os {

struct ReaderTimes {
  std::chrono::nanoseconds patience = std::chrono::milliseconds(300);  // with one call
  std::chrono::nanoseconds starting = std::chrono::milliseconds(300);  // with a reader that has to be started first
  std::chrono::nanoseconds arriving = std::chrono::seconds(2);         // with one whose bytes are arriving
  std::chrono::nanoseconds hurry = std::chrono::milliseconds(50);      // with one once the program has to end
};

// Thread-safe (a lock). Bounds:
// - At most kMostLeft readers are left behind. One more, and the first of these is killed; the thing it waited for
//   counts as silent for kSilentFor.
// - Once kMostEnding killed readers still wait, nothing is requested any more.
// - While many readers wait, calls wait less long.
// - kMostSaid silent things are told apart by name.
class Readers {
 public:
  static constexpr std::size_t kMostLeft = 256;
  static constexpr std::size_t kMostEnding = 256;
  static constexpr std::chrono::nanoseconds kSilentFor = std::chrono::minutes(10);
  static constexpr std::chrono::nanoseconds kMountsFor = std::chrono::seconds(1);
  static constexpr std::size_t kPatientWith = 8;  // readers left behind: then it waits `hurry`
  static constexpr std::size_t kMostSaid = 64;
  static constexpr std::size_t kMostKept = 256;
  static constexpr std::size_t kMostTogether = 32;  // requests on their way: their answers fit into the socket

  // By a process that starts them: to be called before the program has threads or secrets. Null and errno.
  [[nodiscard]] static std::unique_ptr<Readers> start(ReaderTimes times = {});
  // With one reader. The process that starts others is started once the first one has been left behind: sooner ready,
  // and one process fewer. For programs that end soon. The reader ends with the thread that calls this.
  [[nodiscard]] static std::unique_ptr<Readers> start_one(ReaderTimes times = {});
  ~Readers();
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  // Errors: errno as of the system call, ETIMEDOUT for what is silent. `device` (makedev(3)) is the mapped file's, as
  // far as it is known: its server is silent or not as a whole. `certain`: the path leads to nothing else.
  [[nodiscard]] OpenedRegular open_regular(const std::string& path, dev_t device = 0, bool certain = false);
  [[nodiscard]] OpenedRegular open_growing(const std::string& path);
  // A file of /proc, by its name in an open /proc/PID or, with `folder` -1, by its path.
  [[nodiscard]] Descriptor open(const std::string& path, int folder = -1, pid_t pid = 0);
  [[nodiscard]] bool status(const std::string& path, struct stat& to);
  [[nodiscard]] std::string text(const std::string& path, std::size_t limit);
  // Of an open file of /proc that says something of process `pid`.
  [[nodiscard]] std::string text(int file, pid_t pid, std::size_t limit);
  // Of files by their names in an open /proc/PID. All are requested before the first answer is awaited.
  [[nodiscard]] std::vector<std::string> texts(int folder, pid_t pid, std::span<const std::string> names,
                                               std::size_t limit);
  // How many bytes, -1 and errno.
  [[nodiscard]] ssize_t memory(pid_t pid, std::span<const iovec> from, std::span<std::byte> to);
  [[nodiscard]] ssize_t read_at(int file, const std::string& subject, std::uint64_t offset, std::span<std::byte> to);
  // Whole pages of a process's memory, by their numbers: a bit for each one that could be read. At most 64.
  [[nodiscard]] std::uint64_t pages(int file, const std::string& subject, std::span<const std::uint64_t> numbers,
                                    std::span<std::byte> to);
  [[nodiscard]] bool file_status(int file, const std::string& subject, struct stat& to);

  // From here on open_regular() of a path below /proc/PID/map_files opens each file once, and gives duplicates: the
  // process stands still. 0: it runs again, and nothing is kept. At most kMostKept files.
  void keep_mapped_files_of(pid_t pid);
  // Opens those of the paths that are kept, without waiting for each: open_regular() has them then, or tries again.
  void open_kept(std::span<const std::string> paths);

  // From when `stop` is readable, or the time (CLOCK_MONOTONIC, ns; 0: none) has come, calls wait `hurry` at most.
  void end_at(int stop, std::uint64_t time);
  // Readers get this nice value.
  void set_priority(int value);

  // The silent things that the caller has not been told yet, for example "/proc/12/mem" or "device 0:57". Without
  // things that became silent in a hurry.
  [[nodiscard]] std::vector<std::string> take_silent();
  // Does memory or the list of mappings of a process not answer now, or the server of `device` (0: none)?
  [[nodiscard]] bool is_silent(pid_t pid, dev_t device);
  // Readers that wait, those that were killed included.
  [[nodiscard]] std::size_t left_behind();

 private:
  struct Left {
    Descriptor socket, process;
    std::string subject, path;
  };
  struct Silence {
    unsigned readers = 0;     // that wait for it
    std::uint64_t until = 0;  // without one (CLOCK_MONOTONIC, ns)
  };
  struct Answer {
    ReaderAnswer head;
    Descriptor file;
    bool reached = false;  // the file was found
    std::size_t size = 0;  // bytes in the caller's place
    std::string rest;      // those for which it had none
  };
  // One of several requests that are sent before the first answer is awaited.
  struct Together {
    ReaderRequest request;
    std::string follows;
    int file;
    std::string subject;
    std::string late;  // the path of what may be opened after all; empty: nothing is kept
  };
  explicit Readers(ReaderTimes times);

  // `subject`: what it is about, or a path. `device`: what is silent if the file has been found.
  Answer ask(ReaderRequest request, std::string_view follows, int file, const std::string& subject,
             std::span<std::byte> to, const std::string& device = {});
  std::string subject_at(const std::string& path);
  bool is_kept(const std::string& path) const { return !kept_below_.empty() && path.starts_with(kept_below_); }
  OpenedRegular take_known(const std::string& path);
  std::size_t ask_together(std::span<const Together> wanted, FunctionRef<void(std::size_t, Answer&)> take);
  bool start_starter();
  bool has_reader();
  bool silent(const std::string& subject);
  enum class Got : std::uint8_t { kAnswer, kTimeout, kGone };
  Got receive(Answer& answer, std::span<std::byte> to);
  bool wait_readable(std::uint64_t first, std::uint64_t& deadline, std::uint64_t latest);
  void leave_behind(const std::string& subject, const std::string& path);
  void kill_first();
  void forget(const std::string& subject, std::uint64_t until);
  void collect();

  pid_t owner_;
  pid_t starter_ = 0, first_ = 0;  // 0: there is none; a reader that no starter has started
  Descriptor control_;             // the starter's
  ReaderTimes times_;
  mutable std::mutex lock_;
  Descriptor current_, process_;  // the reader that is asked: its socket, its process (pidfd_open(2))
  std::deque<Left> left_;
  std::vector<Descriptor> ending_;             // processes that were killed
  std::map<std::string, Silence> silent_;      // subjects
  std::map<std::string, OpenedRegular> late_;  // opened after all, by path
  std::map<std::string, OpenedRegular> kept_;  // of a process that stands still, by path
  std::string kept_below_;                     // its folder; empty: none
  ServerMounts mounts_;                        // this process's, read kMountsFor ago at most
  std::uint64_t mounts_until_ = 0;
  std::vector<std::string> unsaid_;
  std::size_t said_ = 0;
  int stop_ = -1;
  std::uint64_t end_ = 0;
  bool hurried_ = false;
};

// Those that the functions of this folder and MappedFile::open() use; null: they read for themselves.
[[nodiscard]] Readers* readers();
void use_readers(std::unique_ptr<Readers> readers);

// Readers::is_silent() of those in use.
[[nodiscard]] bool is_silent(pid_t pid, dev_t device = 0);

// A path that leads to this process's own files, which nobody else can stop.
[[nodiscard]] bool is_own(const std::string& path);
// A path of /proc that says something of another process.
[[nodiscard]] bool is_of_other(const std::string& path);

// What a path of /proc/PID leads to, one thing that may be silent: "/proc/12/root". Other paths are their own.
[[nodiscard]] std::string subject_of(const std::string& path);

}  // namespace windlass::os
