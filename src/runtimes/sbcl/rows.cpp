#include "runtimes/sbcl/rows.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/registers.h"
#include "flow/callee_record.h"
#include "runtimes/described_code.h"

namespace windlass::runtimes::sbcl {
namespace {

template <std::size_t N>
bool stands(std::span<const std::uint8_t> code, const std::uint8_t (&bytes)[N]) {
  return code.size() >= N && std::memcmp(code.data(), bytes, N) == 0;
}

constexpr std::uint8_t kPopReturn[] = {0x8f, 0x45, 0x08};      // pop [rbp + 8]
constexpr std::uint8_t kPushReturn[] = {0xff, 0x73, 0xf8};     // push [rbx - 8]
constexpr std::uint8_t kLoadOld[] = {0x48, 0x8b, 0x6d, 0x00};  // mov rbp, [rbp]
constexpr std::uint8_t kReturn = 0xc3;

}  // namespace

Expected<std::unique_ptr<Code>> Code::read(const Memory& memory, const Function& function) {
  auto code = std::make_unique<Code>();
  code->begin = function.begin;
  code->end = function.end;
  code->lasting = false;
  code->object_ = function.object;
  code->code_.resize(function.end - function.begin);
  if (!memory.read(function.begin, code->code_.data(), code->code_.size()))
    return fail(ErrorCode::kUnreadable, "a function's code cannot be read", function.begin);
  return code;
}

Expected<void> Code::row_at(std::uint64_t address, FrameRow& to) const {
  if (!contains(address)) return fail(ErrorCode::kNotFound, "code of which SBCL says nothing", address);
  to = frame_row(address, address + 1);
  const std::size_t at = address - begin;
  const auto code = std::span(code_).subspan(at);
  if (stands(code, kPopReturn)) {
    to.return_address = RegisterRule::at_register(x86_64::kRsp, 0);
  } else if (code[0] == kReturn) {
    to.cfa = CfaRule::at(x86_64::kRsp, 8);
    (void)to.registers.set(x86_64::kRbp, RegisterRule::same_value());
  } else if (stands(code, kPushReturn) && at >= sizeof kLoadOld &&
             stands(std::span(code_).subspan(at - sizeof kLoadOld), kLoadOld)) {
    to.cfa = CfaRule::at(x86_64::kRbx, 0);
    (void)to.registers.set(x86_64::kRbp, RegisterRule::same_value());
  } else {
    const std::size_t seen = std::min<std::size_t>(at, flow::kMostBeforeCall);
    const auto before = std::as_bytes(std::span(code_).subspan(at - seen, seen));
    if (flow::is_on_callees_record(ByteView(before.data(), before.size()), address - seen))
      to.cfa = CfaRule::loaded(x86_64::kRbp, 0, 16);
  }
  return {};
}

void Code::for_each_row(sources::RowSink row, sources::ErrorSink) const { row(frame_row(begin, end)); }

}  // namespace windlass::runtimes::sbcl
