// From unwind information, whatever its kind, to its dense table.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/dwarf/cfi.h"
#include "formats/image/elf.h"
#include "lookup/sources/unwind_source.h"
#include "lookup/table/builder.h"
#include "lookup/table/extra_register.h"
#include "lookup/table/unwind_table.h"
#include "windlass/error.h"

namespace windlass::table {

// The table of all rows of a source. A malformed record goes to `report`, with its place, and costs only itself; a
// source without any rows gives an empty table. How each kind is compiled: compile_elf here, compile_pe.h,
// compile_rows.h. Errors: kLimit (code over more than WL_MAX_PAGES pages), kUnsupported (another machine). Linear in
// the size of the unwind information, of PE images in that of the code, plus sorting the functions.
[[nodiscard]] Expected<UnwindTable> compile(const sources::UnwindSource& source, sources::ErrorSink report);

// ---- call frame information ---------------------------------------------------------------------------------------

// What went by while one section was evaluated.
struct EvaluationStats {
  std::uint64_t functions = 0;
  std::uint64_t rows = 0;
  std::uint64_t bytes = 0;     // of the section
  std::uint64_t checksum = 0;  // of the rows, so that an evaluation without a table is not optimised away
};

// Compiles the sections of find_row_sections: `.eh_frame`, then the others for the addresses it lacks,
// without full rows in between. A malformed record is reported with its file offset.
[[nodiscard]] Expected<UnwindTable> compile_elf(const image::ElfImage& image, dwarf::ErrorSink report);

// The rows of one section into `builder`, as compile_elf does it; counts in `use`. `image`: its code, which may be
// asked about rows that rest on a register calls destroy.
EvaluationStats compile_section(const dwarf::CfiSection& section, std::uint8_t x_reg, TableBuilder& builder,
                                CfaRegisterUse& use, dwarf::ErrorSink report, const image::ElfImage* image = nullptr);

// What the table has of a rule whose return address is above the CFA, where no callee saves it. glibc's hand-written
// call frame information for AArch64 has two kinds of these:
// - _dl_runtime_resolve is jumped to with 16 bytes pushed, x30 in the upper word. Its CFA is sp as it comes: the
// caller's
//   is 16 more;
// - the rows of longjmp and setcontext are about the registers in a jmp_buf or ucontext: nothing says who called them
//   (of x86-64's alike, see unusual_rows.h).
[[nodiscard]] TraceRule corrected_aarch64_rule(TraceRule rule);

// Evaluates every row of a section and forgets it: what evaluation alone costs.
[[nodiscard]] EvaluationStats evaluate_section(const dwarf::CfiSection& section, dwarf::ErrorSink report);

}  // namespace windlass::table
