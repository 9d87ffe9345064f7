// Input: a recording of perf. What is accepted refers to nothing that is not there, and can be written. No file is
// opened: the code has no rows.
#include <string>

#include "check.h"
#include "profiler/export/pprof.h"
#include "profiler/import/perf_data.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  const importer::Limits limits{.max_bytes = 1 << 20, .max_record_bytes = 1 << 20, .max_items = 1 << 16};
  const ByteView bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto perf = importer::read_perf_data(bytes, limits, {.open = false});
  if (!perf) {
    FUZZ_CHECK(*perf.error().what != '\0');
    return 0;
  }
  const profile::Profile& profile = perf->profile;
  for (const auto& sample : profile.samples) {
    FUZZ_CHECK(sample.event < profile.events.size());
    for (const auto location : sample.locations) FUZZ_CHECK(location < profile.locations.size());
  }
  for (const auto& location : profile.locations)
    FUZZ_CHECK(location.module == profile::kNone || location.module < profile.modules.size());
  std::string text;
  TextWriter out(&text);
  FUZZ_CHECK(exporter::write_pprof(profile, out).has_value());
  return 0;
}
