// Names of code addresses: functions, the calls inlined into them, source files and lines. Of files, of live processes,
// and of walked frames.
//
// For example, to name an address of a process:
//
//   auto symbols = Symbolizer::of_process(pid);   // Or of_file(path), of_target(target), of_self().
//   if (!symbols) return complain(symbols.error());
//
//   const NamedAddress at = symbols->name(CodeAddress::instruction(address));
//   for (const SourceFrame& frame : at.frames) print(frame.function, frame.file, frame.line);
//
// To name the frames of a walk:
//
//   for (const Frame& frame : StackWalker(target.space, registers)) print(symbols.name(frame));
//
// Walked and named in one call, with the functions that interpreters run: stack.h.
//
// Sources of names:
// - ELF: .symtab, .dynsym, MiniDebugInfo, linkage stubs ("memcpy@plt"), and DWARF 2 to 5.
// - PE images: the PDB file, with inlined calls and lines. Else COFF symbols and exports, without lines.
// - Code of a JIT compiler: /tmp/perf-PID.map.
// - Names of C++, Rust and D are demangled.
//
// DWARF is in the file itself, in a .dwo file, or in a separate file. A separate file is found by build id or
// .gnu_debuglink: in the file's directory, in its ".debug", or below the debug directories. If DEBUGINFOD_URLS is set,
// debuginfod servers are asked too.
//
// A PDB file must have the GUID and age of its image. It is in SymbolizerOptions::pdb_files, in the image's directory,
// at the absolute path in the image, or in a folder of the symbol path: FOLDER/x.pdb/GUIDAGE/x.pdb or FOLDER/x.pdb.
// Symbol servers are never asked. Functions of a PDB file have no parameters in their names.
//
// A symbol or debug entry names an address only if its range contains the address. Symbols of Windows images have no
// range: these name code up to the next symbol, within the function and the object file. A file is used only if it is
// the mapped file, by its build id, or without a build id by its inode.
//
// This is a library of its own, windlass::symbols, which needs libdw; Linux only. Nothing here is signal-safe. Files
// are mapped while they are read. A file that is truncated meanwhile raises SIGBUS, as for every reader of mapped
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

// A function, and a place in its source. The views are NUL-terminated, and valid as long as the Symbolizer.
struct SourceFrame {
  std::string_view function;      // Readable, with parameters if the language mangles them.
  std::string_view linkage_name;  // As in the symbol table or DWARF. Equal to `function` if not mangled.
  std::string_view file;          // Empty: not known.
  std::uint32_t line = 0;         // From 1. 0: not known.
  bool inlined = false;           // The code is part of the next frame's function.
  bool interpreted = false;       // An interpreter's evaluator runs this function. The evaluator is the next native
                                  // frame.
};

// The names of an address.
struct NamedAddress {
  std::uint64_t lookup = 0;  // The address that was looked up: CodeAddress::lookup().
  std::string_view module;   // The path of the module as the process knows it, "[vdso]" or "[anon]". Empty: the address
                             // is in no module.
  std::uint64_t offset = 0;  // `lookup` in the module's numbering: virtual addresses of ELF files, RVAs of PE images.
  // The function's first byte, in the same numbering: by the symbol that names it, else by unwind information. 0: not
  // known.
  std::uint64_t function_begin = 0;
  // The innermost inlined call first; last, the function that has a frame on the stack. Empty: no name.
  std::vector<SourceFrame> frames;
};

// An argument that a function was called with, as the function has it now. Text from the program, which may hold
// anything: the value alone is safe to print, on one line.
struct Argument {
  std::string name;   // Empty: the debug information has no name.
  std::string type;   // For example "const char *". Empty: not known.
  std::string value;  // For example `5`, `0x7ffe0010 "text"` or `{a = 1, b = 2}`.

  [[nodiscard]] bool operator==(const Argument& other) const = default;
};

// The arguments of one of a frame's functions.
struct FunctionArguments {
  bool known = false;               // The debug information has the function's type. It may have no arguments.
  std::vector<Argument> arguments;  // In the order of the source.

  [[nodiscard]] bool operator==(const FunctionArguments& other) const = default;
};

// A frame of a stack, and its names.
struct StackPlace {
  const Registers* registers = nullptr;
  const NamedAddress* names = nullptr;
  // Of a thread's innermost frame: NT_PRFPREG as ptrace(2) gives it, or a core file. Empty: not known.
  std::span<const std::byte> vector_registers = {};
};

