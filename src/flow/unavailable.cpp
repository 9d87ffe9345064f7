// synthesis.h, stack_effect.h and describe() where there is no decoder for the machine's instructions: code says
// nothing.
#include <cstdlib>
#include <new>

#include "base/pages.h"
#include "flow/callee_record.h"
#include "flow/stack_effect.h"
#include "flow/synthesis.h"
#include "flow/whole_function.h"
#include "windlass/jit/describe.h"

namespace windlass::flow {

struct SynthesisScratch {
  Budget budget;
};

SynthesisScratch* make_scratch() {
  void* pages = map_pages(sizeof(SynthesisScratch));
  if (pages == nullptr) std::abort();
  return new (pages) SynthesisScratch;
}
void free_scratch(SynthesisScratch* scratch) { unmap_pages(scratch, sizeof(SynthesisScratch)); }
Budget& budget_of(SynthesisScratch& scratch) { return scratch.budget; }

Expected<Synthesis> synthesize(const CodeSource&, CodeAddress pc, SynthesisScratch&) {
  return fail(ErrorCode::kNotFound, "this build does not read machine code", pc.value());
}
Expected<Synthesis> way_in(const CodeSource&, CodeAddress pc, SynthesisScratch&) {
  return fail(ErrorCode::kNotFound, "this build does not read machine code", pc.value());
}
Expected<FrameRow> epilogue_row(const CodeSource&, std::uint64_t pc, SynthesisScratch&) {
  return fail(ErrorCode::kNotFound, "this build does not read machine code", pc);
}
Expected<FrameRow> return_row(const CodeSource&, CodeAddress pc, SynthesisScratch&) {
  return fail(ErrorCode::kNotFound, "this build does not read machine code", pc.value());
}
CallSite call_site(const CodeSource&, CodeAddress, CodeAddress, FrameRow&, SynthesisScratch&) {
  return CallSite::kAnywhere;
}
bool leads_to(const CodeSource&, std::uint64_t, CodeAddress, SynthesisScratch&) { return false; }
WholeFunction whole_function(const CodeSource&, std::uint64_t address) { return {{address, address + 1}, {}}; }
std::optional<FrameRow> contradicts(const FrameRow&, const CodeSource&, CodeAddress, SynthesisScratch&) { return {}; }
Expected<StackEffect> stack_effect(ByteView, std::uint64_t address, Architecture) {
  return fail(ErrorCode::kNotFound, "this build does not read machine code", address);
}
bool is_on_callees_record(ByteView, std::uint64_t) { return false; }
bool may_be_return_address(const CodeSource& source, std::uint64_t address) {
  return source.kind(CodeAddress::return_address(address).lookup()) != CodeKind::kNoCode;
}

}  // namespace windlass::flow

namespace windlass {

Expected<Description> describe(std::span<const std::byte>, std::uint64_t address, Architecture,
                               const DescribeOptions&) {
  return fail(ErrorCode::kUnsupported, "this build does not read machine code", address);
}

}  // namespace windlass
