// Files and lines of a module ("C13"): of its code, and where the functions begin that are inlined in it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/pdb/dbi.h"
#include "formats/pdb/format.h"
#include "windlass/bytes.h"
#include "windlass/function_ref.h"

namespace windlass::pdb {

// A file is an offset in the module's list of files.
struct SourceLine {
  std::uint32_t file = 0;
  std::uint32_t line = 0;
};

class ModuleLines {
 public:
  // A view of the sub-sections, which must outlive it. Damaged ones are passed.
  explicit ModuleLines(ByteView subsections);

  // Lines that begin at one place: all but the last are of no code, for example that of a function's opening brace.
  enum class Tie : std::uint8_t { kLast, kFirst };
  // The line of the code at a place. None: code without a line.
  [[nodiscard]] std::optional<SourceLine> at(SectionOffset place, Tie tie = Tie::kLast) const;
  // Where an inlined function begins in its source.
  [[nodiscard]] std::optional<SourceLine> of_inlinee(std::uint32_t id) const;
  // The offset of a file's path in the PDB's table of strings.
  [[nodiscard]] std::optional<std::uint32_t> path_of(std::uint32_t file) const;
  // Each place at which at() may have another answer.
  void each_place(FunctionRef<void(SectionOffset)> add) const;
  // Bytes of its lists.
  [[nodiscard]] std::size_t memory() const {
    return runs_.capacity() * sizeof(Run) + inlinees_.capacity() * sizeof(Inlinee);
  }

 private:
  struct Run {  // lines of one piece of code
    SectionOffset begin;
    std::uint32_t size;
    bool has_columns;
    ByteView blocks;
  };
  void add_lines(ByteView bytes);
  void add_inlinees(ByteView bytes);

  std::vector<Run> runs_;  // ascending
  ByteView files_;
  struct Inlinee {
    std::uint32_t id;
    SourceLine line;
  };
  std::vector<Inlinee> inlinees_;  // ascending
};

}  // namespace windlass::pdb
