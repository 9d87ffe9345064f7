#include "formats/wlsym/wlsym.h"

#include <zlib.h>

#include <algorithm>
#include <cstddef>

#include "formats/image/decompress.h"
#include "formats/wlsym/guesses.h"

namespace windlass::wlsym {
namespace {

constexpr std::size_t kMostKept = std::size_t{64} << 20;  // bytes of texts; more, and all are read anew
constexpr const char* kDamaged = "the symbol file is damaged. Way out: write or copy the file again";
constexpr const char* kCut = "the symbol file is cut short. Way out: write or copy the file again";

Failure damaged(std::uint64_t at) { return fail(ErrorCode::kMalformed, kDamaged, at); }

std::uint32_t crc_of(ByteView bytes) {
  return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// Columns of numbers. One that ends too soon gives zeros and says so.
class Column {
 public:
  explicit Column(ByteView bytes) : cursor_(bytes) {}
  std::uint64_t next() {
    const auto number = cursor_.uleb();
    good_ &= number.has_value();
    return number ? *number : 0;
  }
  std::int64_t next_signed() { return unzigzag(next()); }
  [[nodiscard]] bool is_spent() const { return good_ && cursor_.at_end(); }

 private:
  ByteCursor cursor_;
  bool good_ = true;
};

// The next column of a block: its size, then its bytes.
Expected<ByteView> column(ByteCursor& cursor) {
  const auto size = cursor.uleb();
  return size ? cursor.bytes(*size) : Failure(size.error());
}

// Sums of damaged files wrap around.
std::uint64_t plus(std::uint64_t value, std::int64_t more) { return value + static_cast<std::uint64_t>(more); }
std::int64_t plus(std::int64_t value, std::int64_t more) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(value) + static_cast<std::uint64_t>(more));
}

std::uint32_t line_of(std::uint32_t begin, std::int64_t distance) {
  return static_cast<std::uint32_t>(plus(std::uint64_t{begin}, distance));
}

}  // namespace

Expected<SymbolFile> SymbolFile::parse(ByteView bytes) {
  SymbolFile file(bytes);
  const bool is_one = bytes.size() >= sizeof(kMagic) && std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) == 0;
  if (!is_one) return fail(ErrorCode::kMalformed, "not a symbol file. Way out: windlass symbols write makes one", 0);
  const auto header = bytes.at<Header>(0);
  if (!header) return fail(ErrorCode::kTruncated, kCut, bytes.size());
  file.header_ = *header;
  if (header->version == 0 || header->version > kVersion)
    return fail(ErrorCode::kUnsupported,
                "a symbol file of another version of windlass. Way out: write the file again with this one", 8,
                header->version);
  if (header->file_size != bytes.size())
    return header->file_size > bytes.size() ? fail(ErrorCode::kTruncated, kCut, bytes.size()) : damaged(16);
  if (const auto read = file.read_lists(); !read) return Failure(read.error());
  if (const auto good = file.check_blocks(); !good) return Failure(good.error());
  return file;
}

Expected<void> SymbolFile::read_lists() {
  ByteCursor cursor(bytes_, sizeof(Header));
  const auto id = cursor.bytes(header_.build_id_size);
  const auto name = id ? cursor.bytes(header_.name_size) : id;
  if (!name || id->empty()) return damaged(sizeof(Header));
  const auto text = [](ByteView view) {
    return std::string_view(reinterpret_cast<const char*>(view.data()), view.size());
  };
  build_id_ = text(*id);
  name_ = text(*name);
  const auto list = [&](std::uint64_t& at, std::uint64_t count, std::size_t size) {
    at = cursor.position();
    return cursor.bytes(count * size).has_value();
  };
  const bool whole = list(segments_at_, header_.segments, sizeof(SegmentEntry)) &&
                     list(ranges_at_, header_.range_blocks, sizeof(RangeBlockEntry)) &&
                     list(functions_at_, header_.function_blocks, sizeof(TextBlockEntry)) &&
                     list(paths_at_, header_.path_blocks, sizeof(TextBlockEntry));
  if (!whole) return damaged(cursor.position());
  blocks_at_ = cursor.position();
  constexpr std::size_t kBehind = offsetof(Header, file_size);
  const auto checked = bytes_.sub(kBehind, blocks_at_ - kBehind);
  if (!checked || crc_of(*checked) != header_.checksum) return damaged(kBehind);
  return {};
}

