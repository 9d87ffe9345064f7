#include "agent/raw_unwinder.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <unordered_map>

#include "arch/aarch64_signal_frame.h"
#include "arch/registers.h"
#include "walk/unwinders.h"

namespace windlass::agent {
namespace {

constexpr int kCaller = -1;
constexpr std::uint64_t kMaxFrameSize = 1u << 30;
constexpr std::int32_t kRecordSize = 16;  // frame pointer and return address

// The lowest that the caller's sp can be: behind the frame record that led to it, if it is not known.
std::uint64_t lowest_sp(const Registers& frame, const Registers& caller) {
  return caller.has_sp() ? caller.sp() : frame.get(Registers::fp_number(frame.architecture())) + kRecordSize;
}

bool read_process(std::uint32_t tgid, std::uint64_t address, void* to, std::size_t size) {
  iovec local{to, size};
  iovec remote{reinterpret_cast<void*>(address), size};
  return process_vm_readv(static_cast<pid_t>(tgid), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
}

}  // namespace

namespace {

// The registers of an event, by wl_machine: so many by DWARF number, then the pc.
struct RawMachine {
  Architecture architecture;
  unsigned registers;
};
constexpr RawMachine kMachines[] = {{Architecture::kX86_64, 16}, {Architecture::kAArch64, 32}};
static_assert(WL_MACHINE_X86_64 == 0 && WL_MACHINE_AARCH64 == 1);

Registers registers_of(const wl_raw_event& event, const RawMachine& machine) {
  Registers registers(machine.architecture);
  for (unsigned reg = 0; reg < machine.registers; ++reg)
    registers.set(static_cast<RegisterNumber>(reg), event.regs[reg]);
  registers.set_pc(CodeAddress::instruction(event.regs[machine.registers]));
  return registers;
}

}  // namespace

Expected<RawEvent> parse_raw_event(const wl_event_head& head, std::size_t size) {
  if (size < sizeof(wl_raw_event)) return fail(ErrorCode::kTruncated, "raw event too short", 0, size);
  const auto& event = reinterpret_cast<const wl_raw_event&>(head);
  if (event.machine >= std::size(kMachines))
    return fail(ErrorCode::kUnsupported, "raw event of an unknown machine", offsetof(wl_raw_event, machine),
                event.machine);
  const auto* bytes = reinterpret_cast<const std::byte*>(&event);
  const std::size_t code_at = sizeof event + std::size_t{event.kernel_frames} * 8;
  const std::size_t stack_at = code_at + ((std::size_t{event.code_size} + 7) & ~std::size_t{7});
  const std::uint64_t stacks = std::uint64_t{event.stack_size} + event.second_size;
  if (stack_at > size || stacks > size - stack_at)
    return fail(ErrorCode::kMalformed, "raw event's parts exceed it", stack_at, stacks);
  RawEvent parsed;
  parsed.reason = event.reason;
  parsed.kernel.resize(event.kernel_frames);
  if (!parsed.kernel.empty()) std::memcpy(parsed.kernel.data(), bytes + sizeof event, parsed.kernel.size() * 8);
  RawSample& sample = parsed.sample;
  sample.tgid = head.tgid;
  sample.registers = registers_of(event, kMachines[event.machine]);
  sample.stack_address = sample.registers.sp();
  sample.stack = {bytes + stack_at, event.stack_size};
  sample.second_address = event.second_address;
  sample.second_stack = {bytes + stack_at + event.stack_size, event.second_size};
  sample.code_address = sample.registers.pc().value() - event.code_before;
  sample.code = {bytes + code_at, event.code_size};
  return parsed;
}

bool copy_from(std::span<const std::byte> bytes, std::uint64_t begin, std::uint64_t address, void* to,
               std::size_t size) {
  const std::uint64_t offset = address - begin;
  if (offset > bytes.size() || size > bytes.size() - offset) return false;
  std::memcpy(to, bytes.data() + offset, size);
  return true;
}

// The copies of the thread's stacks: all that rows may read.
struct StackCopy {
  const RawSample& sample;
  bool read(std::uint64_t address, void* to, std::size_t size) const {
    return copy_from(sample.stack, sample.stack_address, address, to, size) ||
           copy_from(sample.second_stack, sample.second_address, address, to, size);
  }
};
static_assert(TargetMemory<StackCopy>);

struct RawUnwinder::Context {
  const RawSample& sample;
  const MapSet* maps;
  StackCopy stack{sample};
  // The lowest that sp can be in the frame at hand: sp itself, but for AArch64's frame records, which do not tell it.
  std::uint64_t lowest = sample.registers.sp();
  unsigned backward = 0;
  std::unordered_map<std::uint64_t, std::vector<std::byte>> pages;  // of the process's code; empty = unreadable

