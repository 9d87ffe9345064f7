#include "runtimes/beam/rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "base/registers.h"
#include "formats/dwarf/expression_ops.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes::beam {
namespace {

using namespace dwarf;  // NOLINT(google-build-using-namespace): DW_OP_*
using Stack = FrameState::Stack;

constexpr RegisterNumber kR13 = 13, kR14 = 14;
constexpr auto kStop = static_cast<std::uint8_t>(Layout::kProcessStop);
static_assert(Layout::kProcessStop == 0x58);

// The first word from the one on top of the stack on that is tagged as a return address, and is one: two bits of 0
// (erl_term.h, _CPMASK).
constexpr std::uint8_t kUpToTag[] = {
    DW_OP_dup,  DW_OP_deref, DW_OP_dup, DW_OP_lit0 + 3, DW_OP_and,
    DW_OP_bra,  6,           0,  // a term, under its address
    DW_OP_bra,  9,           0,  // not 0: found
    DW_OP_skip, 1,           0,         DW_OP_drop,     DW_OP_plus_uconst,
    8,          DW_OP_skip,  0xec,      0xff,           DW_OP_plus_uconst,
    8,  // the CFA
};

template <std::size_t N>
consteval std::array<std::uint8_t, N + sizeof kUpToTag> scan_from(const std::uint8_t (&start)[N]) {
  std::array<std::uint8_t, N + sizeof kUpToTag> made{};
  std::copy(std::begin(start), std::end(start), made.begin());
  std::copy(std::begin(kUpToTag), std::end(kUpToTag), made.begin() + N);
  return made;
}
constexpr std::uint8_t kSp[] = {DW_OP_breg0 + x86_64::kRsp, 0};
constexpr std::uint8_t kStopOfProcess[] = {DW_OP_breg0 + kR13, kStop | 0x80, 0, DW_OP_deref};
constexpr auto kScanFromSp = scan_from(kSp);
constexpr auto kScanFromProcess = scan_from(kStopOfProcess);

void set_expression(FrameRow& row, std::span<const std::uint8_t> bytes) {
  const auto as_bytes = std::as_bytes(bytes);
  row.expressions = ByteView(as_bytes.data(), as_bytes.size());
  row.cfa = CfaRule::expression({0, static_cast<std::uint16_t>(bytes.size())});
}

// A frame of an Erlang function: rbx and r13 are the scheduler's and the process's for all of its functions.
void forget_registers(FrameRow& row) {
  row.return_address = RegisterRule::at_cfa(-8);
  for (const RegisterNumber reg : {x86_64::kRbp, x86_64::kR12, kR14, x86_64::kR15})
    (void)row.registers.set(reg, RegisterRule::undefined());
}

// Has the return address behind the last byte of a call, which is what is looked up, the tag?
bool is_tagged_return(std::uint64_t lookup) { return (lookup + 1) % 4 == 0; }

// Does a call end with the byte at an address? `call rel32`, `call [rip + N]` or `call reg` (Intel SDM 2A, CALL).
bool ends_call(const Memory& memory, std::uint64_t address) {
  std::array<std::uint8_t, 6> code{};
  if (!memory.read(address - 5, code.data(), code.size())) return false;
  return code[1] == 0xe8 || (code[0] == 0xff && code[1] == 0x15) || (code[4] == 0xff && code[5] >> 3 == 0xd0 >> 3);
}

// The CFA of a scheduler that runs no process. The stack pointer is at the structure of the scheduler's registers. The
// return address is in one of the slots above. Which one depends on the alignment of the structure.
std::vector<std::byte> scheduler_cfa(const Layout& layout) {
  std::vector<std::byte> made;
  const auto put = [&](auto... bytes) { (made.push_back(static_cast<std::byte>(bytes)), ...); };
  const auto put_leb = [&](std::uint32_t value) {  // 21 bits, as a positive number of either sign's form
    put((value & 0x7f) | 0x80, (value >> 7 & 0x7f) | 0x80, value >> 14 & 0x3f);
  };
  put(DW_OP_lit0);
  for (std::int32_t i = -3; i <= 3; ++i) {
    const auto distance = static_cast<std::uint32_t>(static_cast<std::int32_t>(layout.scheduler_distance) + 16 * i);
    put(DW_OP_breg0 + x86_64::kRsp);
    put_leb(distance);
    put(DW_OP_deref, DW_OP_const8u);
    for (unsigned shift = 0; shift < 64; shift += 8) put(layout.scheduler_return >> shift & 0xff);
    put(DW_OP_eq, DW_OP_constu);
    put_leb(distance + 8);
    put(DW_OP_mul, DW_OP_plus);
  }
  put(DW_OP_breg0 + x86_64::kRsp, 0, DW_OP_plus);
  return made;
}

// Where the jumps begin that end a module's code: `jmp rel32`, as long as `jmp [rip + N]`, out of the code.
std::size_t jumps_behind(std::span<const std::byte> code) {
  constexpr std::size_t kSize = 6;
  constexpr std::byte kRex{0x40}, kJmp{0xe9};
  std::size_t end = code.size();
  for (; end >= Layout::kInfoSize + kSize && code[end - kSize] == kRex && code[end - kSize + 1] == kJmp; end -= kSize) {
    std::int32_t distance = 0;
    std::memcpy(&distance, code.data() + end - sizeof distance, sizeof distance);
    const std::int64_t target = static_cast<std::int64_t>(end) + distance;
    if (target >= 0 && target < static_cast<std::int64_t>(code.size())) break;
  }
  return end;
}

}  // namespace

