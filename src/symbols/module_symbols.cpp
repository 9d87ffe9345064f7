#include "symbols/module_symbols.h"

#include <fmt/format.h>

#include <vector>

#include "symbols/text_symbols.h"

namespace windlass::symbols {

void ModuleSymbols::name(std::span<const std::uint64_t> addresses, ModuleNames& names) {
  if (module_.is_kernel) return name_from_kallsyms(options_, addresses, names);
  if (module_.pid != 0) return name_from_map(addresses, names);
  if (options_.symbol_files != nullptr && !module_.build_id.empty() && options_.symbol_files->has(module_.build_id)) {
    options_.symbol_files->name(module_, addresses, names);
    if (names.opened || options_.late) return;
  }
  (void)open();
  if (pe_)
    pe_->name(addresses, names);
  else
    elf_->name(addresses, names);
  if (!pe_) names.note = elf_->note();
  add_function_starts(addresses, names);
}

DebugLines* ModuleSymbols::debug_lines() {
  if (module_.is_kernel || module_.pid != 0) return nullptr;
  return open() && elf_ != nullptr ? elf_->debug_lines() : nullptr;
}

void ModuleSymbols::name_from_map(std::span<const std::uint64_t> addresses, ModuleNames& names) const {
  const auto map = module_.open_path.empty() ? fmt::format("{}/perf-{}.map", options_.perf_map_directory, module_.pid)
                                             : module_.open_path;
  name_from_perf_map(map, addresses, names);
  if (!names.opened) names.note.clear();  // most programs write none
}

bool ModuleSymbols::open() {
  if (!pe_ && elf_ == nullptr) {
    pe_ = PeSymbolFile::open(module_, options_);
    if (!pe_) elf_ = std::make_unique<SymbolFile>(module_, options_);
  }
  return pe_ || elf_->opened();
}

// Of what has no name.
void ModuleSymbols::add_function_starts(std::span<const std::uint64_t> addresses, ModuleNames& names) {
  std::vector<std::uint64_t> unnamed;
  std::vector<std::size_t> indexes;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (names.named(i)) continue;
    unnamed.push_back(addresses[i]);
    indexes.push_back(i);
  }
  if (unnamed.empty()) return;
  if (!pe_ && !starts_) starts_.emplace(module_);
  const auto starts = pe_ ? function_starts(pe_->source(), unnamed) : starts_->at(unnamed);
  for (std::size_t i = 0; i < starts.size(); ++i) names.begins[indexes[i]] = starts[i];
}

}  // namespace windlass::symbols
