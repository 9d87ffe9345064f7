#include "formats/image/pe.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include <fmt/format.h>

#include "formats/image/pe_format.h"

namespace windlass::image {
namespace {

constexpr std::uint32_t kPage = 4096;

bool is_supported(PeMachine machine) {
  switch (machine) {
    case PeMachine::kAmd64:
    case PeMachine::kArm64:
    case PeMachine::kArm64Ec:
    case PeMachine::kArm64X: return true;
  }
  return false;
}

std::uint32_t entry_size(PeMachine machine) { return machine == PeMachine::kAmd64 ? 12 : 8; }

// Names longer than 8 bytes stand as "/<decimal offset>" in the string table. The text says images do not use it; MinGW
// does, for its debug sections.
std::string_view section_name(ByteView header, ByteView strings) {
  const char* raw = reinterpret_cast<const char*>(header.data());
  std::string_view name(raw, std::find(raw, raw + 8, '\0') - raw);
  if (!name.starts_with('/')) return name;
  std::uint32_t offset = 0;
  const auto parsed = std::from_chars(name.data() + 1, name.data() + name.size(), offset);
  if (parsed.ec != std::errc{} || parsed.ptr != name.data() + name.size()) return name;
  return strings.string_at(offset).value_or(std::string_view());
}

}  // namespace

std::string_view machine_name(PeMachine machine) {
  switch (machine) {
    case PeMachine::kAmd64: return "x64";
    case PeMachine::kArm64: return "ARM64";
    case PeMachine::kArm64Ec: return "ARM64EC";
    case PeMachine::kArm64X: return "ARM64X";
  }
  return "";
}

bool PeImage::sniff(ByteView bytes) {
  const auto magic = bytes.at<std::uint16_t>(0);
  const auto offset = bytes.at<std::uint32_t>(pe::kSignatureOffsetAt);
  if (!magic || *magic != pe::kDosMagic || !offset) return false;
  const auto signature = bytes.at<std::uint32_t>(*offset);
  return signature && *signature == pe::kSignature;
}

Expected<PeImage> PeImage::parse(ByteView bytes, PeLayout layout) {
  PeImage image;
  image.bytes_ = bytes;
  image.layout_ = layout;
  if (const auto ok = image.read_headers(); !ok) return Failure(ok.error());
  image.find_exception_directory();
  image.find_build_id();
  image.find_hybrid_metadata();
  return image;
}

Expected<void> PeImage::read_headers() {
  if (!sniff(bytes_)) return fail(ErrorCode::kMalformed, "not a PE file", bytes_.origin());
  const std::uint64_t start = *bytes_.at<std::uint32_t>(pe::kSignatureOffsetAt) + 4ULL;
  const auto file = bytes_.at<pe::FileHeader>(start);
  if (!file) return fail(ErrorCode::kTruncated, "PE file header reaches past the end", bytes_.origin() + start);
  const PeMachineNumber number = machine_number(file->machine);
  if (!is_supported(number.machine))
    return fail(ErrorCode::kUnsupported, "PE machine is neither x64 nor ARM64", bytes_.origin() + start, file->machine);
  machine_ = effective_machine_ = number.machine;
  other_system_ = number.other_system;
  timestamp_ = file->timestamp;

  const std::uint64_t optional_at = start + sizeof(pe::FileHeader);
  const auto optional = bytes_.at<pe::OptionalHeader>(optional_at);
  if (!optional || file->optional_header_size < sizeof(pe::OptionalHeader))
    return fail(ErrorCode::kTruncated, "PE optional header is too short for PE32+", bytes_.origin() + optional_at,
                file->optional_header_size);
  if (optional->magic != pe::kPe32Plus)
    return fail(ErrorCode::kUnsupported, "not a PE32+ image", bytes_.origin() + optional_at, optional->magic);
  image_base_ = optional->image_base;
  image_size_ = optional->image_size;
  headers_size_ = optional->headers_size;
  entry_ = optional->entry;

  if (layout_ == PeLayout::kFile && file->symbols_offset != 0)
    read_coff_tables(file->symbols_offset, file->symbol_count);
  read_sections(optional_at + file->optional_header_size, file->section_count);
  find_extents();
  const std::uint32_t room = (file->optional_header_size - sizeof(pe::OptionalHeader)) / 8;
  if (optional->directory_count > room)
    problem(ErrorCode::kMalformed, "data directories reach past the optional header", bytes_.origin() + optional_at,
            optional->directory_count);
  read_directories(optional_at + sizeof(pe::OptionalHeader), std::min(optional->directory_count, room));
  return {};
}

void PeImage::read_coff_tables(std::uint32_t offset, std::uint32_t count) {
  const std::uint64_t size = std::uint64_t{count} * sizeof(pe::CoffSymbol);
  const auto symbols = bytes_.sub(offset, size);
  if (!symbols) {
    problem(ErrorCode::kOutOfRange, "COFF symbol table reaches past the end of the file", bytes_.origin() + offset,
            count);
    return;
  }
  coff_symbols_ = *symbols;
  // The string table follows, its size (which counts itself) first.
  const auto strings_size = bytes_.at<std::uint32_t>(offset + size);
  const auto strings = bytes_.sub(offset + size, strings_size.value_or(0));
  if (!strings_size || !strings)
    problem(ErrorCode::kOutOfRange, "COFF string table reaches past the end of the file",
            bytes_.origin() + offset + size);
  else
    coff_strings_ = *strings;
}

void PeImage::read_sections(std::uint64_t offset, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t at = offset + std::uint64_t{i} * sizeof(pe::SectionHeader);
    const auto header = bytes_.at<pe::SectionHeader>(at);
    if (!header) {
      problem(ErrorCode::kTruncated, "section headers reach past the end of the file", bytes_.origin() + at, count);
      break;
    }
    sections_.push_back({section_name(*bytes_.sub(at, 8), coff_strings_), header->rva, header->virtual_size,
                         header->file_offset, header->file_size, header->characteristics});
  }
  by_rva_.resize(sections_.size());
  std::iota(by_rva_.begin(), by_rva_.end(), std::uint16_t{0});
  std::stable_sort(by_rva_.begin(), by_rva_.end(),
                   [this](std::uint16_t a, std::uint16_t b) { return sections_[a].rva < sections_[b].rva; });
  for (std::size_t i = 1; i < by_rva_.size(); ++i) {
    const PeSection& before = sections_[by_rva_[i - 1]];
    const PeSection& section = sections_[by_rva_[i]];
    if (section.rva < std::uint64_t{before.rva} + before.virtual_size)
      problem(ErrorCode::kMalformed, "sections overlap at RVA", section.rva, before.rva);
  }
}

