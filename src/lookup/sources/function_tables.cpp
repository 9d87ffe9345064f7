#include "lookup/sources/function_tables.h"

#include <algorithm>

#include "base/pages.h"
#include "formats/winx64/exec.h"
#include "lookup/sources/winx64_unwound.h"

namespace windlass::sources {
namespace {

// What one unwind reads: copied, as it may change or go.
template <typename Find, typename Read>
class CopiedImage {
 public:
  CopiedImage(std::uint64_t base, Find find, Read read) : base_(base), find_(find), read_(read) {}

  [[nodiscard]] bool find(std::uint32_t rva, winx64::RuntimeFunction& to) const {
    TableEntry entry;
    if (!find_(base_ + rva, entry) || entry.base != base_) return false;
    to = entry.function;
    return true;
  }
  [[nodiscard]] ByteView bytes(std::uint32_t rva, std::uint32_t wanted) const {
    if (wanted == winx64::kLongestInfo) {
      const ByteView header = copy(rva, winx64::kHeaderSize);
      if (header.size() == 0) return {};
      used_ -= header.size();
      return copy(rva, winx64::info_size(header));
    }
    const ByteView all = copy(rva, wanted);
    if (all.size() != 0) return all;
    // Code may end with its page.
    return copy(rva, std::min<std::uint64_t>(wanted, kSmallestPage - (base_ + rva) % kSmallestPage));
  }

 private:
  static constexpr std::size_t kRoom = 2048;  // three of the longest records; compilers chain three short ones

  [[nodiscard]] ByteView copy(std::uint32_t rva, std::uint64_t size) const {
    std::byte* const to = room_ + used_;
    if (size > sizeof room_ - used_ || !read_(base_ + rva, to, size)) return {};
    used_ += size;
    return {to, size, rva};
  }

  const std::uint64_t base_;
  const Find find_;
  const Read read_;
  mutable std::size_t used_ = 0;
  mutable std::byte room_[kRoom];
};

}  // namespace

Expected<Function> FunctionTables::function_at(std::uint64_t address) const {
  TableEntry entry;
  if (!find(address, entry))
    return fail(ErrorCode::kNotFound, "no entry of a function table covers the address", address);
  Function function;
  function.begin = function.primary = entry.begin();
  function.end = entry.end();
  return function;
}

Expected<void> FunctionTables::row_at(std::uint64_t address, FrameRow& /*to*/) const {
  TableEntry entry;
  if (!find(address, entry))
    return fail(ErrorCode::kNotFound, "no entry of a function table covers the address", address);
  return fail(ErrorCode::kUnsupported, "unwind codes in memory are executed, not made rows", address);
}

std::uint64_t FunctionTables::function_start(std::uint64_t address) const {
  TableEntry entry;
  return find(address, entry) ? entry.begin() : 0;
}

Expected<HandlerCall> FunctionTables::unwind(const Callee& callee, Registers& caller, SavedLocations& saved) const {
  const std::uint64_t address = callee.registers.pc().lookup();
  TableEntry entry;
  if (!find(address, entry))
    return fail(ErrorCode::kNotFound, "no entry of a function table covers the address", address);
  const auto find_here = [this](std::uint64_t at, TableEntry& to) { return find(at, to); };
  const auto read = [&](std::uint64_t at, void* to, std::size_t size) {
    return read_held(at, to, size) || callee.memory.read(at, to, size);
  };
  const CopiedImage image(entry.base, find_here, read);
  winx64::Unwound unwound;
  winx64::SavedAddresses addresses;
  const auto done = winx64::virtual_unwind(image, entry.base, callee.memory, callee.registers, unwound, &addresses);
  if (!done) return Failure(done.error());
  HandlerCall call = take(unwound, addresses, caller, saved);
  if (call.handler != 0) call.handler += entry.base, call.data += entry.base;
  return call;
}

}  // namespace windlass::sources
