#include "symbols/symbol_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "os/mapped_files.h"
#include "symbols/debug_file.h"

namespace windlass::symbols {

SymbolFile::SymbolFile(const profile::Module& module, const SymbolizeOptions& options) : options_(options) {
  // libdwfl's search path: "" = the directory of the file itself, then names below it, then roots of debug trees.
  debug_path_ = ":.debug:" + (options.debug_directory.empty() ? "" : options.debug_directory + ":") + "/usr/lib/debug";
  debug_path_pointer_ = debug_path_.data();
  callbacks_.find_debuginfo = find_debug_file;  // asks debuginfod only if DEBUGINFOD_URLS is set
  if (!options.debug_directory.empty()) debug_trees_.push_back(options.debug_directory);
  debug_trees_.emplace_back("/usr/lib/debug");
  callbacks_.debuginfo_path = &debug_path_pointer_;

  if (module.path == "[vdso]" && module.open_path.empty()) {
    const int fd = os::open_vdso();
    if (fd >= 0) report(module, fd, true);
    return;
  }
  if (!module.open_path.empty() && open(module, module.open_path, true)) return;
  if (module.path.starts_with('/') && module.path != module.open_path && open(module, module.path, false)) return;
  if (module.build_id.size() > 2) {
    for (const auto& root : {options.debug_directory, std::string("/usr/lib/debug")}) {
      const auto path =
          fmt::format("{}/.build-id/{}/{}.debug", root, module.build_id.substr(0, 2), module.build_id.substr(2));
      if (!root.empty() && open(module, path, false)) return;
    }
  }
}

SymbolFile::~SymbolFile() {
  if (dwfl_ != nullptr) dwfl_end(dwfl_);
}

bool SymbolFile::open(const profile::Module& module, const std::string& path, bool trust_without_build_id) {
  std::string problem;
  const int fd = os::open_regular(path);
  if (fd < 0) problem = fmt::format("{}: {}", path, errno == ENODEV ? "not a regular file" : std::strerror(errno));
  if (fd >= 0 && report(module, fd, trust_without_build_id)) {
    note_.clear();
    return true;
  }
  if (fd >= 0) problem = fmt::format("{}: not the file that was mapped (build id differs), or not ELF", path);
  if (note_.empty()) note_ = problem;
  return false;
}

// Takes the descriptor over. Base 0: addresses are then the file's own.
bool SymbolFile::report(const profile::Module& module, int fd, bool trust_without_build_id) {
  if (dwfl_ != nullptr) dwfl_end(dwfl_);
  dwfl_ = dwfl_begin(&callbacks_);
  if (dwfl_ == nullptr) {
    ::close(fd);
    return false;
  }
  Dwfl_Module* reported = dwfl_report_elf(dwfl_, module.path.c_str(), module.path.c_str(), fd, 0, true);
  if (reported == nullptr) {
    ::close(fd);
    return false;
  }
  dwfl_report_end(dwfl_, nullptr, nullptr);
  if (void** userdata = nullptr;
      dwfl_module_info(reported, &userdata, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr) != nullptr)
    *userdata = &debug_trees_;
  const auto same = os::compare({.build_id = module.build_id}, build_id_of(reported), 0);
  const bool is_right = same == os::Sameness::kSame || (same == os::Sameness::kUnknown && trust_without_build_id);
  if (is_right) {
    module_ = reported;
    if (options_.go_table) go_ = GoNames::open(fd, note_);
  }
  return is_right;
}

DebugLines* SymbolFile::debug_lines() {
  if (!opened() || !options_.lines) return nullptr;
  if (!debug_lines_) debug_lines_.emplace(module_);
  return &*debug_lines_;
}

void SymbolFile::name(std::span<const std::uint64_t> addresses, ModuleNames& names) {
  names.opened = opened();
  if (!opened()) return;
  if (!symbols_) symbols_.emplace(module_);
  if (!go_) symbols_->expect(addresses);
  DebugLines* lines = debug_lines();
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (go_ && go_->name(i, addresses[i], options_.lines, names)) continue;
    auto [symbol, begin] = symbols_->at(addresses[i]);
    names.begins[i] = begin;
    if (lines != nullptr) lines->name(i, addresses[i], symbol, names);
    if (names.named(i)) continue;
    if (symbol.empty()) {
      if (!stubs_) stubs_.emplace(module_);
      symbol = stubs_->at(addresses[i]);
    }
    if (!symbol.empty()) names.add_line(i, {names.function(symbol, {}, 0), 0});
  }
}

}  // namespace windlass::symbols
