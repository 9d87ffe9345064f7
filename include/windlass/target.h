// Processes, core files and minidumps as address spaces with threads.
//
// For example, to walk all threads of a process:
//
//   auto target = open_process(pid);   // Or open_core(path), open_minidump(path), open_target(text).
//   if (!target) return complain(target.error());
//
//   for (const Thread& thread : target->threads)
//     for (const Frame& frame : StackWalker(target->space, thread.registers)) use(thread, frame);
//
// To look at the process again later without opening it anew:
//
//   target->release();                        // The process runs on. Returns how long it was stopped.
//   const auto changed = target->refresh();   // The process is stopped once more.
//
// None of this is signal-safe: functions allocate, open files and stop threads. Several threads may walk a Target at a
// time. Opening, refreshing, releasing and destroying a Target each need it alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "windlass/walk.h"

namespace windlass {

// A thread of a target, as it was when the target was opened or refreshed.
struct Thread {
  std::uint64_t id = 0;      // The system's thread id.
  std::string name;          // Empty if the dump has no name.
  Registers registers;       // If unreadable: nothing known, not even pc. Target::problems then says why.
  bool faulted = false;      // The thread that crashed.
  bool kernel_only = false;  // A worker of io_uring or vhost, which never runs user code. Has no user stack.
};

// The kind of an opened target.
enum class TargetKind : std::uint8_t { kProcess, kCore, kMinidump };

namespace walk {
class LiveProcess;
class Interpreted;
}  // namespace walk

// The changes that refresh() found.
struct Refreshed {
  std::size_t modules_gone = 0;  // Modules, and ranges of code without a file.
  std::size_t modules_new = 0;
  bool executed = false;  // The process has become another program (execve). Nothing of the old program is left.
};

// An opened target. Movable. The threads of a process stay stopped until the target is released or destroyed, on any
// thread. They also go on when the calling process ends.
struct Target {
  // A target without threads, for a space of the caller's. open_process() and the like make targets of processes and
  // dumps.
  Target(TargetKind what, AddressSpace where) : kind(what), space(std::move(where)) {}

  TargetKind kind;
  AddressSpace space;
  std::vector<Thread> threads;
  std::string command;             // The command line; for some dumps only the program's name.
  std::uint64_t process = 0;       // The process id; 0 if a dump has none.
  std::vector<Error> problems;     // Parts that could not be read: threads, notes, streams.
  std::vector<std::string> notes;  // Notes for people, for example about files that are missing, or are not those that
                                   // ran.

  // Lets the threads of a process go on. `space` must not be read until refresh(). Returns for how many nanoseconds
  // threads were stopped: from the interruption of the first thread until the last thread went on. 0 for dumps, and if
  // no thread is stopped.
  std::uint64_t release();

  // Stops the process again, and brings `threads`, `problems`, `notes` and the modules up to date. A process that is
  // still stopped goes on first. Walkers and ModuleInfos from before the call must be gone.
  //
  // An unchanged module keeps its file, unwind information and rows. A file is unchanged if its place, inode and time
  // of change are. A thread's name may be up to 16 refreshes old. Takes about 6 system calls a thread, 1 a file, 1 a
  // mapping of code, and 20 more. Memory that the last walks read is read at once.
  //
  // Errors are those of open_process(). Also kSystem (ESRCH) after the process has ended, even if another process has
  // got its id. kUnsupported for dumps. After an error no thread is stopped, `threads` is empty, and `space` must not
  // be read.
  [[nodiscard]] Expected<Refreshed> refresh();

