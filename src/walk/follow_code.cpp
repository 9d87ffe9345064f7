// What the code says, followed or kept.
#include "walk/code_memo.h"
#include "walk/inside.h"
#include "walk/step_context.h"

namespace windlass::walk {
namespace {

CodePlace place_of(const KeptCode& code, CodeAddress pc) { return {code.code, KeptRow::key_of(pc) - code.bias}; }

// What `follow` comes to, which may have been kept. `pc`: of the rows.
template <typename Follow>
CodeAnswer answer(const StepContext& context, CodeMemo::Key key, CodeAddress pc, const Module* at, const Module* caller,
                  Follow&& follow) {
  return with_code(context, [&](const flow::CodeSource& source) {
    const auto is_kept = [](const Module* module) { return module != nullptr && module->kept_code().memo != nullptr; };
    if (!is_kept(at) || !is_kept(caller)) return follow(source);
    const KeptCode& code = at->kept_code();
    key.at = place_of(code, pc);
    const bool changes = code.changes || caller->kept_code().changes;
    return code.memo->ask(key, pc.value(), changes, source, follow);
  });
}

CodeAnswer answer_with(const Expected<flow::Synthesis>& found) {
  CodeAnswer answer;
  answer.found = found.has_value();
  if (found)
    answer.synthesis = *found;
  else
    answer.error = found.error();
  return answer;
}

template <typename Row>  // an Expected or an optional one
CodeAnswer answer_with_row(const Row& found) {
  CodeAnswer answer;
  answer.found = found.has_value();
  if (found) answer.synthesis.row = *found;
  return answer;
}

Expected<flow::Synthesis> follow(const StepContext& context, CodeAddress pc, const Module* module) {
  const CodeAnswer found =
      answer(context, {.question = CodeMemo::Question::kRow}, pc, module, module, [&](const flow::CodeSource& source) {
        return answer_with(flow::synthesize(source, pc, *context.scratch.synthesis));
      });
  if (!found.found) return Failure(found.error);
  return found.synthesis;
}

}  // namespace

bool row_of_whole_function(const StepContext& context, const flow::CodeSource& source, const flow::CodeSource& recorded,
                           CodeAddress pc, FrameRow& row) {
  const Module* const module = module_at(context.space, pc.lookup());
  if (module == nullptr || context.space.is_own_process()) return false;
  const KeptCode& code = module->kept_code();
  const CodePlace at{code.code, pc.lookup() - code.bias};
  if (code.memo != nullptr && code.changes == module->generated())  // else an image in memory, which stays
    return code.memo->functions().row_at(at, code.bias, code.changes, code.changes ? recorded : source, row);
  return module->row_of_whole_function(pc.lookup(), source, row);
}

Expected<flow::Synthesis> follow_code(const StepContext& context) {
  return follow(context, context.frame.pc(), context.module);
}

Expected<flow::Synthesis> follow_present_code(const StepContext& context) {
  return with_code(context, [&](const flow::CodeSource& source) {
    const Registers& registers = context.frame.registers;
    const auto value = [&](RegisterNumber reg, std::uint64_t& to) {
      if (!registers.has(reg)) return false;
      to = registers.get(reg);
      return true;
    };
    flow::CodeSource present = source;
    present.register_value = value;
    const auto follow = [&] { return flow::synthesize(present, context.frame.pc(), *context.scratch.synthesis); };
    CodeMemo* const memo = context.module->kept_code().memo;
    return memo != nullptr ? memo->follow_unkept(follow) : follow();
  });
}

Expected<flow::Synthesis> follow_code_at(const StepContext& context, CodeAddress pc) {
  return follow(context, pc, module_at(context.space, pc.lookup()));
}

Expected<flow::Synthesis> followed_way_in(const StepContext& context) {
  const CodeAddress pc = context.frame.pc();
  const CodeAnswer found = answer(context, {.question = CodeMemo::Question::kWayIn}, pc, context.module, context.module,
                                  [&](const flow::CodeSource& source) {
                                    return answer_with(flow::way_in(source, pc, *context.scratch.synthesis));
                                  });
  if (!found.found) return Failure(found.error);
  return found.synthesis;
}

std::optional<FrameRow> contradiction(const StepContext& context, const FrameRow& row) {
  const CodeAddress pc = context.frame.pc();
  const CodeMemo::Key key{.question = CodeMemo::Question::kContradiction, .detail = CodeMemo::digest_of(row)};
  const CodeAnswer found =
      answer(context, key, pc, context.module, context.module, [&](const flow::CodeSource& source) {
        return answer_with_row(flow::contradicts(row, source, pc, *context.scratch.synthesis));
      });
  if (!found.found) return std::nullopt;
  return found.synthesis.row;
}

Expected<FrameRow> followed_to_return(const StepContext& context) {
  const CodeAddress pc = context.frame.pc();
  const CodeAnswer found = answer(context, {.question = CodeMemo::Question::kReturnRow}, pc, context.module,
                                  context.module, [&](const flow::CodeSource& source) {
                                    const auto row = flow::return_row(source, pc, *context.scratch.synthesis);
                                    CodeAnswer answer = answer_with_row(row);
                                    if (!row) answer.error = row.error();
                                    return answer;
                                  });
  if (!found.found) return Failure(found.error);
  return found.synthesis.row;
}

flow::CallSite followed_call(const StepContext& context, CodeAddress caller, FrameRow& way_in) {
  const CodeAddress pc = context.frame.pc();
  const Module* from = module_at(context.space, caller.lookup());
  CodeMemo::Key key{.question = CodeMemo::Question::kCallSite};
  if (from != nullptr) key.caller = place_of(from->kept_code(), caller);
  const CodeAnswer found = answer(context, key, pc, context.module, from, [&](const flow::CodeSource& source) {
    CodeAnswer answer;
    answer.site = flow::call_site(source, caller, pc, answer.synthesis.row, *context.scratch.synthesis);
    answer.found = flow::has_way_in(answer.site);
    return answer;
  });
  if (found.found) way_in = found.synthesis.row;
  return found.site;
}

}  // namespace windlass::walk
