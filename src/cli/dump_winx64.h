// windlass dump for PE images of x64 machines.
#pragma once

#include <cstdint>

#include "base/text_writer.h"
#include "formats/dwarf/cfi.h"
#include "formats/winx64/read.h"

namespace windlass::cli {

// kText: in the words of `dumpbin /unwindinfo`, and in our own for epilogues of version 2 and everything that dumpbin
// does not know. kJson: as NDJSON. kDumpbin: exactly as dumpbin, with the codes of epilogues as stored.
enum class DumpForm : std::uint8_t { kText, kJson, kDumpbin };

// Every entry of the function table, in stored order.
void dump_winx64(const winx64::Functions& functions, TextWriter& out, dwarf::ErrorSink report, DumpForm form);

}  // namespace windlass::cli
