// Of the command that ./demo builds: in place of the readers of other tools' files.
#include "profiler/import/import.h"
#include "profiler/import/perf_data.h"

namespace windlass::importer {
namespace {

constexpr Error kLeftOut{ErrorCode::kUnsupported,
                         "this build reads no files of other tools. Way out: the windlass of a package, or of cmake "
                         "--preset command"};

}  // namespace

Expected<PerfProfile> read_perf_data(ByteView, const Limits&, const PerfFilePlaces&) { return Failure(kLeftOut); }
Expected<profile::Profile> read_perf_script(std::string_view, const Limits&) { return Failure(kLeftOut); }
Expected<profile::Profile> read_folded(std::string_view, const Limits&) { return Failure(kLeftOut); }
Expected<profile::Profile> read_speedscope(std::string_view, const Limits&) { return Failure(kLeftOut); }
Expected<profile::Profile> read_firefox(std::string_view, const Limits&) { return Failure(kLeftOut); }
Expected<profile::Profile> read_jfr(ByteView, const Limits&) { return Failure(kLeftOut); }

}  // namespace windlass::importer
