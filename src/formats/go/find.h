// Finds out whether an ELF or PE image is a Go program. If it is: where the table of functions lies, which form that
// has, and the address from which its numbers count. Stripping leaves the table (runtime.pclntab), because the program
// itself needs it.
//
// Each form is named after the first Go release that wrote it. The first word of the table tells the forms apart
// (src/internal/abi/symtab.go, src/debug/gosym/pclntab.go).
#pragma once

#include <cstdint>

#include "formats/go/program.h"
#include "windlass/registers.h"

namespace windlass::runtimes::go {

enum class TableForm : std::uint8_t {
  k1_2,   // addresses; everything counts from the table
  k1_16,  // five parts
  k1_18,  // offsets from the start of the text
  k1_20,  // functions have the line they start at, and inlined calls another form
};

// Views of the image's bytes.
struct Table {
  TableForm form = TableForm::k1_20;
  Architecture architecture = Architecture::kX86_64;
  std::uint8_t quantum = 1;   // of instruction sizes
  std::uint64_t address = 0;  // of the table
  std::uint64_t origin = 0;   // and its offset in the file
  std::uint64_t text = 0;     // of what functions count from; 0 where they are addresses
  std::uint64_t base = 0;     // what addresses in the table are larger by than those of the image: PE
  std::uint64_t function_count = 0;
  ByteView index;      // an entry each function, ascending, and one more for the last one's end
  ByteView functions;  // what entries and records count from
  ByteView names, units, files, values;
};

// kNotFound: the image has none. kUnsupported: of a form that is not known, or of a machine with 4-byte words.
// kMalformed, kTruncated: `where` is the offset in the file. Linear in the sections, and, in position-independent
// programs, the relocations. In PE images linear in the constants and data: the table has no section of its own.
[[nodiscard]] Expected<Table> find_table(const Program& program);

}  // namespace windlass::runtimes::go
