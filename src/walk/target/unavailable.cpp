// Where the library walks its own process only.
#include "windlass/target.h"

namespace windlass {
namespace {

Failure unavailable() { return fail(ErrorCode::kUnsupported, "this build opens no processes and no dumps", 0); }

}  // namespace

std::uint64_t Target::release() { return 0; }
Expected<Refreshed> Target::refresh() { return unavailable(); }
Expected<Target> open_process(std::uint64_t, const ProcessOptions&) { return unavailable(); }
Expected<Target> open_core(const std::string&, const DumpOptions&) { return unavailable(); }
Expected<Target> open_minidump(const std::string&, const DumpOptions&) { return unavailable(); }
Expected<Target> open_target(const std::string&, const DumpOptions&, const ProcessOptions&) { return unavailable(); }
std::vector<std::uint64_t> interpreted_functions(const Target&, const Thread&, std::span<const CodeAddress>, WalkEnd) {
  return {};
}

}  // namespace windlass
