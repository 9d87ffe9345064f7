// One function of a profile, line by line and instruction by instruction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/annotate/disassemble.h"
#include "profiler/profile/profile.h"
#include "symbols/symbolize.h"

namespace windlass::annotate {

// Sums of a value: of samples that end here, and of all that pass here. A sample counts once, however often it passes.
struct Weight {
  std::uint64_t self = 0, total = 0;
};

// A line of the function. What it calls inline is folded into it: `total` has those samples, `self` has not.
struct SourceLine {
  std::uint32_t line = 0;
  Weight weight{};
  std::vector<std::pair<std::string, std::uint64_t>> inlined{};  // their names and totals, the heaviest first
};

struct SourceFile {
  std::string path;               // as the debug information has it; empty: unknown
  std::vector<SourceLine> lines;  // ascending
};

struct CodeLine {
  Instruction instruction;
  std::string bytes;  // in hexadecimal digits
  Weight weight{};
  std::string file{};                  // of the annotated function's line that it belongs to
  std::uint32_t line = 0;              // 0: unknown
  std::vector<std::string> inlined{};  // functions between that line and the instruction, the caller first
};

// Machine code that has the function: its own, or that of a function it is inlined in.
struct CodePart {
  std::uint32_t module = profile::kNone;  // an index into Profile::modules
  std::string function;                   // whose code it is
  Weight weight{};
  Architecture architecture = Architecture::kX86_64;
  std::vector<CodeLine> lines;  // ascending; of a function it is inlined in, only the instructions that are its
};

struct Annotation {
  std::string function;
  std::uint64_t all = 0;  // the value's sum over all samples
  Weight weight{};
  std::vector<SourceFile> files;  // the heaviest first
  std::vector<CodePart> parts;    // the heaviest first
  std::size_t more_parts = 0;     // that were left out
  Weight without_code{};          // of addresses whose file is missing, or has no code there
};

struct AnnotateOptions {
  std::size_t parts = 4;                // of machine code, at most
  symbols::SymbolizeOptions symbols{};  // how instructions get their lines
};

// The names of functions that `text` means, the heaviest first: those equal to it, else those equal to it without
// their parameters, else those that contain it. A function without a name is known as exporter::unnamed_frame() says.
// Empty: none does.
[[nodiscard]] std::vector<std::pair<std::string, Weight>> functions_named(const profile::Profile& profile,
                                                                          profile::ValueType type,
                                                                          std::string_view text);

// O(samples x depth), and what it takes to read the files of the modules. `function` is a full name. Files that cannot
// be read cost their instructions alone.
[[nodiscard]] Annotation annotate(const profile::Profile& profile, profile::ValueType type, const std::string& function,
                                  const AnnotateOptions& options = {});

}  // namespace windlass::annotate
