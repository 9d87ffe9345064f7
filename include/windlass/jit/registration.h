// Generated code made known to the unwinders of this process, to debuggers and to profilers. Each tool has a registry,
// chosen at run time.
//
// For example, for exceptions through generated code:
//
//   auto frames = open_registrar(Registry::kFrameInfo);   // The unwinder of libgcc, or of LLVM.
//   auto id = (*frames)->add({{{.address = code, .size = size, .name = "f", .prologue = &f}}});
//
// The code runs, and exceptions cross it. Then it moves, and at last goes:
//
//   (*frames)->move(*id, {{{.from = code, .now = {.address = elsewhere}}}});
//   (*frames)->remove(*id);   // Before other code is written there.
//
// A registrar is thread-safe; nothing here is for signal handlers. Registration never waits for a walk, nor a walk for
// registration. The registrar's lock is not held during walks. Under the lock it calls only the registry itself, for
// example __register_frame(), which neither walks nor calls back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "windlass/error.h"
#include "windlass/jit/generated_function.h"

namespace windlass {

// A function of a batch that moves. Functions of the batch that stay are listed too, with their old address.
struct MovedFunction {
  std::uint64_t from = 0;   // The address where the function was registered.
  GeneratedFunction now{};  // The function at its new address, as for add().
};

// The tools that can be told about generated code.
enum class Registry : std::uint8_t {
  // Walks of this process by this copy of the library: backtrace() and StackWalker. Code in a gap of less than 64 bytes
  // of an earlier batch is an error, and so is code of a loaded module. windlass_add_own_code() also reaches the
  // drop-in's walks.
  kWindlass,
  // __register_frame(), for exceptions and _Unwind_Backtrace(). The unwinder is libgcc's or LLVM's, whichever this
  // process has.
  //
  // libgcc makes an object for each run of code without gaps of 64 bytes or more. From version 13, libgcc wants
  // objects whose ranges do not overlap. Before 14.3 it crashes otherwise (GCC's PR 119151). So code in a gap of an
  // earlier batch is an error. All registrars of this kind share one list: code that one has registered, the others
  // refuse.
  kFrameInfo,
  // The JIT interface of GDB and LLDB. A batch becomes an object file in memory, with names, unwind information and
  // lines. `windlass record` and `windlass walk` read it if the program was linked with -rdynamic: they look for the
  // exported symbol __jit_debug_descriptor.
  kGdb,
  // /tmp/perf-PID.map: names alone. Lines cannot be withdrawn. Where ranges overlap, the later line counts.
  kPerfMap,
  // jit-PID.dump: names, code, unwind information, lines. `windlass record` and `windlass walk` read the file. So does
  // `perf inject --jit` after `perf record -k mono`.
  kJitdump,
  // Windows x64: RtlAddGrowableFunctionTable(), one table for the heap.
  //
  // All three registries of Windows serve RtlLookupFunctionEntry(), and so every unwinder of the process: exceptions,
  // crash reporters. They take prologues only. All code lies in the heap given by RegistrarOptions. The heap belongs to
  // no other of these registrars, and to no image. The routine of a handler is `personality`, at any distance; flags
  // and data are the prologue's. The code must be written before add(), which reads it: unwinders recognise epilogues
  // by their instructions.
  //
  // Code behind all registered code, and in the place of removed code, is put into the table in place. A table that is
  // full, or has no place between two functions, is replaced by another. The new table has room for twice as much code,
  // if memory allows. It is added before the old table goes. The old table's memory is kept until the registrar ends,
  // since a walker may hold an entry of it.
  kGrowableTable,
  // Windows x64: RtlInstallFunctionTableCallback(). Functions are looked up in a directory of the heap's pages, without
  // a lock. A batch takes time for everything on its pages. For code that comes and goes in any order. Rules as
  // kGrowableTable.
  kTableCallback,
  // Windows x64: RtlAddFunctionTable(), a table for each run of code without gaps of 64 bytes or more. Later code
  // cannot be put into such a gap. Wine searches all tables in turn. Rules as kGrowableTable.
  kFunctionTable,
  // Linux: a CodeManager (jit/code_manager.h) for the heap given by RegistrarOptions. Walks of this process and of
  // others find a function in constant time. `windlass record` and `windlass walk` read the table: names and rows. For
  // many functions that come and go.
  kCodeManager,
};

// Names a batch. A registrar never gives a number twice.
enum class RegistrationId : std::uint64_t { kNone = 0 };

// A way into one registry, from open_registrar().
class Registrar {
 public:
  // Removes everything that is still registered.
  virtual ~Registrar() = default;
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  // Registers a batch: all of it, or with an error nothing. The batch is known when this returns. Linear in the batch,
  // logarithmic in the registered functions.
  //
  // First write the code, then make it executable, then add it, then run it. `where` of an error is the function's
  // address. If a prologue is kMalformed, `where` is the offset into the code.
  //
  // - kMalformed: an empty batch; a function without code; rows that are not of the code.
  // - kMalformed: functions that overlap each other, or functions still registered here.
  // - kMalformed: code on pages that are not executable. Checked on Linux 6.11 and later, and on Windows.
  // - kMalformed, Windows: code that another table already answers for.
  // - kOutOfRange: a function of 2 GiB or more. Windows and kCodeManager: code outside of the heap.
  // - kUnsupported: another architecture than the process's. On Windows also rows.
  // - kLimit, kCodeManager: no room for functions, rows or names.
  // - kUnreadable: a jitdump cannot copy the code.
  // - kSystem: the file cannot be written. It then has nothing of the batch.
  // - Errors of winx64::write() on Windows.
  [[nodiscard]] virtual Expected<RegistrationId> add(std::span<const GeneratedFunction> functions) = 0;
  // Removes a batch. Call when the code runs no more, and before other code is written to its place. kNotFound if there
  // is no such batch.
  virtual Expected<void> remove(RegistrationId id) = 0;
  // Tells that all functions of a batch stand at new addresses. Call when none of them runs, neither at the old address
  // nor at the new one. A new place may be the old place of another function of the batch. The batch keeps its id. A
  // function that moves alone should be a batch of its own.
  //
  // A registry that can express a move does, for example a jitdump. Elsewhere the batch is removed and added.
  //
  // kNotFound if there is no such batch. With any other error the batch is removed, as its code is no longer at the old
  // addresses. kMalformed for functions that are not those of the batch, each once and of the same size. Else the
  // errors of add().
  virtual Expected<void> move(RegistrationId id, std::span<const MovedFunction> functions) = 0;

