#include "lookup/sources/function_tables.h"

#include <algorithm>
#include <cstring>
#include <vector>

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
      if (header.empty()) return {};
      used_ -= header.size();
      return copy(rva, winx64::info_size(header));
    }
    const ByteView all = copy(rva, wanted);
    if (!all.empty()) return all;
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

namespace {

class GivenTable final : public FunctionTables {
 public:
  explicit GivenTable(const FunctionTable& table)
      : bytes_(table.bytes), address_(table.address), base_(table.base != 0 ? table.base : table.address) {}

  Expected<void> read(const FunctionTable& table, std::uint64_t begin, std::uint64_t end) {
    if (base_ > address_) return fail(ErrorCode::kMalformed, "function table before the base of its RVAs", address_);
    const ByteView bytes(bytes_.data(), bytes_.size());
    for (std::uint32_t i = 0; i < table.entries; ++i) {
      const auto entry = bytes.at<winx64::RuntimeFunction>(table.table + std::uint64_t{i} * sizeof(functions_[0]));
      if (!entry) return Failure(entry.error());
      if (entry->begin >= entry->end || base_ + entry->begin < begin || base_ + entry->end > end)
        return fail(ErrorCode::kOutOfRange, "function does not lie in its code range: RVA", entry->begin, entry->end);
      functions_.push_back(*entry);
    }
    std::ranges::sort(functions_, {}, &winx64::RuntimeFunction::begin);
    return check_records();
  }

  bool find(std::uint64_t address, TableEntry& to) const override {
    const auto after = std::ranges::upper_bound(functions_, address - base_, {}, [](const auto& f) { return f.begin; });
    if (address < base_ || after == functions_.begin() || address - base_ >= std::prev(after)->end) return false;
    to = {base_, *std::prev(after)};
    return true;
  }

 private:
  bool read_held(std::uint64_t address, void* to, std::size_t size) const override {
    const std::uint64_t at = address - address_;
    if (at > bytes_.size() || size > bytes_.size() - at) return false;
    std::memcpy(to, bytes_.data() + at, size);
    return true;
  }

  [[nodiscard]] Expected<void> check_records() const {
    const auto find_here = [this](std::uint64_t at, TableEntry& to) { return find(at, to); };
    const auto read = [this](std::uint64_t at, void* to, std::size_t size) { return read_held(at, to, size); };
    for (std::size_t i = 0; i < functions_.size(); ++i) {
      const winx64::RuntimeFunction& function = functions_[i];
      if (i != 0 && function.begin < functions_[i - 1].end)
        return fail(ErrorCode::kMalformed, "function overlaps another one: RVA", function.begin, functions_[i - 1].end);
      if (!winx64::primary(CopiedImage(base_, find_here, read), function))
        return fail(ErrorCode::kMalformed, "unwind information is not among the bytes, or damaged: RVA", function.info,
                    function.begin);
    }
    return {};
  }

  const std::vector<std::byte> bytes_;
  const std::uint64_t address_, base_;
  std::vector<winx64::RuntimeFunction> functions_;  // ascending, disjoint
};

}  // namespace

Expected<std::unique_ptr<UnwindSource>> make_table_source(const FunctionTable& table, std::uint64_t begin,
                                                          std::uint64_t end) {
  auto source = std::make_unique<GivenTable>(table);
  if (const auto done = source->read(table, begin, end); !done) return Failure(done.error());
  return source;
}

}  // namespace windlass::sources
