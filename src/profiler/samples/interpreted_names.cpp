#include "profiler/samples/interpreted_names.h"

#include "profiler/samples/user_frame.h"

namespace windlass::profiler {

InterpretedNames::Known& InterpretedNames::known(std::uint32_t tgid,
                                                 const std::shared_ptr<const manager::FoundInterpreter>& interpreter) {
  if (functions_ >= kMaxFunctions || (known_.size() >= kMaxProcesses && !known_.contains(tgid))) {
    known_.clear();
    functions_ = 0;
  }
  Known& known = known_[tgid];
  if (known.interpreter != interpreter) {
    functions_ -= known.functions.size();
    known = {interpreter, std::make_unique<os::MemoryFile>(static_cast<pid_t>(tgid)), {}};
  }
  return known;
}

sources::NamedFunction InterpretedNames::function(Known& known, const manager::InterpretedFrame& frame) {
  const Key key{frame.code & ~WL_INTERPRETED_LAST, frame.identity, frame.place};
  if (const auto at = known.functions.find(key); at != known.functions.end()) return at->second;
  auto named = known.interpreter->get()->name_of(*known.memory, frame);
  if (!named) return {.name = std::string(manager::kUnknownFunction)};
  ++functions_;
  return known.functions.emplace(key, std::move(*named)).first->second;
}

void InterpretedNames::find(std::uint32_t tgid, const MapSet& maps, std::span<const std::uint64_t> user,
                            std::span<const manager::InterpretedFrame> frames, CodeNames& names,
                            std::vector<std::uint32_t>& to) {
  const auto interpreter = frames.empty() ? nullptr : manager::recorded_interpreter(maps.interpreters());
  if (interpreter == nullptr) return;
  lookups_.clear();
  for (const std::uint64_t frame : user) lookups_.push_back(lookup_address(frame));
  Known& of = known(tgid, interpreter);
  for (const manager::Activation& activation : manager::lay_over(*interpreter->get(), lookups_, frames)) {
    std::uint32_t number = CodeNames::kUnknown;
    for (std::size_t i = activation.end; i-- > activation.begin;)
      number = names.add_inlined(function(of, frames[i]), number);
    to.resize(user.size(), CodeNames::kUnknown);
    to[activation.native] = number;
  }
}

void InterpretedNames::keep_only(const std::function<bool(std::uint32_t tgid)>& known) {
  std::erase_if(known_, [&](const auto& process) {
    const bool gone = !known(process.first);
    if (gone) functions_ -= process.second.functions.size();
    return gone;
  });
}

}  // namespace windlass::profiler