 protected:
  Registrar() = default;
};

// Options of open_registrar(). Each member belongs to some registries only.
struct RegistrarOptions {
  std::string folder = {};  // The folder of the file. Empty: the working directory for a jitdump, /tmp for a perf map.
  // Windows, and kCodeManager: the reserved address range [heap_begin, heap_end) in which all code will lie, at most
  // 4 GiB. On Windows, unwind information is put behind the range, within the reach of 32-bit RVAs.
  std::uint64_t heap_begin = 0;
  std::uint64_t heap_end = 0;
  // kGrowableTable: entries that the first table has room for. 0: 4096.
  std::uint32_t table_entries = 0;
  // Windows: called in add() and move() for each call about which Windows asks no handler, as
  // winx64::handlers_not_asked() finds them. `return_address` is the call's. The function is registered all the same.
  // The registrar's lock is held, so nothing may be registered or removed in here.
  void (*handler_not_asked)(std::uint64_t return_address, void* context) = nullptr;
  void* context = nullptr;  // For handler_not_asked.
};

// Opens a registry. Errors: kUnsupported if this process has no such registry, and the text says what is missing;
// kSystem if the file cannot be made.
//
// After fork(), everything is registered in the child too, except in files: their names contain the process id. The
// child's first add() begins new files, which hold all that is registered. While a thread forks, no other thread may be
// in add() or remove(). Else the child would inherit locked locks, the unwinder's too, which no thread releases.
[[nodiscard]] Expected<std::unique_ptr<Registrar>> open_registrar(Registry registry,
                                                                  const RegistrarOptions& options = {});

}  // namespace windlass
