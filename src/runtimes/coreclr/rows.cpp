#include "runtimes/coreclr/rows.h"

#include <algorithm>
#include <utility>

#include "flow/stack_effect.h"
#include "formats/winx64/lower.h"
#include "formats/winx64/registers.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes::coreclr {
namespace {

// UNWIND_INFO (Microsoft, "x64 exception handling"): the header, the codes, and a handler's RVA behind them.
constexpr std::uint32_t kHeader = 4, kHandler = 4;

Expected<std::vector<std::byte>> read_info(const Memory& memory, std::uint64_t address) {
  const auto header = read_value<std::uint32_t>(memory, address);
  if (!header) return fail(ErrorCode::kUnreadable, "a method's unwind information cannot be read", address);
  winx64::UnwindInfo info;
  winx64::read_header(*header, 0, info);
  if (info.version < 1 || info.version > 2 || info.has(winx64::kChaininfo))
    return fail(ErrorCode::kMalformed, "unwind information that no runtime makes", address, *header);
  const std::uint32_t codes = (info.slot_count + 1U) / 2 * 4;
  const bool handler = info.has(winx64::kEhandler) || info.has(winx64::kUhandler);
  std::vector<std::byte> bytes(kHeader + codes + (handler ? kHandler : 0));
  if (!memory.read(address, bytes.data(), bytes.size()))
    return fail(ErrorCode::kUnreadable, "a method's unwind information cannot be read", address);
  return bytes;
}

}  // namespace

Expected<std::unique_ptr<CodeMethod>> CodeMethod::read(const Memory& memory, CodeBlock block) {
  auto method = std::make_unique<CodeMethod>();
  method->begin = block.begin;
  method->end = block.end();
  method->lasting = block.lasting;
  for (const winx64::RuntimeFunction& function : block.functions) {
    auto bytes = read_info(memory, block.base + function.info);
    if (!bytes) return Failure(bytes.error());
    method->infos_.push_back({function.info, std::move(*bytes)});
  }
  std::ranges::sort(method->infos_, {}, &Info::rva);
  method->code_.resize(block.end() - block.begin);
  if (!memory.read(block.begin, method->code_.data(), method->code_.size()))
    return fail(ErrorCode::kUnreadable, "a method's code cannot be read", block.begin);
  method->block_ = std::move(block);
  return method;
}

std::size_t CodeMethod::bytes() const {
  std::size_t sum = sizeof *this + code_.size() + block_.functions.size() * sizeof(winx64::RuntimeFunction);
  for (const Info& info : infos_) sum += sizeof info + info.bytes.size();
  return sum;
}

std::optional<winx64::RuntimeFunction> CodeMethod::function_at(std::uint32_t rva) const {
  const auto after = std::ranges::upper_bound(block_.functions, rva, {}, &winx64::RuntimeFunction::begin);
  if (after == block_.functions.begin() || rva >= std::prev(after)->end) return std::nullopt;
  return *std::prev(after);
}

ByteView CodeMethod::bytes_at(std::uint32_t rva, std::uint32_t wanted) const {
  const auto part = [&](const std::vector<std::byte>& of, std::uint64_t from) {
    return ByteView(of.data() + from, std::min<std::uint64_t>(wanted, of.size() - from), rva);
  };
  const auto after = std::ranges::upper_bound(infos_, rva, {}, &Info::rva);
  if (after != infos_.begin() && rva - std::prev(after)->rva < std::prev(after)->bytes.size())
    return part(std::prev(after)->bytes, rva - std::prev(after)->rva);
  const std::uint64_t at = block_.base + rva;
  return at >= begin && at < end ? part(code_, at - begin) : ByteView();
}

// To addresses of the process.
void CodeMethod::finish(FrameRow& row) const {
  row.begin += block_.base;
  row.end += block_.base;
  winx64::take_system_v(row);
}

