#include "runtimes/coreclr/metadata_tables.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <span>
#include <vector>

#include "runtimes/memory_reader.h"

namespace windlass::runtimes::coreclr {
namespace {

// ---- columns
// ---------------------------------------------------------------------------------------------------------

// A column is a table's number (an index into it), one of these, or kCoded and the kind of coded index.
enum Column : std::uint8_t { k2 = 0x40, k4, kString, kGuid, kBlob, kCoded = 0x80 };

// II.24.2.6, in its order.
enum Coded : std::uint8_t {
  kTypeDefOrRef = kCoded,
  kHasConstant,
  kHasCustomAttribute,
  kHasFieldMarshal,
  kHasDeclSecurity,
  kMemberRefParent,
  kHasSemantics,
  kMethodDefOrRef,
  kMemberForwarded,
  kImplementation,
  kCustomAttributeType,
  kResolutionScope,
  kTypeOrMethodDef,
};
struct CodedIndex {
  std::uint8_t bits;
  std::initializer_list<std::uint8_t> tables;
};
const CodedIndex kCodedIndexes[] = {
    {2, {0x02, 0x01, 0x1b}},
    {2, {0x04, 0x08, 0x17}},
    {5, {0x06, 0x04, 0x01, 0x02, 0x08, 0x09, 0x0a, 0x00, 0x0e, 0x17, 0x14,
         0x11, 0x1a, 0x1b, 0x20, 0x23, 0x26, 0x27, 0x28, 0x2a, 0x2c, 0x2b}},
    {1, {0x04, 0x08}},
    {2, {0x02, 0x06, 0x20}},
    {3, {0x02, 0x01, 0x1a, 0x06, 0x1b}},
    {1, {0x14, 0x17}},
    {1, {0x06, 0x0a}},
    {1, {0x04, 0x06}},
    {2, {0x26, 0x23, 0x27}},
    {3, {0x06, 0x0a}},
    {2, {0x00, 0x1a, 0x23, 0x01}},
    {1, {0x02, 0x06}},
};

// II.22; the tables of indirections (FieldPtr ...) and of edits are Microsoft's.
const std::initializer_list<std::uint8_t> kSchema[] = {
    /* 00 Module */ {k2, kString, kGuid, kGuid, kGuid},
    /* 01 TypeRef */ {kResolutionScope, kString, kString},
    /* 02 TypeDef */ {k4, kString, kString, kTypeDefOrRef, 0x04, 0x06},
    /* 03 FieldPtr */ {0x04},
    /* 04 Field */ {k2, kString, kBlob},
    /* 05 MethodPtr */ {0x06},
    /* 06 MethodDef */ {k4, k2, k2, kString, kBlob, 0x08},
    /* 07 ParamPtr */ {0x08},
    /* 08 Param */ {k2, k2, kString},
    /* 09 InterfaceImpl */ {0x02, kTypeDefOrRef},
    /* 0a MemberRef */ {kMemberRefParent, kString, kBlob},
    /* 0b Constant */ {k2, kHasConstant, kBlob},
    /* 0c CustomAttribute */ {kHasCustomAttribute, kCustomAttributeType, kBlob},
    /* 0d FieldMarshal */ {kHasFieldMarshal, kBlob},
    /* 0e DeclSecurity */ {k2, kHasDeclSecurity, kBlob},
    /* 0f ClassLayout */ {k2, k4, 0x02},
    /* 10 FieldLayout */ {k4, 0x04},
    /* 11 StandAloneSig */ {kBlob},
    /* 12 EventMap */ {0x02, 0x14},
    /* 13 EventPtr */ {0x14},
    /* 14 Event */ {k2, kString, kTypeDefOrRef},
    /* 15 PropertyMap */ {0x02, 0x17},
    /* 16 PropertyPtr */ {0x17},
    /* 17 Property */ {k2, kString, kBlob},
    /* 18 MethodSemantics */ {k2, 0x06, kHasSemantics},
    /* 19 MethodImpl */ {0x02, kMethodDefOrRef, kMethodDefOrRef},
    /* 1a ModuleRef */ {kString},
    /* 1b TypeSpec */ {kBlob},
    /* 1c ImplMap */ {k2, kMemberForwarded, kString, 0x1a},
    /* 1d FieldRVA */ {k4, 0x04},
    /* 1e ENCLog */ {k4, k4},
    /* 1f ENCMap */ {k4},
    /* 20 Assembly */ {k4, k2, k2, k2, k2, k4, kBlob, kString, kString},
    /* 21 AssemblyProcessor */ {k4},
    /* 22 AssemblyOS */ {k4, k4, k4},
    /* 23 AssemblyRef */ {k2, k2, k2, k2, k4, kBlob, kString, kString, kBlob},
    /* 24 AssemblyRefProcessor */ {k4, 0x23},
    /* 25 AssemblyRefOS */ {k4, k4, k4, 0x23},
    /* 26 File */ {k4, kString, kBlob},
    /* 27 ExportedType */ {k4, k4, kString, kString, kImplementation},
    /* 28 ManifestResource */ {k4, k4, kString, kImplementation},
    /* 29 NestedClass */ {0x02, 0x02},
    /* 2a GenericParam */ {k2, k2, kTypeOrMethodDef, kString},
};

// ---- the image
// -------------------------------------------------------------------------------------------------------

constexpr std::uint32_t kMaxHeap = 256U << 20;

Failure unreadable(std::uint64_t at) {
  return fail(ErrorCode::kUnreadable, "a .NET module's image cannot be read", at);
}

struct SectionHeader {
  char name[8];
  std::uint32_t virtual_size, rva, raw_size, raw_offset, relocations, lines;
  std::uint16_t relocation_count, line_count;
  std::uint32_t characteristics;
};
static_assert(sizeof(SectionHeader) == 40);

// Places in an image, by RVA.
class Image {
 public:
  static Expected<Image> open(const Memory& memory, std::uint64_t base, bool flat, std::uint32_t& cli_header) {
    Image image(base, flat);
    const auto magic = read_value<std::uint16_t>(memory, base);
    const auto header = read_value<std::uint32_t>(memory, base + 0x3c);
    if (!magic || !header) return unreadable(base);
    const std::uint64_t pe = base + *header;
    const auto signature = read_value<std::uint32_t>(memory, pe);
    const auto sections = read_value<std::uint16_t>(memory, pe + 6);
    const auto optional_size = read_value<std::uint16_t>(memory, pe + 20);
    const auto optional_magic = read_value<std::uint16_t>(memory, pe + 24);
    if (!signature || !sections || !optional_size || !optional_magic) return unreadable(pe);
    constexpr std::uint16_t kDos = 0x5a4d, k32Plus = 0x20b, kMaxSections = 96;
    if (*magic != kDos || *signature != 0x4550 || *sections > kMaxSections)
      return fail(ErrorCode::kMalformed, "a .NET module's image has no PE header", base);
    // The 15th data directory (PE format, "Optional header data directories").
    const std::uint64_t directory = pe + 24 + (*optional_magic == k32Plus ? 112 : 96) + 14 * 8;
    const auto cli = read_value<std::uint32_t>(memory, directory);
    if (!cli) return unreadable(directory);
    image.sections_.resize(*sections);
    if (!memory.read(pe + 24 + *optional_size, image.sections_.data(), *sections * sizeof(SectionHeader)))
      return unreadable(pe);
    cli_header = *cli;
    return image;
  }
  [[nodiscard]] std::optional<std::uint64_t> at(std::uint32_t rva) const {
    if (rva == 0) return std::nullopt;
    if (!flat_) return base_ + rva;
    for (const SectionHeader& section : sections_)
      if (rva >= section.rva && rva - section.rva < section.raw_size)
        return base_ + section.raw_offset + (rva - section.rva);
    return std::nullopt;
  }

