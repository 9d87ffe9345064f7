#include "profile/raw_unwinder.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "dwarf/expression.h"
#include "walk/row_finder.h"

namespace windlass::profile {
namespace {

constexpr int kCaller = -1;
constexpr std::uint64_t kMaxFrameSize = 1u << 30;
constexpr unsigned kCalleeSaved[] = {3, 6, 12, 13, 14, 15};  // rbx, rbp, r12..r15 (psABI figure 3.4)

bool read_process(std::uint32_t tgid, std::uint64_t address, void* to, std::size_t size) {
  iovec local{to, size};
  iovec remote{reinterpret_cast<void*>(address), size};
  return process_vm_readv(static_cast<pid_t>(tgid), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
}

}  // namespace

Expected<RawEvent> parse_raw_event(const wl_event_head& head, std::size_t size) {
  if (size < sizeof(wl_raw_event)) return fail(ErrorCode::kTruncated, "raw event too short", 0, size);
  const auto& event = reinterpret_cast<const wl_raw_event&>(head);
  const auto* bytes = reinterpret_cast<const std::byte*>(&event);
  const std::size_t code_at = sizeof event + std::size_t{event.kernel_frames} * 8;
  const std::size_t stack_at = code_at + ((std::size_t{event.code_size} + 7) & ~std::size_t{7});
  if (stack_at > size || event.stack_size > size - stack_at)
    return fail(ErrorCode::kMalformed, "raw event's parts exceed it", stack_at, event.stack_size);
  RawEvent parsed;
  parsed.reason = event.reason;
  parsed.kernel.resize(event.kernel_frames);
  if (!parsed.kernel.empty()) std::memcpy(parsed.kernel.data(), bytes + sizeof event, parsed.kernel.size() * 8);
  RawSample& sample = parsed.sample;
  sample.tgid = head.tgid;
  std::copy(std::begin(event.regs), std::end(event.regs), sample.registers.value);
  sample.registers.valid = (1u << 17) - 1;
  sample.stack_address = event.regs[FrameRegisters::kRsp];
  sample.stack = {bytes + stack_at, event.stack_size};
  sample.code_address = event.regs[FrameRegisters::kPc] - event.code_before;
  sample.code = {bytes + code_at, event.code_size};
  return parsed;
}

struct RawUnwinder::Context {
  const RawSample& sample;
  const MapSet* maps;
  unsigned backward = 0;
  std::unordered_map<std::uint64_t, std::vector<std::byte>> pages;  // of the process's code; empty = unreadable

