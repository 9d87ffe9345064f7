#include "symbols/live_names.h"

#include <libelf.h>

#include <algorithm>
#include <exception>

#include <fmt/format.h>

namespace windlass::symbols {

namespace {

// A file without a build id is that which can be opened there.
std::string key_of_module(const profile::Module& module) {
  const std::string& place = module.build_id.empty() ? module.open_path : module.build_id;
  return fmt::format("{}\n{}\n{}\n{}", module.path, place, module.pid, module.build_id.empty());
}

}  // namespace

void LiveNames::learn(KnownFile& file, const profile::Module& module, std::vector<std::uint64_t> addresses) {
  if (!file.symbols) file.symbols.emplace(module, options_);
  file.asked = calls_;
  std::ranges::sort(addresses);
  const auto repeated = std::ranges::unique(addresses);
  addresses.erase(repeated.begin(), repeated.end());
  ModuleNames names(addresses.size(), file.functions);
  file.symbols->name(addresses, names);
  for (std::size_t i = 0; i < addresses.size(); ++i)
    file.addresses[addresses[i]] = {std::move(names.lines()[i]), names.begins[i]};
}

void LiveNames::name_module(profile::Profile& profile, std::uint32_t module,
                            const std::vector<std::uint32_t>& locations) {
  std::unique_ptr<KnownFile>& file = files_[key_of_module(profile.modules[module])];
  if (file == nullptr) file = std::make_unique<KnownFile>();
  file->used = calls_;
  std::vector<std::uint64_t> unknown;
  for (const std::uint32_t number : locations)
    if (!file->addresses.contains(profile.locations[number].address))
      unknown.push_back(profile.locations[number].address);
  if (!unknown.empty()) learn(*file, profile.modules[module], std::move(unknown));
  std::unordered_map<std::uint32_t, std::uint32_t> functions;  // of the file: places in the profile
  for (const std::uint32_t number : locations) {
    profile::Location& location = profile.locations[number];
    const Named& named = file->addresses.at(location.address);
    auto lines = named.lines;
    for (profile::Line& line : lines) {
      const auto [place, is_new] =
          functions.try_emplace(line.function, static_cast<std::uint32_t>(profile.functions.size()));
      if (is_new) profile.functions.push_back(file->functions[line.function]);
      line.function = place->second;
    }
    add_native_lines(location, lines);
    if (named.begin != 0) location.function_begin = named.begin;
  }
}

std::size_t LiveNames::open_files() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(files_, [](const auto& entry) { return entry.second->symbols.has_value(); }));
}

void LiveNames::forget_unused() {
  std::size_t addresses = 0;
  for (const auto& [identity, file] : files_) addresses += file->addresses.size();
  if (addresses > kMostAddresses) files_.clear();
  for (auto& [identity, file] : files_)
    if (file->asked + longest_idle_ < calls_) file->symbols.reset();
  std::erase_if(files_, [this](const auto& entry) { return entry.second->used + kLongestUnused < calls_; });
}

void LiveNames::name(profile::Profile& profile) noexcept {
  try {
    ++calls_;
    elf_version(EV_CURRENT);
    demangle_generated(profile);
    std::map<std::uint32_t, std::vector<std::uint32_t>> by_module;
    for (std::uint32_t i = 0; i < profile.locations.size(); ++i) {
      const profile::Location& location = profile.locations[i];
      if (location.module < profile.modules.size() && (location.lines.empty() || location.interpreted))
        by_module[location.module].push_back(i);
    }
    for (const auto& [module, locations] : by_module) name_module(profile, module, locations);
    forget_unused();
  } catch (const std::exception&) {
    return;  // What is named stays named.
  }
}

}  // namespace windlass::symbols
