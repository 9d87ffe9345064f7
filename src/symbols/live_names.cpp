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

std::vector<std::uint64_t> LiveNames::KnownFile::unknown(std::span<const std::uint64_t> addresses_asked) const {
  std::vector<std::uint64_t> result;
  for (const std::uint64_t address : addresses_asked)
    if (!addresses.contains(address)) result.push_back(address);
  std::ranges::sort(result);
  const auto repeated = std::ranges::unique(result);
  result.erase(repeated.begin(), repeated.end());
  return result;
}

void LiveNames::KnownFile::learn(const profile::Module& module, std::span<const std::uint64_t> ascending,
                                 const SymbolizeOptions& options) {
  if (ascending.empty()) return;
  if (!symbols) symbols.emplace(module, options);
  ModuleNames names(ascending.size(), functions);
  symbols->name(ascending, names);
  opened |= names.opened;
  note = std::move(names.note);
  for (std::size_t i = 0; i < ascending.size(); ++i)
    addresses[ascending[i]] = {std::move(names.lines()[i]), names.begins[i]};
}

LiveNames::KnownFile& LiveNames::file_of(const profile::Module& module) {
  std::unique_ptr<KnownFile>& file = files_[key_of_module(module)];
  if (file == nullptr) file = std::make_unique<KnownFile>();
  file->used = calls_;
  return *file;
}

std::unique_ptr<LiveNames::KnownFile> LiveNames::take(const profile::Module& module) {
  auto found = files_.extract(key_of_module(module));
  return found ? std::move(found.mapped()) : nullptr;
}

void LiveNames::learn(const profile::Profile& profile, const std::atomic<bool>& stopped) noexcept {
  try {
    ++calls_;
    elf_version(EV_CURRENT);
    std::map<std::uint32_t, std::vector<std::uint64_t>> by_module;
    for (const profile::Location& location : profile.locations) by_module[location.module].push_back(location.address);
    for (const auto& [module, addresses] : by_module) {
      KnownFile& file = file_of(profile.modules.at(module));
      const std::vector<std::uint64_t> unknown = file.unknown(addresses);
      if (!unknown.empty()) file.asked = calls_;
      for (std::size_t begin = 0; begin < unknown.size() && !stopped; begin += kAtOnce)
        file.learn(profile.modules[module],
                   std::span(unknown).subspan(begin, std::min(kAtOnce, unknown.size() - begin)), options_);
      close_longest_idle();
    }
    close_idle();
  } catch (const std::exception&) {
    return;  // What has been learned stays.
  }
}

void LiveNames::name_module(profile::Profile& profile, std::uint32_t module,
                            const std::vector<std::uint32_t>& locations) {
  KnownFile& file = file_of(profile.modules[module]);
  std::vector<std::uint64_t> addresses;
  for (const std::uint32_t number : locations) addresses.push_back(profile.locations[number].address);
  const std::vector<std::uint64_t> unknown = file.unknown(addresses);
  if (!unknown.empty()) file.asked = calls_;
  file.learn(profile.modules[module], unknown, options_);
  std::unordered_map<std::uint32_t, std::uint32_t> functions;  // of the file: places in the profile
  for (const std::uint32_t number : locations) {
    profile::Location& location = profile.locations[number];
    const KnownFile::Named& named = file.addresses.at(location.address);
    auto lines = named.lines;
    for (profile::Line& line : lines) {
      const auto [place, is_new] =
          functions.try_emplace(line.function, static_cast<std::uint32_t>(profile.functions.size()));
      if (is_new) profile.functions.push_back(file.functions[line.function]);
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

void LiveNames::close_longest_idle() {
  if (open_files() <= most_open_) return;
  KnownFile* longest = nullptr;
  for (auto& [identity, file] : files_)
    if (file->symbols && (longest == nullptr || file->asked < longest->asked)) longest = file.get();
  longest->symbols.reset();
}

void LiveNames::close_idle() {
  std::size_t addresses = 0;
  for (const auto& [identity, file] : files_) addresses += file->addresses.size();
  if (addresses > kMostAddresses) files_.clear();
  for (auto& [identity, file] : files_)
    if (file->asked + longest_idle_ < calls_) file->symbols.reset();
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
    close_idle();
    std::erase_if(files_, [this](const auto& entry) { return entry.second->used + kLongestUnused < calls_; });
  } catch (const std::exception&) {
    return;  // What is named stays named.
  }
}

}  // namespace windlass::symbols