  [[nodiscard]] CodeKind code_at(std::uint64_t address) const {
    const Mapping* mapping = maps->find(address);
    if (mapping == nullptr) return CodeKind::kNoCode;
    return mapping->anonymous ? CodeKind::kGenerated : CodeKind::kFile;
  }
};

std::uint8_t RawUnwinder::unwind(const RawSample& sample, const MapSet* maps, std::vector<std::uint64_t>& frames) {
  FrameRegisters frame = sample.registers;
  if (maps == nullptr || maps->mappings().empty()) {
    frames.push_back(frame.value[FrameRegisters::kPc] | WL_FRAME_EXACT);
    return WL_END_NO_PROCESS;
  }
  Context context{sample, maps, 0, {}};
  for (std::size_t depth = 0; depth < kMaxFrames; ++depth) {
    const std::uint64_t pc = frame.value[FrameRegisters::kPc];
    if (pc >> 63 != 0) return WL_END_NO_MAPPING;
    frames.push_back(frame.exact ? pc | WL_FRAME_EXACT : pc);
    if (const int end = step(context, frame); end != kCaller) return static_cast<std::uint8_t>(end);
  }
  return WL_END_DEPTH;
}

int RawUnwinder::step(Context& context, FrameRegisters& frame) {
  const std::uint64_t pc = frame.lookup_pc();
  const Mapping* mapping = context.maps->find(pc);
  if (mapping == nullptr) return WL_END_NO_MAPPING;
  CodeFile* file = mapping->anonymous ? nullptr : registry_.find(mapping->module);
  if (file != nullptr) {
    if (walk::RowFinder* rows = registry_.rows(*file)) {
      if (const auto row = rows->find(pc - mapping->bias)) return apply(context, *row, frame);
    }
  }
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    return read_any(context, address, to, size);
  };
  const FrameRegisters before = frame;
  bool certain = false;
  const int end = walk_code(
      frame, read, [&](std::uint64_t address) { return context.code_at(address); }, &certain);
  // Where a program starts (ld.so's _start has no rows) the kernel has cleared all registers, and a frame pointer of 0
  // marks the outermost frame (psABI 3.4.1). Elsewhere 0 may be data.
  constexpr std::uint64_t kStartSize = 64;
  const bool outermost = before.has(FrameRegisters::kRbp) && before.value[FrameRegisters::kRbp] == 0 &&
                         file != nullptr && file->image && pc - mapping->bias - file->image->entry() < kStartSize;
  if (before.exact && end == WL_END_BAD_FRAME_POINTER && outermost) return WL_END_COMPLETE;
  if (before.exact || end == WL_END_COMPLETE) return end;
  // Code that called something has its frame set up. Where the walk and the frame pointer disagree, the walk is
  // believed if it found its return without passing a call and the code has not changed rbp at all (a frameless
  // function).
  FrameRegisters pointed = before;
  const int by_pointer = frame_pointer(context, pointed);
  if (end != kCaller) {
    frame = pointed;
    return by_pointer;
  }
  constexpr unsigned kPc = FrameRegisters::kPc, kRbp = FrameRegisters::kRbp;
  const bool agree = frame.value[kPc] == pointed.value[kPc] && frame.value[kRbp] == pointed.value[kRbp];
  const bool frameless = certain && frame.value[kRbp] == before.value[kRbp];
  if (by_pointer == kCaller && !agree && !frameless) frame = pointed;
  return kCaller;
}

// CFA = rbp + 16, return address at CFA - 8. From a return address only: from an instruction in a prologue it would
// skip a caller and still look right.
int RawUnwinder::frame_pointer(Context& context, FrameRegisters& frame) {
  if (!frame.has(FrameRegisters::kRbp)) return WL_END_BAD_FRAME_POINTER;
  const std::uint64_t fp = frame.value[FrameRegisters::kRbp];
  const std::uint64_t sp = frame.value[FrameRegisters::kRsp];
  if (frame.exact) return WL_END_BAD_FRAME_POINTER;
  if (fp == 0) return WL_END_COMPLETE;
  std::uint64_t pair[2];
  if (fp % 8 != 0 || fp < sp || fp - sp > kMaxFrameSize || !read_stack(context, fp, pair, sizeof pair))
    return WL_END_BAD_FRAME_POINTER;
  if (pair[1] == 0) return WL_END_COMPLETE;
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    return read_any(context, address, to, size);
  };
  if (!is_return_address(pair[1], read, [&](std::uint64_t address) { return context.code_at(address); }))
    return WL_END_BAD_FRAME_POINTER;
  frame.valid = 0;
  frame.set(FrameRegisters::kRbp, pair[0]);
  frame.set(FrameRegisters::kRsp, fp + 16);
  frame.set(FrameRegisters::kPc, pair[1]);
  return kCaller;
}

// ---- memory
// ----------------------------------------------------------------------------------------------------------

bool RawUnwinder::read_stack(const Context& context, std::uint64_t address, void* to, std::size_t size) {
  const RawSample& sample = context.sample;
  const std::uint64_t offset = address - sample.stack_address;
  if (offset > sample.stack.size() || size > sample.stack.size() - offset) return false;
  std::memcpy(to, sample.stack.data() + offset, size);
  return true;
}