// The checksum is no proof against those who mean harm.
Expected<void> SymbolFile::check_blocks() const {
  const auto lies_within = [&](const auto& block) {
    return block.at >= blocks_at_ && block.raw <= kMostRaw && bytes_.sub(block.at, block.packed).has_value();
  };
  std::uint64_t first = 0;
  for (std::uint32_t i = 0; i < header_.range_blocks; ++i) {
    const auto block = entry<RangeBlockEntry>(ranges_at_, i);
    if (!lies_within(block) || block.first < first) return damaged(ranges_at_);
    first = block.first;
  }
  const auto texts_are_good = [&](std::uint64_t list, std::uint32_t blocks, std::uint32_t count) {
    std::uint32_t next = 0;
    for (std::uint32_t i = 0; i < blocks; ++i) {
      const auto block = entry<TextBlockEntry>(list, i);
      if (!lies_within(block) || (i == 0 ? block.first != 0 : block.first <= next) || block.first >= count)
        return false;
      next = block.first;
    }
    return blocks != 0 || count == 0;
  };
  if (!texts_are_good(functions_at_, header_.function_blocks, header_.functions)) return damaged(functions_at_);
  if (!texts_are_good(paths_at_, header_.path_blocks, header_.paths)) return damaged(paths_at_);
  return {};
}

// read_lists() has seen that all entries are there.
template <typename Entry>
Entry SymbolFile::entry(std::uint64_t list, std::uint32_t number) const {
  return bytes_.at<Entry>(list + std::uint64_t{number} * sizeof(Entry)).value_or(Entry{});
}

template <typename Entry, typename Value>
std::optional<std::uint32_t> SymbolFile::last_before(std::uint64_t list, std::uint32_t count, Value value) const {
  std::uint32_t low = 0, high = count;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (entry<Entry>(list, middle).first <= value)
      low = middle + 1;
    else
      high = middle;
  }
  return low == 0 ? std::nullopt : std::optional(low - 1);
}

Expected<std::vector<std::byte>> SymbolFile::unpack(std::uint32_t at, std::uint32_t packed, std::uint32_t raw) const {
  const auto bytes = bytes_.sub(at, packed);
  if (!bytes) return damaged(at);
  auto unpacked = image::inflate_zstd(*bytes, raw, kMostRaw);
  return unpacked ? std::move(unpacked) : damaged(at);
}

struct SymbolFile::RangeColumns {
  std::uint64_t scopes = 0, ranges = 0;
  std::vector<std::vector<std::byte>> unpacked;
  std::vector<ByteView> columns;  // views of `unpacked`
};

// In version 3 each column is packed by itself.
Expected<SymbolFile::RangeColumns> SymbolFile::unpack_columns(const RangeBlockEntry& about) const {
  RangeColumns made;
  const bool is_mixed = header_.version < 3;
  if (is_mixed) {
    auto raw = unpack(about.at, about.packed, about.raw);
    if (!raw) return Failure(raw.error());
    made.unpacked.push_back(std::move(*raw));
  }
  const auto packed = bytes_.sub(about.at, about.packed);
  if (!packed) return damaged(about.at);
  ByteCursor cursor(is_mixed ? ByteView(made.unpacked[0].data(), made.unpacked[0].size()) : *packed);
  const auto scopes = cursor.uleb(), ranges = scopes ? cursor.uleb() : scopes;
  // A scope has three numbers, a range at least two.
  if (!ranges || *scopes > about.raw / 3 || *ranges > about.raw / 2) return damaged(about.at);
  made.scopes = *scopes;
  made.ranges = *ranges;
  std::uint64_t left = about.raw;
  for (std::size_t i = 0; i < (is_mixed ? kMixedColumns : kRangeColumns); ++i) {
    const auto size = is_mixed ? Expected<std::uint64_t>(0) : cursor.uleb();
    const auto bytes = size ? column(cursor) : Failure(size.error());
    if (!bytes) return damaged(about.at);
    if (is_mixed) {
      made.columns.push_back(*bytes);
      continue;
    }
    if (*size > left) return damaged(about.at);
    left -= *size;
    auto raw = image::inflate_zstd(*bytes, *size, kMostRaw);
    if (!raw) return damaged(about.at);
    made.columns.emplace_back(raw->data(), raw->size());
    made.unpacked.push_back(std::move(*raw));
  }
  if (!cursor.at_end() || (!is_mixed && left != 0)) return damaged(about.at);
  return made;
}