void PeImage::read_directories(std::uint64_t offset, std::uint32_t count) {
  for (std::uint32_t i = 0; i < std::min<std::uint32_t>(count, kDirectories); ++i) {
    const auto range = bytes_.at<RvaRange>(offset + std::uint64_t{i} * sizeof(RvaRange));
    if (!range) {
      problem(ErrorCode::kTruncated, "data directories reach past the end of the file", bytes_.origin() + offset);
      return;
    }
    directories_[i] = *range;
  }
}

RvaRange PeImage::directory(PeDirectory which) const { return directories_[static_cast<std::size_t>(which)]; }

const PeSection* PeImage::section_at(std::uint32_t rva) const {
  const auto after =
      std::upper_bound(by_rva_.begin(), by_rva_.end(), rva,
                       [this](std::uint32_t value, std::uint16_t i) { return value < sections_[i].rva; });
  if (after == by_rva_.begin()) return nullptr;
  const PeSection& section = sections_[*(after - 1)];
  const std::uint32_t size = std::max(section.virtual_size, section.virtual_size == 0 ? section.file_size : 0);
  return rva - section.rva < size ? &section : nullptr;
}

// The number of a section's bytes that are both in the file and mapped. Raw data past the virtual size is mapped only
// up to the end of its last page. A virtual size of 0 stands for the raw size: old linkers write that, and the Windows
// loader accepts it.
std::uint32_t PeImage::contained_size(const PeSection& section) const {
  const std::uint64_t virtual_size = section.virtual_size == 0 ? section.file_size : section.virtual_size;
  const std::uint64_t mapped = (virtual_size + kPage - 1) / kPage * kPage;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(section.file_size, mapped));
}

