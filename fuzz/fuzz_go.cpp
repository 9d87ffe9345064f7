// Input: an ELF file; make_go_seeds.py makes small ones. If it has Go's table of functions, its rows, names and dense
// table are made.
#include "check.h"
#include "formats/go/names.h"
#include "formats/image/elf.h"
#include "lookup/sources/go_source.h"
#include "lookup/table/compile.h"

namespace windlass::fuzz {
namespace {

constexpr std::size_t kFunctions = 512, kRows = 512;  // of which more is asked

void check_names(const runtimes::go::Names& names, std::uint64_t address) {
  unsigned places = 0;
  const auto count = [&](const runtimes::go::Place& place) {
    ++places;
    (void)(place.function.size() + place.file.size());
  };
  if (names.at(address, count)) FUZZ_CHECK(places >= 1 && places <= runtimes::go::Names::kMostInlined + 1);
}

// Rows are ascending, and each is found at both of its ends.
void check_rows(const runtimes::go::GoRows& rows, const runtimes::go::Function& function,
                const runtimes::go::Names& names) {
  std::uint64_t expected = rows.begin_of(function);
  std::size_t asked = 0;
  const auto each = [&](const FrameRow& row) {
    FUZZ_CHECK(row.begin >= expected && row.end > row.begin && row.end <= function.end);
    expected = row.end;
    if (++asked > kRows) return;
    FrameRow there;
    const auto same = rows.map().function_at(row.end - 1);  // another one, where the list of functions is damaged
    const bool is_same = same && same->begin == function.begin && same->record == function.record;
    if (is_same) FUZZ_CHECK(rows.row_at(row.end - 1, there));
    check_names(names, row.begin);
  };
  (void)rows.for_each_row(function, each);
}

}  // namespace
}  // namespace windlass::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  const auto image = image::ElfImage::parse(ByteView(reinterpret_cast<const std::byte*>(data), size));
  if (!image) return 0;
  const auto table = runtimes::go::find_table(*image);
  if (!table) return 0;
  const runtimes::go::GoRows rows(*table, *image);
  const runtimes::go::Names names(rows.map(), *image);
  for (std::uint64_t i = 0; i < rows.map().size() && i < fuzz::kFunctions; ++i)
    if (const auto function = rows.map().function(i)) fuzz::check_rows(rows, *function, names);
  if (rows.map().size() > fuzz::kFunctions) return 0;
  const auto ignore = [](const Error&) {};
  (void)table::compile_elf(*image, ignore);
  return 0;
}
