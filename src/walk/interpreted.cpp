#include "walk/interpreted.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/registers.h"
#include "runtimes/find.h"
#include "walk/inside.h"
#include "windlass/target.h"

namespace windlass {
namespace walk {
namespace {

// The mappings of one file, which are taken out of `maps`.
std::vector<os::ProcMap> take_image(std::vector<os::ProcMap>& maps, const os::ProcMap of) {
  const auto others = std::ranges::stable_partition(
      maps, [&](const os::ProcMap& map) { return map.path != of.path || map.file != of.file; });
  std::vector<os::ProcMap> image(std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
  maps.erase(others.begin(), others.end());
  return image;
}

}  // namespace

std::shared_ptr<Interpreted> Interpreted::of(const manager::Interpreters& found) {
  manager::Interpreters understood;
  for (const auto& interpreter : found)
    if (interpreter->get() != nullptr) understood.push_back(interpreter);
  if (understood.empty()) return nullptr;
  auto made = std::make_shared<Interpreted>();
  made->interpreters_ = std::move(understood);
  return made;
}

void Interpreted::set_mappings(std::vector<os::ProcMap> maps,
                               std::function<void(std::span<const os::ProcMap>)> expect) {
  const std::lock_guard hold(lock_);
  expect_ = std::move(expect);
  std::erase_if(maps, [](const os::ProcMap& map) { return !map.has_file(); });
  std::erase_if(interpreters_, [&](const auto& known) {
    return std::ranges::none_of(maps, [&](const os::ProcMap& map) { return known->is_of(map); });
  });
  unseen_ = std::move(maps);
  for (const auto& known : interpreters_) {
    const auto image = std::ranges::find_if(unseen_, [&](const os::ProcMap& map) { return known->is_of(map); });
    if (image != unseen_.end()) (void)take_image(unseen_, *image);
  }
}

manager::Interpreters Interpreted::of_stack(const Memory& memory, std::span<const std::uint64_t> lookups) {
  const std::lock_guard hold(lock_);
  std::vector<os::ProcMap> images;
  for (const std::uint64_t lookup : lookups) {
    const auto behind = std::ranges::upper_bound(unseen_, lookup, {}, &os::ProcMap::begin);
    if (behind == unseen_.begin() || lookup >= behind[-1].end) continue;
    const std::vector<os::ProcMap> image = take_image(unseen_, behind[-1]);
    images.insert(images.end(), image.begin(), image.end());
  }
  if (!images.empty()) {
    std::ranges::sort(images, {}, &os::ProcMap::begin);
    if (expect_) expect_(images);
    std::ranges::copy(runtimes::find_interpreters(images, [&] { return runtimes::unowned(memory); }, {}),
                      std::back_inserter(interpreters_));
  }
  manager::Interpreters understood;
  for (const auto& interpreter : interpreters_)
    if (interpreter->get() != nullptr) understood.push_back(interpreter);
  return understood;
}

std::vector<Error> Interpreted::problems() const {
  const std::lock_guard hold(lock_);
  std::vector<Error> problems;
  for (const auto& interpreter : interpreters_)
    if (const auto problem = interpreter->problem()) problems.push_back(*problem);
  return problems;
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
  for (const auto& found : of_stack(memory, lookups)) {
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
