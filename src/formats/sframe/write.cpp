// .sframe as bytes.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/registers.h"
#include "formats/sframe/format.h"
#include "formats/sframe/rows.h"
#include "rows/written_rows.h"
#include "windlass/format/sframe.h"

namespace windlass::sframe {
namespace {

template <typename T>
void put(std::vector<std::byte>& bytes, const T& value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof value);
}
// The low bytes of a word.
void put(std::vector<std::byte>& bytes, std::uint32_t value, unsigned size) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + size);
}

// ---- rows ---------------------------------------------------------------------------------------------------------

bool counts_from_cfa(const Place& place) { return place == at_cfa(place.offset); }

// Can the row be written in the default type? There the CFA counts from sp or the frame pointer, all other values from
// the CFA. The return address is given only where calls leave it in a register, and only together with the frame
// pointer.
bool is_default(const StoredRow& row, Architecture architecture) {
  if (row.outermost) return true;
  const bool known_base = row.cfa == in_register(stack_pointer(architecture), row.cfa.offset) ||
                          row.cfa == in_register(frame_pointer(architecture), row.cfa.offset);
  const bool in_words = fixed_return_address(architecture) == 0;
  return known_base && (!row.return_address.said() || (in_words && counts_from_cfa(row.return_address))) &&
         (!row.frame_pointer.said() ||
          (counts_from_cfa(row.frame_pointer) && (!in_words || row.return_address.said())));
}

// The data words of a row, and the size that all of them have.
class Words {
 public:
  void add(std::int32_t value) {
    words_[count_++] = static_cast<std::uint32_t>(value);
    const bool one = value == static_cast<std::int8_t>(value), two = value == static_cast<std::int16_t>(value);
    size_code_ = std::max(size_code_, one ? 0U : two ? 1U : 2U);
  }
  void add_control(std::uint32_t value) {
    words_[count_++] = value;
    size_code_ = std::max(size_code_, value <= 0xff ? 0U : value <= 0xffff ? 1U : 2U);
  }
  void add(const Place& place) {
    add_control(place.control);
    if (place.said()) add(place.offset);
  }
  // Bits 1 to 6 of a row's info byte.
  [[nodiscard]] unsigned info() const { return size_code_ << 5 | count_ << 1; }
  void put_to(std::vector<std::byte>& bytes) const {
    for (unsigned i = 0; i < count_; ++i) put(bytes, words_[i], 1U << size_code_);
  }

 private:
  std::uint32_t words_[6] = {};
  unsigned count_ = 0, size_code_ = 0;
};

Words flexible_words(const StoredRow& row) {
  Words words;
  words.add(row.cfa);
  if (row.return_address.said() || row.frame_pointer.said()) words.add(row.return_address);
  if (row.frame_pointer.said()) words.add(row.frame_pointer);
  return words;
}

Words default_words(const StoredRow& row) {
  Words words;
  words.add(row.cfa.offset);
  if (row.return_address.said()) words.add(row.return_address.offset);
  if (row.frame_pointer.said()) words.add(row.frame_pointer.offset);
  return words;
}

void put_row(const StoredRow& row, bool flexible, unsigned start_size, Architecture architecture,
             std::vector<std::byte>& bytes) {
  put(bytes, row.start, start_size);
  if (row.outermost) return put(bytes, std::uint8_t{0});
  const Words words = flexible ? flexible_words(row) : default_words(row);
  const bool from_sp = !flexible && row.cfa.reg() == stack_pointer(architecture);
  put(bytes, words.info() | (from_sp ? kFromSp : 0U) | (row.is_signed ? kSigned : 0U), 1);
  words.put_to(bytes);
}

// Rows that say the same are one.
Expected<std::vector<StoredRow>> stored_rows(std::span<const FrameRow> rows, Architecture architecture) {
  std::vector<StoredRow> stored;
  for (const FrameRow& row : rows) {
    auto next = stored_of(row, architecture);
    if (!next) return Failure(next.error());
    if (!stored.empty() && stored.back().says_the_same(*next)) continue;
    next->start = static_cast<std::uint32_t>(row.begin - rows[0].begin);
    stored.push_back(*next);
  }
  return stored;
}

// What version 2 cannot say is an error at the row that needs it.
Expected<void> check_version2(std::span<const FrameRow> rows, Architecture architecture) {
  if (rows[0].signal_frame)
    return fail(ErrorCode::kUnsupported, "version 2 of SFrame has no signal frames", rows[0].begin);
  for (const FrameRow& row : rows) {
    const auto stored = stored_of(row, architecture);
    if (stored && !is_default(*stored, architecture))
      return fail(ErrorCode::kUnsupported, "version 2 of SFrame cannot say this row", row.begin);
  }
  return {};
}

}  // namespace

