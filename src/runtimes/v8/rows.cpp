#include "runtimes/v8/rows.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "arch/registers.h"
#include "code/stack_effect.h"
#include "runtimes/v8/described.h"

namespace windlass::runtimes::v8 {
namespace {

// Where code that does not set up its frame itself has it: baseline code behind its first call, which does that for it
// (Builtins::Generate_BaselineOutOfLinePrologue), code that goes on with an interpreter's frame (OSR) from the start.
// Nothing: it sets it up.
std::optional<std::size_t> framed_from(ByteView code, std::uint64_t address, bool baseline) {
  using Kind = windlass::code::StackEffect::Kind;
  constexpr std::size_t kFarthest = 256;
  for (std::size_t at = 0; at < std::min(code.size(), kFarthest);) {
    const auto effect = windlass::code::stack_effect(*code.sub(at, code.size() - at), address + at);
    if (!effect || effect->kind == Kind::kJump || effect->kind == Kind::kReturn) break;
    at += effect->length;
    if (effect->kind == Kind::kPush && effect->reg == x86_64::kRbp) return std::nullopt;
    if (effect->kind == Kind::kCall && baseline) return at;
    if (effect->kind != Kind::kNone && effect->kind != Kind::kBranch) break;
  }
  return baseline ? std::nullopt : std::optional<std::size_t>(0);
}

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
  if (description_ != nullptr && address - begin >= front_) {
    const std::uint64_t offset = address - begin - front_;
    const auto after = std::ranges::upper_bound(description_->rows, offset, {}, &FrameRow::begin);
    if (after != description_->rows.begin() && offset < std::prev(after)->end) {
      to = *std::prev(after);
      to.begin += begin + front_;
      to.end += begin + front_;
      return {};
    }
  }
  if (description_ != nullptr && address < begin + front_)  // what is returned to is its first instruction
    return row_at(begin + front_, to);
  // Behind calls that throw and are caught here, and where optimised code is left for good. What was reached and has no
  // row may have taken its frame down.
  if (!frames_ || loses_frame(address))
    return fail(ErrorCode::kNotFound, "nothing is known of this instruction's frame", address);
  to = frame_row(address, address + 1);
  return {};
}

bool Code::loses_frame(std::uint64_t address) const {
  if (description_ == nullptr) return false;
  const std::uint64_t offset = address - begin - front_;
  return std::ranges::any_of(description_->unproved, [&](const Unproved& stretch) {
    return offset >= stretch.begin && offset < stretch.end &&
           (stretch.reason == Unproved::kDifferentFrames || stretch.reason == Unproved::kFrameLost);
  });
}

void Code::for_each_row(source::RowSink row, source::ErrorSink) const {
  if (description_ == nullptr) return;
  for (FrameRow copy : description_->rows) {
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
  return Code::bytes() + (end - begin) / 2 + positions.size() * sizeof(SourcePosition) +
         inlined.size() * sizeof(Inlined) + offsets.size() + bytecodes.size();
}

Expected<std::unique_ptr<CompiledCode>> CompiledCode::read(const Heap& heap, const CodeObject& object) {
  std::vector<std::byte> code(object.end - object.begin);
  if (!heap.memory().read(object.begin, code.data(), code.size()))
    return fail(ErrorCode::kUnreadable, "the code cannot be read", object.begin);
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    return heap.memory().read(address, to, size);
  };
  std::shared_ptr<const Description> description;
  const std::uint32_t baseline = heap.layout().kind_baseline;
  const auto from = object.kind >= baseline
                        ? framed_from({code.data(), code.size()}, object.begin, object.kind == baseline)
                        : std::nullopt;
  auto found = from ? describe_framed(std::move(code), object.begin, *from)
                    : describe_code({code.data(), code.size()}, object.begin, false, read);
  if (found) description = std::make_shared<Description>(std::move(*found));
  return std::unique_ptr<CompiledCode>(new CompiledCode(object, std::move(description)));
}

}  // namespace windlass::runtimes::v8
