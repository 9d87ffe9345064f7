#include "symbols/symbol_files.h"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "os/descriptor.h"
#include "os/mapped_files.h"
#include "symbols/symbol_result.h"

namespace windlass::symbols {
namespace {

// Where an address lies in the file's own numbering. Profiles of other tools have addresses of a process: the mapping
// says the place in the file, and the symbol file where that is mapped.
std::uint64_t own_address(const wlsym::SymbolFile& file, const profile::Module& module, std::uint64_t address) {
  if (address < module.begin || address >= module.end) return address;
  return file.address_of(address - module.begin + module.file_offset).value_or(address);
}

// Adds the lines of an address. The functions of the file become those of `names` once.
class FileFunctions {
 public:
  FileFunctions(wlsym::SymbolFile& file, ModuleNames& names) : file_(file), names_(names) {}
  Expected<void> add(std::size_t index, const wlsym::Place& place) {
    std::vector<profile::Line> lines;
    for (const wlsym::Frame& frame : place.frames) {
      const auto known = known_.find(frame.function);
      if (known != known_.end()) {
        lines.push_back({known->second, frame.line});
        continue;
      }
      const auto function = file_.function(frame.function);
      if (!function) return Failure(function.error());
      lines.push_back({names_.function(function->name, function->file, function->line), frame.line});
      known_.emplace(frame.function, lines.back().function);
    }
    for (const profile::Line& line : lines) names_.add_line(index, line);
    return {};
  }

 private:
  wlsym::SymbolFile& file_;
  ModuleNames& names_;
  std::map<std::uint32_t, std::uint32_t> known_;
};

}  // namespace

std::optional<std::string> symbol_file_path(const std::string& folder, const std::string& build_id) {
  const auto is_digit = [](unsigned char c) { return std::isalnum(c) != 0; };
  constexpr std::size_t kLongest = 128;
  if (build_id.size() <= 2 || build_id.size() > kLongest || !std::ranges::all_of(build_id, is_digit))
    return std::nullopt;
  return fmt::format("{}/.build-id/{}/{}.wlsym", folder, build_id.substr(0, 2), build_id.substr(2));
}

void SymbolFiles::add_folder(const std::string& folder) {
  add(folder, [folder](const std::string& build_id) -> Expected<std::optional<SymbolBytes>> {
    const auto path = symbol_file_path(folder, build_id);
    if (!path) return std::nullopt;
    const os::Descriptor descriptor(os::open_regular(*path));
    if (!descriptor) {
      if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
      return fail(ErrorCode::kSystem, "cannot be opened", 0, static_cast<std::uint64_t>(errno));
    }
    auto file = MappedFile::from_fd(descriptor.get());
    if (!file) return Failure(file.error());
    return SymbolBytes{.mapped = std::move(*file)};
  });
}

std::unique_ptr<SymbolFiles::Opened> SymbolFiles::look_for(const std::string& build_id) {
  auto made = std::make_unique<Opened>();
  for (const Place& place : places_) {
    const auto refuse = [&](const Error& error) {
      if (made->note.empty()) made->note = fmt::format("{}: symbols of {}: {}", place.name, build_id, error.text());
    };
    auto found = place.find(build_id);
    if (!found) refuse(found.error());
    if (!found || !*found) continue;
    made->bytes = std::move(**found);
    auto file = wlsym::SymbolFile::parse(made->bytes.view());
    if (file && file->build_id() != build_id)
      file = fail(ErrorCode::kMalformed, "the symbol file is of another program. Way out: push or copy it again", 0);
    if (!file) {
      refuse(file.error());
      continue;
    }
    made->file = std::move(*file);
    break;
  }
  return made;
}

SymbolFiles::Opened& SymbolFiles::open(const std::string& build_id) {
  const std::scoped_lock guard(lock_);
  auto& opened = opened_[build_id];
  if (opened == nullptr) opened = look_for(build_id);
  return *opened;
}

bool SymbolFiles::has(const std::string& build_id) {
  const Opened& opened = open(build_id);
  return opened.file || !opened.note.empty();
}

void SymbolFiles::name(const profile::Module& module, std::span<const std::uint64_t> addresses, ModuleNames& names) {
  Opened& opened = open(module.build_id);
  names.note = opened.note;
  if (!opened.file) return;
  const std::scoped_lock guard(opened.lock);
  names.opened = true;
  FileFunctions functions(*opened.file, names);
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const std::uint64_t address = own_address(*opened.file, module, addresses[i]);
    const auto place = opened.file->at(address);
    const auto added = place ? functions.add(i, *place) : Failure(place.error());
    if (!added) {
      names.note = fmt::format("symbols of {}: {}", module.path, added.error().text());
      return;
    }
    if (place->begin != 0 && !place->frames.empty()) names.begins[i] = place->begin - address + addresses[i];
  }
}

}  // namespace windlass::symbols