// Options of a Symbolizer.
struct SymbolizerOptions {
  bool lines = true;            // True: inlined calls, files and lines. False: symbol tables alone, which needs no
                                // DWARF.
  std::string debug_directory;  // Searched for .build-id/xx/yyyy.debug before /usr/lib/debug. Empty: none.
  unsigned threads = 0;         // Modules that a batch reads at a time. 0: one a CPU.
  std::uint64_t process = 0;    // For of_space(): the process whose perf map names code without a file. 0: none.
  std::vector<std::string> pdb_files = {};  // PDB files of Windows images, tried before those beside the images.
  std::string symbol_path = {};             // Folders of PDB files, for example "srv*/symbols". Empty: _NT_SYMBOL_PATH.
};

// Names the code of a process, dump, space or file. Symbol tables, indexes of debug information and functions are
// kept once read, and freed with this object. A file that is mapped twice, or again after it was unmapped, is read
// once.
//
// Any number of threads may use a Symbolizer. Two threads that need the same module wait for each other. Making,
// moving and destroying a Symbolizer need it alone.
//
// The first address in a module reads the module's symbols, O(n log n). The first address in a compilation unit indexes
// its functions. Later addresses take O(log n) and a descent into the function. An address without a name also takes a
// look-up in the unwind information. Each call reads a JIT compiler's map anew.
//
// So name many addresses in one call. Then each module's addresses are sorted, its locks are taken once, and modules
// are read in parallel.
class Symbolizer {
 public:
  // Names code of a file: ELF of any machine, or PE. Addresses are as in the file. Errors: kSystem if the file cannot
  // be opened (`detail` is errno). kUnsupported if it is neither, or no regular file. kMalformed if its headers cannot
  // be read.
  [[nodiscard]] static Expected<Symbolizer> of_file(const std::string& path, const SymbolizerOptions& options = {});

  // Names code of a process of this machine, which runs on meanwhile. Addresses are those of the process.
  //
  // The mappings are read at each call, so an address has the meaning of that moment. After the process has ended, the
  // last mappings count, even if another process gets its id. The descriptor of every mapped file is kept. So replaced
  // files, deleted files, other mount namespaces and the end of the process do not matter. Takes about 10 system calls
  // a module.
  //
  // kSystem if there is no such process, or the caller may not inspect it (`detail` is errno). Without permission to
  // trace it (ptrace(2)), files without a build id are compared by inode.
  [[nodiscard]] static Expected<Symbolizer> of_process(std::uint64_t pid, const SymbolizerOptions& options = {});

  // Names code of this process, with the changes of dlopen and dlclose up to each call.
  [[nodiscard]] static Symbolizer of_self(const SymbolizerOptions& options = {});

  // Names code of an opened process, core file or minidump. The target must outlive the Symbolizer. A process's files
  // are opened here, so the process may be released, and may end, before name() is called.
  [[nodiscard]] static Symbolizer of_target(const Target& target, const SymbolizerOptions& options = {});
  // Opens here the files with code at `pcs` alone.
  [[nodiscard]] static Symbolizer of_target(const Target& target, const SymbolizerOptions& options,
                                            std::span<const CodeAddress> pcs);

  // Names code of any address space. The space must outlive the Symbolizer, and not be changed during a call. A file is
  // read under ModuleInfo::file or ::path, unless the memory has another build id.
  [[nodiscard]] static Symbolizer of_space(const AddressSpace& space, const SymbolizerOptions& options = {});

  Symbolizer(Symbolizer&&) noexcept;
  Symbolizer& operator=(Symbolizer&&) noexcept;
  ~Symbolizer();

  // The names of an address. An address in no module, or without a name, is no error: see NamedAddress.
  [[nodiscard]] NamedAddress name(CodeAddress pc) const;
  // The names of a walked frame, of the space that the Symbolizer was made for. A return address is looked up at the
  // call before.
  [[nodiscard]] NamedAddress name(const Frame& frame) const;
  // The names of many addresses, in the same order. Each distinct address is looked up once. `functions` holds each
  // frame's Frame::function. Empty: all are 0.
  [[nodiscard]] std::vector<NamedAddress> name(std::span<const CodeAddress> pcs,
                                               std::span<const std::uint64_t> functions = {}) const;

  // The arguments of all functions of a stack. `stack` is the whole stack of a thread, innermost frame first: callers
  // say values that their callees have overwritten. Element [i][j] belongs to stack[i].names->frames[j].
  //
  // The debug information (DWARF) of ELF files says where arguments are, so SymbolizerOptions::lines must be set.
  // Memory is read, so threads of a process must stand still. An argument that is nowhere has the value "<optimized
  // out>". A register or memory that is not known gives "?". Values have at most about 1,000 characters, and strings
  // 200. Nothing is known for Symbolizers by of_file() and of_process().
  [[nodiscard]] std::vector<std::vector<FunctionArguments>> arguments(std::span<const StackPlace> stack) const;

  // Sentences for people about files that could not be read so far, at most one a module.
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  class Implementation;
  explicit Symbolizer(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace windlass
