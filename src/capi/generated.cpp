// The description of a generated function.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/registers.h"
#include "capi/code.h"
#include "windlass/backtrace.h"

namespace windlass::capi {
namespace {

static_assert(prologue::kNoRegister == WINDLASS_NO_REGISTER);

template <typename T>
bool is_whole(const T* begin, std::size_t count) {
  return count == 0 || begin != nullptr;
}

bool from_c(const windlass_op& from, prologue::Op& to) {
  to.end = from.end;
  switch (from.action) {
    case WINDLASS_ALLOCATE: to.action = prologue::Allocate{from.bytes}; return true;
    case WINDLASS_SAVE:
      to.action = prologue::Save{from.reg, from.offset, static_cast<std::uint32_t>(from.bytes), from.second};
      return from.bytes <= 0xffff'ffff;
    case WINDLASS_SET_FRAME_POINTER: to.action = prologue::SetFramePointer{from.reg, from.offset}; return true;
    case WINDLASS_SIGN_RETURN_ADDRESS: to.action = prologue::SignReturnAddress{}; return true;
    case WINDLASS_ALLOCATE_VECTORS:
      to.action = prologue::AllocateVectors{static_cast<std::uint32_t>(from.bytes)};
      return from.bytes <= 0xffff'ffff;
    case WINDLASS_SAVE_VECTOR: to.action = prologue::SaveVector{from.reg, from.offset}; return true;
    default: return false;
  }
}

bool from_c(const windlass_op* from, std::size_t count, std::vector<prologue::Op>& to) {
  if (!is_whole(from, count)) return false;
  to.resize(count);
  for (std::size_t i = 0; i < count; ++i)
    if (!from_c(from[i], to[i])) return false;
  return true;
}

bool from_c(const windlass_prologue& from, Prologue& to) {
  if (!is_whole(from.epilogues, from.epilogue_count) || !from_c(from.ops, from.op_count, to.ops)) return false;
  for (std::size_t i = 0; i < from.epilogue_count; ++i) {
    const windlass_epilogue& given = from.epilogues[i];
    if (given.undone_count == 0) {
      to.epilogues.push_back(mirrored(to, given.begin));
      continue;
    }
    prologue::Epilogue epilogue{.begin = given.begin, .end = given.end};
    if (!from_c(given.undone, given.undone_count, epilogue.undone)) return false;
    to.epilogues.push_back(std::move(epilogue));
  }
  return true;
}

}  // namespace

windlass_status from_c(const windlass_generated* from, std::size_t count, GeneratedFunctions& to,
                       windlass_error* error) {
  constexpr auto kNotSetUp = "windlass_generated is not set up";
  if (count != 0 && !sized(from)) return invalid(kNotSetUp, error);
  const auto* at = reinterpret_cast<const std::byte*>(from);
  for (std::size_t i = 0; i < count; ++i, at += from->size) {
    windlass_generated given;
    if (!take(reinterpret_cast<const windlass_generated*>(at), given) || given.size != from->size)
      return invalid(kNotSetUp, error);
    GeneratedFunction& function = to.all.emplace_back();
    function.address = given.address;
    function.size = given.code_size;
    if (given.name != nullptr) function.name = given.name;
    function.user = given.user;
    function.personality = given.personality;
    function.language_data = given.language_data;
    std::vector<FrameRow>& rows = to.rows.emplace_back();
    if (!from_c(given.rows, given.row_count, kOwnArchitecture, rows))
      return invalid("windlass_row is not set up", error);
    for (FrameRow& row : rows) {
      if (row.begin < given.address)
        return report(Error{ErrorCode::kMalformed, "row begins before its function", given.address}, error);
      row.begin -= given.address;
      row.end -= given.address;
    }
    function.rows = rows;
    if (given.prologue == nullptr) continue;
    windlass_prologue described;
    Prologue& prologue = to.prologues.emplace_back();
    prologue.architecture = kOwnArchitecture;
    prologue.code_size = static_cast<std::uint32_t>(std::min<std::uint64_t>(given.code_size, UINT32_MAX));
    if (!take(given.prologue, described) || !from_c(described, prologue))
      return invalid("windlass_prologue is not set up", error);
    function.prologue = &prologue;
  }
  return WINDLASS_OK;
}

}  // namespace windlass::capi
