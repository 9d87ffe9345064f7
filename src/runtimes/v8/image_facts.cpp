#include "runtimes/v8/image_facts.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "formats/image/elf_structures.h"

namespace windlass::runtimes::v8 {
namespace {

constexpr std::string_view kMetadata = "v8dbg_", kBuiltin = "Builtins_";
constexpr std::string_view kVersion = "_ZN2v88internal7Version6major_E", kMinor = "_ZN2v88internal7Version6minor_E";
constexpr std::string_view kWasmState = "_ZN2v88internal4wasm12_GLOBAL__N_117global_wasm_stateE";
constexpr std::string_view kBytecodeSizes = "_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE";

// "class_Map__prototype__Object" without the last part, "type_Map__MAP_TYPE" without the first.
std::string_view key_of(std::string_view name) {
  const auto cut = [&](std::size_t from) { return name.find("__", from); };
  if (name.starts_with("class_")) {
    const std::size_t field = cut(0);
    return field == name.npos ? name : name.substr(0, cut(field + 2));
  }
  if (const std::size_t type = cut(0); name.starts_with("type_") && type != name.npos) return name.substr(type + 2);
  return name;
}

}  // namespace

Expected<ImageFacts> ImageFacts::read(ByteView file) {
  const auto image = image::ElfImage::parse(file);
  if (!image) return Failure(image.error());
  ImageFacts facts;
  for (const image::Section& section : image->sections())
    if (section.type == SHT_SYMTAB || section.type == SHT_DYNSYM) facts.add_table(*image, section);
  if (facts.values_.empty()) return fail(ErrorCode::kNotFound, "the file says nothing of a V8", 0);
  facts.add_untold();
  facts.builtins_have_symbols_ = !facts.builtins_.empty();
  if (!facts.builtins_have_symbols_) facts.add_what_symbols_tell(*image);
  std::ranges::sort(facts.builtins_, {}, &Builtin::begin);
  facts.end_builtins();
  std::uint64_t end = 0;
  std::erase_if(facts.builtins_, [&](const Builtin& builtin) {
    const bool overlaps = builtin.begin < end || builtin.begin == builtin.end;
    end = std::max(end, builtin.end);
    return overlaps;
  });
  return facts;
}

// Symbols of V8 7 have no sizes. Builtins follow one another, so each ends where the next one begins.
void ImageFacts::end_builtins() {
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 20;
  for (std::size_t i = 0; i + 1 < builtins_.size(); ++i) {
    const std::uint64_t next = builtins_[i + 1].begin;
    if (builtins_[i].begin == builtins_[i].end && next - builtins_[i].begin <= kLongest) builtins_[i].end = next;
  }
}

// Measured in node 12, 14 and 16 (objects/{bytecode-array,code}.h, execution/frame-constants.h). Kinds of V8 7 and 8
// are those of Code::Kind, behind a bit; Layout::kind_of() makes the later kinds of them.
void ImageFacts::add_untold() {
  struct Version {
    std::int32_t major, minor;
  };
  constexpr std::size_t kCount = 3;
  constexpr std::array<Version, kCount> kVersions = {{{7, 8}, {8, 4}, {9, 4}}};
  struct Untold {
    std::string_view name;
    std::array<std::int32_t, kCount> of;
  };
  constexpr std::array<Untold, 7> kUntold = {{{"class_BytecodeArray__data", {54, 54, 54}},
                                              {"class_Code__flags", {44, 44, 48}},
                                              {"class_Script__source", {8, 8, 8}},
                                              {"off_fp_bytecode_array", {-24, -24, -32}},
                                              {"off_fp_bytecode_offset", {-32, -32, -40}},
                                              {"CodeKindFieldMask", {62, 62, 15}},
                                              {"CodeKindBaseline", {11, 11, 11}}}};
  const auto is_this = [&](const Version& it) { return it.major == version_ && it.minor == minor_; };
  const auto version = std::ranges::find_if(kVersions, is_this);
  if (version == kVersions.end()) return;
  const auto index = static_cast<std::size_t>(version - kVersions.begin());
  for (const Untold& it : kUntold) values_.try_emplace(std::string(it.name), it.of[index]);
}

void ImageFacts::add_table(const image::ElfImage& image, const image::Section& table) {
  const auto bytes = image.stored_bytes(table);
  if (!bytes || table.link >= image.sections().size() || image.elf_class() != image::ElfClass::k64) return;
  const auto names = image.stored_bytes(image.sections()[table.link]);
  if (!names) return;
  const std::size_t count = std::min(bytes->size() / sizeof(Elf64_Sym), kMaxSymbols);
  for (std::size_t i = 0; i < count; ++i) {
    Elf64_Sym symbol;
    std::memcpy(&symbol, bytes->data() + i * sizeof symbol, sizeof symbol);
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_name >= names->size()) continue;
    const char first = static_cast<char>(names->data()[symbol.st_name]);
    if (first != kMetadata[0] && first != kBuiltin[0] && first != kBytecodeSizes[0]) continue;
    if (const auto name = names->string_at(symbol.st_name)) add(image, *name, symbol.st_value, symbol.st_size);
  }
}

void ImageFacts::add(const image::ElfImage& image, std::string_view name, std::uint64_t address, std::uint64_t size) {
  constexpr std::uint64_t kMostBytecodeSizes = 3 * 256;
  if (name.starts_with(kMetadata) || name == kVersion || name == kMinor) {
    const auto bytes = image.at_address(address, sizeof(std::int32_t));
    std::int32_t value = 0;
    if (!bytes) return;
    std::memcpy(&value, bytes->data(), sizeof value);
    if (name == kVersion)
      version_ = value;
    else if (name == kMinor)
      minor_ = value;
    else
      values_.insert_or_assign(std::string(key_of(name.substr(kMetadata.size()))), value);
  } else if (name.starts_with(kBuiltin) && address + size >= address) {
    builtins_.push_back({address, address + size, std::string(name.substr(kBuiltin.size()))});
  } else if (name == kWasmState) {
    wasm_state_ = address;
  } else if (name == kBytecodeSizes && size <= kMostBytecodeSizes && size % 3 == 0) {
    const auto bytes = image.at_address(address, size);
    if (!bytes) return;
    bytecode_sizes_.resize(size);
    std::memcpy(bytecode_sizes_.data(), bytes->data(), size);
  }
}

std::optional<std::int32_t> ImageFacts::value(std::string_view name) const {
  const auto found = values_.find(name);
  return found != values_.end() ? std::optional(found->second) : std::nullopt;
}

std::optional<std::uint32_t> ImageFacts::field(std::string_view type, std::string_view field) const {
  std::string key = "class_";
  key.append(type).append("__").append(field);
  const auto found = value(key);
  return found && *found >= 0 ? std::optional(static_cast<std::uint32_t>(*found)) : std::nullopt;
}

std::optional<std::uint32_t> ImageFacts::instance_type(std::string_view name) const {
  const auto found = value(name);
  return found && *found >= 0 ? std::optional(static_cast<std::uint32_t>(*found)) : std::nullopt;
}

const ImageFacts::Builtin* ImageFacts::builtin_at(std::uint64_t address) const {
  const auto after = std::ranges::upper_bound(builtins_, address, {}, &Builtin::begin);
  if (after == builtins_.begin()) return nullptr;
  const Builtin& found = *std::prev(after);
  return address < found.end ? &found : nullptr;
}

}  // namespace windlass::runtimes::v8
