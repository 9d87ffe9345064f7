// Field numbers of github.com/google/pprof/proto/profile.proto, and the names Windlass gives its labels.
#pragma once

#include <cstdint>
#include <string_view>

namespace windlass::exporter::pprof {

enum ProfileField : std::uint32_t {
  kSampleType = 1,
  kSample = 2,
  kMapping = 3,
  kLocation = 4,
  kFunction = 5,
  kStringTable = 6,
  kDropFrames = 7,
  kKeepFrames = 8,
  kTimeNanos = 9,
  kDurationNanos = 10,
  kPeriodType = 11,
  kPeriod = 12,
  kComment = 13,
  kDefaultSampleType = 14,
  kCountsOfTimes = 1001,  // Of Windlass: packed; Event::per_time of each event.
};
enum ValueTypeField : std::uint32_t { kType = 1, kUnit = 2 };
enum SampleField : std::uint32_t {
  kSampleLocationId = 1,
  kSampleValue = 2,
  kSampleLabel = 3,
  // Of Windlass, packed: the times of the sample in ns, each since the one before; and of waits how long they lasted.
  kSampleTimes = 1001,
  kSampleLasted = 1002,
};
enum LabelField : std::uint32_t { kLabelKey = 1, kLabelStr = 2, kLabelNum = 3, kLabelNumUnit = 4 };
enum MappingField : std::uint32_t {
  kMappingId = 1,
  kMemoryStart = 2,
  kMemoryLimit = 3,
  kFileOffset = 4,
  kFilename = 5,
  kBuildId = 6,
  kHasFunctions = 7,
  kHasFilenames = 8,
  kHasLineNumbers = 9,
  kHasInlineFrames = 10,
};
enum LocationField : std::uint32_t { kLocationId = 1, kLocationMappingId = 2, kAddress = 3, kLine = 4, kIsFolded = 5 };
enum LineField : std::uint32_t { kLineFunctionId = 1, kLineNumber = 2 };
enum FunctionField : std::uint32_t { kFunctionId = 1, kName = 2, kSystemName = 3, kSourceFile = 4, kStartLine = 5 };

inline constexpr std::string_view kPidLabel = "pid", kTidLabel = "tid", kCommLabel = "comm",
                                  kTruncatedLabel = "truncated", kEndLabel = "end", kCertaintyLabel = "certainty";
inline constexpr std::string_view kLostComment = "windlass: lost samples ";

}  // namespace windlass::exporter::pprof
