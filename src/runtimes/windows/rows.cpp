#include "runtimes/windows/rows.h"

#include <algorithm>
#include <optional>

#include "base/pages.h"
#include "formats/winx64/exec.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes::windows {
namespace {

// The instructions around an address that tell whether it is in an epilogue.
constexpr std::uint64_t kBefore = 16, kBehind = winx64::kEpilogueWindow;

ByteView part_of(const std::pair<std::uint64_t, std::vector<std::byte>>& copy, std::uint64_t address,
                 std::uint32_t wanted) {
  const std::uint64_t within = address - copy.first;
  if (within >= copy.second.size()) return {};
  return {copy.second.data() + within, std::min<std::uint64_t>(wanted, copy.second.size() - within), within};
}

bool is_same(const Memory& memory, std::uint64_t address, const std::vector<std::byte>& bytes) {
  std::vector<std::byte> now(bytes.size());
  return memory.read(address, now.data(), now.size()) && now == bytes;
}

}  // namespace

Expected<std::unique_ptr<TableCode>> TableCode::read(const Memory& memory, const Table& table,
                                                     const winx64::RuntimeFunction& function, std::uint64_t address) {
  std::unique_ptr<TableCode> code(new TableCode(table, function));
  code->lasting = false;
  if (const auto done = code->read_code(memory, address); !done) return Failure(done.error());
  if (const auto done = code->read_records(memory); !done) return Failure(done.error());
  return code;
}

Expected<void> TableCode::read_code(const Memory& memory, std::uint64_t address) {
  const std::uint64_t first = table_.base + function_.begin, last = table_.base + function_.end;
  const std::uint64_t page = address / kSmallestPage * kSmallestPage;
  begin = std::max(first, page);
  end = std::min(last, page + kSmallestPage);
  // What lies in the next pages need not be there.
  for (const std::uint64_t more : {kBehind, std::uint64_t{0}}) {
    code_begin_ = more != 0 ? std::max(first, begin - std::min(kBefore, begin)) : begin;
    code_.resize(std::min(last, end + more) - code_begin_);
    if (memory.read(code_begin_, code_.data(), code_.size())) return {};
  }
  return fail(ErrorCode::kUnreadable, "code that a function table describes", begin, code_.size());
}

Expected<void> TableCode::read_records(const Memory& memory) {
  winx64::RuntimeFunction function = function_;
  for (unsigned depth = 0; depth <= winx64::kMaxChain; ++depth) {
    std::uint64_t at = table_.base + (function.info & ~1U);
    if (function.indirect()) {
      const auto other = read_value<winx64::RuntimeFunction>(memory, at);
      if (!other) return fail(ErrorCode::kUnreadable, "entry of a function table", at);
      records_.emplace_back(at, std::vector<std::byte>(reinterpret_cast<const std::byte*>(&*other),
                                                       reinterpret_cast<const std::byte*>(&*other + 1)));
      function = *other;
      at = table_.base + function.info;
    }
    std::vector<std::byte> bytes(winx64::kHeaderSize);
    if (!memory.read(at, bytes.data(), bytes.size())) return fail(ErrorCode::kUnreadable, "unwind information", at);
    bytes.resize(winx64::info_size(ByteView(bytes.data(), bytes.size())));
    if (!memory.read(at, bytes.data(), bytes.size())) return fail(ErrorCode::kUnreadable, "unwind information", at);
    const auto info = winx64::parse_unwind_info(ByteView(bytes.data(), bytes.size()), function.info);
    records_bytes_ += bytes.size() + sizeof(Copy);
    records_.emplace_back(at, std::move(bytes));
    if (!info) return Failure(info.error());
    if (!info->chained.has_value()) return {};
    function = *info->chained;
  }
  return fail(ErrorCode::kLimit, "chain of unwind information is longer than 32: RVA", function.info);
}

ByteView TableCode::bytes_at(std::uint32_t rva, std::uint32_t wanted) const {
  const std::uint64_t address = table_.base + rva;
  for (const Copy& record : records_)
    if (record.first == address) return part_of(record, address, wanted);
  const std::uint64_t within = address - code_begin_;
  if (within >= code_.size()) return {};
  return {code_.data() + within, std::min<std::uint64_t>(wanted, code_.size() - within), rva};
}

bool TableCode::is_still(const Memory& memory, const TableList& list) const {
  if (!windows::is_still(memory, list, table_)) return false;
  const auto now = function_at(memory, table_, begin);
  return now && *now == function_ && is_same(memory, code_begin_, code_) &&
         std::ranges::all_of(records_,
                             [&](const Copy& record) { return is_same(memory, record.first, record.second); });
}

Expected<void> TableCode::row_at(std::uint64_t address, FrameRow& to) const {
  const auto find_here = [this](std::uint32_t rva) -> std::optional<winx64::RuntimeFunction> {
    return rva >= function_.begin && rva < function_.end ? std::optional(function_) : std::nullopt;
  };
  const auto bytes_here = [this](std::uint32_t rva, std::uint32_t wanted) { return bytes_at(rva, wanted); };
  const auto found = winx64::row_at(winx64::AnyImage(find_here, bytes_here), function_,
                                    static_cast<std::uint32_t>(address - table_.base), to);
  if (!found) return found;
  to.begin += table_.base;
  to.end += table_.base;
  return {};
}

void TableCode::for_each_row(sources::RowSink row, sources::ErrorSink report) const {
  for (std::uint64_t address = begin; address < end; ++address) {
    FrameRow at;
    if (const auto found = row_at(address, at); found)
      row(at);
    else
      report(found.error());
  }
}

}  // namespace windlass::runtimes::windows
