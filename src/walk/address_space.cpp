#include <algorithm>

#include "walk/inside.h"
#include "walk/module.h"
#include "walk/own_modules.h"
#include "walk/space_modules.h"
#include "windlass/backtrace.h"
#include "windlass/walk.h"

namespace windlass {

// ---- what it knows of code ----------------------------------------------------------------------------------------

AddressSpace::Modules::Files::const_iterator AddressSpace::Modules::first_behind(std::uint64_t address) const {
  return std::upper_bound(files_.begin(), files_.end(), address,
                          [](std::uint64_t a, const auto& module) { return a < module->info().begin; });
}

Expected<void> AddressSpace::Modules::check_free(std::uint64_t begin, std::uint64_t end) const {
  if (begin >= end) return fail(ErrorCode::kMalformed, "module's range is empty", begin, end);
  const auto behind = first_behind(end - 1);
  if (behind != files_.begin() && behind[-1]->info().end > begin)
    return fail(ErrorCode::kMalformed, "module overlaps another one, which must be removed first",
                behind[-1]->info().begin);
  return {};
}

Expected<void> AddressSpace::Modules::insert(std::unique_ptr<walk::Module> module) {
  const ModuleInfo& info = module->info();
  if (const auto free = check_free(info.begin, info.end); !free) return free;
  if (const auto free = code_.check_free(info.begin, info.end); !free) return free;
  files_.insert(first_behind(info.begin), std::move(module));
  return {};
}

Expected<void> AddressSpace::Modules::erase(std::uint64_t begin) {
  const auto behind = first_behind(begin);
  if (behind == files_.begin() || behind[-1]->info().begin != begin)
    return fail(ErrorCode::kNotFound, "no module begins here", begin);
  files_.erase(behind - 1);
  return {};
}

Expected<CodeRangeId> AddressSpace::Modules::add(CodeRange range, Architecture architecture) {
  if (const auto free = check_free(range.begin, range.end); !free) return Failure(free.error());
  return code_.add(std::move(range), architecture);
}

const walk::Module* AddressSpace::Modules::find(std::uint64_t address) const {
  const auto behind = first_behind(address);
  if (behind != files_.begin() && address < behind[-1]->info().end) return behind[-1].get();
  if (const walk::Module* found = walk::CodeRanges::View(code_).find(address); found != nullptr) return found;
  if (process_ == Process::kOther) return nullptr;
  if (const walk::Module* found = walk::CodeRanges::View(walk::own_code_ranges()).find(address); found != nullptr)
    return found;
  return walk::find_own_module(address);
}

std::vector<const ModuleInfo*> AddressSpace::Modules::infos() const {
  std::vector<const ModuleInfo*> infos;
  const auto add = [&](const walk::Module& module) { infos.push_back(&module.info()); };
  for (const auto& module : files_) add(*module);
  walk::CodeRanges::View(code_).for_each(add);
  std::ranges::sort(infos, {}, &ModuleInfo::begin);
  if (process_ == Process::kOther) return infos;
  walk::CodeRanges::View(walk::own_code_ranges()).for_each(add);
  walk::each_own_module(add);
  return infos;
}

// ---- the space ----------------------------------------------------------------------------------------------------

AddressSpace::AddressSpace(Architecture architecture, std::unique_ptr<Memory> memory)
    : AddressSpace(architecture, std::move(memory), std::make_unique<Modules>(Modules::Process::kOther)) {}
AddressSpace::AddressSpace(Architecture architecture, std::unique_ptr<Memory> memory, std::unique_ptr<Modules> modules)
    : memory_(std::move(memory)), modules_(std::move(modules)), architecture_(architecture) {}
AddressSpace walk::Inside::space(Architecture architecture, std::unique_ptr<Memory> memory,
                                 std::unique_ptr<Modules> modules) {
  return {architecture, std::move(memory), std::move(modules)};
}
AddressSpace::AddressSpace(AddressSpace&&) noexcept = default;
AddressSpace& AddressSpace::operator=(AddressSpace&&) noexcept = default;
AddressSpace::~AddressSpace() = default;

Expected<void> AddressSpace::add_module(ModuleInfo info) {
  return modules_->insert(std::make_unique<walk::Module>(std::move(info)));
}

Expected<void> AddressSpace::add_module(ModuleInfo info, std::vector<std::byte> image) {
  return modules_->insert(std::make_unique<walk::Module>(std::move(info), std::move(image)));
}

Expected<void> walk::Inside::add_module(AddressSpace& space, std::unique_ptr<Module> module) {
  return space.modules_->insert(std::move(module));
}

Expected<void> AddressSpace::remove(std::uint64_t begin) {
  if (const CodeRangeId id = modules_->code().at(begin); id != CodeRangeId::kNone) return retire(id);
  return modules_->erase(begin);
}

Expected<CodeRangeId> AddressSpace::add(CodeRange range) { return modules_->add(std::move(range), architecture_); }
Expected<void> AddressSpace::retire(CodeRangeId id) { return modules_->code().retire(id); }

bool AddressSpace::is_own_process() const { return modules_->own_process(); }
const walk::Module* walk::Inside::module_at(const AddressSpace& space, std::uint64_t address) {
  return space.modules_->find(address);
}
const ModuleInfo* AddressSpace::module_at(std::uint64_t address) const {
  const walk::Module* found = modules_->find(address);
  return found != nullptr ? &found->info() : nullptr;
}
std::vector<const ModuleInfo*> AddressSpace::modules() const { return modules_->infos(); }

// ---- the own process's code ---------------------------------------------------------------------------------------

// A loaded module's code has unwind information of its own, about which rules are kept by its pcs alone.
Expected<CodeRangeId> add_own_code(CodeRange range) {
  if (walk::own_module_has_code(range.begin, range.end))
    return fail(ErrorCode::kMalformed, "code range overlaps a loaded module's code", range.begin, range.end);
  return walk::own_code_ranges().add(std::move(range), kOwnArchitecture);
}

Expected<void> retire_own_code(CodeRangeId id) { return walk::own_code_ranges().retire(id); }

}  // namespace windlass
