// The drop-in walks its own process alone, by what is mapped: it opens no images, and its interface is given no
// function tables of Windows. These stand in for those of lookup/sources/open_source.cpp and function_tables.cpp, and
// with them everything that reads files, sections' compression included, stays out of every process that it is loaded
// into.
#include "lookup/sources/function_tables.h"
#include "lookup/sources/unwind_source.h"

namespace windlass::sources {

Expected<std::unique_ptr<UnwindSource>> open_source(ByteView, image::PeLayout) {
  return fail(ErrorCode::kUnsupported, "images are not read here", 0);
}

std::unique_ptr<UnwindSource> make_source(ByteView, image::PeLayout) {
  return make_failed_source(Error{ErrorCode::kUnsupported, "images are not read here"}, false);
}

Expected<std::unique_ptr<UnwindSource>> make_table_source(const FunctionTable&, std::uint64_t, std::uint64_t) {
  return fail(ErrorCode::kUnsupported, "function tables are not read here", 0);
}

}  // namespace windlass::sources
