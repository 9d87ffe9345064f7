// windlass dump of .sframe sections.
#pragma once

#include "base/text_writer.h"
#include "formats/sframe/read.h"

namespace windlass::cli {

// One record a function: its place in the index, what is said of all its rows, and these; as text, or as a line of
// JSON.
void dump_sframe(const sframe::Section& section, TextWriter& out, sframe::ErrorSink report, bool json);

}  // namespace windlass::cli
