#include "symbols/pe_symbols.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "formats/image/pe_names.h"

namespace windlass::symbols {
namespace {

using sources::Function;

// Ascending.
std::vector<Function> parts_of(const sources::UnwindSource& source) {
  std::vector<Function> parts;
  const auto add = [&](const Function& part) {
    parts.push_back(part);
    return true;
  };
  const auto ignore = [](const Error&) {};
  source.for_each_function(add, ignore);
  return parts;
}

// Code, and the function that it is a part of; 0: of none.
struct Part {
  std::uint64_t begin, end;
  std::uint64_t function;
};

// The part that an address lies in, or the code between two parts; `function` is 0 then.
Part part_at(const std::vector<Function>& parts, std::uint64_t address) {
  const auto after = std::ranges::upper_bound(parts, address, {}, &Function::begin);
  const std::uint64_t next = after != parts.end() ? after->begin : ~0ull;
  if (after == parts.begin()) return {0, next, 0};
  const Function& last = *std::prev(after);
  return address < last.end ? Part{last.begin, last.end, last.primary} : Part{last.end, next, 0};
}

bool is_code(const image::PeImage& image, std::uint32_t rva) {
  const image::PeSection* section = image.section_at(rva);
  return section != nullptr && section->executable();
}

// Labels of assembly, which are no functions to COFF.
std::vector<image::PeSymbols::Symbol> labels_of(const image::PeImage& image) {
  std::vector<image::PeSymbols::Symbol> labels;
  image::each_coff_symbol(image, [&](std::string_view name, std::uint32_t rva, bool is_function) {
    if (!is_function && !name.starts_with('.') && is_code(image, rva)) labels.push_back({rva, name});
  });
  std::ranges::stable_sort(labels, {}, &image::PeSymbols::Symbol::rva);
  return labels;
}

}  // namespace

struct PeSymbolFile::Tables {
  Tables(const image::PeImage& image, const sources::UnwindSource& source)
      : parts(parts_of(source)), symbols(image::PeSymbols::make(image)), labels(labels_of(image)) {}
  std::vector<Function> parts;
  image::PeSymbols symbols;
  std::vector<image::PeSymbols::Symbol> labels;
};

PeSymbolFile::PeSymbolFile(MappedFile file, image::PeImage image)
    : file_(std::move(file)),
      image_(std::move(image)),
      source_(sources::make_source(image_)),
      tables_(std::make_shared<Tables>(image_, *source_)) {}

std::optional<PeSymbolFile> PeSymbolFile::open(const profile::Module& module, const SymbolizeOptions& options) {
  for (const std::string& path : {module.open_path, module.path}) {
    if (!path.starts_with('/')) continue;
    auto file = MappedFile::open(path);
    if (!file) continue;
    if (file->bytes().size() < SELFMAG || std::memcmp(file->bytes().data(), ELFMAG, SELFMAG) == 0) break;
    auto image = image::PeImage::parse(file->bytes());
    // Without an identity only the descriptor that was kept is certain.
    if (!image || image->build_id() != module.build_id) continue;
    if (module.build_id.empty() && &path != &module.open_path && path != module.open_path) continue;
    PeSymbolFile opened(std::move(*file), std::move(*image));
    opened.find_pdb(module, options);
    if (options.go_table) opened.go_ = GoNames::make(opened.image_, MappedFile(), opened.note_);
    opened.net_ = NetNames::make(opened.image_);
    return opened;
  }
  return std::nullopt;
}

void PeSymbolFile::find_pdb(const profile::Module& module, const SymbolizeOptions& options) {
  lines_ = options.lines;
  const std::string_view recorded = image_.pdb_path();
  WantedPdb wanted{.identity = image_.build_id(),
                   .name = std::string(recorded.substr(recorded.find_last_of("/\\") + 1)),
                   .recorded = std::string(recorded),
                   .images = {}};
  // A descriptor's path leads to the file that a dump's path of Windows was found at.
  std::error_code none;
  for (const std::string& path :
       {std::filesystem::read_symlink(module.open_path, none).string(), module.open_path, module.path})
    if (path.starts_with('/') && !path.starts_with("/proc/self/fd/")) wanted.images.push_back(path);
  if (auto found = symbols::find_pdb(wanted, options, note_)) pdb_.emplace(std::move(found));
}

void PeSymbolFile::name(std::span<const std::uint64_t> addresses, ModuleNames& names) {
  names.opened = true;
  names.note = note_;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto rva = static_cast<std::uint32_t>(addresses[i]);
    if (rva != addresses[i] || !is_code(image_, rva)) continue;
    if (go_ && go_->name(i, rva, lines_, names)) continue;
    if (net_) {
      const Part part = part_at(tables_->parts, rva);
      if (part.function != 0 && net_->name(i, static_cast<std::uint32_t>(part.begin), names)) continue;
    }
    if (pdb_ && pdb_->name(i, rva, lines_, names)) continue;
    name_by_symbols(i, rva, names);
  }
  if (is_spent())
    names.note = fmt::format("{}: takes too long to read: many addresses have no inlined calls", image_.pdb_path());
}

void PeSymbolFile::add_points(std::vector<std::uint64_t>& to) {
  for (const Function& part : tables_->parts) to.insert(to.end(), {part.begin, part.end});
  for (const auto* symbols : {&tables_->symbols.all(), &tables_->labels})
    for (const image::PeSymbols::Symbol& symbol : *symbols) to.push_back(symbol.rva);
  for (const image::PeSection& section : image_.sections())
    if (section.executable()) to.insert(to.end(), {section.rva, std::uint64_t{section.rva} + section.virtual_size});
  if (net_)
    for (const image::CompiledMethod& method : net_->methods()) to.push_back(method.rva);
  if (pdb_) pdb_->each_rva([&](std::uint32_t rva) { to.push_back(rva); });
}

void PeSymbolFile::name_by_symbols(std::size_t index, std::uint32_t rva, ModuleNames& names) {
  const auto& [parts, symbols, labels] = *tables_;
  std::optional<pdb::PdbFile::Symbol> of_pdb;  // what the view in `symbol` points into
  const Part part = part_at(parts, rva);
  // The public symbol of the PDB file, if that is not before the image's own. In code of no entry a leaf of assembly
  // may begin, whose symbol is not marked as code.
  const auto nearest = [&](std::uint32_t at) {
    auto symbol = symbols.nearest(at);
    of_pdb = pdb_ ? pdb_->public_before(at, part.function == 0) : std::nullopt;
    if (of_pdb && (!symbol || of_pdb->rva >= symbol->rva)) symbol = {of_pdb->rva, of_pdb->name};
    return symbol;
  };
  auto symbol = nearest(rva);
  std::uint64_t first = part.begin;
  if (part.function != 0 && (!symbol || symbol->rva < part.begin)) {
    symbol = nearest(static_cast<std::uint32_t>(part.function));
    first = part_at(parts, part.function).begin;
  }
  if (!symbol || symbol->rva < first || !is_code(image_, symbol->rva)) {
    const auto after = std::ranges::upper_bound(labels, rva, {}, &image::PeSymbols::Symbol::rva);
    if (after == labels.begin() || std::prev(after)->rva < first) return;
    symbol = *std::prev(after);
  }
  names.begins[index] = symbol->rva;
  names.add_line(index, {names.function(symbol->name, {}, 0), 0});
}

}  // namespace windlass::symbols
