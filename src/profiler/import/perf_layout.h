// Numbers of perf.data's format, and of perf_event_open(2). Those that the kernel's header has are of newer kernels,
// too.
#pragma once

#include <cstdint>
#include <string_view>

namespace windlass::importer {

// A file's first bytes.
inline constexpr std::string_view kPerfMagic = "PERFILE2", kPerfOtherOrder = "2ELIFREP";

enum PerfRecordType : std::uint32_t {
  kPerfMmap = 1,
  kPerfLost = 2,
  kPerfComm = 3,
  kPerfExit = 4,
  kPerfFork = 7,
  kPerfSample = 9,
  kPerfMmap2 = 10,
  kPerfLostSamples = 13,
  kPerfFirstOfTool = 64,  // from here on records of the tool, which have no time
  kPerfAttrRecord = 64,
  kPerfTracingData = 66,
  kPerfBuildId = 67,
  kPerfAuxtrace = 71,
  kPerfEventUpdate = 78,
  kPerfFeature = 80,
  kPerfCompressed = 81,
  kPerfCompressed2 = 83,
};

enum PerfFeature : std::uint32_t {
  kFeatureBuildId = 2,
  kFeatureHostname = 3,
  kFeatureRelease = 4,
  kFeatureArch = 6,
  kFeatureCommand = 11,
  kFeatureEventDesc = 12,
};

enum PerfSampleType : std::uint64_t {
  kSampleIp = 1u << 0,
  kSampleTid = 1u << 1,
  kSampleTime = 1u << 2,
  kSampleAddr = 1u << 3,
  kSampleRead = 1u << 4,
  kSampleCallchain = 1u << 5,
  kSampleId = 1u << 6,
  kSampleCpu = 1u << 7,
  kSamplePeriod = 1u << 8,
  kSampleStreamId = 1u << 9,
  kSampleRaw = 1u << 10,
  kSampleBranchStack = 1u << 11,
  kSampleRegsUser = 1u << 12,
  kSampleStackUser = 1u << 13,
  kSampleIdentifier = 1u << 16,
};

inline constexpr std::uint16_t kMiscModeMask = 7, kMiscKernel = 1, kMiscUser = 2, kMiscMmapData = 1 << 13,
                               kMiscCommExec = 1 << 13, kMiscMmapBuildId = 1 << 14, kMiscBuildIdSize = 1 << 15,
                               kMiscLostSamplesBpf = 1 << 15;  // what a filter has left out

inline constexpr std::uint64_t kBranchCallStack = 1u << 11, kBranchHwIndex = 1u << 17;

struct PerfHeader {
  std::uint32_t type;
  std::uint16_t misc, size;
};

}  // namespace windlass::importer
