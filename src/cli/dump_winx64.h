// windlass dump for PE images of x64 machines.
#pragma once

#include "base/text_writer.h"
#include "dwarf/cfi.h"
#include "winx64/read.h"

namespace windlass::cli {

// Every entry of the function table, in stored order: as NDJSON, or in the words of `dumpbin /unwindinfo`.
void dump_winx64(const winx64::Functions& functions, TextWriter& out, dwarf::ErrorSink report, bool json);

}  // namespace windlass::cli
