#include "runtimes/v8/rows.h"

#include <algorithm>
#include <utility>

#include "arch/registers.h"

namespace windlass::runtimes::v8 {
namespace {

// In its frame: what V8's compilers make calls from nowhere else.
FrameRow frame_row(std::uint64_t begin, std::uint64_t end) {
  FrameRow row;
  row.begin = begin;
  row.end = end;
  row.cfa = CfaRule::at(x86_64::kRbp, 16);
  row.return_address = RegisterRule::at_cfa(-8);
  (void)row.registers.set(x86_64::kRbp, RegisterRule::at_cfa(-16));
  for (const RegisterNumber lost : {RegisterNumber{x86_64::kRbx}, RegisterNumber{12}, RegisterNumber{13},
                                    RegisterNumber{14}, RegisterNumber{15}})
    (void)row.registers.set(lost, RegisterRule::undefined());
  return row;
}

bool is_frame_row(const FrameRow& row) { return row.cfa == CfaRule::at(x86_64::kRbp, 16); }

}  // namespace

Code::Code(std::uint64_t at, std::uint64_t size, std::shared_ptr<const Description> description, bool frames)
    : description_(std::move(description)), frames_(frames) {
  begin = at;
  end = at + size;
  lasting = false;
}

Expected<void> Code::row_at(std::uint64_t address, FrameRow& to) const {
  const std::uint64_t offset = address - begin;
  if (description_ != nullptr) {
    const auto after = std::ranges::upper_bound(description_->rows, offset, {}, &FrameRow::begin);
    if (after != description_->rows.begin() && offset < std::prev(after)->end) {
      to = *std::prev(after);
      to.begin += begin;
      to.end += begin;
      return {};
    }
  }
  // Behind calls that throw and are caught here, and where optimised code is left for good.
  if (!frames_) return fail(ErrorCode::kNotFound, "nothing is known of this instruction's frame", address);
  to = frame_row(address, address + 1);
  return {};
}

void Code::for_each_row(source::RowSink row, source::ErrorSink) const {
  if (description_ == nullptr) return;
  for (FrameRow copy : description_->rows) {
    copy.begin += begin;
    copy.end += begin;
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
  if (auto found = describe_code({code.data(), code.size()}, object.begin, false, read))
    description = std::make_shared<Description>(std::move(*found));
  return std::unique_ptr<CompiledCode>(new CompiledCode(object, std::move(description)));
}

}  // namespace windlass::runtimes::v8
