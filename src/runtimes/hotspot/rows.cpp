#include "runtimes/hotspot/rows.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/registers.h"
#include "flow/stack_effect.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes::hotspot {
namespace {

// Codelets that are entered by a method's call, and such as are called by others; the rest runs in a frame.
FrameState codelet_entry(std::string_view description) {
  if (description.find("method entry point") != description.npos) return FrameState::entering_interpreter();
  for (const std::string_view called : {"slow signature handler", "result handlers for native calls"})
    if (description.starts_with(called)) return FrameState::at_entry();
  return FrameState::interpreted();
}

// Static call stubs, by which compiled methods call interpreted ones, stand in front of the handlers.
void add_stubs(const Blob& blob, FlowInput& input) {
  const auto offset = [&](std::uint64_t address) { return static_cast<std::uint32_t>(address - blob.begin); };
  constexpr std::size_t kStub = 15;  // mov rbx, METHOD; jmp
  std::uint64_t end = blob.end;
  for (const std::uint64_t handler : {blob.exception_handler, blob.deopt_handler})
    if (handler != 0) end = std::min(end, handler);
  for (std::uint64_t at = blob.stubs; at != 0 && at + kStub <= end; ++at) {
    const auto code = input.code.subspan(offset(at), kStub);
    if (code[0] == std::byte{0x48} && code[1] == std::byte{0xbb} && code[10] == std::byte{0xe9})
      input.entries[offset(at)] = FrameState::at_entry();
  }
  for (const std::uint64_t handler : {blob.exception_handler, blob.deopt_handler})
    if (handler != 0) input.entries[offset(handler)] = input.body;
}

// Continuation.enterSpecial, in whose frame a virtual thread's stack begins, says so: mov [r15 +
// JavaThread::_cont_entry], rsp (sharedRuntime_x86_64.cpp, fill_continuation_entry). The frames that have been away on
// the heap return there with the rbp of the carrier that they were taken from.
bool enters_continuation(std::span<const std::byte> code, std::uint32_t thread_continuation) {
  constexpr std::uint8_t kStoreSp[] = {0x49, 0x89, 0xa7};
  for (std::size_t at = 0; thread_continuation != 0 && at + 7 <= code.size(); ++at) {
    std::uint32_t field = 0;
    std::memcpy(&field, code.data() + at + sizeof kStoreSp, sizeof field);
    if (std::memcmp(code.data() + at, kStoreSp, sizeof kStoreSp) == 0 && field == thread_continuation) return true;
  }
  return false;
}

// The first of the stubs that bring frames back is called, right below the ContinuationEntry, and pops its return
// address; the others begin by going there.
void add_continuation(const Blob& blob, FlowInput& input) {
  constexpr std::byte kPopRcx{0x59};
  if (!blob.has_thaw_stubs()) return;
  input.thread_continuation = blob.thread_continuation;
  input.continuation = FrameState::in_continuation(blob.continuation_entry);
  if (input.code.empty() || input.code[0] != kPopRcx) return;
  input.entries[0] = FrameState::at_entry();
  input.entries[1] = input.continuation;
}

FlowInput input_of(const Blob& blob, std::span<const std::byte> code) {
  FlowInput input{.code = code, .address = blob.begin, .entries = {}, .body = {}};
  input.callers_are_aligned = blob.is_compiled() || blob.kind == Blob::Kind::kFramed;
  const FrameState entry = FrameState::at_entry();
  const auto frame_bytes = static_cast<std::uint32_t>(blob.frame_bytes);
  switch (blob.kind) {
    case Blob::Kind::kMethod:
    case Blob::Kind::kNative:
      input.body = FrameState::in_body(frame_bytes);
      for (const std::uint64_t at : {blob.begin, blob.entry, blob.verified_entry, blob.osr_entry})
        if (at != 0) input.entries[static_cast<std::uint32_t>(at - blob.begin)] = entry;
      add_stubs(blob, input);
      input.loses_fp = blob.kind == Blob::Kind::kNative && enters_continuation(code, blob.thread_continuation);
      break;
    case Blob::Kind::kCodelet:
      input.entries[0] = codelet_entry(blob.name);
      if (input.entries[0] != entry) input.body = FrameState::interpreted();
      break;
    case Blob::Kind::kFramed:
      input.entries[0] = blob.name == "ExceptionBlob" ? FrameState::throwing() : entry;
      input.body = FrameState::in_body(frame_bytes);
      break;
    case Blob::Kind::kAdapter:
      input.entries[0] = input.body = entry;
      input.is_adapter = true;
      break;
    // They take the last argument off the stack, which the caller does not need back: it keeps its sp
    // (methodHandles_x86.cpp, generate_method_handle_interpreter_entry).
    case Blob::Kind::kLinkers: input.entries[0] = input.body = FrameState::entering_interpreter(); break;
    case Blob::Kind::kOther: add_continuation(blob, input); break;
    case Blob::Kind::kVirtual: break;
  }
  return input;
}

}  // namespace

