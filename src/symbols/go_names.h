// Names of a Go program's functions from its own table, which stripping leaves: with inlined calls, files and lines.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/mapped_file.h"
#include "formats/go/names.h"
#include "symbols/symbol_result.h"

namespace windlass::symbols {

// One program's. One thread at a time.
class GoNames {
 public:
  // Null: the file is no program of Go's, or its table cannot be read; `note` then says why. The descriptor is of an
  // ELF file.
  [[nodiscard]] static std::unique_ptr<GoNames> open(int fd, std::string& note);
  // The same of an image that outlives it, or whose bytes are `file`'s.
  [[nodiscard]] static std::unique_ptr<GoNames> make(const runtimes::go::Program& program, MappedFile file,
                                                     std::string& note);

  // Adds the lines of names' address number `index`, and where its function begins. False: it is in no function of
  // Go's.
  bool name(std::size_t index, std::uint64_t address, bool lines, ModuleNames& names) const;

 private:
  GoNames(MappedFile file, const runtimes::go::Table& table, const runtimes::go::Program& program)
      : file_(std::move(file)), map_(table), names_(map_, program) {}

  MappedFile file_;
  runtimes::go::CodeMap map_;
  runtimes::go::Names names_;
};

}  // namespace windlass::symbols
