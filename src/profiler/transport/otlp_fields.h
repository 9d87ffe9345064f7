// Field numbers of opentelemetry-proto 1.11: profiles/v1development, common/v1, resource/v1 and the messages of their
// collector service. The signal is in development: other versions have other numbers.
#pragma once

#include <cstdint>

namespace windlass::transport::otlp {

inline constexpr const char* kProtoVersion = "1.11";  // of opentelemetry-proto

enum RequestField : std::uint32_t { kResourceProfiles = 1, kDictionary = 2 };
enum ResponseField : std::uint32_t { kPartialSuccess = 1 };
enum PartialSuccessField : std::uint32_t { kRejectedProfiles = 1, kErrorMessage = 2 };
enum DictionaryField : std::uint32_t {
  kMappingTable = 1,
  kLocationTable = 2,
  kFunctionTable = 3,
  kLinkTable = 4,
  kStringTable = 5,
  kAttributeTable = 6,
  kStackTable = 7,
};
enum ResourceProfilesField : std::uint32_t { kResource = 1, kScopeProfiles = 2 };
enum ResourceField : std::uint32_t { kResourceAttributes = 1 };
enum ScopeProfilesField : std::uint32_t { kScope = 1, kProfiles = 2 };
enum ScopeField : std::uint32_t { kScopeName = 1, kScopeVersion = 2 };
enum ProfileField : std::uint32_t {
  kSampleType = 1,
  kSamples = 2,
  kTimeUnixNano = 3,
  kDurationNano = 4,
  kPeriodType = 5,
  kPeriod = 6,
  kProfileId = 7,
  kProfileAttributes = 11,
};
enum ValueTypeField : std::uint32_t { kType = 1, kUnit = 2 };
enum SampleField : std::uint32_t {
  kStackIndex = 1,
  kSampleAttributes = 2,
  kLinkIndex = 3,
  kValues = 4,
  kTimestamps = 5,
};
enum MappingField : std::uint32_t {
  kMemoryStart = 1,
  kMemoryLimit = 2,
  kFileOffset = 3,
  kFilename = 4,
  kMappingAttributes = 5,
};
enum StackField : std::uint32_t { kLocationIndices = 1 };
enum LocationField : std::uint32_t { kMappingIndex = 1, kAddress = 2, kLines = 3, kLocationAttributes = 4 };
enum LineField : std::uint32_t { kFunctionIndex = 1, kLine = 2 };
enum FunctionField : std::uint32_t { kName = 1, kSystemName = 2, kSourceFile = 3, kStartLine = 4 };
enum LinkField : std::uint32_t { kTraceId = 1, kSpanId = 2 };
enum AttributeField : std::uint32_t { kAttributeKey = 1, kAttributeValue = 2 };
enum KeyValueField : std::uint32_t { kKey = 1, kValue = 2 };
enum AnyValueField : std::uint32_t { kStringValue = 1, kBoolValue = 2, kIntValue = 3, kArrayValue = 5 };
enum ArrayValueField : std::uint32_t { kArrayValues = 1 };

}  // namespace windlass::transport::otlp