 private:
  Image(std::uint64_t base, bool flat) : base_(base), flat_(flat) {}

  std::uint64_t base_;
  bool flat_;
  std::vector<SectionHeader> sections_;
};

}  // namespace

Expected<MetadataTables> MetadataTables::open(const Memory& memory, std::uint64_t base, bool flat) {
  std::uint32_t cli_header = 0;
  const auto image = Image::open(memory, base, flat, cli_header);
  if (!image) return Failure(image.error());
  const auto cli = image->at(cli_header);
  const auto rva = cli ? read_value<std::uint32_t>(memory, *cli + 8) : std::nullopt;  // II.25.3.3: MetaData
  const auto root = rva ? image->at(*rva) : std::nullopt;
  if (!root) return fail(ErrorCode::kMalformed, "an image without .NET metadata", base);
  MetadataTables metadata;
  Heap tables;
  if (const auto read = metadata.read_streams(memory, *root, tables); !read) return Failure(read.error());
  if (const auto read = metadata.read_layout(memory, tables); !read) return Failure(read.error());
  return metadata;
}

// II.24.2.1, II.24.2.2.
Expected<void> MetadataTables::read_streams(const Memory& memory, std::uint64_t root, Heap& tables) {
  constexpr std::uint32_t kSignature = 0x424a'5342, kMaxVersion = 255;
  constexpr std::uint16_t kMaxStreams = 16;
  const auto signature = read_value<std::uint32_t>(memory, root);
  const auto version = read_value<std::uint32_t>(memory, root + 12);
  if (!signature || !version) return unreadable(root);
  if (*signature != kSignature || *version > kMaxVersion)
    return fail(ErrorCode::kMalformed, ".NET metadata with another beginning", root, *signature);
  std::uint64_t at = root + 16 + (std::uint64_t{*version} + 3) / 4 * 4 + 2;
  const auto count = read_value<std::uint16_t>(memory, at);
  if (!count) return unreadable(at);
  at += 2;
  for (std::uint16_t i = 0; i < std::min(*count, kMaxStreams); ++i) {
    const auto offset = read_value<std::uint32_t>(memory, at);
    const auto size = read_value<std::uint32_t>(memory, at + 4);
    if (!offset || !size) return unreadable(at);
    const std::string name = read_text(memory, at + 8, 32);
    const Heap heap{root + *offset, std::min(*size, kMaxHeap)};
    if (name == "#Strings") strings_ = heap;
    if (name == "#Blob") blobs_ = heap;
    if (name == "#~" || name == "#-") tables = heap;
    if (name == "#JTD") return fail(ErrorCode::kUnsupported, "metadata of edits", at);
    at += 8 + (name.size() + 4) / 4 * 4;
  }
  if (tables.size == 0 || strings_.size == 0) return fail(ErrorCode::kMalformed, ".NET metadata without tables", root);
  return {};
}

unsigned MetadataTables::width_of(std::uint8_t kind, std::uint8_t heap_sizes) const {
  switch (kind) {
    case k2: return 2;
    case k4: return 4;
    case kString: return (heap_sizes & 1) != 0 ? 4 : 2;
    case kGuid: return (heap_sizes & 2) != 0 ? 4 : 2;
    case kBlob: return (heap_sizes & 4) != 0 ? 4 : 2;
    default: break;
  }
  if (kind < kTables) return tables_[kind].rows > 0xffff ? 4 : 2;
  const CodedIndex& index = kCodedIndexes[kind - kCoded];
  std::uint32_t most = 0;
  for (const std::uint8_t table : index.tables) most = std::max(most, tables_[table].rows);
  return most > 0xffffU >> index.bits ? 4 : 2;
}

// II.24.2.6. Tables behind the last one of kSchema are not looked at.
Expected<void> MetadataTables::read_layout(const Memory& memory, const Heap& tables) {
  constexpr std::uint32_t kMaxRows = 1U << 24, kTablesHeader = 24;
  const auto heap_sizes = read_value<std::uint8_t>(memory, tables.address + 6);
  const auto valid = read_value<std::uint64_t>(memory, tables.address + 8);
  if (!heap_sizes || !valid) return unreadable(tables.address);
  std::uint64_t at = tables.address + kTablesHeader;
  for (std::uint64_t rest = *valid; rest != 0; rest &= rest - 1, at += 4) {
    const auto rows = read_value<std::uint32_t>(memory, at);
    if (!rows) return unreadable(at);
    if (*rows > kMaxRows) return fail(ErrorCode::kLimit, "more rows than a table of metadata can have", at, *rows);
    tables_[static_cast<std::size_t>(std::countr_zero(rest))].rows = *rows;
  }
  constexpr std::uint8_t kExtraData = 0x40;
  if ((*heap_sizes & kExtraData) != 0) at += 4;
  for (std::size_t number = 0; number < std::size(kSchema); ++number) {
    TableLayout& table = tables_[number];
    table.address = at;
    for (const std::uint8_t kind : kSchema[number]) {
      table.offset[table.columns] = table.row_size;
      table.size[table.columns] = static_cast<std::uint8_t>(width_of(kind, *heap_sizes));
      table.row_size = static_cast<std::uint8_t>(table.row_size + table.size[table.columns++]);
    }
    at += std::uint64_t{table.rows} * table.row_size;
  }
  if (at > tables.address + tables.size)
    return fail(ErrorCode::kMalformed, "tables of metadata that do not fit", tables.address, tables.size);
  return {};
}

std::optional<std::uint32_t> MetadataTables::column(const Memory& memory, TableRow row, unsigned number) const {
  const TableLayout& table = layout(row.table);
  if (row.row == 0 || row.row > table.rows || number >= table.columns) return std::nullopt;
  const std::uint64_t at = table.address + std::uint64_t{row.row - 1} * table.row_size + table.offset[number];
  if (table.size[number] == 2) return read_value<std::uint16_t>(memory, at);
  return read_value<std::uint32_t>(memory, at);
}

std::optional<std::uint32_t> MetadataTables::find_sorted(const Memory& memory, Table table, unsigned number,
                                                         std::uint32_t value) const {
  std::uint32_t low = 1, high = rows(table) + 1;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    const auto here = column(memory, {table, middle}, number);
    if (!here) return std::nullopt;
    if (*here < value)
      low = middle + 1;
    else
      high = middle;
  }
  return column(memory, {table, low}, number) == value ? std::optional(low) : std::nullopt;
}