// From version 2 on there are differences from Guesses where version 1 has numbers.
class SymbolFile::RangeReader {
 public:
  RangeReader(const Header& header, const RangeBlockEntry& about, std::uint32_t number)
      : header_(header), about_(about) {
    block_.number = number;
  }

  // False: damaged.
  bool read(const RangeColumns& from) {
    for (const ByteView& bytes : from.columns) columns_.emplace_back(bytes);
    block_.scopes.reserve(from.scopes);
    block_.ranges.reserve(from.ranges);
    for (std::uint64_t i = 0; i < from.scopes; ++i)
      if (!read_scope()) return false;
    last_lines_.resize(block_.scopes.size());
    has_line_.resize(block_.scopes.size());
    for (std::uint64_t i = 0; i < from.ranges; ++i)
      if (!read_range()) return false;
    return std::ranges::all_of(columns_, &Column::is_spent);
  }
  RangeBlock take() { return std::move(block_); }

 private:
  [[nodiscard]] bool has_guesses() const { return header_.version >= 2; }
  Column& column_of(RangeColumn kind) { return columns_[header_.version < 3 ? kMixedColumn[kind] : kind]; }

  bool read_scope() {
    const std::size_t i = block_.scopes.size();
    const std::uint64_t up = column_of(kCallerColumn).next();
    const std::uint64_t of = column_of(up == 0 ? kFunctionColumn : kInlinedFunctionColumn).next();
    const std::int64_t call = column_of(up == 0 ? kBeginColumn : kCallLineColumn).next_signed();
    // Version 1: how far before the next new one.
    const std::uint64_t function = of == 0 ? next_function_ : has_guesses() ? of - 1 : next_function_ - of;
    const std::uint64_t parent = up == 0 ? kNoScope : parent_of(up);
    if ((up != 0 && parent >= i) || function > next_function_ || function >= header_.functions ||
        (of != 0 && function == next_function_))
      return false;
    if (of == 0) ++next_function_;
    Scope scope{static_cast<std::uint32_t>(function), kNoScope, 0, 0};
    if (up == 0) {
      scope.begin = begin_ = plus(begin_, call);
    } else {
      scope.parent = static_cast<std::uint32_t>(parent);
      const Scope& caller = block_.scopes[scope.parent];
      scope.begin = caller.begin;
      scope.call_line = has_guesses() ? renew(guesses_.call(caller.function, scope.function), call) : call;
    }
    block_.scopes.push_back(scope);
    return true;
  }
  // Of the next scope; `up` is not 0.
  [[nodiscard]] std::uint64_t parent_of(std::uint64_t up) const {
    const std::uint64_t next = block_.scopes.size();
    if (!has_guesses()) return next - up;
    if (up >= kOtherCaller) return next - (up - kOtherCaller);
    return next == 0 ? kNoScope : scope_out(block_.scopes, next - 1, up - kOwnCaller);
  }
  static std::int64_t renew(std::int64_t& guess, std::int64_t difference) { return guess = plus(guess, difference); }