void mend_entry(std::span<std::byte> code, std::size_t at, std::int32_t frame_bytes) {
  constexpr std::size_t kFirst = 7;  // bytes of the instruction that the jump's five stand on
  constexpr std::byte kPushRbp{0x55}, kNop{0x90};
  if (at > code.size() || code.size() - at < kFirst + 4 || code[at] != std::byte{0xe9}) return;
  const auto part = code.subspan(at);
  const auto put = [&](std::initializer_list<int> bytes, std::int32_t number, std::size_t size) {
    std::byte* to = part.data();
    for (const int byte : bytes) *to++ = std::byte(byte);
    std::memcpy(to, &number, size);
  };
  const bool saves_fp = part[kFirst] == std::byte{0x48} && part[kFirst + 1] == std::byte{0x89};
  if (part[kFirst] == kPushRbp)  // a look at the pages below: mov [rsp - N], eax
    std::fill_n(part.begin(), kFirst, kNop);
  else if (saves_fp)  // sub rsp, N; mov [rsp + M], rbp
    put({0x48, 0x81, 0xec}, frame_bytes, sizeof frame_bytes);
  else if (frame_bytes < 128)  // push rbp; sub rsp, N
    put({0x55, 0x48, 0x83, 0xec}, frame_bytes - 8, 1);
  else
    put({0x55, 0x48, 0x81, 0xec}, frame_bytes - 8, 1);
}

Expected<std::unique_ptr<Code>> Code::read(const Memory& memory, Blob blob, bool null_free) {
  std::vector<std::byte> bytes(blob.end - blob.begin);
  if (!memory.read(blob.begin, bytes.data(), bytes.size()))
    return fail(ErrorCode::kUnreadable, "a method's code cannot be read", blob.begin);
  if (blob.verified_entry != 0) mend_entry(bytes, blob.verified_entry - blob.begin, blob.frame_bytes);
  auto code = std::make_unique<Code>();
  code->begin = blob.begin;
  code->end = blob.end;
  code->lasting = !blob.is_compiled();
  if (blob.kind == Blob::Kind::kVirtual)
    code->stretches_ = {{0, FrameState::at_entry()}};  // data stands between them, and none moves sp
  else if (blob.kind != Blob::Kind::kOther || blob.has_thaw_stubs())
    code->stretches_ = flow(input_of(blob, bytes));
  if (blob.call_return != 0) {
    const std::uint64_t at = blob.call_return - blob.begin;
    code->read_call_stub(ByteView(bytes.data() + at, bytes.size() - at, blob.call_return));
  }
  if (blob.kind == Blob::Kind::kMethod) code->debug_ = DebugInfo::read(memory, blob.debug, null_free);
  const bool has_barriers = blob.thread_continuation != 0 && blob.continuation_entry != 0;
  code->blob_ = std::move(blob);
  if (has_barriers) code->read_return_barriers(ByteView(bytes.data(), bytes.size(), code->begin));
  return code;
}

namespace {

// Of a frame that rbp points into, at one place: behind a call to there, as frames are looked up.
FrameRow row_of_return(std::uint64_t address) {
  FrameRow row;
  row.begin = address - 1;
  row.end = address;
  row.cfa = CfaRule::at(x86_64::kRbp, 16);
  row.return_address = RegisterRule::at_cfa(-8);
  (void)row.registers.set(x86_64::kRbp, RegisterRule::at_cfa(-16));
  return row;
}

}  // namespace