// Each type names its first method, and those of the types behind it follow.
std::uint32_t MetadataTables::owner_of(const Memory& memory, std::uint32_t method) const {
  constexpr unsigned kMethodList = 5;
  std::uint32_t low = 1, high = rows(Table::kTypeDef) + 1;  // the first type whose methods are behind it
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    const auto first = column(memory, {Table::kTypeDef, middle}, kMethodList);
    if (!first) return 0;
    if (*first <= method)
      low = middle + 1;
    else
      high = middle;
  }
  return low - 1;
}

std::string MetadataTables::string_at(const Memory& memory, std::uint32_t offset) const {
  if (offset >= strings_.size) return {};
  return read_text(memory, strings_.address + offset, std::min<std::size_t>(kMaxName, strings_.size - offset));
}

std::string MetadataTables::blob_at(const Memory& memory, std::uint32_t offset) const {
  if (offset == 0 || offset >= blobs_.size) return {};
  std::uint8_t head[4] = {};
  const std::uint32_t left = blobs_.size - offset;
  if (!memory.read(blobs_.address + offset, head, std::min<std::size_t>(sizeof head, left))) return {};
  std::uint32_t size = head[0], header = 1;
  if ((head[0] & 0xc0) == 0x80) size = (head[0] & 0x3fU) << 8 | head[1], header = 2;
  if ((head[0] & 0xe0) == 0xc0)
    size = (head[0] & 0x1fU) << 24 | std::uint32_t{head[1]} << 16 | std::uint32_t{head[2]} << 8 | head[3], header = 4;
  if (header > left) return {};
  std::string blob(std::min<std::size_t>({size, kMaxBlob, left - header}), '\0');
  if (!memory.read(blobs_.address + offset + header, blob.data(), blob.size())) return {};
  return blob;
}

}  // namespace windlass::runtimes::coreclr