  // `of` is not 0.
  [[nodiscard]] std::uint64_t scope_of(std::uint64_t of) const {
    if (!has_guesses()) return static_cast<std::uint64_t>(plus(static_cast<std::int64_t>(scope_), unzigzag(of - 1)));
    if (of == kNextScope) return next_scope_;
    if (of >= kOther) return plus(next_scope_, unzigzag(of - kOther));
    return scope_out(block_.scopes, scope_, of - kCaller);
  }
  bool read_range() {
    const std::uint64_t delta = column_of(kAddressColumn).next(), of = column_of(kScopeColumn).next();
    if (address_ + delta < address_) return false;
    address_ += delta;
    Range range{.begin = address_, .scope = kNoScope, .line = 0};
    if (of != 0) {
      scope_ = scope_of(of);
      if (scope_ >= block_.scopes.size()) return false;
      next_scope_ = std::max(next_scope_, scope_ + 1);
      range.scope = static_cast<std::uint32_t>(scope_);
      range.line = last_lines_[scope_] = line_of_range();
      has_line_[scope_] = true;
    }
    block_.ranges.push_back(range);
    return true;
  }
  std::int64_t line_of_range() {
    const std::int64_t difference = column_of(has_line_[scope_] ? kLineColumn : kFirstLineColumn).next_signed();
    const std::int64_t last = last_lines_[scope_];
    if (!has_guesses()) return plus(last, difference);
    const std::uint32_t function = block_.scopes[scope_].function;
    if (!has_line_[scope_]) return renew(guesses_.first(function), difference);
    return plus(last, renew(guesses_.step(function, last), difference));
  }

  const Header& header_;
  const RangeBlockEntry& about_;
  std::vector<Column> columns_;
  RangeBlock block_;
  Guesses guesses_;
  std::uint64_t next_function_ = about_.first_function, begin_ = about_.first, address_ = about_.first;
  std::uint64_t scope_ = 0, next_scope_ = 0;
  std::vector<std::int64_t> last_lines_;  // of each scope
  std::vector<bool> has_line_;
};

Expected<SymbolFile::RangeBlock> SymbolFile::read_ranges(std::uint32_t number) const {
  const auto about = entry<RangeBlockEntry>(ranges_at_, number);
  const auto columns = unpack_columns(about);
  if (!columns) return Failure(columns.error());
  RangeReader reader(header_, about, number);
  if (!reader.read(*columns)) return damaged(about.at);
  return reader.take();
}

Expected<SymbolFile::TextBlock> SymbolFile::read_texts(std::uint64_t list, std::uint32_t blocks, std::uint32_t all,
                                                       std::uint32_t number, bool functions) const {
  const auto about = entry<TextBlockEntry>(list, number);
  const std::uint32_t end = number + 1 < blocks ? entry<TextBlockEntry>(list, number + 1).first : all;
  const std::uint32_t count = end - about.first;
  auto raw = unpack(about.at, about.packed, about.raw);
  if (!raw) return Failure(raw.error());
  if (count > raw->size()) return damaged(about.at);  // each has at least a NUL
  ByteCursor cursor(ByteView(raw->data(), raw->size()));
  TextBlock block;
  const auto texts = column(cursor);
  if (!texts) return damaged(about.at);
  const auto start = static_cast<std::size_t>(texts->data() - raw->data());
  ByteCursor text(*texts);
  for (std::uint32_t i = 0; i < count; ++i) {
    block.texts.push_back(static_cast<std::uint32_t>(start + text.position()));
    if (!text.string()) return damaged(about.at);
  }
  if (!text.at_end()) return damaged(about.at);
  if (functions) {
    const auto file_bytes = column(cursor);
    const auto line_bytes = file_bytes ? column(cursor) : file_bytes;
    if (!line_bytes) return damaged(about.at);
    Column files(*file_bytes), lines(*line_bytes);
    std::int64_t file = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      file = plus(file, files.next_signed());
      const std::uint64_t line = lines.next();
      if (static_cast<std::uint64_t>(file) > header_.paths || line > ~0u) return damaged(about.at);
      block.files.push_back(static_cast<std::uint32_t>(file));
      block.lines.push_back(static_cast<std::uint32_t>(line));
    }
    if (!files.is_spent() || !lines.is_spent()) return damaged(about.at);
  }
  if (!cursor.at_end()) return damaged(about.at);
  block.raw = std::move(*raw);
  return block;
}

