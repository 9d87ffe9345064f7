#include "jit/table/shapes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "lookup/sources/stack_end.h"
#include "lookup/table/extra_register.h"
#include "lookup/table/project.h"

namespace windlass::manager {
namespace {

constexpr std::size_t kGap = static_cast<std::size_t>(-1);

// The row behind which places count from the function's end: the longest one is the body, what follows the epilogue.
std::size_t body_of(std::span<const FrameRow> rows) {
  std::size_t body = 0;
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (rows[i].end - rows[i].begin > rows[body].end - rows[body].begin) body = i;
  return body;
}

Expected<void> check_rows(std::span<const FrameRow> rows, std::uint32_t function_size) {
  std::uint64_t before = 0;
  for (const FrameRow& row : rows) {
    if (row.end > function_size)
      return fail(ErrorCode::kOutOfRange, "row does not lie within its function", row.begin, row.end);
    if (row.begin < before || row.begin >= row.end)
      return fail(ErrorCode::kMalformed, "rows of a function are not ascending and disjoint", row.begin, before);
    before = row.end;
  }
  return {};
}

}  // namespace

void store(std::byte* to, const void* from, std::size_t size) {
  const auto* source = static_cast<const std::byte*>(from);
  for (std::size_t at = 0; at < size; at += sizeof(std::uint32_t)) {
    std::uint32_t word;
    std::memcpy(&word, source + at, sizeof word);
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(to + at), word, __ATOMIC_RELEASE);
  }
}

inline void Shapes::append(const void* from, std::size_t size) {
  if (draft_.size() - drafted_ < size) [[unlikely]]
    draft_.resize(2 * draft_.size() + size);
  std::memcpy(draft_.data() + drafted_, from, size);
  drafted_ += size;
}

// Leaves the rules to draft_rules(): they follow from the rest, and are needed only where the shape is new.
Expected<void> Shapes::draft(std::span<const FrameRow> rows, std::uint32_t function_size) {
  if (const auto checked = check_rows(rows, function_size); !checked) return checked;
  drafted_ = 0;
  from_.clear();
  append(wl_code_shape{});
  const std::size_t body = body_of(rows);
  const auto add = [&](std::uint64_t at, bool from_end, std::size_t row) {
    wl_code_row drafted{};
    drafted.at = static_cast<std::uint32_t>(from_end ? (function_size - at) | WL_CODE_FROM_END : at);
    append(drafted);
    from_.push_back(row);
  };
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].begin != before) add(before, i > body + 1, kGap);
    add(rows[i].begin, i > body, i);
    before = rows[i].end;
  }
  if (before != function_size) add(before, true, kGap);
  if (from_.size() > WL_CODE_MAX_ROWS)
    return fail(ErrorCode::kLimit, "function has more rows than a shape", 0, from_.size());
  for (std::size_t i = 0; i < from_.size(); ++i) {
    if (from_[i] == kGap) continue;
    drafted<wl_code_row>(sizeof(wl_code_shape) + i * sizeof(wl_code_row)).full = static_cast<std::uint32_t>(drafted_);
    if (const auto full = draft_full(rows[from_[i]]); !full) return full;
  }
  auto& shape = drafted<wl_code_shape>(0);
  shape.size = static_cast<std::uint32_t>(drafted_);
  shape.row_count = static_cast<std::uint16_t>(from_.size());
  shape.hash = hash();
  return {};
}

Expected<void> Shapes::draft_full(const FrameRow& row) {
  if (drafted_ + row.expressions.size() > WL_CODE_MAX_SIZE / 2)
    return fail(ErrorCode::kLimit, "rows of a function are too large for a shape", row.begin, row.expressions.size());
  wl_code_full full{};
  full.cfa = std::bit_cast<wl_code_value>(row.cfa);
  full.return_address = std::bit_cast<wl_code_value>(row.return_address);
  full.register_count = static_cast<std::uint16_t>(row.registers.size());
  full.flags = static_cast<std::uint16_t>((row.signal_frame ? WL_CODE_SIGNAL_FRAME : 0u) |
                                          (row.return_signed ? WL_CODE_RETURN_SIGNED : 0u));
  full.expression_bytes = static_cast<std::uint32_t>(row.expressions.size());
  append(full);
  for (const RegisterEntry entry : row.registers)
    append(wl_code_register{entry.reg, std::bit_cast<wl_code_value>(entry.rule)});
  if (row.expressions.empty()) return {};
  append(row.expressions.data(), row.expressions.size());
  constexpr std::byte kPadding[4] = {};
  append(kPadding, -drafted_ & 3);
  return {};
}