 private:
  friend struct walk::Inside;
  std::shared_ptr<walk::LiveProcess> live_;
  std::shared_ptr<walk::Interpreted> interpreted_;
};

// Finds the functions that an interpreter runs, for interpreters with a list of frames apart from the stack (CPython).
// `pcs` are the frames of the thread's finished walk, and `end` is its end. Returns a value for Frame::function for
// each frame, innermost first.
//
// Empty if there is no interpreter, if the walk did not reach the outermost frame, or if the list does not fit the
// stack.
[[nodiscard]] std::vector<std::uint64_t> interpreted_functions(const Target& target, const Thread& thread,
                                                               std::span<const CodeAddress> pcs, WalkEnd end);

// Where to find the files of a process, if its paths do not lead to them on this machine.
struct FileSearch {
  std::string sysroot;     // Put before every path, and searched before the path itself. Empty: none.
  std::string executable;  // The program's file, whatever path the dump has. Empty: the dump's path.
  std::vector<std::string> debug_directories = {"/usr/lib/debug"};  // Searched for .build-id/xx/yyyy[.debug].
};

// Options of open_process().
struct ProcessOptions {
  // How long to wait for threads, for all threads together. A thread in an uninterruptible wait does not stop. After
  // this time its stack is walked from the sp and pc in /proc/PID/task/TID/syscall.
  unsigned stop_timeout_ms = 1000;
  // For one quick walk, by the thread that calls open_process():
  // - That thread traces. It alone may refresh or release the Target. A thread of the process in an uninterruptible
  //   wait stays traced until the calling thread ends. False: a thread of its own traces, and any thread may use the
  //   Target.
  // - Files of modules are opened once a stack has code in them. False: when the process is opened.
  bool one_walk = false;
};

// Options of open_core() and open_minidump().
struct DumpOptions {
  FileSearch files;
};

// Opens a process: stops all threads and reads their registers, also those of threads that are born meanwhile. Uses
// PTRACE_SEIZE and PTRACE_INTERRUPT (ptrace(2)); no signal is sent. Takes about 3 system calls a thread and 2 a module.
//
// Modules come from /proc/PID/maps. The file of a module is the mapped file itself, by /proc/PID/map_files. Else it is
// the path below /proc/PID/root, if that is the same file. Else it is the image in memory. So deleted files, replaced
// files and other mount namespaces do not matter.
//
// Errors: kSystem and kUnsupported. After an error, all stopped threads go on.
// - ESRCH as `detail`: there is no such process.
// - EPERM as `detail`: the process may not be traced, or another process traces it, whose id is `where`.
// - kUnsupported: a thread runs code of another machine than its program's.
[[nodiscard]] Expected<Target> open_process(std::uint64_t pid, const ProcessOptions& options = {});

// Opens an ELF core file of x86-64, AArch64 or i386, made by a kernel or by gcore. The file is mapped, not read. A file
// compressed by gzip, xz, zstd or lz4 is first unpacked into a nameless file in $TMPDIR, or else in /var/tmp.
//
// Pages that the core file leaves out come from the files that were mapped, if their build ids are the same. A damaged
// or cut-off part is a problem in Target::problems, and the rest is still read. Errors: kSystem; kMalformed, kTruncated
// and kUnsupported, with the offset.
[[nodiscard]] Expected<Target> open_core(const std::string& path, const DumpOptions& options = {});

// Opens a minidump, made by Windows, Wine, Breakpad or Crashpad. Errors as open_core().
//
// PE images are searched below FileSearch::sysroot: by path with or without the drive, as a symbol store lays them out,
// or by name alone. Names are compared without case. A file is used if its timestamp and size, or its CodeView
// identity, are those in the dump. Else the image's memory is used, if the dump has it. Frames in other images are
// unwound by frame pointers, and by the code that is there.
[[nodiscard]] Expected<Target> open_minidump(const std::string& path, const DumpOptions& options = {});

// Opens a process id, a core file or a minidump, for example open_target("1234"). Digits are a process id. The first
// bytes tell the kind of a file. kUnsupported for a file of another kind.
[[nodiscard]] Expected<Target> open_target(const std::string& what, const DumpOptions& dump = {},
                                           const ProcessOptions& process = {});

}  // namespace windlass
