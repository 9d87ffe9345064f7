#include "flow/synthesis.h"

#include <cstdlib>
#include <new>
#include <variant>

#include "base/pages.h"
#include "flow/aarch64.h"
#include "flow/analysis.h"
#include "flow/x86_64.h"

namespace windlass::flow {

// For one architecture at a time: that of the source used last.
struct SynthesisScratch {
  std::variant<std::monostate, Workspace<X86_64>, Workspace<AArch64>> work;
  Budget budget;

  template <typename Machine>
  Workspace<Machine>& of() {
    if (auto* ready = std::get_if<Workspace<Machine>>(&work)) return *ready;
    auto& made = work.emplace<Workspace<Machine>>();
    made.code.pay_from(budget);
    return made;
  }
};

// Pages of the system's: malloc is not for signal handlers.
SynthesisScratch* make_scratch() {
  void* pages = map_pages(sizeof(SynthesisScratch));
  if (pages == nullptr) std::abort();
  return new (pages) SynthesisScratch;
}
void free_scratch(SynthesisScratch* scratch) {
  scratch->~SynthesisScratch();
  unmap_pages(scratch, sizeof(SynthesisScratch));
}

Budget& budget_of(SynthesisScratch& scratch) { return scratch.budget; }

// i386's code is not followed.
constexpr bool is_followed(Architecture architecture) { return architecture != Architecture::kI386; }
constexpr Error kNotFollowed{ErrorCode::kUnsupported, "code of this machine is not followed"};

// What was found by a part of the ways alone is no answer.
template <typename Found>
static Expected<Found> whole_answer(Expected<Found> found, CodeAddress pc, const SynthesisScratch& scratch) {
  if (!scratch.budget.exhausted()) return found;
  return fail(ErrorCode::kLimit, "the walk's budget for following code is used up", pc.value());
}

// What `question(workspace)` says of the machine's code.
template <typename Question>
static auto ask(const CodeSource& source, SynthesisScratch& scratch, Question&& question) {
  return source.architecture == Architecture::kX86_64 ? question(scratch.of<X86_64>())
                                                      : question(scratch.of<AArch64>());
}

Expected<Synthesis> synthesize(const CodeSource& source, CodeAddress pc, SynthesisScratch& scratch) {
  if (!is_followed(source.architecture)) return Failure(kNotFollowed);
  auto found = whole_answer(ask(source, scratch, [&](auto& work) { return analyse(source, pc, work); }), pc, scratch);
  // A guess that nothing has been saved is refuted by a call that would lose the link register.
  if (found && found->start == Start::kNone && found->certainty == Certainty::kGuess &&
      source.architecture == Architecture::kAArch64 && AArch64::is_entry_row(found->row) &&
      calls_with_link_unsaved(source, pc.value(), scratch.of<AArch64>()))
    return fail(ErrorCode::kNotFound, "the code does not return", pc.value());
  return found;
}

Expected<Synthesis> way_in(const CodeSource& source, CodeAddress pc, SynthesisScratch& scratch) {
  if (!is_followed(source.architecture)) return Failure(kNotFollowed);
  return ask(source, scratch, [&](auto& work) { return way_in(source, pc, work); });
}

Expected<FrameRow> epilogue_row(const CodeSource& source, std::uint64_t pc, SynthesisScratch& scratch) {
  if (!is_followed(source.architecture)) return Failure(kNotFollowed);
  return ask(source, scratch, [&](auto& work) { return straight_row(source, pc, work); });
}

Expected<FrameRow> return_row(const CodeSource& source, CodeAddress pc, SynthesisScratch& scratch) {
  if (!is_followed(source.architecture)) return Failure(kNotFollowed);
  return whole_answer(ask(source, scratch, [&](auto& work) { return return_row(source, pc, work); }), pc, scratch);
}

std::optional<FrameRow> contradicts(const FrameRow& row, const CodeSource& source, CodeAddress pc,
                                    SynthesisScratch& scratch) {
  if (!is_followed(source.architecture)) return std::nullopt;
  auto found = ask(source, scratch, [&](auto& work) { return contradiction(row, source, pc, work); });
  return scratch.budget.exhausted() ? std::nullopt : found;
}

std::uint64_t direct_call_target(const CodeSource& source, std::uint64_t address) {
  return source.architecture == Architecture::kAArch64 ? AArch64::direct_call_target(source, address)
                                                       : X86_64::direct_call_target(source, address);
}

bool may_be_return_address(const CodeSource& source, std::uint64_t address) {
  const CodeKind kind = source.kind(CodeAddress::return_address(address).lookup());
  if (kind == CodeKind::kGenerated) return true;
  // i386's calls have the same bytes as x86-64's (Intel SDM 2A, "CALL"; only what mod 0 rm 5 counts from differs).
  const bool called =
      kind == CodeKind::kFile && (source.architecture == Architecture::kAArch64 ? AArch64::behind_call(source, address)
                                                                                : X86_64::behind_call(source, address));
  if (called) return true;
  // A kernel without a vdso puts AArch64's trampoline on a page of its own.
  if (source.architecture == Architecture::kAArch64 && AArch64::signal_trampoline(source, address)) return true;
  if (source.kind(address) == CodeKind::kNoCode) return false;
  return source.architecture == Architecture::kX86_64 && X86_64::signal_trampoline(source, address);
}

CallSite call_site(const CodeSource& source, CodeAddress caller, CodeAddress callee, FrameRow& way_in,
                   SynthesisScratch& scratch) {
  if (!is_followed(source.architecture)) return CallSite::kNone;
  const CallSite site =
      ask(source, scratch, [&](auto& work) { return site_of_call(source, caller, callee, way_in, work); });
  return scratch.budget.exhausted() && site != CallSite::kAnywhere ? CallSite::kElsewhere : site;
}

bool leads_to(const CodeSource& source, std::uint64_t start, CodeAddress pc, SynthesisScratch& scratch) {
  if (!is_followed(source.architecture)) return false;
  const bool arrives = ask(source, scratch, [&]<typename Machine>(Workspace<Machine>& work) {
    typename Search<Machine>::Exits exits;
    return Search<Machine>(work).in(source, start, pc, work.row, &exits) || exits.arrives;
  });
  return arrives && !scratch.budget.exhausted();
}

}  // namespace windlass::flow
