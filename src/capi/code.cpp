#include "capi/code.h"

#include "base/registers.h"

namespace windlass::capi {
namespace {

// Empty, or both.
template <typename T>
bool is_whole(const T* begin, std::size_t count) {
  return (begin == nullptr) == (count == 0);
}

bool from_c(const windlass_row& from, Architecture architecture, FrameRow& to) {
  if (!is_whole(from.saved, from.saved_count)) return false;
  to.begin = from.begin;
  to.end = from.end;
  to.cfa = CfaRule::at(static_cast<RegisterNumber>(from.cfa_register), from.cfa_offset);
  if (from.return_offset != 0)
    to.return_address = RegisterRule::at_cfa(from.return_offset);
  else if (architecture == Architecture::kAArch64)
    to.return_address = RegisterRule::in_register(aarch64::kX30);
  else
    return false;
  for (std::size_t i = 0; i < from.saved_count; ++i) {
    const windlass_saved_register& saved = from.saved[i];
    if (saved.number > kMaxRowRegister ||
        !to.registers.set(static_cast<RegisterNumber>(saved.number), RegisterRule::at_cfa(saved.offset)))
      return false;
  }
  return from.cfa_register <= kMaxRowRegister;
}

}  // namespace

bool from_c(const windlass_row* from, std::size_t count, Architecture architecture, std::vector<FrameRow>& to) {
  if (!is_whole(from, count)) return false;
  to.resize(count);
  for (std::size_t i = 0; i < count; ++i)
    if (!from_c(from[i], architecture, to[i])) return false;
  return true;
}

bool from_c(const windlass_code* from, Architecture architecture, CodeRange& to) {
  windlass_code given;
  if (!take(from, given) || !is_whole(given.eh_frame, given.eh_frame_size) ||
      !from_c(given.rows, given.row_count, architecture, to.rows))
    return false;
  to.begin = given.begin;
  to.end = given.end;
  if (given.name != nullptr) to.name = given.name;
  const auto* bytes = static_cast<const std::byte*>(given.eh_frame);
  to.eh_frame.assign(bytes, bytes + given.eh_frame_size);
  to.eh_frame_address = given.eh_frame_address;
  return true;
}

windlass_status added(const Expected<CodeRangeId>& result, std::uint64_t* id, windlass_error* error) {
  if (!result) return report(result.error(), error);
  if (id != nullptr) *id = static_cast<std::uint64_t>(*result);
  return WINDLASS_OK;
}

windlass_status done(const Expected<void>& result, windlass_error* error) {
  return result ? WINDLASS_OK : report(result.error(), error);
}

}  // namespace windlass::capi
