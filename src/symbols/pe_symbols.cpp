#include "symbols/pe_symbols.h"

#include <algorithm>
#include <string>

#include "image/pe_names.h"
#include "winarm64/read.h"
#include "winx64/read.h"

namespace windlass::symbols {
namespace {

// Where the code of one function is, and the function it is a part of: the same, unless it was split off.
struct Part {
  std::uint64_t begin, end;
  std::uint64_t function;
};

std::uint64_t primary_begin(const winx64::Functions& functions, winx64::RuntimeFunction entry) {
  for (unsigned i = 0; i < winx64::kMaxChain && !entry.indirect(); ++i) {
    const auto info = winx64::read_unwind_info(functions.image(), entry.info);
    if (!info || !info->chained) break;
    entry = *info->chained;
  }
  return entry.begin;
}

// Ascending.
std::vector<Part> parts_of(const image::PeImage& image) {
  std::vector<Part> parts;
  if (image.is_x64_format()) {
    const winx64::Functions functions(image);
    for (std::size_t i = 0; i < functions.size(); ++i) {
      const auto entry = functions.stored(functions.table().stored_index(i));
      if (entry.begin < entry.end) parts.push_back({entry.begin, entry.end, primary_begin(functions, entry)});
    }
    return parts;
  }
  const winarm64::Functions functions(image);
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const auto entry = functions.stored(functions.table().stored_index(i));
    winarm64::Expansion storage;
    const auto record = winarm64::read_record(image, entry, storage);
    if (record) parts.push_back({entry.begin, std::uint64_t{entry.begin} + record->length, entry.begin});
  }
  return parts;
}

// The part that an address lies in, or the code between two parts; `function` is 0 then.
Part part_at(const std::vector<Part>& parts, std::uint64_t address) {
  const auto after = std::ranges::upper_bound(parts, address, {}, &Part::begin);
  const std::uint64_t next = after != parts.end() ? after->begin : ~0ull;
  if (after == parts.begin()) return {0, next, 0};
  const Part& last = *std::prev(after);
  return address < last.end ? last : Part{last.end, next, 0};
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
  explicit Tables(const image::PeImage& image)
      : parts(parts_of(image)), symbols(image::PeSymbols::make(image)), labels(labels_of(image)) {}
  std::vector<Part> parts;
  image::PeSymbols symbols;
  std::vector<image::PeSymbols::Symbol> labels;
};

PeSymbolFile::PeSymbolFile(image::MappedFile file, image::PeImage image)
    : file_(std::move(file)), image_(std::move(image)), tables_(std::make_shared<Tables>(image_)) {}

std::optional<PeSymbolFile> PeSymbolFile::open(const profile::Module& module) {
  for (const std::string& path : {module.open_path, module.path}) {
    if (!path.starts_with('/')) continue;
    auto file = image::MappedFile::open(path);
    if (!file) continue;
    auto image = image::PeImage::parse(file->bytes());
    // Without an identity only the descriptor that was kept is certain.
    if (!image || image->build_id() != module.build_id) continue;
    if (module.build_id.empty() && &path != &module.open_path && path != module.open_path) continue;
    return PeSymbolFile(std::move(*file), std::move(*image));
  }
  return std::nullopt;
}

void PeSymbolFile::name(std::span<const std::uint64_t> addresses, ModuleNames& names) const {
  names.opened = true;
  const auto& [parts, symbols, labels] = *tables_;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto rva = static_cast<std::uint32_t>(addresses[i]);
    if (rva != addresses[i] || !is_code(image_, rva)) continue;
    const Part part = part_at(parts, rva);
    auto symbol = symbols.nearest(rva);
    if (part.function != 0 && (!symbol || symbol->rva < part.begin))
      symbol = symbols.nearest(static_cast<std::uint32_t>(part.function));
    const std::uint64_t first = part.function != 0 ? std::min(part.begin, part.function) : part.begin;
    if (!symbol || symbol->rva < first || !is_code(image_, symbol->rva)) {
      const auto after = std::ranges::upper_bound(labels, rva, {}, &image::PeSymbols::Symbol::rva);
      if (after == labels.begin() || std::prev(after)->rva < first) continue;
      symbol = *std::prev(after);
    }
    names.begins[i] = symbol->rva;
    names.add_line(i, {names.function(symbol->name, {}, 0), 0});
  }
}

std::vector<std::uint64_t> PeSymbolFile::function_starts(std::span<const std::uint64_t> addresses) const {
  std::vector<std::uint64_t> starts;
  starts.reserve(addresses.size());
  for (const std::uint64_t address : addresses) starts.push_back(part_at(tables_->parts, address).function);
  return starts;
}

}  // namespace windlass::symbols