// The stack as it was; code from its file, as it was around the pc, or from the process while it lives. Data that may
// have changed since is not read.
bool RawUnwinder::read_any(Context& context, std::uint64_t address, void* to, std::size_t size) {
  if (read_stack(context, address, to, size)) return true;
  const RawSample& sample = context.sample;
  const std::uint64_t offset = address - sample.code_address;
  if (offset <= sample.code.size() && size <= sample.code.size() - offset) {
    std::memcpy(to, sample.code.data() + offset, size);
    return true;
  }
  const Mapping* mapping = context.maps->find(address);
  if (mapping == nullptr) return false;
  if (!mapping->anonymous) {
    if (CodeFile* file = registry_.find(mapping->module); file != nullptr && file->image) {
      if (const auto bytes = file->image->at_address(address - mapping->bias, size)) {
        std::memcpy(to, bytes->data(), size);
        return true;
      }
    }
  }
  constexpr std::uint64_t kPage = 4096;
  constexpr std::size_t kMaxPages = 64;
  for (std::size_t done = 0; done < size;) {
    const std::uint64_t page = (address + done) & ~(kPage - 1);
    auto cached = context.pages.find(page);
    if (cached == context.pages.end()) {
      if (context.pages.size() >= kMaxPages) return false;
      std::vector<std::byte> bytes(kPage);
      if (!read_process(sample.tgid, page, bytes.data(), kPage)) bytes.clear();
      cached = context.pages.emplace(page, std::move(bytes)).first;
    }
    if (cached->second.empty()) return false;
    const std::size_t within = (address + done) - page;
    const std::size_t piece = std::min<std::size_t>(size - done, kPage - within);
    std::memcpy(static_cast<std::byte*>(to) + done, cached->second.data() + within, piece);
    done += piece;
  }
  return true;
}

// ---- a row applied
// -----------------------------------------------------------------------------------------------------

namespace {

// Evaluates rules against one frame; keeps why the last one failed.
class RuleReader {
 public:
  RuleReader(const FrameRegisters& frame, FunctionRef<bool(std::uint64_t, void*, std::size_t)> read)
      : frame_(frame), read_(read) {}

  bool cfa(const CfaRule& rule) {
    if (const auto* plain = std::get_if<CfaRegister>(&rule)) {
      if (!frame_.has(plain->reg)) return failed(WL_END_REGISTER_LOST);
      cfa_ = frame_.value[plain->reg] + static_cast<std::uint64_t>(plain->offset);
      return true;
    }
    return evaluate(std::get<CfaExpression>(rule).expression, false, cfa_);
  }

  bool value(unsigned reg, const RegisterRule& rule, std::uint64_t& to) {
    if (std::holds_alternative<Undefined>(rule)) return failed(WL_END_REGISTER_LOST);
    if (std::holds_alternative<SameValue>(rule)) return copy(reg, to);
    if (const auto* at = std::get_if<AtCfa>(&rule)) {
      const std::uint64_t address = cfa_ + static_cast<std::uint64_t>(at->offset);
      // GCC's epilogues do not say that a register has been popped again: its slot is then below sp, and dead.
      if (address < frame_.value[FrameRegisters::kRsp] && reg < FrameRegisters::kPc && copy(reg, to)) return true;
      return load(address, to);
    }
    if (const auto* is = std::get_if<CfaValue>(&rule)) {
      to = cfa_ + static_cast<std::uint64_t>(is->offset);
      return true;
    }
    if (const auto* in = std::get_if<InRegister>(&rule)) return copy(in->reg, to);
    if (const auto* is = std::get_if<ExpressionValue>(&rule)) return evaluate(is->expression, true, to);
    std::uint64_t address = 0;
    return evaluate(std::get<AtExpression>(rule).expression, true, address) && load(address, to);
  }

  [[nodiscard]] std::uint64_t cfa() const { return cfa_; }
  [[nodiscard]] int end() const { return end_; }

