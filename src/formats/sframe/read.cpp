#include "formats/sframe/read.h"

#include <algorithm>
#include <optional>

#include "base/registers.h"

namespace windlass::sframe {
namespace {

constexpr std::uint8_t kOldest = 1, kNewest = 3;

// The data words of a row, taken one by one.
class StoredWords {
 public:
  StoredWords(ByteView bytes, unsigned size) : bytes_(bytes), size_(size) {}
  [[nodiscard]] bool at_end() const { return at_ == bytes_.size(); }
  std::uint32_t next_unsigned() {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes_.data() + at_, size_);
    at_ += size_;
    return value;
  }
  std::int32_t next_signed() {
    const unsigned unused = 32 - 8 * size_;
    return static_cast<std::int32_t>(next_unsigned() << unused) >> unused;
  }

 private:
  ByteView bytes_;  // a multiple of size_
  std::size_t size_;
  std::size_t at_ = 0;
};

// Section 2.4.2, flexible type: control word and offset of the CFA, the return address, the frame pointer; a control
// word of 0 has no offset.
bool read_flexible(StoredWords& words, StoredRow& row) {
  for (Place* place : {&row.cfa, &row.return_address, &row.frame_pointer}) {
    if (words.at_end()) break;
    place->control = words.next_unsigned();
    if (place->control == 0) continue;
    if (words.at_end()) return false;
    place->offset = words.next_signed();
  }
  return words.at_end();
}

// Default type: offsets of the CFA, of the return address where the header has none, of the frame pointer.
bool read_default(StoredWords& words, const Header& header, RegisterNumber base, StoredRow& row) {
  row.cfa = in_register(base, words.next_signed());
  if (header.fixed_ra_offset == 0 && !words.at_end()) row.return_address = at_cfa(words.next_signed());
  if (!words.at_end()) row.frame_pointer = at_cfa(words.next_signed());
  return words.at_end();
}

}  // namespace

// ---- the section --------------------------------------------------------------------------------------------------

Expected<Section> Section::parse(ByteView bytes, std::uint64_t address) {
  const auto header = bytes.at<Header>(0);
  if (!header) return Failure(header.error());
  const std::uint64_t origin = bytes.origin();
  if (header->magic == kForeignMagic) return fail(ErrorCode::kUnsupported, "big-endian SFrame section", origin);
  if (header->magic != kMagic) return fail(ErrorCode::kMalformed, "no SFrame section", origin, header->magic);
  if (header->version < kOldest || header->version > kNewest)
    return fail(ErrorCode::kUnsupported, "unknown version of SFrame", origin + 2, header->version);
  if (header->abi != kAbiAmd64 && header->abi != kAbiAArch64)
    return fail(ErrorCode::kUnsupported, "SFrame section of another architecture", origin + 4, header->abi);
  Section section;
  section.bytes_ = bytes;
  section.address_ = address;
  section.header_ = *header;
  section.architecture_ = header->abi == kAbiAmd64 ? Architecture::kX86_64 : Architecture::kAArch64;
  if (section.architecture_ == Architecture::kX86_64 && header->fixed_ra_offset == 0)
    return fail(ErrorCode::kUnsupported, "SFrame section of x86-64 without a fixed return address", origin + 6);
  const std::uint64_t end = sizeof(Header) + header->more;
  section.functions_at_ = end + header->functions_offset;
  section.rows_at_ = end + header->rows_offset;
  const std::uint64_t index = std::uint64_t{header->functions} * section.record_size();
  if (const auto fits = bytes.sub(section.functions_at_, index); !fits)
    return fail(ErrorCode::kTruncated, "SFrame functions reach past the section's end", origin, header->functions);
  if (const auto fits = bytes.sub(section.rows_at_, header->row_bytes); !fits)
    return fail(ErrorCode::kTruncated, "SFrame rows reach past the section's end", origin, header->row_bytes);
  if (header->rows > header->row_bytes / 2)  // a row takes two bytes or more
    return fail(ErrorCode::kMalformed, "more SFrame rows than there are bytes for", origin, header->rows);
  section.bytes_ = ByteView(
      bytes.data(),
      static_cast<std::size_t>(std::max(section.functions_at_ + index, section.rows_at_ + header->row_bytes)), origin);
  return section;
}

std::uint32_t Section::record_size() const {
  return header_.version == 1 ? sizeof(Function1) : header_.version == 2 ? sizeof(Function2) : sizeof(Function3);
}

// Section 2.3: the flag says what the start counts from.
std::uint64_t Section::begin_of(std::uint64_t record, std::int64_t start) const {
  const bool relative = (header_.flags & kStartsRelative) != 0;
  return address_ + (relative ? record : 0) + static_cast<std::uint64_t>(start);
}