Expected<void> CodeMethod::row_at(std::uint64_t address, FrameRow& to) const {
  const auto rva = static_cast<std::uint32_t>(address - block_.base);
  const auto function = contains(address) ? function_at(rva) : std::nullopt;
  if (!function) return fail(ErrorCode::kNotFound, "no function contains the address", address);
  const auto find = [&](std::uint32_t of) { return function_at(of); };
  const auto bytes = [&](std::uint32_t of, std::uint32_t wanted) { return bytes_at(of, wanted); };
  if (const auto found = winx64::row_at(winx64::AnyImage(find, bytes), *function, rva, to); !found) return found;
  finish(to);
  return {};
}

void CodeMethod::for_each_row(sources::RowSink row, sources::ErrorSink report) const {
  const auto find = [&](std::uint32_t of) { return function_at(of); };
  const auto bytes = [&](std::uint32_t of, std::uint32_t wanted) { return bytes_at(of, wanted); };
  FrameRow moved;
  const auto give = [&](const FrameRow& lowered) {
    moved = lowered;
    finish(moved);
    row(moved);
  };
  for (const winx64::RuntimeFunction& function : block_.functions)
    winx64::lower(winx64::AnyImage(find, bytes), function, give, report);
}

// ---- stubs
// -----------------------------------------------------------------------------------------------------------

Expected<std::unique_ptr<Stub>> Stub::read(const Memory& memory, std::uint64_t pc) {
  constexpr std::uint64_t kPage = 4096;
  std::vector<std::byte> code(kLongest);
  if (!memory.read(pc, code.data(), code.size())) {
    code.resize(std::min<std::uint64_t>(kLongest, kPage - pc % kPage));
    if (!memory.read(pc, code.data(), code.size()))
      return fail(ErrorCode::kUnreadable, "a stub's code cannot be read", pc);
  }
  using Kind = flow::StackEffect::Kind;
  std::int64_t freed = 0;
  flow::StraightCode line(ByteView(code.data(), code.size()), pc, code.size());
  while (const auto effect = line.next()) {
    switch (effect->kind) {
      case Kind::kNone:
      case Kind::kBranch: continue;
      case Kind::kPush:
      case Kind::kPop:
      case Kind::kMove: freed += effect->delta; continue;
      case Kind::kJump:
      case Kind::kReturn: {
        if (freed < 0 || freed > std::int64_t{kLongest} * 8) break;
        auto stub = std::make_unique<Stub>();
        stub->begin = pc;
        stub->end = pc + 1;
        stub->lasting = false;
        stub->name = "[CoreCLR stub]";
        stub->depth_ = static_cast<std::int32_t>(freed);
        code.resize(line.end());
        stub->code_ = std::move(code);
        return stub;
      }
      default: break;
    }
    break;
  }
  return fail(ErrorCode::kNotFound, "a stub that does not go straight to a jump", pc);
}

bool Stub::is_still(const CodeMap& map, const Memory& memory) const {
  std::vector<std::byte> now(code_.size());
  if (!memory.read(begin, now.data(), now.size()) || now != code_) return false;
  const auto block = map.find(memory, begin);
  return !block || block->is_stub();
}

Expected<void> Stub::row_at(std::uint64_t address, FrameRow& to) const {
  if (address != begin) return fail(ErrorCode::kNotFound, "no stub's instruction begins there", address);
  to = FrameRow();
  to.begin = begin;
  to.end = end;
  to.cfa = CfaRule::at(winx64::dwarf_number(winx64::kRsp), depth_ + 8);
  to.return_address = RegisterRule::at_cfa(-8);
  return {};
}

void Stub::for_each_row(sources::RowSink row, sources::ErrorSink) const {
  FrameRow only;
  if (row_at(begin, only)) row(only);
}

Expected<std::unique_ptr<Code>> read_code(const Memory& memory, CodeBlock block) {
  if (block.is_stub()) return Stub::read(memory, block.begin);
  return CodeMethod::read(memory, std::move(block));
}

}  // namespace windlass::runtimes::coreclr
