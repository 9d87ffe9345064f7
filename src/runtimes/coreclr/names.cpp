#include "runtimes/coreclr/names.h"

#include <utility>

#include "runtimes/memory_reader.h"

namespace windlass::runtimes::coreclr {
namespace {

// RuntimeTypeSystem.md, MethodDescFlags.Classification.
constexpr std::uint16_t kClassification = 7, kDynamic = 7;
constexpr unsigned kTokenBits = 24;        // of a token, without its table
constexpr unsigned kTypeRowShift = 8;      // in MethodTable's second flags
constexpr std::uint32_t kMappedImage = 1;  // PEImageLayout: FLAG_MAPPED

}  // namespace

Expected<Names> Names::make(const Descriptor& descriptor) {
  Layout layout(descriptor);
  Names names;
  (void)layout.contract("RuntimeTypeSystem", "RuntimeTypeSystem contract of a version that is not known", 1, 1);
  (void)layout.contract("Loader", "Loader contract of a version that is not known", 1, 1);
  (void)layout.contract("EcmaMetadata", "EcmaMetadata contract of a version that is not known", 1, 1);
  names.method_token_ = layout.field("MethodDesc", "Flags3AndTokenRemainder");
  names.method_chunk_index_ = layout.field("MethodDesc", "ChunkIndex");
  names.method_flags_ = layout.field("MethodDesc", "Flags");
  names.method_name_ = layout.field("DynamicMethodDesc", "MethodName");
  names.chunk_size_ = layout.size("MethodDescChunk");
  names.chunk_table_ = layout.field("MethodDescChunk", "MethodTable");
  names.chunk_token_ = layout.field("MethodDescChunk", "FlagsAndTokenRange");
  names.table_module_ = layout.field("MethodTable", "Module");
  names.table_flags2_ = descriptor.offset("MethodTable", "MTFlags2");
  if (!descriptor.offset("Module", "PEAssembly")) {
    names.module_base_ = layout.field("Module", "Base");
  } else {
    names.module_assembly_ = layout.field("Module", "PEAssembly");
    names.assembly_image_ = layout.field("PEAssembly", "PEImage");
    names.image_layout_ = layout.field("PEImage", "LoadedImageLayout");
    names.layout_base_ = layout.field("PEImageLayout", "Base");
    names.layout_flags_ = layout.field("PEImageLayout", "Flags");
  }
  names.alignment_ = layout.global("MethodDescAlignment");
  names.token_bits_ = layout.global("MethodDescTokenRemainderBitCount");
  if (layout.error()) return Failure(*layout.error());
  if (names.token_bits_ == 0 || names.token_bits_ >= 16)
    return fail(ErrorCode::kMalformed, "method tokens are split as no runtime does", 0, names.token_bits_);
  return names;
}

Names::Image Names::image_of(const Memory& memory, std::uint64_t module) const {
  if (module_base_ != 0) return {read_value<std::uint64_t>(memory, module + module_base_).value_or(0), std::nullopt};
  const auto assembly = read_value<std::uint64_t>(memory, module + module_assembly_);
  const auto image = assembly ? read_value<std::uint64_t>(memory, *assembly + assembly_image_) : std::nullopt;
  const auto layout = image ? read_value<std::uint64_t>(memory, *image + image_layout_) : std::nullopt;
  const auto base = layout ? read_value<std::uint64_t>(memory, *layout + layout_base_) : std::nullopt;
  const auto flags = layout ? read_value<std::uint32_t>(memory, *layout + layout_flags_) : std::nullopt;
  if (!base || !flags) return {};
  return {*base, (*flags & kMappedImage) == 0};
}

const Metadata* Names::metadata_of(const Memory& memory, std::uint64_t module) {
  const Image image = image_of(memory, module);
  if (image.base == 0) return nullptr;
  if (const auto known = modules_.find(image.base); known != modules_.end()) return known->second.get();
  if (modules_.size() >= kMaxModules) modules_.clear();
  auto tables = MetadataTables::open(memory, image.base, image.flat.value_or(false));
  if (!tables && !image.flat) tables = MetadataTables::open(memory, image.base, true);
  return modules_.emplace(image.base, tables ? std::make_unique<Metadata>(*tables) : nullptr).first->second.get();
}

std::string Names::name_of(const Memory& memory, std::uint64_t method_desc) {
  const auto flags = read_value<std::uint16_t>(memory, method_desc + method_flags_);
  const auto index = read_value<std::uint8_t>(memory, method_desc + method_chunk_index_);
  const auto low = read_value<std::uint16_t>(memory, method_desc + method_token_);
  if (!flags || !index || !low) return {};
  if ((*flags & kClassification) == kDynamic) {
    const auto name = read_value<std::uint64_t>(memory, method_desc + method_name_);
    return name && *name != 0 ? read_text(memory, *name, MetadataTables::kMaxName) : std::string();
  }
  const std::uint64_t chunk = method_desc - chunk_size_ - *index * alignment_;
  const auto high = read_value<std::uint16_t>(memory, chunk + chunk_token_);
  const auto table = read_value<std::uint64_t>(memory, chunk + chunk_table_);
  const auto module = table ? read_value<std::uint64_t>(memory, *table + table_module_) : std::nullopt;
  const auto flags2 =
      table && table_flags2_ ? read_value<std::uint32_t>(memory, *table + *table_flags2_) : std::optional(0U);
  if (!high || !module || !flags2) return {};
  const auto bits = static_cast<unsigned>(token_bits_);
  const std::uint32_t row = (*high & ((1U << (kTokenBits - bits)) - 1)) << bits | (*low & ((1U << bits) - 1));
  const Metadata* metadata = metadata_of(memory, *module);
  if (metadata == nullptr) return {};
  return metadata->full_name(memory, row, *flags2 >> kTypeRowShift);
}

}  // namespace windlass::runtimes::coreclr
