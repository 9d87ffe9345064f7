// What `dump` and `rows` share: opening the file, the sections, errors in both output forms, the exit status.
#pragma once

#include <string>

#include "base/function_ref.h"
#include "cli/text_writer.h"
#include "dwarf/cfi.h"

namespace windlass::cli {

struct ListingOptions {
  std::string file;
  bool json = false;
};

// Calls `list` for each section of unwind information in the file, in order. `report` prints a malformed record in its
// place and makes the exit status kFoundWrong. Returns the exit status.
int list_sections(const ListingOptions& options,
                  FunctionRef<void(const dwarf::CfiSection& section, TextWriter& out, dwarf::ErrorSink report)> list);

}  // namespace windlass::cli
