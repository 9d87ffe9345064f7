#include "runtimes/v8/rows.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "base/registers.h"
#include "flow/stack_effect.h"
#include "runtimes/v8/described.h"

namespace windlass::runtimes::v8 {
namespace {

// The offset from which code has a frame that other code has made. Baseline code and Liftoff's code have it behind
// their first call (Builtins::Generate_BaselineOutOfLinePrologue, Generate_WasmLiftoffFrameSetup). Code that goes on
// with an interpreter's frame (OSR) has it from the start. Nothing: the code makes its frame itself. V8 10 leaves code
// that is not valid any more by a jump in front of the frame, which a branch skips.
std::optional<std::size_t> framed_from(ByteView code, std::uint64_t address, bool by_call) {
  using Kind = windlass::flow::StackEffect::Kind;
  constexpr std::size_t kFarthest = 256;
  windlass::flow::StraightCode line(code, address, kFarthest);
  std::uint64_t branched_to = 0;
  while (const auto effect = line.next()) {
    if (effect->kind == Kind::kPush && effect->reg == x86_64::kRbp) return std::nullopt;
    if (effect->kind == Kind::kCall && by_call) return line.end();
    if (effect->kind == Kind::kBranch) branched_to = effect->target;
    const bool is_skipped = effect->kind == Kind::kJump && branched_to == address + line.end();
    if (effect->kind != Kind::kNone && effect->kind != Kind::kBranch && !is_skipped) break;
  }
  return by_call ? std::nullopt : std::optional<std::size_t>(0);
}

// Where the calls end that code makes out of its frame. Code ends at what cannot be decoded: tables.
std::vector<std::uint32_t> calls_of(ByteView code, std::uint64_t address, std::optional<std::size_t> framed_from) {
  using Kind = windlass::flow::StackEffect::Kind;
  constexpr std::array kMove = {std::byte{0x48}, std::byte{0x89}, std::byte{0xe5}};  // mov rbp, rsp
  std::vector<std::uint32_t> calls;
  windlass::flow::StraightCode line(code, address, code.size(), framed_from.value_or(0));
  bool framed = framed_from.has_value(), pushed = false;
  while (const auto effect = line.next()) {
    if (framed && effect->kind == Kind::kCall) calls.push_back(static_cast<std::uint32_t>(line.end()));
    framed |= pushed && std::ranges::equal(std::span(code.data() + line.offset(), effect->length), kMove);
    pushed = effect->kind == Kind::kPush && effect->reg == x86_64::kRbp;
  }
  return calls;
}

// Kinds up to this one are builtins and stubs (code-kind.h), which may stand in no frame.
constexpr std::uint32_t kLastOfOthers = 2;

bool is_frame_row(const FrameRow& row) { return row.cfa == CfaRule::at(x86_64::kRbp, 16); }

}  // namespace

Code::Code(std::uint64_t at, std::uint64_t size, std::shared_ptr<const Description> description, bool frames,
           std::uint32_t front)
    : description_(std::move(description)), frames_(frames), front_(front) {
  begin = at;
  end = at + size;
  lasting = false;
}

Expected<void> Code::row_at(std::uint64_t address, FrameRow& to) const {
  const Description* const known = description();
  if (known != nullptr && address - begin >= front_) {
    const std::uint64_t offset = address - begin - front_;
    const auto after = std::ranges::upper_bound(known->rows, offset, {}, &FrameRow::begin);
    if (after != known->rows.begin() && offset < std::prev(after)->end) {
      to = *std::prev(after);
      to.begin += begin + front_;
      to.end += begin + front_;
      return {};
    }
  }
  if (known != nullptr && address < begin + front_)  // what is returned to is its first instruction
    return row_at(begin + front_, to);
  // Behind calls that throw and are caught here, and where optimised code is left for good. What was reached and has no
  // row may have taken its frame down.
  if (!frames_ || loses_frame(address))
    return fail(ErrorCode::kNotFound, "nothing is known of this instruction's frame", address);
  to = frame_row(address, address + 1);
  return {};
}

bool Code::loses_frame(std::uint64_t address) const {
  const Description* const known = description();
  if (known == nullptr) return false;
  const std::uint64_t offset = address - begin - front_;
  return std::ranges::any_of(known->unproved, [&](const Unproved& stretch) {
    return offset >= stretch.begin && offset < stretch.end &&
           (stretch.reason == Unproved::kDifferentFrames || stretch.reason == Unproved::kFrameLost);
  });
}

void Code::for_each_row(sources::RowSink row, sources::ErrorSink) const {
  const Description* const known = description();
  if (known == nullptr) return;
  for (FrameRow copy : known->rows) {
    copy.begin += begin + front_;
    copy.end += begin + front_;
    row(copy);
  }
}

std::size_t Code::bytes() const { return sizeof(CompiledCode); }

bool Code::has_frame(std::uint64_t address) const {
  FrameRow row;
  return row_at(address, row) && is_frame_row(row);
}

std::size_t CompiledCode::bytes() const {
  return Code::bytes() + (end - begin) * 3 / 2 + positions.size() * sizeof(SourcePosition) +
         inlined.size() * sizeof(Inlined) + offsets.size() + bytecodes.size();
}

namespace {

Expected<std::vector<std::byte>> read_code(const Memory& memory, std::uint64_t begin, std::uint64_t end) {
  std::vector<std::byte> code(end - begin);
  if (!memory.read(begin, code.data(), code.size()))
    return fail(ErrorCode::kUnreadable, "the code cannot be read", begin);
  return code;
}

// `from`: where it stands in its frame.
using ReadMemory = std::function<bool(std::uint64_t, void*, std::size_t)>;
std::shared_ptr<const Description> described(std::vector<std::byte> code, std::uint64_t address,
                                             std::optional<std::size_t> from, const ReadMemory& read = {}) {
  auto found = from ? describe_framed(std::move(code), address, *from)
                    : describe_code({code.data(), code.size()}, address, false, read);
  return found ? std::make_shared<Description>(std::move(*found)) : nullptr;
}

}  // namespace

CompiledCode::CompiledCode(const CodeObject& object, std::vector<std::byte> code, bool is_function, bool is_baseline)
    : Code(object.begin, object.end - object.begin, nullptr, object.kind > kLastOfOthers),
      object_(object),
      is_function_(is_function),
      code_(std::move(code)) {
  if (!is_function) return;
  const ByteView bytes(code_.data(), code_.size());
  framed_from_ = framed_from(bytes, object.begin, is_baseline);
  calls_ = calls_of(bytes, object.begin, framed_from_);
}

Expected<std::unique_ptr<CompiledCode>> CompiledCode::read(const Heap& heap, const CodeObject& object) {
  auto code = read_code(heap.memory(), object.begin, object.end);
  if (!code) return Failure(code.error());
  const std::uint32_t baseline = heap.layout().kind_baseline;
  return std::unique_ptr<CompiledCode>(
      new CompiledCode(object, std::move(*code), object.kind >= baseline, object.kind == baseline));
}

const Description* CompiledCode::description() const {
  std::call_once(followed_, [&] { described_ = described(std::exchange(code_, {}), begin, framed_from_); });
  return described_.get();
}

// No instruction begins at the last byte of a call. So what is looked up there is a frame that has called.
Expected<void> CompiledCode::row_at(std::uint64_t address, FrameRow& to) const {
  if (!std::ranges::binary_search(calls_, address + 1 - begin)) return Code::row_at(address, to);
  to = frame_row(address, address + 1);
  return {};
}

// A frame that has called is no reason to follow the instructions.
void CompiledCode::for_each_ready_row(bool interrupted, sources::RowSink row) const {
  for (const std::uint32_t call : calls_) row(frame_row(begin + call - 1, begin + call));
  if (interrupted) for_each_row(row, [](const Error&) {});
}

Expected<std::unique_ptr<WasmCode>> WasmCode::read(const Memory& memory, const WasmObject& object) {
  auto code = read_code(memory, object.begin, object.end);
  if (!code) return Failure(code.error());
  if (object.index == WasmObject::kNone)
    if (auto jumps = WasmJumps::read(object, {code->data(), code->size()})) return jumps;
  const auto from = framed_from({code->data(), code->size()}, object.begin, true);
  const auto read_more = [&](std::uint64_t at, void* to, std::size_t size) { return memory.read(at, to, size); };
  auto found =
      std::unique_ptr<WasmCode>(new WasmCode(object, described(std::move(*code), object.begin, from, read_more)));
  if (object.index == WasmObject::kNone) found->name = kToJavaScript;
  return found;
}

std::unique_ptr<WasmJumps> WasmJumps::read(const WasmObject& object, ByteView code) {
  using Kind = windlass::flow::StackEffect::Kind;
  std::uint32_t push = 0;
  windlass::flow::StraightCode line(code, object.begin, code.size());
  auto effect = line.next();
  if (effect && effect->kind == Kind::kMove && effect->delta == -8) {
    push = effect->length;
    effect = line.next();
  }
  if (!effect || effect->kind != Kind::kJump) return nullptr;
  auto found = std::unique_ptr<WasmJumps>(new WasmJumps(object, push, push + effect->length));
  found->name = "[WebAssembly jump table]";
  return found;
}

Expected<void> WasmJumps::row_at(std::uint64_t address, FrameRow& to) const {
  const bool pushed = push_ != 0 && (address - begin) % slot_ >= push_;
  to = entry_row(address, address + 1, pushed ? 8 : 0);
  return {};
}

void WasmJumps::for_each_row(sources::RowSink row, sources::ErrorSink) const {
  if (push_ == 0) return (void)row(entry_row(begin, end));
  for (std::uint64_t at = begin; at + slot_ <= end; at += slot_) {
    row(entry_row(at, at + push_));
    row(entry_row(at + push_, at + slot_, 8));
  }
}

}  // namespace windlass::runtimes::v8
