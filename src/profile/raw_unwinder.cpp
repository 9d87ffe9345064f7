#include "profile/raw_unwinder.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "arch/registers.h"
#include "walk/apply.h"

namespace windlass::profile {
namespace {

constexpr int kCaller = -1;
constexpr std::uint64_t kMaxFrameSize = 1u << 30;

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
  const std::uint64_t stacks = std::uint64_t{event.stack_size} + event.second_size;
  if (stack_at > size || stacks > size - stack_at)
    return fail(ErrorCode::kMalformed, "raw event's parts exceed it", stack_at, stacks);
  RawEvent parsed;
  parsed.reason = event.reason;
  parsed.kernel.resize(event.kernel_frames);
  if (!parsed.kernel.empty()) std::memcpy(parsed.kernel.data(), bytes + sizeof event, parsed.kernel.size() * 8);
  RawSample& sample = parsed.sample;
  sample.tgid = head.tgid;
  for (unsigned reg = 0; reg < x86_64::kReturnAddress; ++reg)
    sample.registers.set(static_cast<RegisterNumber>(reg), event.regs[reg]);
  sample.registers.set_pc(CodeAddress::instruction(event.regs[x86_64::kReturnAddress]));
  sample.stack_address = event.regs[x86_64::kRsp];
  sample.stack = {bytes + stack_at, event.stack_size};
  sample.second_address = event.second_address;
  sample.second_stack = {bytes + stack_at + event.stack_size, event.second_size};
  sample.code_address = event.regs[x86_64::kReturnAddress] - event.code_before;
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
static_assert(walk::TargetMemory<StackCopy>);

struct RawUnwinder::Context {
  const RawSample& sample;
  const MapSet* maps;
  StackCopy stack{sample};
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
  if (mapping == nullptr) return WL_END_NO_MAPPING;
  CodeFile* file = mapping->anonymous ? nullptr : registry_.find(mapping->module);
  if (file != nullptr) {
    FrameRow row;
    if (registry_.row_at(*file, pc - mapping->bias, row)) return apply(context, row, mapping->bias, frame);
  }
  const bool has_entry = file != nullptr && file->image && file->image->entry() != 0;
  return by_code(context, frame, has_entry ? file->image->entry() + mapping->bias : 0);
}

namespace {

// CFA = rbp + 16, [rbp] = the caller's rbp, return address at CFA - 8.
FrameRow frame_pointer_row() {
  FrameRow row;
  row.cfa = CfaRegister{x86_64::kRbp, 16};
  row.return_address = AtCfa{-8};
  for (const std::uint16_t reg : {3, 12, 13, 14, 15}) (void)row.registers.set(reg, Undefined{});
  (void)row.registers.set(x86_64::kRbp, AtCfa{-16});
  return row;
}

}  // namespace

int RawUnwinder::by_code(Context& context, Registers& frame, std::uint64_t entry_point) {
  const Registers before = frame;
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    return read_any(context, address, to, size);
  };
  const auto kind = [&](std::uint64_t address) { return context.code_at(address); };
  const code::CodeSource* self = nullptr;
  const auto plausible = [&](const FrameRow& row) {
    Registers caller;
    const walk::StepStatus status = walk::apply(row, context.stack, {}, before, caller, nullptr);
    if (status.end == WalkEnd::kComplete) return true;
    if (!status.ok()) return false;
    const std::uint64_t moved = caller.sp() - before.sp();
    return row.signal_frame ||
           (moved % 8 == 0 && moved <= kMaxFrameSize && code::may_be_return_address(*self, caller.pc().value()));
  };
  code::CodeSource source{Architecture::kX86_64, read, kind, plausible};
  source.entry_point = entry_point;
  self = &source;

  const bool exact = !before.pc().is_return_address();
  const auto found = code::synthesize(source, before.pc(), *scratch_);
  if (found && found->outermost) return WL_END_COMPLETE;
  // Where a program starts (ld.so's _start has no rows) the kernel has cleared all registers, and a frame pointer of 0
  // marks the outermost frame (psABI 3.4.1). Elsewhere 0 may be data.
  constexpr std::uint64_t kStartSize = 64;
  const bool no_frame = before.has(x86_64::kRbp) && before.get(x86_64::kRbp) == 0;
  if (exact && !found && no_frame && entry_point != 0 && before.pc().value() - entry_point < kStartSize)
    return WL_END_COMPLETE;
  if (exact) return found ? apply(context, found->row, 0, frame) : WL_END_BAD_FRAME_POINTER;
  // Code that called something has its frame set up. Where its analysis and the frame pointer disagree, the analysis is
  // believed if it found its return without passing a call and the code has not changed rbp at all (a frameless
  // function).
  const FrameRow pointed = frame_pointer_row();
  const bool by_pointer = plausible(pointed);
  if (!found) {
    if (no_frame) return WL_END_COMPLETE;
    return by_pointer ? apply(context, pointed, 0, frame) : WL_END_BAD_FRAME_POINTER;
  }
  const bool frameless =
      found->certainty == code::Certainty::kCertain && found->row.registers.find(x86_64::kRbp) == nullptr;
  return apply(context, by_pointer && !frameless ? pointed : found->row, 0, frame);
}

int RawUnwinder::apply(Context& context, const FrameRow& row, std::uint64_t bias, Registers& frame) {
  Registers caller;
  const walk::StepStatus status = walk::apply(row, context.stack, {.bias = bias}, frame, caller, nullptr);
  switch (status.end) {
    case WalkEnd::kRunning: break;
    case WalkEnd::kComplete: return WL_END_COMPLETE;
    case WalkEnd::kUnreadable: return WL_END_UNREADABLE_STACK;
    case WalkEnd::kLost: return WL_END_REGISTER_LOST;
    default: return WL_END_UNSUPPORTED_EXPRESSION;
  }
  if (!caller.has_sp()) return WL_END_REGISTER_LOST;
  if (caller.sp() <= frame.sp() && ++context.backward > kMaxBackward) return WL_END_NO_PROGRESS;
  frame = caller;
  return kCaller;
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

}  // namespace windlass::profile
