// Generated code made known: to the unwinders of this process, to debuggers and to profilers, each by its own way in,
// chosen at run time.
//
//   auto frames = open_registrar(Registry::kFrameInfo);                          // libgcc's unwinder, or LLVM's
//   auto id = (*frames)->add({{{.address = code, .size = size, .name = "f", .prologue = &f}}});
//   ...                                                                          // the code runs, exceptions cross it
//   (*frames)->move(*id, {{{.from = code, .now = {.address = elsewhere}}}});     // when it is somewhere else
//   (*frames)->remove(*id);                                                      // before other code comes there
//
// A registrar is thread-safe, and none of it is for signal handlers. Its lock is never held while a walk is: the only
// foreign code called under it is a registry's own (__register_frame and the like), which walks nothing and calls
// nobody back, so registration never waits for a walker, nor a walker for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windlass/error.h"
#include "windlass/frame_row.h"
#include "windlass/prologue.h"
#include "windlass/registers.h"

namespace windlass {

// From `offset` into the code on, up to the next one: a place in the source.
struct GeneratedLine {
  std::uint32_t offset = 0;
  std::string_view file = {};
  std::uint32_t line = 0;
};

// A function as its maker knows it. What is pointed to is only read during the call.
struct GeneratedFunction {
  std::uint64_t address = 0;  // of its first byte
  std::uint32_t size = 0;     // bytes of code
  std::string_view name = {};
  // How it unwinds, in one of two forms: described, ...
  const Prologue* prologue = nullptr;
  // ... or rows, ascending and adjoining, of all its code; their begins count from the first one's.
  std::span<const FrameRow> rows = {};
  // Of its exceptions, on ELF: the personality routine and what that finds by _Unwind_GetLanguageSpecificData(). On
  // Windows the EXCEPTION_ROUTINE, asked in both passes where the prologue has no handler that says otherwise.
  std::uint64_t personality = 0;
  std::uint64_t language_data = 0;
  std::span<const GeneratedLine> lines = {};  // ascending
};

// A function of a batch, whose code is at another address now, or, with all others of its batch, still at its own.
struct MovedFunction {
  std::uint64_t from = 0;   // where it was registered
  GeneratedFunction now{};  // as add() wants it
};

enum class Registry : std::uint8_t {
  // Walks of this process by this copy of the library: backtrace(), StackWalker. (windlass_add_own_code() reaches the
  // drop-in's, too.)
  kWindlass,
  // __register_frame(): libgcc's unwinder or LLVM's, whichever this process has, for exceptions and
  // _Unwind_Backtrace().
  // A batch costs libgcc one object for each run of code without gaps of 64 bytes or more. libgcc from 13 on wants
  // objects whose ranges are apart (before 14.3 it crashes: GCC's PR 119151), so code in a gap of an earlier batch is
  // an error. All registrars of this kind are one in this: what one has registered is refused to the others.
  kFrameInfo,
  // The JIT interface of GDB and LLDB: one object file in memory a batch, with names, unwind information and lines.
  kGdb,
  // /tmp/perf-PID.map: names alone. It cannot be withdrawn from: where ranges overlap, the later line counts.
  kPerfMap,
  // jit-PID.dump, which `windlass record` and `windlass walk` read, and after perf record -k mono `perf inject --jit`:
  // names, code, unwind information, lines.
  kJitdump,
  // Windows x64: the tables that RtlLookupFunctionEntry() asks, and so every unwinder of the process, exceptions and
  // crash reporters. Of prologues only, in the heap that the options give, which no other of these registrars has and
  // no image. A handler's routine is `personality`, at any distance; its flags and data are the prologue's. The code
  // is read, and must be there: unwinders know epilogues by their instructions.
  //
  // RtlAddGrowableFunctionTable(): one table for the heap. Code behind all that there is, and where code was removed,
  // is put into the table in place. Where it is full, or has no place between two functions, another takes its place,
  // with places for as much code again where there is room for it: the new table is added before the old one goes.
  // The old one's memory is kept until the registrar's end, since a walker may have an entry of it in hand.
  kGrowableTable,
  // RtlInstallFunctionTableCallback(): looked up in a directory of the heap's pages, without a lock. A batch costs what
  // is on its pages, so this is for code that comes and goes in any order.
  kTableCallback,
  // RtlAddFunctionTable(): a table a run of code without gaps of 64 bytes or more, into which later code may not be
  // put. Wine looks through all tables in turn.
  kFunctionTable,
  // sframe_register(): the kernel's own unwinder of user stacks, which reads SFrame; a section of version 3 for each
  // run of code without gaps of 64 bytes or more, so code in a gap of an earlier batch is an error. The system call has
  // been proposed (linux-kernel, May 2026) and is in no released kernel up to 7.2: where the headers of the build have
  // no number for it, or the kernel does not know it, there is no such registry.
  kSFrame,
};

// Of a batch. Never given twice by a registrar.
enum class RegistrationId : std::uint64_t { kNone = 0 };

class Registrar {
 public:
  // Takes away what is still registered.
  virtual ~Registrar() = default;
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  // A batch, known when this returns: all of it or nothing. Errors, with the function's address (kMalformed: or an
  // offset into its code, from its prologue): kMalformed for none at all, one without code, for functions that overlap
  // each other or what is registered here (which was not removed), for rows that are not of the code; kUnsupported for
  // another architecture than the process's; kMalformed for code on pages that are not executable yet, where the kernel
  // can be asked (Linux 6.11 and later; Windows), so the order is: write, make executable, add, run; kUnreadable for
  // code that a jitdump cannot copy; kSystem, and then a file has nothing of the batch. Windows' tables: kOutOfRange
  // outside of the heap; kMalformed for code that a table of somebody else's answers for; kUnsupported for rows; and
  // winx64::write()'s. kSFrame: also sframe::Writer::add()'s. Linear in the batch, logarithmic in the functions there
  // are.
  [[nodiscard]] virtual Expected<RegistrationId> add(std::span<const GeneratedFunction> functions) = 0;
  // To be called when the code runs no more, and before other code is written to its place. kNotFound.
  virtual Expected<void> remove(RegistrationId id) = 0;
  // To be called when all the code of a batch stands at its new addresses and none of it runs, neither there nor where
  // it was; places may be those of others of the batch. remove() takes it away from there. What moves by itself is
  // added by itself. Where a registry can say that code has moved (a jitdump) it does, elsewhere it is removed and
  // added. kNotFound: no such batch. With any other error the batch is removed, as its code is no longer where it was:
  // kMalformed for functions that are not those of the batch, each once and of the same size, and add()'s.
  virtual Expected<void> move(RegistrationId id, std::span<const MovedFunction> functions) = 0;

 protected:
  Registrar() = default;
};

struct RegistrarOptions {
  std::string folder = {};  // of the jitdump and the perf map; empty: the working directory and /tmp
  // Windows' tables: where all code will lie, reserved. Unwind information is put behind it, at most 4 GiB from its
  // begin, as 32-bit RVAs reach.
  std::uint64_t heap_begin = 0;
  std::uint64_t heap_end = 0;
  std::uint32_t table_entries = 0;  // kGrowableTable: that the first table has room for; 0: 4096
};

// kUnsupported where there is no such registry: says what is missing. kSystem: the file cannot be made.
//
// After fork() the child has all that was registered, but for the files, which have the process's number in their
// names: its first add() begins new ones, with what is registered. No other thread may be in add() or remove() while
// one forks: the child would have its locks, the unwinder's too, and nobody to release them.
[[nodiscard]] Expected<std::unique_ptr<Registrar>> open_registrar(Registry registry,
                                                                  const RegistrarOptions& options = {});

}  // namespace windlass