Expected<const SymbolFile::TextBlock*> SymbolFile::texts(std::uint32_t number, bool functions) {
  const std::uint64_t key = std::uint64_t{number} << 1 | (functions ? 1u : 0u);
  if (const auto known = texts_.find(key); known != texts_.end()) return known->second.get();
  auto read = functions ? read_texts(functions_at_, header_.function_blocks, header_.functions, number, true)
                        : read_texts(paths_at_, header_.path_blocks, header_.paths, number, false);
  if (!read) return Failure(read.error());
  if (kept_ > kMostKept) {
    texts_.clear();
    kept_ = 0;
  }
  kept_ += read->raw.size() + read->texts.size() * 3 * sizeof(std::uint32_t);
  return (texts_[key] = std::make_unique<TextBlock>(std::move(*read))).get();
}

std::string SymbolFile::text(const TextPlace& at) {
  return std::string(reinterpret_cast<const char*>(at.block->raw.data()) + at.block->texts[at.index])
      .substr(0, kLongestText);
}

Expected<SymbolFile::TextPlace> SymbolFile::find(std::uint32_t number, bool functions) {
  const std::uint64_t list = functions ? functions_at_ : paths_at_;
  if (number >= (functions ? header_.functions : header_.paths))
    return fail(ErrorCode::kOutOfRange, "no such function", number);
  const auto place =
      last_before<TextBlockEntry>(list, functions ? header_.function_blocks : header_.path_blocks, number);
  if (!place) return damaged(list);
  const auto block = texts(*place, functions);
  if (!block) return Failure(block.error());
  return TextPlace{*block, number - entry<TextBlockEntry>(list, *place).first};
}

Expected<Function> SymbolFile::function(std::uint32_t number) {
  const auto at = find(number, true);
  if (!at) return Failure(at.error());
  Function made{.name = text(*at), .file = {}, .line = at->block->lines[at->index]};
  const std::uint32_t file = at->block->files[at->index];  // from 1; reading paths may end the life of the block
  if (file == 0) return made;
  const auto path = find(file - 1, false);
  if (!path) return Failure(path.error());
  made.file = text(*path);
  return made;
}

Expected<Place> SymbolFile::at(std::uint64_t address) {
  Place place;
  const auto number = last_before<RangeBlockEntry>(ranges_at_, header_.range_blocks, address);
  if (!number) return place;
  if (last_.number != *number) {
    auto block = read_ranges(*number);
    if (!block) return Failure(block.error());
    last_ = std::move(*block);
  }
  const auto after = std::ranges::upper_bound(last_.ranges, address, {}, &Range::begin);
  if (after == last_.ranges.begin() || std::prev(after)->scope == kNoScope) return place;
  const Range& range = *std::prev(after);
  place.begin = last_.scopes[range.scope].begin;
  std::int64_t line = range.line;
  for (std::uint32_t scope = range.scope; scope != kNoScope && place.frames.size() < kMostFrames;) {
    const Scope& in = last_.scopes[scope];
    const auto of = find(in.function, true);
    if (!of) return Failure(of.error());
    place.frames.push_back({.function = in.function, .line = line_of(of->block->lines[of->index], line)});
    line = in.call_line;
    scope = in.parent;
  }
  return place;
}

std::optional<std::uint64_t> SymbolFile::address_of(std::uint64_t file_offset) const {
  for (std::uint32_t i = 0; i < header_.segments; ++i) {
    const auto segment = entry<SegmentEntry>(segments_at_, i);
    if (file_offset - segment.file_offset < segment.size) return segment.address + (file_offset - segment.file_offset);
  }
  return std::nullopt;
}

Expected<void> SymbolFile::check() {
  for (std::uint32_t i = 0; i < header_.range_blocks; ++i)
    if (const auto block = read_ranges(i); !block) return Failure(block.error());
  for (std::uint32_t i = 0; i < header_.function_blocks; ++i)
    if (const auto block = texts(i, true); !block) return Failure(block.error());
  for (std::uint32_t i = 0; i < header_.path_blocks; ++i)
    if (const auto block = texts(i, false); !block) return Failure(block.error());
  return {};
}

}  // namespace windlass::wlsym
