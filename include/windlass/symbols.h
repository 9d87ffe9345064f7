// Names of code addresses: functions, the calls inlined into them, source files and lines. Of files, of live processes,
// and of what a walk gives.
//
//   auto symbols = Symbolizer::of_process(pid);             // or of_file(path), of_target(target), of_self()
//   if (!symbols) return complain(symbols.error());
//   const NamedAddress at = symbols->name(CodeAddress::instruction(address));
//   for (const SourceFrame& frame : at.frames) print(frame.function, frame.file, frame.line);
//
//   for (const Frame& frame : StackWalker(target.space, registers)) print(symbols.name(frame));
//
// ELF files by their symbol tables (.symtab, .dynsym, MiniDebugInfo), linkage stubs ("memcpy@plt") and DWARF 2 to 5, in
// the file itself, in a .dwo file, or in a separate file, found by build id or .gnu_debuglink in the file's directory,
// in its ".debug" and below the debug directories, or asked of debuginfod servers if DEBUGINFOD_URLS is set. PE images
// by their COFF symbols and exports, without lines. Code that a JIT compiler made by /tmp/perf-PID.map. C++, Rust and D
// names are demangled.
//
// An address is named only by a symbol or debug entry whose range contains it, never by the nearest one before it. A
// file is used only if it is the one that was mapped, by its build id or, where it has none, its inode.
//
// In a library of its own, windlass::symbols, which needs libdw; Linux only. None of it is signal-safe. Files are
// mapped while they are read: one that is truncated meanwhile raises SIGBUS, as it does for every reader of mapped
// files.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windlass/error.h"
#include "windlass/registers.h"
#include "windlass/target.h"
#include "windlass/walk.h"

namespace windlass {

// A function, and the place in its source. The views are NUL-terminated and live as long as the Symbolizer.
struct SourceFrame {
  std::string_view function;      // readable, with parameters where its language mangles them
  std::string_view linkage_name;  // as in the symbol table or DWARF; equal to `function` if it was not mangled
  std::string_view file;          // empty: not known
  std::uint32_t line = 0;         // from 1; 0: not known
  bool inlined = false;           // its code is part of the next frame's,
  bool interpreted = false;       // or it is what an interpreter's evaluator, the next native frame, runs
};

// What is known of one address.
struct NamedAddress {
  std::uint64_t lookup = 0;  // the address that was looked up: CodeAddress::lookup()
  std::string_view module;   // its path as the process knows it, "[vdso]", "[anon]"; empty: the address is in nothing
  std::uint64_t offset = 0;  // `lookup` as the module numbers it (ELF: its virtual addresses; PE: RVAs)
  std::uint64_t function_begin = 0;  // in the same numbering, of the symbol that names it, else by the unwind
                                     // information; 0: not known
  std::vector<SourceFrame> frames;   // the innermost inlined call first, last the function that has a frame on the
                                     // stack; empty: no name
};

struct SymbolizerOptions {
  bool lines = true;            // inlined calls, files and lines; false: symbol tables only, which needs no DWARF
  std::string debug_directory;  // searched for .build-id/xx/yyyy.debug before /usr/lib/debug; empty: none
  unsigned threads = 0;         // modules that one batch reads at a time; 0: one a CPU
  std::uint64_t process = 0;    // of_space: whose perf map names code that has no file; 0: there is none
};

// Names the code of one subject. What it reads it keeps: symbol tables, indexes of debug information, functions. They
// go with it. A file that is mapped twice, or again after it was unmapped, is read once.
//
// Any number of threads may ask at a time; two that need the same module wait for each other. Making, moving and
// destroying are one thread's business.
//
// The first address in a module reads its symbols, O(n log n); the first in a compilation unit indexes its functions.
// After that an address costs O(log n) and a descent into its function; one without a name a look into the module's
// unwind information, too. The map of a JIT compiler is read anew by each call. Hence batches where there are many:
// each module's addresses are then sorted and its locks taken once, and modules are read in parallel.
class Symbolizer {
 public:
  // Of a file, ELF of any machine or PE; addresses as the file numbers them. kSystem: it cannot be opened (`detail` is
  // errno); kUnsupported: it is neither, or no regular file; kMalformed: its headers cannot be read.
  [[nodiscard]] static Expected<Symbolizer> of_file(const std::string& path, const SymbolizerOptions& options = {});

  // Of a process of this machine, which runs on meanwhile; addresses in the process. Its mappings are read at each
  // call, so that an address means what it means then; once it has ended, what was mapped last is what counts, also
  // when its number is given to another process. A descriptor of every mapped file is kept, so that files which are
  // replaced, deleted or in another mount namespace do not matter, nor that the process ends. About 10 system calls a
  // module. kSystem: there is none, or it may not be looked at (`detail` is errno). Where the caller may not trace it
  // (ptrace(2)), files without a build id in sight are compared by inode.
  [[nodiscard]] static Expected<Symbolizer> of_process(std::uint64_t pid, const SymbolizerOptions& options = {});

  // Of this process, with what dlopen and dlclose changed until the call.
  [[nodiscard]] static Symbolizer of_self(const SymbolizerOptions& options = {});

  // Of a process, core file or minidump that was opened. The target must outlive it. A process's files are opened here,
  // so that it may be released, and end, before names are asked.
  [[nodiscard]] static Symbolizer of_target(const Target& target, const SymbolizerOptions& options = {});

  // Of any address space, which must outlive it and not be changed beside a call. A file is read under
  // ModuleInfo::file or ::path, unless the memory shows another build id.
  [[nodiscard]] static Symbolizer of_space(const AddressSpace& space, const SymbolizerOptions& options = {});

  Symbolizer(Symbolizer&&) noexcept;
  Symbolizer& operator=(Symbolizer&&) noexcept;
  ~Symbolizer();

  // An address that is in nothing known, or has no name, is no error: see NamedAddress.
  [[nodiscard]] NamedAddress name(CodeAddress pc) const;
  // A walked frame, of the space that this was made for. A return address is looked up at the call before it.
  [[nodiscard]] NamedAddress name(const Frame& frame) const;
  // As many, in the same order. Each distinct address is looked up once. `functions`: Frame::function of each; empty:
  // 0.
  [[nodiscard]] std::vector<NamedAddress> name(std::span<const CodeAddress> pcs,
                                               std::span<const std::uint64_t> functions = {}) const;

  // What could not be read so far and why, a sentence for people; one a module at most.
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  class Implementation;
  explicit Symbolizer(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace windlass