// ---- functions ----------------------------------------------------------------------------------------------------

Expected<Function> Section::function_of(std::uint64_t record) const {
  Function out;
  out.record = record;
  std::uint8_t info = 0;
  std::uint32_t size = 0;
  std::uint64_t rows_offset = 0;
  if (header_.version == 3) {
    const auto index = bytes_.at<Function3>(record);
    if (!index) return Failure(index.error());
    const auto more = bytes_.at<Attributes3>(rows_at_ + index->attributes_offset);
    if (!more) return Failure(more.error());
    out.begin = begin_of(record, index->start);
    out.rows = more->rows;
    out.block = more->block;
    out.flexible = (more->type & kTypeMask) == kFlexibleType;
    if ((more->type & kTypeMask) > kFlexibleType)
      return fail(ErrorCode::kUnsupported, "unknown type of SFrame function", bytes_.origin() + record, more->type);
    info = more->info;
    size = index->size;
    rows_offset = std::uint64_t{index->attributes_offset} + sizeof(Attributes3);
  } else {
    const auto stored = bytes_.at<Function1>(record);
    if (!stored) return Failure(stored.error());
    out.begin = begin_of(record, stored->start);
    out.rows = stored->rows;
    info = stored->info;
    size = stored->size;
    rows_offset = stored->rows_offset;
    if (header_.version == 2) {
      const auto block = bytes_.at<std::uint8_t>(record + sizeof(Function1));
      if (!block) return Failure(block.error());
      out.block = *block;
    }
  }
  if ((info & kStartSizeMask) > kMaxStartSize)
    return fail(ErrorCode::kUnsupported, "unknown type of SFrame rows", bytes_.origin() + record, info);
  if ((info & kRepeats) == 0)
    out.block = 0;
  else if (header_.version == 1)
    return fail(ErrorCode::kUnsupported, "version 1 of SFrame does not say how long a repeated block is",
                bytes_.origin() + record);
  else if (out.block == 0)
    return fail(ErrorCode::kMalformed, "repeated block of no bytes", bytes_.origin() + record);
  out.end = out.begin + size;
  if (out.end < out.begin)
    return fail(ErrorCode::kOutOfRange, "SFrame function reaches past the address space", bytes_.origin() + record,
                size);
  out.start_size = static_cast<std::uint8_t>(1U << (info & kStartSizeMask));
  out.rows_offset = rows_at_ + rows_offset;
  out.signal_frame = header_.version == 3 && (info & kSignal) != 0;
  out.b_key = architecture_ == Architecture::kAArch64 && (info & kBKey) != 0;
  return out;
}

Expected<Function> Section::function(std::uint32_t number) const {
  if (number >= header_.functions) return fail(ErrorCode::kOutOfRange, "no such SFrame function", number);
  return function_of(record_at(number));
}

Expected<Function> Section::find(std::uint64_t address) const {
  const auto none = [&] { return fail(ErrorCode::kNotFound, "no row covers the address", address); };
  const auto begin_at = [&](std::uint32_t number) {
    const std::uint64_t record = record_at(number);  // in bounds since parse()
    return begin_of(record, header_.version == 3 ? bytes_.at<std::int64_t>(record).value_or(0)
                                                 : bytes_.at<std::int32_t>(record).value_or(0));
  };
  if ((header_.flags & kSorted) == 0) {
    for (std::uint32_t i = 0; i < header_.functions; ++i)
      if (const auto found = function(i); found && address >= found->begin && address < found->end) return found;
    return none();
  }
  std::uint32_t low = 0;
  for (std::uint32_t high = header_.functions; low < high;) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (begin_at(middle) <= address)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == 0) return none();
  const auto found = function(low - 1);
  if (found && (address < found->begin || address >= found->end)) return none();
  return found;
}

void Section::for_each_function(FunctionRef<bool(const Function&)> callback, ErrorSink report) const {
  std::uint64_t rows = 0;
  for (std::uint32_t i = 0; i < header_.functions; ++i) {
    const auto found = function(i);
    if (!found) {
      report(found.error());
      continue;
    }
    rows += found->rows;
    if (rows > header_.rows)
      return report(Error{ErrorCode::kMalformed, "SFrame functions have more rows than the header counts",
                          bytes_.origin() + found->record, rows});
    if (!callback(*found)) return;
  }
}

// ---- rows ---------------------------------------------------------------------------------------------------------

