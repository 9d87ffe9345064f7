#include "formats/image/pe_names.h"

#include <algorithm>

#include "formats/image/pe_format.h"

namespace windlass::image {
namespace {

constexpr std::uint64_t kMaxImportModules = 4096;
constexpr std::uint32_t kMaxImportsPerModule = 1U << 16;
constexpr std::uint64_t kMaxSlotsRead = 1U << 18;  // a look-up: descriptors that overlap could ask for much more

std::string_view coff_name(const pe::CoffSymbol& symbol, ByteView stored, ByteView strings) {
  if (symbol.long_name.zeroes == 0) return strings.string_at(symbol.long_name.offset).value_or(std::string_view());
  const char* raw = reinterpret_cast<const char*>(stored.data());
  return {raw, static_cast<std::size_t>(std::find(raw, raw + 8, '\0') - raw)};
}

}  // namespace

Expected<PeExports> PeExports::open(const PeImage& image) {
  const RvaRange range = image.directory(PeDirectory::kExport);
  if (range.rva == 0 || range.size == 0) return fail(ErrorCode::kNotFound, "the image exports nothing", 0);
  const auto header = image.value_at_rva<pe::ExportDirectory>(range.rva);
  if (!header) return Failure(header.error());
  PeExports exports;
  exports.image_ = &image;
  exports.directory_ = range;
  exports.ordinal_base_ = header->ordinal_base;
  exports.address_count_ = header->address_count;
  exports.name_count_ = header->name_count;
  exports.module_name_ = image.string_at_rva(header->name).value_or(std::string_view());
  const auto table = [&](std::uint32_t rva, std::uint64_t size, ByteView& to) -> Expected<void> {
    if (size == 0) return {};
    const auto bytes = image.at_rva(rva, size);
    if (!bytes) return Failure(bytes.error());
    to = *bytes;
    return {};
  };
  auto ok = table(header->addresses, 4ULL * header->address_count, exports.addresses_);
  if (ok) ok = table(header->names, 4ULL * header->name_count, exports.names_);
  if (ok) ok = table(header->ordinals, 2ULL * header->name_count, exports.ordinals_);
  if (!ok) return Failure(ok.error());
  return exports;
}

Expected<PeExport> PeExports::address(std::uint32_t i) const {
  const auto rva = addresses_.at<std::uint32_t>(4ULL * i);
  if (!rva) return fail(ErrorCode::kOutOfRange, "export ordinal past the address table", i);
  PeExport found;
  found.ordinal = ordinal_base_ + i;
  // "Export Address Table": an address inside the export directory is that of a forwarder's name.
  if (*rva - directory_.rva < directory_.size) {
    const auto forwarder = image_->string_at_rva(*rva);
    if (!forwarder) return Failure(forwarder.error());
    found.forwarder = *forwarder;
  } else {
    found.rva = *rva;
  }
  return found;
}

Expected<PeExport> PeExports::named(std::uint32_t i) const {
  const auto name_rva = names_.at<std::uint32_t>(4ULL * i);
  const auto index = ordinals_.at<std::uint16_t>(2ULL * i);
  if (!name_rva || !index) return fail(ErrorCode::kOutOfRange, "export name past the name table", i);
  const auto name = image_->string_at_rva(*name_rva);
  if (!name) return Failure(name.error());
  auto found = address(*index);  // the table's values count from 0, whatever the ordinal base
  if (found) found->name = *name;
  return found;
}

Expected<PeExport> PeExports::find(std::string_view name) const {
  std::uint32_t low = 0;
  std::uint32_t count = name_count_;
  while (count > 0) {
    const std::uint32_t half = count / 2;
    const auto rva = names_.at<std::uint32_t>(4ULL * (low + half));
    const auto middle = rva ? image_->string_at_rva(*rva) : Failure(rva.error());
    if (!middle) return Failure(middle.error());
    if (*middle == name) return named(low + half);
    if (*middle < name) {
      low += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return fail(ErrorCode::kNotFound, "no export of that name", directory_.rva);
}

Expected<PeImport> import_at(const PeImage& image, std::uint32_t rva) {
  const RvaRange range = image.directory(PeDirectory::kImport);
  const auto table = range.rva != 0 ? image.from_rva(range.rva) : fail(ErrorCode::kNotFound, "no imports", rva);
  if (!table) return Failure(table.error());
  std::uint64_t slots_read = 0;
  for (std::uint64_t i = 0; i < kMaxImportModules && slots_read < kMaxSlotsRead; ++i) {
    const auto module = table->at<pe::ImportDescriptor>(i * sizeof(pe::ImportDescriptor));
    if (!module || module->address_table == 0) break;
    if (rva < module->address_table || (rva - module->address_table) % 8 != 0) continue;
    const std::uint32_t index = (rva - module->address_table) / 8;
    if (index >= kMaxImportsPerModule) continue;
    // The slots of one module end with a zero; what is behind it belongs to another one.
    const std::uint32_t lookup = module->lookup_table != 0 ? module->lookup_table : module->address_table;
    const auto entries = image.at_rva(lookup, 8ULL * (index + 1));
    if (!entries) continue;
    slots_read += index + 1;
    std::uint64_t entry = 1;
    for (std::uint32_t k = 0; k <= index && entry != 0; ++k) entry = entries->at<std::uint64_t>(8ULL * k).value_or(0);
    if (entry == 0) continue;
    PeImport found;
    found.module = image.string_at_rva(module->name).value_or(std::string_view());
    if ((entry >> 63) != 0) {  // "Import Lookup Table": by ordinal
      found.ordinal = static_cast<std::uint16_t>(entry);
      return found;
    }
    const auto name = image.string_at_rva(static_cast<std::uint32_t>(entry) + 2);  // behind the hint
    if (!name) return Failure(name.error());
    found.name = *name;
    return found;
  }
  return fail(ErrorCode::kNotFound, "no import address table slot at RVA", rva);
}

void each_coff_symbol(const PeImage& image, FunctionRef<void(std::string_view, std::uint32_t, bool)> callback) {
  const ByteView table = image.coff_symbols();
  const auto sections = image.sections();
  for (std::uint64_t at = 0; at + sizeof(pe::CoffSymbol) <= table.size();) {
    const auto symbol = *table.at<pe::CoffSymbol>(at);
    const ByteView stored = *table.sub(at, sizeof(pe::CoffSymbol));
    at += sizeof(pe::CoffSymbol) * (1ULL + symbol.auxiliary_count);
    if (symbol.section < 1 || static_cast<std::size_t>(symbol.section) > sections.size()) continue;
    if (symbol.storage_class != pe::kExternal && symbol.storage_class != pe::kStatic) continue;
    const std::string_view name = coff_name(symbol, stored, image.coff_strings());
    if (name.empty()) continue;
    callback(name, sections[symbol.section - 1].rva + symbol.value, symbol.type == pe::kFunctionType);
  }
}

PeSymbols PeSymbols::make(const PeImage& image) {
  PeSymbols symbols;
  each_coff_symbol(image, [&](std::string_view name, std::uint32_t rva, bool is_function) {
    if (is_function) symbols.symbols_.push_back({rva, name});
  });
  if (const auto exports = PeExports::open(image)) {
    for (std::uint32_t i = 0; i < exports->name_count(); ++i) {
      const auto found = exports->named(i);
      if (found && found->rva != 0) symbols.symbols_.push_back({found->rva, found->name});
    }
  }
  // Stable: of several at one address the COFF symbol, which stands first, is found.
  std::stable_sort(symbols.symbols_.begin(), symbols.symbols_.end(),
                   [](const Symbol& a, const Symbol& b) { return a.rva < b.rva; });
  const auto same = std::unique(symbols.symbols_.begin(), symbols.symbols_.end(),
                                [](const Symbol& a, const Symbol& b) { return a.rva == b.rva; });
  symbols.symbols_.erase(same, symbols.symbols_.end());
  return symbols;
}

std::optional<PeSymbols::Symbol> PeSymbols::nearest(std::uint32_t rva) const {
  const auto after = std::upper_bound(symbols_.begin(), symbols_.end(), rva,
                                      [](std::uint32_t value, const Symbol& symbol) { return value < symbol.rva; });
  if (after == symbols_.begin()) return std::nullopt;
  return *(after - 1);
}

std::string_view PeSymbols::at(std::uint32_t rva) const {
  const auto found = nearest(rva);
  return found && found->rva == rva ? found->name : std::string_view();
}

}  // namespace windlass::image
