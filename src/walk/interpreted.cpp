#include "walk/interpreted.h"

#include <utility>

#include "base/registers.h"
#include "walk/inside.h"
#include "windlass/target.h"

namespace windlass {
namespace walk {

std::shared_ptr<Interpreted> Interpreted::of(const manager::Interpreters& found, std::shared_ptr<Interpreted> before) {
  manager::Interpreters understood;
  for (const auto& interpreter : found)
    if (interpreter->get() != nullptr) understood.push_back(interpreter);
  if (understood.empty()) return nullptr;
  if (before != nullptr && before->interpreters_ == understood) return before;
  auto made = std::make_shared<Interpreted>();
  made->interpreters_ = std::move(understood);
  return made;
}

std::uint64_t Interpreted::number_of(const manager::Interpreter& interpreter, const Memory& memory,
                                     std::span<const manager::InterpretedFrame> frames) {
  std::vector<sources::NamedFunction> functions;
  for (const manager::InterpretedFrame& frame : frames) {
    auto function = interpreter.name_of(memory, frame);
    functions.push_back(function ? std::move(*function)
                                 : sources::NamedFunction{.name = std::string(manager::kUnknownFunction)});
  }
  const std::lock_guard hold(lock_);
  if (functions.size() > kMaxFunctions - functions_) return 0;
  functions_ += functions.size();
  known_.push_back(std::move(functions));
  return kFirst + known_.size() - 1;
}

std::vector<std::uint64_t> Interpreted::functions(const Memory& memory, const manager::ThreadStack& thread,
                                                  std::span<const CodeAddress> pcs) {
  std::vector<std::uint64_t> numbers, lookups;
  for (const CodeAddress pc : pcs) lookups.push_back(pc.lookup());
  for (const auto& found : interpreters_) {
    const manager::Interpreter& interpreter = *found->get();
    const auto frames = interpreter.frames_of(memory, thread);
    if (!frames) continue;
    for (const manager::Activation& activation : manager::lay_over(interpreter, lookups, *frames)) {
      numbers.resize(pcs.size());
      numbers[activation.native] = number_of(
          interpreter, memory, std::span(*frames).subspan(activation.begin, activation.end - activation.begin));
    }
  }
  return numbers;
}

bool Interpreted::functions_at(std::uint64_t number, std::vector<sources::NamedFunction>& to) const {
  const std::lock_guard hold(lock_);
  if (number < kFirst || number - kFirst >= known_.size()) return false;
  const auto& functions = known_[number - kFirst];
  to.insert(to.end(), functions.begin(), functions.end());
  return true;
}

}  // namespace walk

std::vector<std::uint64_t> interpreted_functions(const Target& target, const Thread& thread,
                                                 std::span<const CodeAddress> pcs, WalkEnd end) {
  const Registers& registers = thread.registers;
  const auto& interpreted = walk::Inside::interpreted(target);
  if (interpreted == nullptr || end != WalkEnd::kComplete || registers.architecture() != Architecture::kX86_64 ||
      !registers.has(x86_64::kFsBase))
    return {};
  const manager::ThreadStack stack{registers.get(x86_64::kFsBase), registers.sp()};
  return interpreted->functions(target.space.memory(), stack, pcs);
}

}  // namespace windlass