 private:
  bool failed(int end) {
    end_ = end;
    return false;
  }
  bool copy(unsigned reg, std::uint64_t& to) {
    if (!frame_.has(reg)) return failed(WL_END_REGISTER_LOST);
    to = frame_.value[reg];
    return true;
  }
  bool load(std::uint64_t address, std::uint64_t& to) {
    return read_(address, &to, sizeof to) || failed(WL_END_UNREADABLE_STACK);
  }
  bool evaluate(ByteView expression, bool push_cfa, std::uint64_t& to);

  const FrameRegisters& frame_;
  FunctionRef<bool(std::uint64_t, void*, std::size_t)> read_;
  std::uint64_t cfa_ = 0;
  int end_ = WL_END_INTERNAL;
};

bool RuleReader::evaluate(ByteView expression, bool push_cfa, std::uint64_t& to) {
  const auto read_register = [&](std::uint64_t reg) -> Expected<std::uint64_t> {
    if (reg > FrameRegisters::kPc || !frame_.has(static_cast<unsigned>(reg)))
      return fail(ErrorCode::kNotFound, "register is not known in this frame", reg);
    return frame_.value[reg];
  };
  const auto read_memory = [&](std::uint64_t address, unsigned size) -> Expected<std::uint64_t> {
    std::uint64_t value = 0;
    if (size > sizeof value || !read_(address, &value, size))
      return fail(ErrorCode::kUnreadable, "stack is not readable", address, size);
    return value;
  };
  const dwarf::ExpressionTarget target{read_register, read_memory,
                                       push_cfa ? std::optional<std::uint64_t>(cfa_) : std::nullopt, 0};
  const auto value = dwarf::evaluate_expression(expression, target);
  if (!value) {
    return failed(value.error().code == ErrorCode::kUnreadable ? WL_END_UNREADABLE_STACK
                  : value.error().code == ErrorCode::kNotFound ? WL_END_REGISTER_LOST
                                                               : WL_END_UNSUPPORTED_EXPRESSION);
  }
  to = *value;
  return true;
}

}  // namespace

int RawUnwinder::apply(Context& context, const FrameRow& row, FrameRegisters& frame) {
  if (std::holds_alternative<Undefined>(row.return_address)) return WL_END_COMPLETE;
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    return read_stack(context, address, to, size);
  };
  RuleReader rules(frame, read);  // keeps the reference
  if (!rules.cfa(row.cfa)) return rules.end();
  const std::uint64_t sp = frame.value[FrameRegisters::kRsp];
  FrameRegisters caller;
  caller.valid = 0;
  caller.exact = row.signal_frame || std::holds_alternative<InRegister>(row.return_address);  // a jump, not a return
  caller.set(FrameRegisters::kRsp, rules.cfa());
  std::uint64_t value = 0;
  if (!rules.value(FrameRegisters::kPc, row.return_address, value)) return rules.end();
  if (value == 0) return WL_END_COMPLETE;
  caller.set(FrameRegisters::kPc, value);
  for (const unsigned reg : kCalleeSaved)
    if (frame.has(reg)) caller.set(reg, frame.value[reg]);
  for (const RegisterEntry& entry : row.registers) {
    if (entry.reg >= FrameRegisters::kPc) continue;
    if (rules.value(entry.reg, entry.rule, value))
      caller.set(entry.reg, value);
    else
      caller.valid &= ~(1u << entry.reg);  // lost; whoever needs it says so
  }
  const std::uint64_t caller_sp = caller.value[FrameRegisters::kRsp];
  if (!caller.has(FrameRegisters::kRsp)) return WL_END_REGISTER_LOST;
  if (caller_sp <= sp && ++context.backward > kMaxBackward) return WL_END_NO_PROGRESS;
  frame = caller;
  return kCaller;
}

}  // namespace windlass::profile
