// windlass dump for PE images of ARM64 machines.
#pragma once

#include "base/text_writer.h"
#include "formats/dwarf/cfi.h"
#include "formats/winarm64/read.h"

namespace windlass::cli {

// Every entry of the function table, in stored order: as NDJSON, or as text with the instructions that the unwind codes
// stand for.
void dump_winarm64(const winarm64::Functions& functions, TextWriter& out, dwarf::ErrorSink report, bool json);

}  // namespace windlass::cli