// ---- functions ----------------------------------------------------------------------------------------------------

Expected<void> Writer::add(std::span<const FrameRow> rows, std::uint64_t address) {
  constexpr std::size_t kMostRows3 = 0xffff;
  const Architecture architecture = options_.architecture;
  if (architecture != Architecture::kX86_64 && architecture != Architecture::kAArch64)
    return fail(ErrorCode::kUnsupported, "no frames are written for this architecture", 0);
  if (const auto ok = check_written_rows(rows); !ok) return ok;
  const auto stored = stored_rows(rows, architecture);
  if (!stored) return Failure(stored.error());
  if (options_.version == Version::k2) {
    if (const auto ok = check_version2(rows, architecture); !ok) return ok;
  } else if (stored->size() > kMostRows3) {
    return fail(ErrorCode::kLimit, "more rows than a function of SFrame version 3 can have", address, stored->size());
  }
  bool flexible = false;
  for (const StoredRow& row : *stored) flexible |= !is_default(row, architecture);
  const std::uint32_t last = stored->back().start;
  const unsigned size_code = last <= 0xff ? 0 : last <= 0xffff ? 1 : 2;
  const bool b_key = options_.b_key && architecture == Architecture::kAArch64;
  const auto info = static_cast<std::uint8_t>(size_code | (b_key ? kBKey : 0U) | (rows[0].signal_frame ? kSignal : 0U));
  const std::size_t before = rows_.size();
  if (options_.version == Version::k3)
    put(rows_,
        Attributes3{static_cast<std::uint16_t>(stored->size()), info, flexible ? kFlexibleType : kDefaultType, 0});
  for (const StoredRow& row : *stored) put_row(row, flexible, 1U << size_code, architecture, rows_);
  if (rows_.size() > UINT32_MAX) {
    rows_.resize(before);
    return fail(ErrorCode::kLimit, "4 GiB of SFrame rows", address);
  }
  const auto count = static_cast<std::uint32_t>(stored->size());
  functions_.push_back({address, static_cast<std::uint32_t>(rows.back().end - rows[0].begin), count,
                        static_cast<std::uint32_t>(before), info});
  row_count_ += count;
  return {};
}

Expected<void> Writer::add(const Prologue& prologue, std::uint64_t address) {
  if (prologue.architecture != options_.architecture)
    return fail(ErrorCode::kUnsupported, "a function of another architecture", 0);
  const auto rows = rows_of(prologue);
  if (!rows) return Failure(rows.error());
  return add(*rows, address);
}

Expected<std::vector<std::byte>> Writer::take() && {
  std::ranges::sort(functions_, {}, &Added::address);
  const bool version2 = options_.version == Version::k2;
  const std::size_t record_size = version2 ? sizeof(Function2) : sizeof(Function3);
  if (functions_.size() * record_size > UINT32_MAX)
    return fail(ErrorCode::kLimit, "4 GiB of SFrame functions", 0, functions_.size());
  Header header{};
  header.magic = kMagic;
  header.version = static_cast<std::uint8_t>(options_.version);
  header.flags = kSorted | kStartsRelative;
  header.abi = options_.architecture == Architecture::kX86_64 ? kAbiAmd64 : kAbiAArch64;
  header.fixed_ra_offset = fixed_return_address(options_.architecture);
  header.functions = static_cast<std::uint32_t>(functions_.size());
  header.rows = row_count_;
  header.row_bytes = static_cast<std::uint32_t>(rows_.size());
  header.rows_offset = static_cast<std::uint32_t>(functions_.size() * record_size);
  std::vector<std::byte> bytes;
  bytes.reserve(sizeof header + header.rows_offset + rows_.size());
  put(bytes, header);
  for (std::size_t i = 0; i < functions_.size(); ++i) {
    const Added& function = functions_[i];
    if (i != 0 && function.address - functions_[i - 1].address < functions_[i - 1].size)
      return fail(ErrorCode::kMalformed, "a function over another one", function.address);
    const auto start = static_cast<std::int64_t>(function.address - (options_.address + bytes.size()));
    if (!version2) {
      put(bytes, Function3{start, function.size, function.offset});
      continue;
    }
    const auto near = static_cast<std::int32_t>(start);
    if (near != start)
      return fail(ErrorCode::kOutOfRange, "version 2 of SFrame reaches no farther than 2 GiB", function.address);
    put(bytes, Function2{{near, function.size, function.offset, function.rows, function.info}, 0, 0});
  }
  bytes.insert(bytes.end(), rows_.begin(), rows_.end());
  return bytes;
}

}  // namespace windlass::sframe