void Shapes::draft_rules(std::span<const FrameRow> rows) {
  table::CfaRegisterUse use(table::kTrackable);
  for (const FrameRow& row : rows)
    if (!row.cfa.is(CfaRule::kExpression) && row.cfa.reg() < use.size() &&
        row.cfa.reg() != Registers::sp_number(architecture_) && row.cfa.reg() != frame_pointer(architecture_))
      ++use[row.cfa.reg()];
  const std::uint8_t x_reg = table::choose_extra_register(use, table::preserved_registers(architecture_));
  drafted<wl_code_shape>(0).x_reg = x_reg;
  const bool called = !rows.empty() && rows[0].begin == 0 && sources::is_called(rows[0].cfa, architecture_);
  for (std::size_t i = 0; i < from_.size(); ++i) {
    if (from_[i] == kGap) continue;
    const table::TraceRule rule = table::project(rows[from_[i]], architecture_, x_reg);
    drafted<wl_code_row>(sizeof(wl_code_shape) + i * sizeof(wl_code_row)).rule =
        called ? rule : table::without_end(rule);
  }
}

// Of the rows, without what only a shape that is kept has.
std::uint32_t Shapes::hash() const {
  std::uint64_t hash = drafted_;
  const auto add = [&](std::size_t at, std::size_t size) {
    std::uint64_t word = 0;
    std::memcpy(&word, draft_.data() + at, size);
    hash = (hash ^ word) * 0x9e37'79b9'7f4a'7c15;
    hash ^= hash >> 29;
  };
  std::size_t at = sizeof(wl_code_shape);
  for (std::size_t row = 0; row < from_.size(); ++row, at += sizeof(wl_code_row)) add(at, offsetof(wl_code_row, rule));
  for (; drafted_ - at >= 8; at += 8) add(at, 8);
  if (at != drafted_) add(at, 4);
  return static_cast<std::uint32_t>(hash >> 32);
}

bool Shapes::is_drafted(std::uint32_t shape) const {
  const std::byte* kept = section_ + shape;
  const auto& head = *reinterpret_cast<const wl_code_shape*>(draft_.data());
  if (shape_at(shape).size != head.size || shape_at(shape).row_count != head.row_count) return false;
  std::size_t at = sizeof head;
  for (unsigned i = 0; i < head.row_count; ++i, at += sizeof(wl_code_row))
    if (std::memcmp(kept + at, draft_.data() + at, offsetof(wl_code_row, rule)) != 0) return false;
  return std::memcmp(kept + at, draft_.data() + at, drafted_ - at) == 0;
}

Expected<std::uint32_t> Shapes::take(std::span<const FrameRow> rows, std::uint32_t function_size) {
  if (const auto done = draft(rows, function_size); !done) return Failure(done.error());
  auto& head = drafted<wl_code_shape>(0);
  const auto [first, last] = known_.equal_range(head.hash);
  const auto same = std::find_if(first, last, [&](const auto& known) { return is_drafted(known.second); });
  if (same != last) {
    take_again(same->second);
    return same->second;
  }
  const auto place = pool_.take(head.size);
  if (!place) return fail(ErrorCode::kLimit, "code manager has no room for more rows", 0, head.size);
  head.users = 1;
  draft_rules(rows);
  store(section_ + *place, draft_.data(), drafted_);
  known_.emplace(drafted<wl_code_shape>(0).hash, *place);
  return *place;
}

void Shapes::give(std::uint32_t shape) {
  const wl_code_shape& head = shape_at(shape);
  set_users(shape, head.users - 1);
  if (head.users != 0) return;
  const auto [first, last] = known_.equal_range(head.hash);
  known_.erase(std::find_if(first, last, [&](const auto& known) { return known.second == shape; }));
  pool_.give(shape, head.size);
}

}  // namespace windlass::manager