// C++ enters Java here, with a frame of rbp: which registers it gives back, and from where, its end says.
void Code::read_call_stub(ByteView code) {
  FrameRow row = row_of_return(code.origin());
  constexpr std::size_t kLongest = 1024;
  flow::StraightCode line(code, code.origin(), kLongest);
  while (const auto effect = line.next()) {
    if (effect->kind == flow::StackEffect::Kind::kCall) return;
    if (effect->kind == flow::StackEffect::Kind::kReturn) break;
    const std::uint8_t* bytes = code.u8() + line.offset();
    const bool is_load =
        effect->length == 4 && (bytes[0] & 0xfb) == 0x48 && bytes[1] == 0x8b && (bytes[2] & 0xc7) == 0x45;
    const auto reg =
        static_cast<RegisterNumber>((bytes[2] >> 3 & 7) + ((bytes[0] & 4) != 0 ? 8 : 0));  // of mov REG, [rbp + N]
    if (is_load && (reg == x86_64::kRbx || reg >= x86_64::kR12))
      (void)row.registers.set(reg, RegisterRule::at_cfa(static_cast<std::int8_t>(bytes[3]) - 16));
  }
  // rbx and r12 to r15, besides rbp.
  if (!line.failed() && row.registers.size() == 6) returns_.push_back({row});
}

// A mounted virtual thread has its innermost frames on the carrier's stack. The outermost of these frames returns to a
// stub, not behind a call. The stub fetches more frames from the heap. It begins by going back to where the thread was
// entered: mov rsp, [r15 + JavaThread::_cont_entry] (stubGenerator_x86_64.cpp, generate_cont_returnBarrier).
//
// That place is a ContinuationEntry, with the frame of the code that entered above it (sharedRuntime_x86_64.cpp,
// gen_continuation_enter). The outermost frame lies right below, unless it has arguments on the stack
// (continuationFreezeThaw.cpp, ReconstructedStack and patch_sender_sp). rbp says nothing. It is as the method left it
// when its frames were taken away, perhaps from another carrier.
void Code::read_return_barriers(ByteView code) {
  constexpr std::uint8_t kLoadSp[] = {0x49, 0x8b, 0xa7};
  const auto entry = static_cast<std::int32_t>((blob_.continuation_entry + 15) / 16 * 16);
  for (std::size_t at = 0; at + 7 <= code.size(); ++at) {
    std::uint32_t field = 0;
    std::memcpy(&field, code.data() + at + sizeof kLoadSp, sizeof field);
    if (std::memcmp(code.data() + at, kLoadSp, sizeof kLoadSp) != 0 || field != blob_.thread_continuation) continue;
    Return& barrier = returns_.emplace_back(row_of_return(code.origin() + at), true);
    barrier.row.cfa = CfaRule::at(x86_64::kRsp, entry + 16);
  }
}

bool Code::is_return_barrier(std::uint64_t lookup) const {
  return std::ranges::any_of(returns_,
                             [&](const Return& place) { return place.is_barrier && place.row.begin == lookup; });
}

bool Code::may_be_outermost(std::uint64_t address) const {
  if (blob_.kind == Blob::Kind::kOther) return !is_return_barrier(address);
  return blob_.kind == Blob::Kind::kFramed && blob_.name.find("upcall") != std::string::npos;
}

std::size_t Code::bytes() const {
  return sizeof *this + returns_.size() * sizeof(Return) + stretches_.size() * sizeof(FrameStretch) +
         blob_.name.size() + debug_.bytes();
}

bool Code::row_of(std::size_t stretch, FrameRow& to) const {
  to = FrameRow();
  to.begin = begin + stretches_[stretch].begin;
  to.end = stretch + 1 < stretches_.size() ? begin + stretches_[stretch + 1].begin : end;
  return stretches_[stretch].state.row(to);
}

Expected<void> Code::row_at(std::uint64_t address, FrameRow& to) const {
  for (const Return& place : returns_)
    if (address == place.row.begin) {
      to = place.row;
      return {};
    }
  if (contains(address)) {
    const auto after = std::ranges::upper_bound(stretches_, address - begin, {}, &FrameStretch::begin);
    if (after != stretches_.begin() && row_of(static_cast<std::size_t>(after - stretches_.begin()) - 1, to)) return {};
  }
  return fail(ErrorCode::kNotFound, "code of which the runtime says nothing", address);
}

void Code::for_each_row(sources::RowSink row, sources::ErrorSink) const {
  for (const Return& place : returns_) row(place.row);
  FrameRow one;
  for (std::size_t i = 0; i < stretches_.size(); ++i)
    if (row_of(i, one)) row(one);
}

}  // namespace windlass::runtimes::hotspot
