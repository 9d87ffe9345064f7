#include "code/synthesis.h"

#include <variant>

#include "code/aarch64.h"
#include "code/analysis.h"
#include "code/x86_64.h"

namespace windlass::code {

// For one architecture at a time: that of the source used last.
struct SynthesisScratch {
  std::variant<std::monostate, Workspace<X86_64>, Workspace<AArch64>> work;

  template <typename Machine>
  Workspace<Machine>& of() {
    if (auto* ready = std::get_if<Workspace<Machine>>(&work)) return *ready;
    return work.emplace<Workspace<Machine>>();
  }
};

SynthesisScratch* make_scratch() { return new SynthesisScratch; }
void free_scratch(SynthesisScratch* scratch) { delete scratch; }

Expected<Synthesis> synthesize(const CodeSource& source, CodeAddress pc, SynthesisScratch& scratch) {
  return source.architecture == Architecture::kX86_64 ? analyse(source, pc, scratch.of<X86_64>())
                                                      : analyse(source, pc, scratch.of<AArch64>());
}

Expected<FrameRow> epilogue_row(const CodeSource& source, std::uint64_t pc, SynthesisScratch& scratch) {
  return source.architecture == Architecture::kX86_64 ? straight_row(source, pc, scratch.of<X86_64>())
                                                      : straight_row(source, pc, scratch.of<AArch64>());
}

std::optional<FrameRow> contradicts(const FrameRow& row, const CodeSource& source, CodeAddress pc,
                                    SynthesisScratch& scratch) {
  return source.architecture == Architecture::kX86_64 ? contradiction(row, source, pc, scratch.of<X86_64>())
                                                      : contradiction(row, source, pc, scratch.of<AArch64>());
}

bool may_be_return_address(const CodeSource& source, std::uint64_t address) {
  const CodeKind kind = source.kind(address - 1);
  if (kind == CodeKind::kGenerated) return true;
  const bool called =
      kind == CodeKind::kFile && (source.architecture == Architecture::kX86_64 ? X86_64::behind_call(source, address)
                                                                               : AArch64::behind_call(source, address));
  if (called) return true;
  if (source.kind(address) == CodeKind::kNoCode) return false;
  if (source.function_start(address) == address) return true;
  return source.architecture == Architecture::kX86_64 ? X86_64::signal_trampoline(source, address)
                                                      : AArch64::signal_trampoline(source, address);
}

}  // namespace windlass::code
