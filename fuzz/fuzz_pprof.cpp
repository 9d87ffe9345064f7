// Input: a profile, compressed or not. What is accepted must survive every exporter and come back from a rewrite.
#include "check.h"
#include "profiler/export/folded.h"
#include "profiler/export/pprof.h"
#include "profiler/export/report.h"
#include "profiler/export/speedscope.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  const exporter::PprofLimits limits{.max_bytes = 1 << 20, .max_items = 1 << 16};
  const auto profile = exporter::read_pprof(ByteView(reinterpret_cast<const std::byte*>(data), size), limits);
  if (!profile) return 0;
  for (const auto& sample : profile->samples)
    for (const auto location : sample.locations) FUZZ_CHECK(location < profile->locations.size());
  for (const auto& location : profile->locations)
    for (const auto& line : location.lines) FUZZ_CHECK(line.function < profile->functions.size());

  std::string text;
  TextWriter out(&text);
  FUZZ_CHECK(exporter::write_folded(*profile, out).has_value());
  FUZZ_CHECK(exporter::write_speedscope(*profile, out).has_value());
  FUZZ_CHECK(exporter::write_json(*profile, out).has_value());
  FUZZ_CHECK(exporter::write_report(*profile, out, {.width = 60}).has_value());

  std::string rewritten;
  TextWriter again(&rewritten);
  FUZZ_CHECK(exporter::write_pprof(*profile, again).has_value());
  const auto back =
      exporter::read_pprof(ByteView(reinterpret_cast<const std::byte*>(rewritten.data()), rewritten.size()));
  FUZZ_CHECK(back.has_value());
  FUZZ_CHECK(back->samples.size() == profile->samples.size());
  FUZZ_CHECK(back->locations.size() == profile->locations.size());
  for (std::size_t i = 0; i < back->samples.size(); ++i) {
    FUZZ_CHECK(back->samples[i].locations == profile->samples[i].locations);
    FUZZ_CHECK(back->samples[i].count == profile->samples[i].count);
    FUZZ_CHECK(back->samples[i].end == profile->samples[i].end);
  }
  return 0;
}