// Section 2.4.
Expected<StoredRow> Section::stored_row(const Function& function, std::uint64_t& position) const {
  const std::uint64_t where = bytes_.origin() + position;
  const auto head = bytes_.sub(position, function.start_size + 1U);
  if (!head) return fail(ErrorCode::kTruncated, "SFrame row reaches past the section's end", where);
  StoredRow row;
  std::memcpy(&row.start, head->data(), function.start_size);
  const std::uint8_t info = head->u8()[function.start_size];
  const unsigned count = info >> 1 & 15, size_code = info >> 5 & 3;
  if (size_code > 2) return fail(ErrorCode::kMalformed, "SFrame data words of 8 bytes", where, info);
  const auto data = bytes_.sub(position + head->size(), std::uint64_t{count} << size_code);
  if (!data) return fail(ErrorCode::kTruncated, "SFrame row reaches past the section's end", where);
  position += head->size() + data->size();
  row.is_signed = architecture_ == Architecture::kAArch64 && (info & kSigned) != 0;
  row.outermost = count == 0;
  if (row.outermost) {
    if (header_.version == 1) return fail(ErrorCode::kMalformed, "SFrame row without a CFA", where);
    return row;
  }
  StoredWords words(*data, 1U << size_code);
  const RegisterNumber base =
      (info & kFromSp) != 0 ? stack_pointer(architecture_) : windlass::frame_pointer(architecture_);
  if (!(function.flexible ? read_flexible(words, row) : read_default(words, header_, base, row)))
    return fail(ErrorCode::kMalformed, "SFrame row with too many or too few data words", where, info);
  if (!row.return_address.said() && header_.fixed_ra_offset != 0) row.return_address = at_cfa(header_.fixed_ra_offset);
  if (!row.frame_pointer.said() && header_.fixed_fp_offset != 0) row.frame_pointer = at_cfa(header_.fixed_fp_offset);
  return row;
}

Expected<void> Section::for_each_stored(const Function& function, FunctionRef<void(const StoredRow&)> callback) const {
  std::uint64_t position = function.rows_offset;
  for (std::uint32_t i = 0; i < function.rows; ++i) {
    const auto row = stored_row(function, position);
    if (!row) return Failure(row.error());
    callback(*row);
  }
  return {};
}

Expected<void> Section::for_each_row(const Function& function, FunctionRef<void(const FrameRow&)> callback) const {
  constexpr std::uint64_t kMostBlocks = 1 << 16;
  const std::uint64_t size = function.end - function.begin;
  const std::uint64_t block = function.block != 0 ? function.block : std::max<std::uint64_t>(size, 1);
  if (size / block > kMostBlocks)
    return fail(ErrorCode::kLimit, "a block of code that repeats too often", bytes_.origin() + function.record, size);
  FrameRow row;
  row.signal_frame = function.signal_frame;
  for (std::uint64_t at = 0; at < size; at += block) {
    const std::uint64_t limit = std::min(block, size - at);
    std::optional<StoredRow> held;  // until the next one's start is known
    Expected<void> done;
    const auto emit = [&](std::uint64_t end) {
      if (!held || held->start >= limit || !done) return;
      done = lower(*held, architecture_, bytes_.origin() + function.record, row);
      row.begin = function.begin + at + held->start;
      row.end = function.begin + at + std::min(end, limit);
      if (done) callback(row);
    };
    const auto each = [&](const StoredRow& stored) {
      if (held && stored.start <= held->start && done)
        done = fail(ErrorCode::kMalformed, "SFrame rows that do not ascend", bytes_.origin() + function.record,
                    stored.start);
      emit(stored.start);
      held = stored;
    };
    if (const auto read = for_each_stored(function, each); !read) return read;
    emit(limit);
    if (!done) return done;
  }
  return {};
}

Expected<void> Section::row_at(const Function& function, std::uint64_t address, FrameRow& to) const {
  std::uint64_t offset = address - function.begin, block_begin = 0;
  std::uint64_t end = function.end - function.begin;
  if (function.block != 0) {
    block_begin = offset - offset % function.block;
    offset -= block_begin;
    end = std::min<std::uint64_t>(end - block_begin, function.block);
  }
  std::uint64_t position = function.rows_offset;
  std::optional<StoredRow> held;
  for (std::uint32_t i = 0; i < function.rows; ++i) {
    const auto row = stored_row(function, position);
    if (!row) return Failure(row.error());
    if (row->start > offset) {
      end = std::min<std::uint64_t>(end, row->start);
      break;
    }
    if (held && row->start <= held->start)
      return fail(ErrorCode::kMalformed, "SFrame rows that do not ascend", bytes_.origin() + function.record,
                  row->start);
    held = *row;
  }
  if (!held) return fail(ErrorCode::kNotFound, "no row covers the address", address);
  to.begin = function.begin + block_begin + held->start;
  to.end = function.begin + block_begin + end;
  to.signal_frame = function.signal_frame;
  return lower(*held, architecture_, bytes_.origin() + function.record, to);
}

}  // namespace windlass::sframe
