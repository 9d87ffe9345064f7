#include "profiler/import/perf_unwinder.h"

#include <algorithm>
#include <cstring>

#include "lookup/sources/stack_end.h"
#include "profiler/profile/walk_end.h"
#include "walk/inside.h"
#include "walk/module.h"
#include "walk/space_modules.h"

namespace windlass::importer {
namespace {

// The copy of a sample's stack.
class SampleStack final : public Memory {
 public:
  void show(std::uint64_t address, ByteView bytes) {
    address_ = address;
    bytes_ = bytes;
  }
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    const std::uint64_t at = address - address_;
    if (address < address_ || at > bytes_.size() || size > bytes_.size() - at) return false;
    std::memcpy(to, bytes_.data() + at, size);
    return true;
  }

 private:
  std::uint64_t address_ = 0;
  ByteView bytes_;
};

}  // namespace

struct PerfUnwinder::Space {
  Space(Architecture architecture, std::unique_ptr<SampleStack> memory, std::unique_ptr<walk::Inside::Modules> made)
      : stack(memory.get()),
        modules(made.get()),
        space(walk::Inside::space(architecture, std::move(memory), std::move(made))) {}

  SampleStack* stack;              // of `space`
  walk::Inside::Modules* modules;  // of `space`
  AddressSpace space;
  std::uint64_t version = 0;  // of the process's mappings
  std::vector<PerfMapping> shown;
};

PerfUnwinder::PerfUnwinder(PerfCode& code, const PerfProcesses& processes) : code_(code), processes_(processes) {}
PerfUnwinder::~PerfUnwinder() = default;

PerfUnwinder::Space& PerfUnwinder::space_of(std::uint32_t pid, Architecture architecture) {
  if (spaces_.size() >= kMostSpaces && !spaces_.contains(pid)) spaces_.clear();
  std::unique_ptr<Space>& known = spaces_[pid];
  if (known == nullptr || known->space.architecture() != architecture)
    known = std::make_unique<Space>(architecture, std::make_unique<SampleStack>(),
                                    std::make_unique<walk::Inside::Modules>(walk::Inside::Modules::Process::kOther));
  Space& space = *known;
  const PerfProcesses::Process* process = processes_.find(pid);
  if (process == nullptr || process->version == space.version) return space;
  space.version = process->version;
  const auto is_gone = [&](const PerfMapping& mapping) {
    const auto now = process->mappings->find(mapping.begin);
    return now == process->mappings->end() || now->second != mapping;
  };
  std::erase_if(space.shown, [&](const PerfMapping& mapping) {
    if (!is_gone(mapping)) return false;
    (void)space.modules->erase(mapping.begin);
    return true;
  });
  std::vector<PerfMapping> added;
  for (const auto& [begin, mapping] : *process->mappings)
    if (!std::ranges::binary_search(space.shown, begin, {}, &PerfMapping::begin)) added.push_back(mapping);
  constexpr std::size_t kLookedAt = 16;  // for as much time as one new module
  work_ += process->mappings->size() / kLookedAt + added.size();
  for (const PerfMapping& mapping : added) {
    const PerfCodeFile& file = code_.of(mapping, processes_, pid);
    const std::uint64_t bias = file.bias_of(mapping);
    ModuleInfo info;
    info.begin = mapping.begin;
    info.end = mapping.end;
    info.bias = bias;
    const bool unknown = file.source == nullptr;
    auto module = std::make_unique<walk::Module>(std::move(info), unknown ? sources::generated_source() : *file.source,
                                                 bias, file.machine, unknown);
    if (!unknown) module->keep_code({.memo = &memo_, .code = file.module, .bias = bias});
    (void)space.modules->insert(std::move(module));
    space.shown.push_back(mapping);
  }
  std::ranges::sort(space.shown, {}, &PerfMapping::begin);
  return space;
}

PerfStack PerfUnwinder::unwind(const PerfSampleRecord& sample) {
  Space& space = space_of(sample.pid, sample.registers->architecture());
  space.stack->show(sample.stack_address, sample.stack);
  memo_.start_walk(0);
  PerfStack stack;
  StackWalker walker(space.space, *sample.registers);
  for (bool more = true; more && stack.frames.size() < kMostFrames; more = walker.step())
    stack.frames.push_back(walker.frame().pc());
  stack.certainty = static_cast<std::uint8_t>(walker.certainty());
  stack.end = walker.end_reason() == WalkEnd::kRunning ? std::uint8_t{WL_END_DEPTH}
                                                       : profile::end_of_walk(walker.end_reason(), walker.error());
  return stack;
}

bool PerfUnwinder::proves_end(std::uint32_t pid, CodeAddress last) {
  const PerfProcesses::Process* process = processes_.find(pid);
  const PerfMapping* mapping = process == nullptr ? nullptr : PerfProcesses::mapping_at(*process, last.lookup());
  if (mapping == nullptr) return false;
  const PerfCodeFile& file = code_.of(*mapping, processes_, pid);
  if (file.source == nullptr) return false;
  const std::uint64_t address = last.value() - file.bias_of(*mapping);
  const CodeAddress in_file =
      last.is_return_address() ? CodeAddress::return_address(address) : CodeAddress::instruction(address);
  return sources::end_proof(*file.source, in_file) == sources::EndProof::kProven;
}

}  // namespace windlass::importer
