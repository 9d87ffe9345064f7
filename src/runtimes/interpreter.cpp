#include "runtimes/interpreter.h"

#include <algorithm>

namespace windlass::manager {

// Each activation of the evaluator has one native frame, so both are counted off from the outermost. If the stack has
// one activation more than the list, the extra one is the innermost: it has not linked its function yet, or has already
// unlinked it.
std::vector<Activation> lay_over(const Interpreter& interpreter, std::span<const std::uint64_t> lookups,
                                 std::span<const InterpretedFrame> frames) {
  std::vector<Activation> activations;
  for (std::size_t i = 0, begin = 0; i < frames.size(); ++i) {
    if ((frames[i].code & WL_INTERPRETED_LAST) == 0) continue;
    activations.push_back({0, begin, i + 1});
    begin = i + 1;
  }
  if (activations.empty() || activations.back().end != frames.size()) return {};
  std::vector<std::size_t> native;
  for (std::size_t i = 0; i < lookups.size(); ++i)
    if (interpreter.is_evaluator(lookups[i])) native.push_back(i);
  if (native.empty() || interpreter.is_linking(lookups[native.front()])) return {};
  if (native.size() == activations.size() + 1) native.erase(native.begin());
  if (native.size() != activations.size()) return {};
  for (std::size_t i = 0; i < native.size(); ++i) activations[i].native = native[i];
  return activations;
}

std::shared_ptr<const FoundInterpreter> recorded_interpreter(const Interpreters& interpreters) {
  const auto found = std::ranges::find_if(interpreters, [](const auto& interpreter) {
    return interpreter->get() != nullptr && interpreter->get()->layout() != nullptr;
  });
  return found == interpreters.end() ? nullptr : *found;
}

}  // namespace windlass::manager
