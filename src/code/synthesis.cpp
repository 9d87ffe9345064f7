#include "code/synthesis.h"

namespace windlass::code {

struct SynthesisScratch {};
SynthesisScratch* make_scratch() { return new SynthesisScratch; }
void free_scratch(SynthesisScratch* scratch) { delete scratch; }

Expected<Synthesis> synthesize(const CodeSource&, CodeAddress pc, SynthesisScratch&) {
  return fail(ErrorCode::kUnsupported, "no analysis of this architecture's code", pc.value());
}

Expected<FrameRow> epilogue_row(const CodeSource&, std::uint64_t pc, SynthesisScratch&) {
  return fail(ErrorCode::kUnsupported, "no analysis of this architecture's code", pc);
}

}  // namespace windlass::code
