// Profiles of other tools. The first bytes tell the format; a gzip file's content does.
//
// - pprof, which read_pprof() reads
// - perf.data, of `perf record`
// - the text of `perf script`
// - folded stacks
// - speedscope's JSON
// - the Firefox Profiler's processed JSON
// - recordings of JDK Flight Recorder, by the program `jfr` of a JDK
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/import/profile_builder.h"
#include "profiler/profile/profile.h"
#include "windlass/bytes.h"
#include "windlass/error.h"

namespace windlass::importer {

enum class FileFormat : std::uint8_t { kPprof, kPerfData, kPerfScript, kFolded, kSpeedscope, kFirefox, kJfr };

struct Imported {
  profile::Profile profile;
  FileFormat format = FileFormat::kPprof;
  bool unnamed = false;              // addresses have no names yet
  bool running_kernel = false;       // kernel addresses are those of the kernel that runs here now
  std::vector<std::string> notes{};  // what could not be read and why, for people
};

// By the first 4 KiB of what is not compressed. Bytes that are nothing else count as pprof.
[[nodiscard]] FileFormat format_of(ByteView bytes);

[[nodiscard]] Expected<Imported> read_any(ByteView bytes, const Limits& limits = {});
// "-" is standard input. A recording of perf may be larger than the memory.
[[nodiscard]] Expected<Imported> read_any_file(const std::string& path, const Limits& limits = {});

// The readers, of text that is not compressed. An error names the byte offset in the text.
[[nodiscard]] Expected<profile::Profile> read_folded(std::string_view text, const Limits& limits = {});
[[nodiscard]] Expected<profile::Profile> read_perf_script(std::string_view text, const Limits& limits = {});
[[nodiscard]] Expected<profile::Profile> read_speedscope(std::string_view text, const Limits& limits = {});
[[nodiscard]] Expected<profile::Profile> read_firefox(std::string_view text, const Limits& limits = {});
// The JSON that `jfr print` prints of samples.
[[nodiscard]] Expected<profile::Profile> read_jfr_text(std::string_view text, const Limits& limits = {});

// A recording itself. Runs `jfr`, found by PATH; kUnsupported if there is none.
[[nodiscard]] Expected<profile::Profile> read_jfr(ByteView bytes, const Limits& limits = {});

}  // namespace windlass::importer
