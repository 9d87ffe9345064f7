// windlass dump of .sframe sections.
#pragma once

#include "base/text_writer.h"
#include "formats/sframe/read.h"

namespace windlass::cli {

// Prints a record for each function: its place in the index, the facts that hold for all its rows, and the rows. As
// text, or as a line of JSON.
void dump_sframe(const sframe::Section& section, TextWriter& out, sframe::ErrorSink report, bool json);

}  // namespace windlass::cli
