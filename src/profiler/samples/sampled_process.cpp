#include "profiler/samples/sampled_process.h"

#include <utility>

#include "walk/module.h"

namespace windlass::profiler {
namespace {

// What all processes of an unwinder share: there is one sample at a time.
class SharedMemory final : public Memory {
 public:
  explicit SharedMemory(const Memory& memory) : memory_(memory) {}
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    return memory_.read(address, to, size);
  }
  bool read_code(std::uint64_t address, void* to, std::size_t size) const override {
    return memory_.read_code(address, to, size);
  }

 private:
  const Memory& memory_;
};

std::unique_ptr<walk::Module> module_of(const MapSet& maps, const Mapping& mapping, ModuleRegistry& registry) {
  ModuleInfo info;
  info.begin = mapping.begin;
  info.end = mapping.end;
  if (const auto* code = maps.published_of(mapping)) {
    auto module = std::make_unique<walk::Module>(std::move(info), (*code)->make_source(), *code);
    module->forget_id();  // its functions come and go
    return module;
  }
  info.bias = mapping.bias;
  CodeFile* file = registry.find(mapping.module);
  const image::CodeMachine machine = file != nullptr ? file->machine : image::CodeMachine();
  const bool generated = mapping.generated() || file == nullptr;
  return std::make_unique<walk::Module>(std::move(info),
                                        generated ? sources::generated_source() : registry.source(*file), mapping.bias,
                                        machine, generated);
}

}  // namespace

SampledProcess::SampledProcess(std::uint32_t tgid, Architecture architecture, const Memory& memory,
                               std::uint64_t code_mask, walk::CodeMemo& memo)
    : SampledProcess(tgid, architecture, memory, code_mask, memo, std::make_unique<Modules>(Modules::Process::kOther)) {
}

SampledProcess::SampledProcess(std::uint32_t tgid, Architecture architecture, const Memory& memory,
                               std::uint64_t code_mask, walk::CodeMemo& memo, std::unique_ptr<Modules> modules)
    : tgid_(tgid),
      memo_(memo),
      modules_(modules.get()),
      space_(walk::Inside::space(architecture, std::make_unique<SharedMemory>(memory), std::move(modules))) {
  space_.set_pointer_mask(~code_mask);
  if (architecture == Architecture::kAArch64) space_.set_unsigned_mask(~code_mask);  // as the kernel side does
}

// A file's code is the same in all processes. Other code is the process's own.
walk::KeptCode SampledProcess::kept_code(const Mapping& mapping) const {
  constexpr std::uint64_t kOfProcess = std::uint64_t{1} << 63;
  if (mapping.generated() || mapping.module == ModuleRegistry::kAnonymous)
    return {.memo = &memo_, .code = kOfProcess | tgid_, .changes = true};
  return {.memo = &memo_, .code = mapping.module, .bias = mapping.bias};
}

void SampledProcess::show(const MapSet& maps, std::uint64_t time, ModuleRegistry& registry) {
  for (const auto& code : maps.published()) code->set_time(time);
  const std::vector<Mapping>& wanted = maps.mappings();
  if (wanted == shown_) return;
  cover(0);
  // Both are sorted. What goes first, so that what comes in its place does not overlap it.
  const auto missing = [](const std::vector<Mapping>& from, const std::vector<Mapping>& in, auto&& use) {
    auto other = in.begin();
    for (const Mapping& mapping : from) {
      while (other != in.end() && other->begin < mapping.begin) ++other;
      if (other == in.end() || *other != mapping) use(mapping);
    }
  };
  missing(shown_, wanted, [&](const Mapping& mapping) { (void)modules_->erase(mapping.begin); });
  missing(wanted, shown_, [&](const Mapping& mapping) {
    auto module = module_of(maps, mapping, registry);
    module->keep_code(kept_code(mapping));
    (void)modules_->insert(std::move(module));
  });
  shown_ = wanted;
}

void SampledProcess::cover(std::uint64_t address) {
  if (covered_ == address) return;
  if (covered_ != 0) (void)modules_->erase(covered_);
  covered_ = 0;
  if (address == 0 || modules_->find(address) != nullptr) return;
  ModuleInfo info;
  info.begin = address;
  info.end = address + 1;
  if (modules_->insert(
          std::make_unique<walk::Module>(std::move(info), sources::generated_source(), 0, image::CodeMachine(), true)))
    covered_ = address;
}

}  // namespace windlass::profiler