void PeImage::find_extents() {
  const std::uint64_t file = bytes_.size();
  const auto add = [&](std::uint32_t rva, std::uint64_t size, std::uint64_t offset) {
    if (offset < file && size != 0)
      extents_.push_back({rva, static_cast<std::uint32_t>(std::min(size, file - offset)), offset});
  };
  if (layout_ == PeLayout::kMapped) return add(0, std::min<std::uint64_t>(file, 0xffff'ffff), 0);
  for (std::size_t i = 0; i < by_rva_.size(); ++i) {
    const PeSection& section = sections_[by_rva_[i]];
    std::uint64_t size = contained_size(section);
    // Where sections overlap, the one that begins last has the bytes.
    if (i + 1 < by_rva_.size()) size = std::min<std::uint64_t>(size, sections_[by_rva_[i + 1]].rva - section.rva);
    add(section.rva, size, section.file_offset);
  }
  add(0, headers_size_, 0);
}

Expected<ByteView> PeImage::from_rva(std::uint32_t rva) const {
  const ByteView rest = rest_from(rva);
  if (!rest.empty()) return rest;
  if (layout_ == PeLayout::kMapped) return fail(ErrorCode::kOutOfRange, "RVA is outside the mapped image", rva);
  const PeSection* section = section_at(rva);
  if (section != nullptr && rva - section->rva < contained_size(*section))
    return fail(ErrorCode::kTruncated, "the file ends before the section with RVA", rva);
  return fail(ErrorCode::kOutOfRange, "RVA is in no section", rva);
}

Expected<ByteView> PeImage::at_rva(std::uint32_t rva, std::uint64_t size) const {
  const auto rest = from_rva(rva);
  if (!rest) return rest;
  if (size > rest->size()) return fail(ErrorCode::kOutOfRange, "bytes reach past the end of their section", rva, size);
  return rest->sub(0, size);
}

Expected<std::string_view> PeImage::string_at_rva(std::uint32_t rva) const {
  const auto rest = from_rva(rva);
  if (!rest) return Failure(rest.error());
  const auto text = rest->string_at(0);
  if (!text) return fail(ErrorCode::kTruncated, "string has no terminator", rva);
  return text;
}

void PeImage::find_exception_directory() {
  const RvaRange range = directory(PeDirectory::kException);
  if (range.rva == 0 || range.size == 0) return;
  const auto rest = from_rva(range.rva);
  if (!rest) {
    problem(rest.error().code, "exception directory is outside the image: RVA", range.rva, range.size);
    return;
  }
  std::uint64_t size = range.size;
  if (size > rest->size()) {
    problem(ErrorCode::kTruncated, "exception directory reaches past its section: RVA", range.rva, range.size);
    size = rest->size();
  }
  const std::uint32_t stride = entry_size(machine_);
  if (size % stride != 0)
    problem(ErrorCode::kMalformed, "exception directory is no whole number of entries: RVA", range.rva, size);
  exception_directory_ = *rest->sub(0, size / stride * stride);
}

std::string codeview_identity(ByteView record) {
  const auto rsds = record.at<pe::CodeViewRsds>(0);
  if (!rsds || rsds->magic != pe::kRsds) return {};
  std::string id = fmt::format("{:08X}{:04X}{:04X}", rsds->guid1, rsds->guid2, rsds->guid3);
  for (const std::uint8_t byte : rsds->guid4) id += fmt::format("{:02X}", byte);
  return id + fmt::format("{:x}", rsds->age);
}

void PeImage::find_build_id() {
  const RvaRange range = directory(PeDirectory::kDebug);
  const auto table = range.size != 0 ? at_rva(range.rva, range.size) : Expected<ByteView>(ByteView());
  if (!table) {
    problem(table.error().code, "debug directory is outside the image: RVA", range.rva, range.size);
    return;
  }
  for (std::uint64_t at = 0; at + sizeof(pe::DebugDirectory) <= table->size(); at += sizeof(pe::DebugDirectory)) {
    const auto entry = table->at<pe::DebugDirectory>(at);
    if (!entry || entry->type != pe::kDebugCodeView) continue;
    const auto bytes =
        layout_ == PeLayout::kFile ? bytes_.sub(entry->file_offset, entry->size) : at_rva(entry->rva, entry->size);
    const auto rsds = bytes ? bytes->at<pe::CodeViewRsds>(0) : Failure(bytes.error());
    if (!rsds) {
      problem(rsds.error().code, "CodeView record is outside the image: RVA", entry->rva, entry->size);
      continue;
    }
    if (rsds->magic != pe::kRsds) continue;
    build_id_ = codeview_identity(*bytes);
    pdb_path_ = bytes->string_at(sizeof(pe::CodeViewRsds)).value_or(std::string_view());
    return;
  }
}

std::optional<PeMachine> PeImage::machine_at(std::uint32_t rva) const {
  for (const CodeRange& range : code_ranges_)
    if (rva - range.begin < range.size) return range.machine;
  return std::nullopt;
}

void PeImage::find_hybrid_metadata() {
  const RvaRange range = directory(PeDirectory::kLoadConfig);
  if (range.rva == 0) return;
  const auto size = value_at_rva<std::uint32_t>(range.rva);  // the structure begins with its own size
  if (!size || *size < pe::kChpeMetadataAt + sizeof(std::uint64_t)) return;
  const auto at = at_rva(range.rva, pe::kChpeMetadataAt + sizeof(std::uint64_t));
  const std::uint64_t address = at ? at->at<std::uint64_t>(pe::kChpeMetadataAt).value_or(0) : 0;
  if (address == 0) return;
  if (machine_ == PeMachine::kAmd64) effective_machine_ = PeMachine::kArm64Ec;
  if (machine_ == PeMachine::kArm64) effective_machine_ = PeMachine::kArm64X;
  read_hybrid_metadata(address);
}

void PeImage::read_hybrid_metadata(std::uint64_t address) {
  const std::uint64_t rva = address - image_base_;
  if (rva >> 32 != 0) return problem(ErrorCode::kOutOfRange, "ARM64EC metadata is outside the image: RVA", rva);
  const auto metadata = value_at_rva<pe::Arm64EcMetadata>(static_cast<std::uint32_t>(rva));
  if (!metadata) return problem(metadata.error().code, "ARM64EC metadata is outside the image: RVA", rva);
  const auto map = at_rva(metadata->code_map, std::uint64_t{metadata->code_map_count} * sizeof(pe::ChpeRange));
  if (!map)
    problem(map.error().code, "code map is outside the image: RVA", metadata->code_map, metadata->code_map_count);
  for (std::uint64_t i = 0; map && i < metadata->code_map_count; ++i) {
    const auto range = *map->at<pe::ChpeRange>(i * sizeof(pe::ChpeRange));
    constexpr PeMachine kMachines[] = {PeMachine::kArm64, PeMachine::kArm64Ec, PeMachine::kAmd64};
    const std::uint32_t machine = range.begin_and_machine & 3;
    if (machine < std::size(kMachines))
      code_ranges_.push_back({range.begin_and_machine & ~3U, range.size, kMachines[machine]});
    else
      problem(ErrorCode::kUnsupported, "code range is of an unknown machine: RVA", range.begin_and_machine & ~3U);
  }
  if (metadata->extra_functions_size == 0) return;
  const auto extra = at_rva(metadata->extra_functions, metadata->extra_functions_size);
  if (!extra)
    return problem(extra.error().code, "second function table is outside the image: RVA", metadata->extra_functions,
                   metadata->extra_functions_size);
  const std::uint32_t stride = entry_size(machine_ == PeMachine::kAmd64 ? PeMachine::kArm64 : PeMachine::kAmd64);
  if (extra->size() % stride != 0)
    problem(ErrorCode::kMalformed, "second function table is no whole number of entries: RVA",
            metadata->extra_functions, extra->size());
  extra_functions_ = *extra->sub(0, extra->size() / stride * stride);
  extra_functions_rva_ = metadata->extra_functions;
}

}  // namespace windlass::image