  [[nodiscard]] code::CodeKind code_at(std::uint64_t address) const {
    const Mapping* mapping = maps->find(address);
    if (mapping == nullptr) return code::CodeKind::kNoCode;
    return mapping->anonymous ? code::CodeKind::kGenerated : code::CodeKind::kFile;
  }
};

std::uint8_t RawUnwinder::unwind(const RawSample& sample, const MapSet* maps, std::vector<std::uint64_t>& frames) {
  Registers frame = sample.registers;
  if (maps == nullptr || maps->mappings().empty()) {
    frames.push_back(frame.pc().value() | WL_FRAME_EXACT);
    return WL_END_NO_PROCESS;
  }
  Context context{.sample = sample, .maps = maps, .pages = {}};
  if (returns_from_signal(context, frame)) frame.set_pc(CodeAddress::instruction(frame.pc().value() - 4));
  for (std::size_t depth = 0; depth < kMaxFrames; ++depth) {
    const CodeAddress pc = frame.pc();
    if (pc.value() >> 63 != 0) return WL_END_NO_MAPPING;
    frames.push_back(pc.is_return_address() ? pc.value() : pc.value() | WL_FRAME_EXACT);
    if (const int end = step(context, frame); end != kCaller) return static_cast<std::uint8_t>(end);
  }
  return WL_END_DEPTH;
}

int RawUnwinder::step(Context& context, Registers& frame) {
  const std::uint64_t pc = frame.pc().lookup();
  const Mapping* mapping = context.maps->find(pc);
  CodeFile* mapped = mapping != nullptr ? registry_.find(mapping->module) : nullptr;
  if (mapped != nullptr && mapped->foreign_to(frame.architecture())) return WL_END_OTHER_MACHINE;
  CodeFile* file = mapping != nullptr && !mapping->anonymous ? mapped : nullptr;
  FrameRow row;
  const bool has_row = file != nullptr && registry_.row_at(*file, pc - mapping->bias, row);
  if (!has_row || row.signal_frame) {
    // Also where nothing is mapped: a handler returns to the first instruction, which may be its mapping's first.
    if (const auto end = by_signal_trampoline(context, frame)) return *end;
  }
  if (mapping == nullptr) return WL_END_NO_MAPPING;
  if (has_row) return by_row(context, row, mapping->bias, frame);
  const bool has_entry = file != nullptr && file->image && file->image->entry() != 0;
  return by_code(context, frame, has_entry ? file->image->entry() + mapping->bias : 0);
}

template <typename Use>
auto RawUnwinder::with_code(Context& context, const Registers& frame, std::uint64_t entry_point, Use&& use) {
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    return read_any(context, address, to, size);
  };
  const auto kind = [&](std::uint64_t address) { return context.code_at(address); };
  const code::CodeSource* self = nullptr;
  const auto plausible = [&](const FrameRow& row) {
    Registers caller;
    const walk::StepStatus status = find_caller(context, row, 0, frame, caller);
    if (status.end == WalkEnd::kComplete) return true;
    if (!status.ok()) return false;
    const std::uint64_t moved = lowest_sp(frame, caller) - context.lowest;
    return row.signal_frame ||
           (moved % 8 == 0 && moved <= kMaxFrameSize && code::may_be_return_address(*self, caller.pc().value()));
  };
  code::CodeSource source{frame.architecture(), read, kind, plausible};
  source.entry_point = entry_point;
  self = &source;
  return use(source);
}

// ---- rows -----------------------------------------------------------------------------------------------------------

// Is the thread in rt_sigreturn, which nothing follows? Its pc stands behind the system call then: at whatever code
// comes next.
bool RawUnwinder::returns_from_signal(Context& context, const Registers& frame) {
  constexpr RegisterNumber kX8 = 8;
  const auto read_code = [&](std::uint64_t address, void* to, std::size_t size) {
    return read_any(context, address, to, size);
  };
  return frame.architecture() == Architecture::kAArch64 && frame.get(kX8) == aarch64::kRtSigreturn &&
         aarch64::at_signal_return(read_code, frame.pc().value() - 4) &&
         !aarch64::at_signal_return(read_code, frame.pc().value());
}

// AArch64's way back from a signal handler, known by its instructions: the kernel's vdso has a row that leads past the
// interrupted one, musl's restorer has none.
std::optional<int> RawUnwinder::by_signal_trampoline(Context& context, Registers& frame) {
  if (frame.architecture() != Architecture::kAArch64 || !frame.has_sp()) return std::nullopt;
  const auto read_code = [&](std::uint64_t address, void* to, std::size_t size) {
    return read_any(context, address, to, size);
  };
  const auto read_stack = [&](std::uint64_t address, void* to, std::size_t size) {
    return context.stack.read(address, to, size);
  };
  if (!aarch64::at_signal_return(read_code, frame.pc().value())) return std::nullopt;
  FrameRow row;
  aarch64::signal_frame_row(frame.pc().value(), aarch64::has_vector_record(read_stack, frame.sp()), row);
  return apply(context, row, 0, frame);
}

namespace {

// Where sp is not known. A function that saves x29 and x30 side by side makes a frame record of them and keeps x29 at
// it (AAPCS64 6.4.6): CFA = x29 - the record's offset.
bool from_frame_record(FrameRow& row) {
  const RegisterRule* fp = row.registers.find(aarch64::kX29);
  const RegisterRule& pc = row.return_address;
  if (!row.cfa.is_at(aarch64::kSp) || fp == nullptr || !fp->is(RegisterRule::kAtCfa) || !pc.is(RegisterRule::kAtCfa) ||
      pc.offset() != std::int64_t{fp->offset()} + 8 || !fits_row(-std::int64_t{fp->offset()}))
    return false;
  row.cfa = CfaRule::at(aarch64::kX29, -fp->offset());
  return true;
}

}  // namespace

int RawUnwinder::by_row(Context& context, FrameRow& row, std::uint64_t bias, Registers& frame) {
  if (walk::return_address_outside(row)) {
    const auto right = with_code(context, frame, 0, [&](const code::CodeSource& source) {
      return code::contradicts(row, source, frame.pc(), *scratch_);
    });
    if (right) return apply(context, *right, 0, frame);
  }
  if (frame.architecture() == Architecture::kAArch64 && !frame.has_sp() && from_frame_record(row)) {
    const bool is_caller =
        with_code(context, frame, 0, [&](const code::CodeSource& source) { return source.plausible(row); });
    if (!is_caller) return WL_END_REGISTER_LOST;
  }
  return apply(context, row, bias, frame);
}

walk::StepStatus RawUnwinder::find_caller(const Context& context, const FrameRow& row, std::uint64_t bias,
                                          const Registers& frame, Registers& caller) const {
  const walk::StepStatus status = walk::apply(row, context.stack, {.bias = bias}, frame, caller, nullptr);
  if (!status.ok()) return status;
  const CodeAddress pc = caller.pc();
  const std::uint64_t plain = pc.value() & code_mask_;
  caller.set_pc(pc.is_return_address() ? CodeAddress::return_address(plain) : CodeAddress::instruction(plain));
  return status;
}

int RawUnwinder::apply(Context& context, const FrameRow& row, std::uint64_t bias, Registers& frame) const {
  Registers caller;
  const walk::StepStatus status = find_caller(context, row, bias, frame, caller);
  switch (status.end) {
    case WalkEnd::kRunning: break;
    case WalkEnd::kComplete: return WL_END_COMPLETE;
    case WalkEnd::kUnreadable: return WL_END_UNREADABLE_STACK;
    case WalkEnd::kLost: return WL_END_REGISTER_LOST;
    default: return WL_END_UNSUPPORTED_EXPRESSION;
  }
  const std::uint64_t lowest = lowest_sp(frame, caller);
  if (lowest <= context.lowest && ++context.backward > kMaxBackward) return WL_END_NO_PROGRESS;
  context.lowest = lowest;
  frame = caller;
  return kCaller;
}

// ---- code without rows ----------------------------------------------------------------------------------------------

namespace {

// CFA = fp + 16, [fp] = the caller's frame pointer, return address at CFA - 8 (x86-64: rbp as functions set it up;
// AArch64: AAPCS64 6.4.6). Registers that the function may have saved are lost, and AArch64's sp too: the record may
// lie anywhere in the frame.
FrameRow frame_pointer_row(Architecture architecture) {
  const RegisterNumber fp = Registers::fp_number(architecture);
  FrameRow row;
  row.cfa = CfaRule::at(fp, kRecordSize);
  row.return_address = RegisterRule::at_cfa(8 - kRecordSize);
  for (unsigned slot = 0; slot < Registers::kSlots; ++slot) {
    const RegisterNumber reg = Registers::number_of(slot);
    if (reg != fp && is_callee_saved(architecture, reg)) (void)row.registers.set(reg, RegisterRule::undefined());
  }
  if (architecture == Architecture::kAArch64) (void)row.registers.set(aarch64::kSp, RegisterRule::undefined());
  (void)row.registers.set(fp, RegisterRule::at_cfa(-kRecordSize));
  return row;
}

}  // namespace

int RawUnwinder::by_code(Context& context, Registers& frame, std::uint64_t entry_point) {
  return with_code(context, frame, entry_point, [&](const code::CodeSource& source) -> int {
    const RegisterNumber fp = Registers::fp_number(frame.architecture());
    const bool exact = !frame.pc().is_return_address();
    const auto found = frame.has_sp() ? code::synthesize(source, frame.pc(), *scratch_)
                                      : fail(ErrorCode::kNotFound, "sp is not known", frame.pc().value());
    if (found && found->outermost) return WL_END_COMPLETE;
    // Where a program starts (ld.so's _start has no rows) the kernel has cleared all registers, and a frame pointer of
    // 0 marks the outermost frame (psABI 3.4.1, AAPCS64 6.4.6). Elsewhere 0 may be data.
    constexpr std::uint64_t kStartSize = 80;
    const bool no_frame = frame.has(fp) && frame.get(fp) == 0;
    if (exact && !found && no_frame && entry_point != 0 && frame.pc().value() - entry_point < kStartSize)
      return WL_END_COMPLETE;
    if (exact) return found ? apply(context, found->row, 0, frame) : WL_END_BAD_FRAME_POINTER;
    // Code that called something has its frame set up. Where its analysis and the frame pointer disagree, the analysis
    // is believed if it found its return without passing a call and the code has not changed the frame pointer at all
    // (a frameless function). Where they agree and only the analysis tells sp (AArch64), too.
    const FrameRow pointed = frame_pointer_row(frame.architecture());
    const bool by_pointer = source.plausible(pointed);
    if (!found) {
      if (no_frame) return WL_END_COMPLETE;
      return by_pointer ? apply(context, pointed, 0, frame) : WL_END_BAD_FRAME_POINTER;
    }
    const bool frameless = found->certainty == code::Certainty::kCertain && found->row.registers.find(fp) == nullptr;
    const bool tells_more = by_pointer && tells_only(context, found->row, pointed, frame);
    return apply(context, by_pointer && !frameless && !tells_more ? pointed : found->row, 0, frame);
  });
}

// Do both rows lead to the same return address, and `other` does not say where sp is then?
bool RawUnwinder::tells_only(const Context& context, const FrameRow& row, const FrameRow& other,
                             const Registers& frame) const {
  Registers caller, other_caller;
  return find_caller(context, row, 0, frame, caller).ok() && find_caller(context, other, 0, frame, other_caller).ok() &&
         caller.has_sp() && !other_caller.has_sp() && caller.pc() == other_caller.pc();
}

// ---- memory
// ----------------------------------------------------------------------------------------------------------

// The stack as it was; code from its file, as it was around the pc, or from the process while it lives. Data that may
// have changed since is not read.
bool RawUnwinder::read_any(Context& context, std::uint64_t address, void* to, std::size_t size) {
  if (context.stack.read(address, to, size)) return true;
  const RawSample& sample = context.sample;
  if (copy_from(sample.code, sample.code_address, address, to, size)) return true;
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
  constexpr std::uint64_t kPage = 4096;  // the smallest there is
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

}  // namespace windlass::agent
