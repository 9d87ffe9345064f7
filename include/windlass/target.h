// Processes, live and dead, as address spaces with threads.
//
//   auto target = open_process(pid);                 // or open_core(path), open_minidump(path), open_target(text)
//   if (!target) return complain(target.error());
//   for (const Thread& thread : target->threads)
//     for (const Frame& frame : StackWalker(target->space, thread.registers)) use(thread, frame);
//
// A process is looked at again and again without being opened anew:
//   target->release();                               // it runs on; says for how long it stood
//   if (const auto again = target->refresh(); !again) return complain(again.error());   // it stands once more
//
// None of this is signal-safe: it allocates, opens files and, for processes, stops threads. One Target may be walked
// from several threads at a time; opening, refreshing, releasing and destroying are each one thread's business.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "windlass/walk.h"

namespace windlass {

struct Thread {
  std::uint64_t id = 0;
  std::string name;          // empty where a dump does not say
  Registers registers;       // nothing known (no pc) where they could not be read: `problems` then says why
  bool faulted = false;      // the one that crashed
  bool kernel_only = false;  // a worker of io_uring or vhost, which never runs user code: it has no stack of that
};

enum class TargetKind : std::uint8_t { kProcess, kCore, kMinidump };

namespace walk {
class LiveProcess;
class Interpreted;
}  // namespace walk

// What refresh() found changed.
struct Refreshed {
  std::size_t modules_gone = 0;  // modules and ranges of code without a file
  std::size_t modules_new = 0;
  bool executed = false;  // the process has become another program (execve): nothing of the old one is left
};

// What was opened. Movable. A process's threads stay stopped until it is released or destroyed; that may happen on any
// thread. The end of this process also lets them go on.
struct Target {
  TargetKind kind;
  AddressSpace space;
  std::vector<Thread> threads;
  std::string command;             // the command line, or the program's name where that is all a dump has
  std::uint64_t process = 0;       // its id; 0 where a dump does not say
  std::vector<Error> problems;     // what could not be read of it: threads, notes, streams
  std::vector<std::string> notes;  // what people should know: files missing, or not the ones that ran

  // Lets the threads of a process go on. `space` must not be read afterwards, until refresh(). Returns for how long
  // they were stopped, in nanoseconds: from the first one's interruption to the last one's going on. 0 for dumps, and
  // where nobody is stopped.
  std::uint64_t release();

  // Stops the process again, one that still stands goes on first, and makes `threads`, `problems`, `notes` and the
  // modules those of now. Modules that are still the same keep all that was read of them: files, unwind information,
  // rows; a file is the same by its place, inode and time of change. Walkers and ModuleInfos of before must be gone. A
  // thread's name may be up to 16 refreshes old. About 6 system calls a thread, 1 a file, 1 a mapping of code and 20
  // more; what the last walks read is read at once. Errors as open_process, and: kSystem (ESRCH) once the process has
  // ended, also when another one got its number; kUnsupported for dumps. Then nothing is stopped, `threads` is empty,
  // and `space` is not to be read.
  [[nodiscard]] Expected<Refreshed> refresh();

  std::shared_ptr<walk::LiveProcess> attachment;        // what keeps a process's threads stopped; null for dumps
  std::shared_ptr<walk::Interpreted> interpreted = {};  // what interpreted_functions() asks; null: nobody
};

// Interpreters keep a list of what a thread runs apart from its stack (CPython): Frame::function for each frame
// of a thread's walk that is over, innermost first, whose addresses are `pcs`. Empty: there is no interpreter, or the
// walk did not come to the outermost frame, or the list does not fit the stack.
[[nodiscard]] std::vector<std::uint64_t> interpreted_functions(const Target& target, const Thread& thread,
                                                               std::span<const CodeAddress> pcs, WalkEnd end);

// Where the files of a process are found when its paths do not lead to them here.
struct FileSearch {
  std::string sysroot;     // put before every path; searched before the path itself. Empty: none
  std::string executable;  // the program's own file, whatever the dump calls it. Empty: as the dump says
  std::vector<std::string> debug_directories = {"/usr/lib/debug"};  // searched for .build-id/xx/yyyy[.debug]
};

struct ProcessOptions {
  // A thread in an uninterruptible wait does not stop. After this long its stack is walked from the sp and pc that
  // /proc/PID/task/TID/syscall has. For all threads together.
  unsigned stop_timeout_ms = 1000;
};

struct DumpOptions {
  FileSearch files;
};

// Stops every thread of a process (PTRACE_SEIZE and PTRACE_INTERRUPT, ptrace(2); no signal is sent) and reads their
// registers; threads born meanwhile too. Modules from /proc/PID/maps, each file by what is really mapped
// (/proc/PID/map_files, else /proc/PID/root if it is the same file, else its image in memory), so that deleted and
// replaced files and other mount namespaces do not matter. About 3 system calls a thread and 2 a module.
// Errors: kSystem (ESRCH: no such process; EPERM: not ours to trace, or traced by somebody else, whose id is `where`),
// kUnsupported (a thread that runs code of another machine than its program's). Whatever was stopped before an error
// goes on.
[[nodiscard]] Expected<Target> open_process(std::uint64_t pid, const ProcessOptions& options = {});

// An ELF core file of x86-64, AArch64 or i386, made by a kernel or by gcore. The file is mapped, not read; one that
// gzip, xz, zstd or lz4 have compressed is unpacked into a nameless file in $TMPDIR, or else /var/tmp, first. Pages
// that it leaves out come from the files that were mapped, if these are the same by their build id. Errors: kSystem;
// kMalformed, kTruncated, kUnsupported with the offset. Damaged or cut-off parts are `problems`; the rest is still
// read.
[[nodiscard]] Expected<Target> open_core(const std::string& path, const DumpOptions& options = {});

// A minidump, made by Windows, Wine, Breakpad or Crashpad. As open_core. Files of PE images are searched below
// FileSearch::sysroot (by path with or without the drive, as a symbol store lays them out, by name alone; names without
// case) and taken if timestamp and size, or the CodeView identity, are those in the dump; else the image's memory is,
// if the dump has it; frames in others are unwound by frame pointers and whatever code there is.
[[nodiscard]] Expected<Target> open_minidump(const std::string& path, const DumpOptions& options = {});

// A process id, a core file or a minidump: digits are a process id, a file is recognised by its first bytes.
// kUnsupported for a file that is neither.
[[nodiscard]] Expected<Target> open_target(const std::string& what, const DumpOptions& dump = {},
                                           const ProcessOptions& process = {});

}  // namespace windlass
