#include "formats/pdb/dbi.h"

#include <algorithm>
#include <array>

namespace windlass::pdb {
namespace {

constexpr std::uint32_t kSignature = 0xffff'ffff;
constexpr std::uint32_t kExecutable = 0x2000'0000;  // IMAGE_SCN_MEM_EXECUTE

// What a module's names are padded to.
constexpr std::uint64_t aligned(std::uint64_t offset) { return (offset + 3) & ~std::uint64_t{3}; }

}  // namespace

Expected<Dbi> Dbi::read(const MsfFile& file) {
  const Stream stream = file.stream(kDbiStream);
  if (stream.size() == 0) return fail(ErrorCode::kUnsupported, "PDB without a list of modules, of types only", 0);
  const auto header = stream.at<DbiHeader>(0);
  if (!header) return Failure(header.error());
  if (header->signature != kSignature) return fail(ErrorCode::kUnsupported, "PDB of a format before 1999", 0);
  Dbi dbi;
  dbi.stream_ = stream;
  dbi.header_ = *header;
  if (const auto read = dbi.read_sections(file, stream); !read) return Failure(read.error());
  if (const auto read = dbi.read_modules(stream); !read) return Failure(read.error());
  if (const auto read = dbi.find_pieces(); !read) return Failure(read.error());
  return dbi;
}

Expected<void> Dbi::read_modules(const Stream& stream) {
  std::vector<std::byte> copy;
  const auto list = stream.bytes(sizeof(DbiHeader), header_.modules_size, copy);
  if (!list) return Failure(list.error());
  for (std::uint64_t at = 0; at < list->size();) {
    const auto module = list->at<ModuleHeader>(at);
    if (!module) return Failure(module.error());
    at += sizeof(ModuleHeader);
    modules_.push_back({module->stream, module->symbols_size, module->c11_size, module->c13_size,
                        static_cast<std::uint32_t>(sizeof(DbiHeader) + at)});
    for (int name = 0; name < 2; ++name) {  // of the module, of its library
      const auto text = list->string_at(at);
      if (!text) return Failure(text.error());
      at += text->size() + 1;
    }
    at = aligned(at);
  }
  return {};
}

Expected<void> Dbi::find_pieces() {
  const std::uint64_t at = sizeof(DbiHeader) + std::uint64_t{header_.modules_size};
  if (header_.contributions_size == 0) return {};
  if (at + header_.contributions_size > stream_.size())
    return fail(ErrorCode::kOutOfRange, "PDB list of code reaches past the end of its stream", at);
  const auto version = stream_.at<std::uint32_t>(at);
  if (!version) return Failure(version.error());
  if (*version != kContributionsV60 && *version != kContributionsV2)
    return fail(ErrorCode::kUnsupported, "PDB lists code in an unknown format", at, *version);
  pieces_at_ = at + sizeof(*version);
  piece_size_ = sizeof(Contribution) + (*version == kContributionsV2 ? 4 : 0);
  piece_count_ = (header_.contributions_size - 4) / piece_size_;
  return {};
}

std::optional<Dbi::Piece> Dbi::stored_piece(std::uint32_t index) const {
  const auto piece = stream_.at<Contribution>(pieces_at_ + std::uint64_t{index} * piece_size_);
  if (!piece) return std::nullopt;
  const bool code = (piece->characteristics & kExecutable) != 0 && piece->size != 0;
  return Piece{{piece->section, piece->offset}, piece->size, piece->module, code};
}

std::optional<Dbi::Piece> Dbi::search_stored(SectionOffset place) const {
  std::optional<Piece> last;
  for (std::uint32_t begin = 0, end = piece_count_; begin < end;) {
    const std::uint32_t middle = begin + (end - begin) / 2;
    const auto piece = stored_piece(middle);
    if (!piece) return std::nullopt;
    if (piece->begin <= place) {
      last = piece;
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return last;
}

void Dbi::read_pieces() {
  pieces_.emplace();
  for (std::uint32_t i = 0; i < piece_count_; ++i)
    if (const auto piece = stored_piece(i); piece && piece->code) pieces_->push_back(*piece);
  std::ranges::stable_sort(*pieces_, {}, &Piece::begin);
}

Expected<void> Dbi::read_sections(const MsfFile& file, const Stream& stream) {
  std::uint64_t at = sizeof(DbiHeader);
  for (const std::uint32_t size : {header_.modules_size, header_.contributions_size, header_.section_map_size,
                                   header_.files_size, header_.type_servers_size, header_.edit_names_size})
    at += size;
  std::array<std::uint16_t, kSectionHeaders + 1> streams;
  streams.fill(kNoStream);
  const std::size_t there = std::min<std::size_t>(streams.size(), header_.debug_streams_size / 2);
  if (const auto read = stream.read(at, std::as_writable_bytes(std::span(streams).first(there))); !read)
    return Failure(read.error());
  if (file.stream(streams[kOmapFromSource]).size() != 0)
    return fail(ErrorCode::kUnsupported, "PDB of a program that was rearranged after the link (OMAP)", at);
  const Stream sections = file.stream(streams[kSectionHeaders]);
  if (sections.size() == 0) return fail(ErrorCode::kUnsupported, "PDB without the headers of sections", at);
  for (std::uint64_t next = 0; const auto section = sections.at<SectionHeader>(next); next += sizeof(SectionHeader))
    sections_.push_back({section->rva, std::min(std::max(section->virtual_size, section->file_size), ~section->rva)});
  return {};
}

std::optional<Dbi::Piece> Dbi::find_piece(SectionOffset place) {
  std::optional<Piece> found = pieces_ ? std::nullopt : search_stored(place);
  if (!found || !found->contains(place)) {
    if (!pieces_) read_pieces();
    const auto after = std::ranges::upper_bound(*pieces_, place, {}, &Piece::begin);
    if (after == pieces_->begin() || !std::prev(after)->contains(place)) return std::nullopt;
    found = *std::prev(after);
  }
  return found;
}

std::optional<std::uint32_t> Dbi::module_at(SectionOffset place) {
  const auto piece = find_piece(place);
  return piece && piece->module < modules_.size() ? std::optional<std::uint32_t>(piece->module) : std::nullopt;
}

std::optional<SectionOffset> Dbi::piece_at(SectionOffset place) {
  const auto piece = find_piece(place);
  return piece ? std::optional(piece->begin) : std::nullopt;
}

void Dbi::each_piece(FunctionRef<void(SectionOffset)> add) {
  if (!pieces_) read_pieces();
  for (const Piece& piece : *pieces_) {
    add(piece.begin);
    add({piece.begin.section, piece.begin.offset + piece.size});
  }
}

std::optional<SectionOffset> Dbi::place_of(std::uint32_t rva) const {
  constexpr std::size_t kMost = 0xfffe;
  for (std::size_t i = 0; i < std::min(sections_.size(), kMost); ++i)
    if (rva - sections_[i].rva < sections_[i].size)
      return SectionOffset{static_cast<std::uint16_t>(i + 1), rva - sections_[i].rva};
  return std::nullopt;
}

std::optional<std::uint32_t> Dbi::rva_of(SectionOffset place) const {
  if (place.section == 0 || place.section > sections_.size()) return std::nullopt;
  const Section& section = sections_[place.section - 1];
  return place.offset < section.size ? std::optional(section.rva + place.offset) : std::nullopt;
}

}  // namespace windlass::pdb
