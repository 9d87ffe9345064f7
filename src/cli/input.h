// What `dump` and `rows` share: opening the file, the sections, errors in both output forms, the exit status.
#pragma once

#include <string>

#include "base/function_ref.h"
#include "base/text_writer.h"
#include "dwarf/cfi.h"
#include "image/pe.h"

namespace windlass::cli {

struct ListingOptions {
  std::string file;
  bool json = false;
};

// What to do with a file of each kind. `report` prints a malformed record in its place and makes the exit status
// kFoundWrong.
struct Listers {
  // Called for each section of DWARF unwind information, in order.
  FunctionRef<void(const dwarf::CfiSection& section, TextWriter& out, dwarf::ErrorSink report)> section;
  // Called for a PE image with a function table.
  FunctionRef<void(const image::PeImage& image, TextWriter& out, dwarf::ErrorSink report)> pe;
};

// Opens the file, finds out by its content what it is and lists it. Returns the exit status.
int list_file(const ListingOptions& options, const Listers& listers);

}  // namespace windlass::cli
