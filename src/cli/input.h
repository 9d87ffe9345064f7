// What `dump` and `rows` share: opening the file, errors in both output forms, the exit status.
#pragma once

#include <string>

#include "base/text_writer.h"
#include "lookup/sources/unwind_source.h"

namespace windlass::cli {

struct ListingOptions {
  std::string file;
  bool json = false;
  bool errors_apart = false;  // on standard error: another tool's form has none
  bool ranges = true;         // the code ranges of an image with code for several machines come first
};

// What to do with a file. `report` prints a malformed record in its place and makes the exit status kFoundWrong. False:
// there was nothing to list.
using Lister = bool (*)(const sources::UnwindSource& source, TextWriter& out, sources::ErrorSink report, bool json);

// Opens the file, recognises its format by the content, and lists it. Returns the exit status.
int list_file(const ListingOptions& options, Lister list);

}  // namespace windlass::cli
