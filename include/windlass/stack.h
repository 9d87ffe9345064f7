// Stacks with names: functions, inlined calls, source lines, and the functions that interpreters run.
//
// For example, to print where this thread is, from anywhere outside of signal handlers:
//
//   windlass::print_stack();
//
//   #0   0x000055d3b6e9f2a9 inner+0x19 at app.cpp:12
//   #1   0x000055d3b6e9f2f0 main+0x10 at app.cpp:20
//   ...
//
// Every thread of a process, a core file or a minidump:
//
//   const auto target = open_target("1234");
//   for (const NamedStack& stack : named_stacks(*target)) std::puts(stack.text().c_str());
//
// Names come from where symbols.h says. Interpreted functions are those of CPython and Ruby, on x86-64, in stacks that
// are whole. This is part of the library windlass::symbols, which needs libdw; Linux only. All functions are
// thread-safe. None is signal-safe: they allocate, lock and open files. Code addresses alone: backtrace.h.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "windlass/error.h"
#include "windlass/registers.h"
#include "windlass/symbols.h"
#include "windlass/target.h"
#include "windlass/walk.h"

namespace windlass {

// A frame of a stack, with names.
struct NamedFrame {
  Registers registers;                                    // At pc, as Frame has them.
  FrameOrigin origin = FrameOrigin::kContext;             // How the frame was found.
  FrameCertainty certainty = FrameCertainty::kDescribed;  // How sure the frame is.
  bool signal_frame = false;                              // A signal interrupted this frame.
  // The functions here. The views are valid as long as the NamedStack or a copy of it.
  NamedAddress names;
  // The arguments of each of names.frames. Empty without StackOptions::arguments.
  std::vector<FunctionArguments> arguments;

  [[nodiscard]] CodeAddress pc() const { return registers.pc(); }
  [[nodiscard]] std::uint64_t sp() const { return registers.sp(); }
};

// The stack of a thread.
struct NamedStack {
  Thread thread;                   // The thread. Thread::registers are those of the first frame.
  std::vector<NamedFrame> frames;  // Innermost first. Empty for threads without a user stack.
  WalkEnd end = WalkEnd::kComplete;
  Error error;                        // Why the walk ended. Set for every end but kComplete.
  std::shared_ptr<const void> texts;  // Holds the text of the names.

  // The stack for people: a line for each frame, inlined call and interpreted function, innermost first. If the stack
  // is not complete, a last line says why. Control characters in names are escaped. Linear.
  [[nodiscard]] std::string text() const;
};

// Options of named_stack() and named_stacks().
struct StackOptions {
  std::size_t max_frames = 65536;  // Of a thread. The walk then ends as kLimit.
  SymbolizerOptions names;         // Which names, and where debug information is searched.
  bool arguments = false;          // True: arguments of functions too, by Symbolizer::arguments().
};

// The stack of the calling thread. The first frame is the caller of this function: no frame of the library comes first.
//
// Symbols are read anew at each call: some milliseconds for small programs, and up to seconds for large debug
// information. For many stacks, keep a Symbolizer and use StackWalker.
[[nodiscard]] NamedStack named_stack(const StackOptions& options = {});
// The same from other registers of this thread: for example those of a coroutine that is switched out.
[[nodiscard]] NamedStack named_stack(const Registers& from, const StackOptions& options = {});

// The stacks of all threads of a process, core file or minidump, in the order of Target::threads. The threads of a
// process stay stopped while names are read. Each address is looked up once, whatever the number of threads.
[[nodiscard]] std::vector<NamedStack> named_stacks(const Target& target, const StackOptions& options = {});

// Writes named_stack().text() to a file descriptor, by default to the standard error. kSystem if it cannot be written
// (`detail` is errno).
Expected<void> print_stack(int fd = 2);

}  // namespace windlass