Expected<std::unique_ptr<Code>> Code::read(const Memory& memory, const Function& function) {
  std::vector<std::byte> bytes(function.end - function.begin);
  if (!memory.read(function.begin, bytes.data(), bytes.size()))
    return fail(ErrorCode::kUnreadable, "a function's code cannot be read", function.begin);
  if (function.is_last) bytes.resize(jumps_behind(bytes));
  auto code = std::make_unique<Code>();
  code->begin = function.begin;
  code->end = function.begin + bytes.size();
  code->lasting = false;
  code->function_ = function;
  code->stretches_ = flow(bytes, function.begin, code->returns_);
  return code;
}

Expected<std::unique_ptr<Code>> Code::read_shared(const Memory& memory, std::uint64_t pc, const CodeMap& map,
                                                  const Layout& layout, const Function& holder) {
  const auto read = [&](std::uint64_t at, void* to, std::size_t size) { return memory.read(at, to, size); };
  const auto leads = [&](std::uint64_t at) {
    return at != 0 && !map.in_module(memory, at) ? Leads::kOn : Leads::kToFunction;
  };
  const auto nothing = [](std::uint64_t) { return FrameState(); };
  // Of a return address the last byte of the call is looked up.
  const FrameState state = follow(ends_call(memory, pc) ? pc + 1 : pc, read, leads, nothing);
  if (state.stack == Stack::kUnknown) return fail(ErrorCode::kNotFound, "shared code whose frame is not found", pc);
  auto code = std::make_unique<Code>();
  code->begin = pc;
  code->end = pc + 1;
  code->function_ = holder;
  code->name = state.stack == Stack::kScheduler ? "[scheduler]" : "[BEAM]";
  code->stretches_ = {{0, state}};
  if (state.stack == Stack::kScheduler) code->expressions_ = scheduler_cfa(layout);
  return code;
}

std::unique_ptr<Code> Code::end_of_process(std::uint64_t address) {
  auto code = std::make_unique<Code>();
  code->begin = address - 1;
  code->end = address;
  code->name = "[process]";
  code->is_end_ = true;
  return code;
}

bool Code::may_be_outermost(std::uint64_t /*address*/) const {
  return is_end_ || (stretches_.size() == 1 && stretches_[0].state.stack == Stack::kScheduler);
}

bool Code::row_of(std::size_t stretch, FrameRow& to) const {
  to = FrameRow();
  to.begin = begin + stretches_[stretch].begin;
  to.end = stretch + 1 < stretches_.size() ? begin + stretches_[stretch + 1].begin : end;
  forget_registers(to);
  const FrameState& state = stretches_[stretch].state;
  switch (state.stack) {
    case Stack::kUnknown: return false;
    case Stack::kErlang: to.cfa = CfaRule::at(x86_64::kRsp, state.depth + 8); return true;
    case Stack::kInRbp: to.cfa = CfaRule::at(x86_64::kRbp, state.depth + 8); return true;
    case Stack::kTagged: set_expression(to, kScanFromSp); return true;
    case Stack::kInProcess: set_expression(to, kScanFromProcess); return true;
    case Stack::kScheduler:
      to.expressions = ByteView(expressions_.data(), expressions_.size());
      to.cfa = CfaRule::expression({0, static_cast<std::uint16_t>(expressions_.size())});
      for (const RegisterNumber reg : {x86_64::kRbx, kR13}) (void)to.registers.set(reg, RegisterRule::undefined());
      return true;
  }
  return false;
}

Expected<void> Code::row_at(std::uint64_t address, FrameRow& to) const {
  if (!contains(address)) return fail(ErrorCode::kNotFound, "code of which the virtual machine says nothing", address);
  to = FrameRow();
  to.begin = address;
  to.end = address + 1;
  if (is_end_) return {};  // the return address is undefined
  const auto after = std::ranges::upper_bound(stretches_, address - begin, {}, &FrameStretch::begin);
  const std::size_t stretch = static_cast<std::size_t>(after - stretches_.begin()) - 1;
  const FrameState& state = stretches_[stretch].state;
  if (is_tagged_return(address) && (state.stack == Stack::kErlang || state.stack == Stack::kUnknown) &&
      std::ranges::binary_search(returns_, static_cast<std::uint32_t>(address + 1 - begin))) {
    forget_registers(to);
    set_expression(to, kScanFromSp);
    return {};
  }
  if (!row_of(stretch, to)) return fail(ErrorCode::kNotFound, "code of which no way is found", address);
  return {};
}

void Code::for_each_row(sources::RowSink row, sources::ErrorSink) const {
  FrameRow one;
  for (std::size_t i = 0; i < stretches_.size(); ++i)
    if (row_of(i, one)) row(one);
}

}  // namespace windlass::runtimes::beam
