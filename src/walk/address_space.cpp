#include <algorithm>

#include "walk/module.h"
#include "walk/own_modules.h"
#include "windlass/walk.h"

namespace windlass {
namespace {

using Modules = std::vector<std::unique_ptr<walk::Module>>;

Modules::const_iterator first_behind(const Modules& modules, std::uint64_t address) {
  return std::upper_bound(modules.begin(), modules.end(), address,
                          [](std::uint64_t a, const auto& module) { return a < module->info().begin; });
}

Expected<void> insert(Modules& modules, std::unique_ptr<walk::Module> module) {
  const ModuleInfo& info = module->info();
  if (info.begin >= info.end) return fail(ErrorCode::kMalformed, "module's range is empty", info.begin, info.end);
  const auto behind = first_behind(modules, info.begin);
  if ((behind != modules.end() && (*behind)->info().begin < info.end) ||
      (behind != modules.begin() && behind[-1]->info().end > info.begin))
    return fail(ErrorCode::kMalformed, "module overlaps another one", info.begin, info.end);
  modules.insert(behind, std::move(module));
  return {};
}

}  // namespace

AddressSpace::AddressSpace(Architecture architecture, std::unique_ptr<Memory> memory)
    : memory_(std::move(memory)), architecture_(architecture) {}
AddressSpace::AddressSpace(AddressSpace&&) noexcept = default;
AddressSpace& AddressSpace::operator=(AddressSpace&&) noexcept = default;
AddressSpace::~AddressSpace() = default;

Expected<void> AddressSpace::add_module(ModuleInfo info) {
  return insert(modules_, std::make_unique<walk::Module>(std::move(info)));
}

Expected<void> AddressSpace::add_module(ModuleInfo info, std::vector<std::byte> image) {
  return insert(modules_, std::make_unique<walk::Module>(std::move(info), std::move(image)));
}

Expected<void> AddressSpace::add_code_range(std::uint64_t begin, std::uint64_t end, std::string name,
                                            std::uint64_t bias) {
  ModuleInfo info{begin, end, bias, std::move(name), {}};
  return insert(modules_, std::make_unique<walk::Module>(std::move(info), true));
}

Expected<void> walk::add_module(AddressSpace& space, std::unique_ptr<Module> module) {
  return insert(space.modules_, std::move(module));
}

Expected<void> AddressSpace::remove(std::uint64_t begin) {
  const auto behind = first_behind(modules_, begin);
  if (behind == modules_.begin() || behind[-1]->info().begin != begin)
    return fail(ErrorCode::kNotFound, "no module begins here", begin);
  modules_.erase(behind - 1);
  return {};
}

const walk::Module* AddressSpace::find(std::uint64_t address) const {
  const auto behind = first_behind(modules_, address);
  if (behind != modules_.begin() && address < behind[-1]->info().end) return behind[-1].get();
  return own_ ? walk::find_own_module(address) : nullptr;
}

std::vector<const ModuleInfo*> AddressSpace::modules() const {
  std::vector<const ModuleInfo*> infos;
  for (const auto& module : modules_) infos.push_back(&module->info());
  if (own_) walk::each_own_module([&](const walk::Module& module) { infos.push_back(&module.info()); });
  return infos;
}

}  // namespace windlass
