// Input: a file of any format but perf's own. Each reader takes it, whatever it looks like. What is accepted refers to
// nothing that is not there. Written as folded stacks and read again, it has the same sum.
#include <string>
#include <string_view>

#include "check.h"
#include "profiler/export/folded.h"
#include "profiler/import/import.h"

namespace {
using namespace windlass;

void check(const Expected<profile::Profile>& read, const importer::Limits& limits) {
  if (!read) {
    FUZZ_CHECK(*read.error().what != '\0');
    return;
  }
  const profile::Profile& profile = *read;
  std::uint64_t sum = 0;
  for (const auto& sample : profile.samples) {
    FUZZ_CHECK(sample.event < profile.events.size());
    FUZZ_CHECK(sample.comm == profile::kNone || sample.comm < profile.strings.size());
    for (const auto location : sample.locations) FUZZ_CHECK(location < profile.locations.size());
    sum += weight_of(profile, sample, {0, false});
  }
  for (const auto& location : profile.locations) {
    FUZZ_CHECK(location.module == profile::kNone || location.module < profile.modules.size());
    for (const auto& line : location.lines) FUZZ_CHECK(line.function < profile.functions.size());
  }
  std::string text;
  TextWriter out(&text);
  FUZZ_CHECK(exporter::write_folded(profile, out, {0, false}).has_value());
  const auto again = importer::read_folded(text, limits);
  if (!again) {
    FUZZ_CHECK(sum == 0 || again.error().code == ErrorCode::kLimit);
    return;
  }
  std::uint64_t sum_again = 0;
  for (const auto& sample : again->samples) sum_again += weight_of(*again, sample, {0, true});
  FUZZ_CHECK(sum == sum_again);
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const importer::Limits limits{.max_bytes = 1 << 20, .max_record_bytes = 1 << 20, .max_items = 1 << 16};
  const ByteView bytes(reinterpret_cast<const std::byte*>(data), size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)importer::format_of(bytes);
  check(importer::read_folded(text, limits), limits);
  check(importer::read_perf_script(text, limits), limits);
  check(importer::read_speedscope(text, limits), limits);
  check(importer::read_firefox(text, limits), limits);
  return 0;
}
