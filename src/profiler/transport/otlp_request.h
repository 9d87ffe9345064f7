// OpenTelemetry's profiles: a profile as the body of an ExportProfilesServiceRequest (opentelemetry-proto 1.11,
// profiles v1development).
//
// Samples of a container are a ResourceProfiles of their own, and so are those of a service; all others are the first
// one. A Profile has one type of value: nanoseconds of an event that has a period, how often and how much of another.
// Labels of a sample are attributes with the same keys. Those of the container, the pod and the service are attributes
// of the resource; trace_id and span_id are a link. Locations keep the numbering of profile.h, and an address without a
// name has no line.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::transport {

struct OtlpSource {
  // Attributes of each resource, for example host.name.
  std::vector<std::pair<std::string, std::string>> resource{};
  // Stands for this profile alone; ids of the request's Profiles are made of it. Zeroes: Profiles without ids.
  std::array<std::byte, 16> id{};
  // Of profile::count_samples(): by these OtlpBatches counts samples that are dropped.
  std::vector<std::uint64_t> scales{};
};

// Samples of Profile::samples.
struct SampleRange {
  std::size_t first = 0, count = std::numeric_limits<std::size_t>::max();
};

// A request by itself, with the tables that it uses. Lost samples are in the request that has the first sample. Bytes
// that are no UTF-8 become U+FFFD. O(samples x frames) time; memory for the request twice.
[[nodiscard]] std::string otlp_request(const profile::Profile& profile, const OtlpSource& source,
                                       SampleRange range = {});

// host.arch, host.name, os.type and os.version of this machine. An empty `host`: its own name.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> otlp_machine(const std::string& host);

}  // namespace windlass::transport
