// What `windlass emit` reads: functions of an object, or of a blob and a list.
#pragma once

#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "formats/image/laid_out_object.h"
#include "windlass/jit/emit.h"

namespace windlass::cli {

struct EmitInput {
  std::string file;
  std::string list;                                   // of a blob's functions; empty: the file is an ELF one
  std::string functions = "*";                        // a pattern of names, as a shell's
  std::string base;                                   // the symbol that all counts from; empty: each function's own
  bool addresses = false;                             // of functions instead of symbols
  Architecture architecture = Architecture::kX86_64;  // of a blob
};

struct EmitFunctions {
  MappedFile file;                                     // the code is a view of it, or of
  std::shared_ptr<const image::LaidOutObject> object;  // the sections of what is not linked
  Architecture architecture = Architecture::kX86_64;
  std::vector<emit::Function> functions;  // ascending by address
  std::size_t covered = 0;                // others, which the file's unwind information describes
  bool several_sections = false;          // of an object that is not linked: what is between them is not known
  // What the file has at an address; of a blob nothing is known beside the code.
  std::function<bool(std::uint64_t address, void* to, std::size_t size)> read = {};
};

struct EmitError {
  std::string subject;  // "FILE", or "LIST: line 3"
  Error error;          // its place is an offset in the file
};

// Functions that have a size and that the file's own unwind information does not describe; of several names for one the
// first.
[[nodiscard]] std::expected<EmitFunctions, EmitError> read_emit_input(const EmitInput& input);

}  // namespace windlass::cli
