#include "lookup/table/small_gaps.h"

#include <algorithm>
#include <cstring>

#include "flow/stack_effect.h"
#include "formats/image/unwind_sections.h"
#include "lookup/table/compile_pe.h"
#include "lookup/table/project.h"

namespace windlass::table {
namespace {

constexpr std::uint32_t kMostFollowed = 1 << 16;  // instructions

// Of the instruction at the front of `code`; 0: none stands there.
std::size_t instruction_length(ByteView code, std::uint64_t address, Architecture architecture) {
  if (architecture == Architecture::kAArch64) return 4;
  const auto effect = flow::stack_effect(code, address, architecture);
  return effect ? effect->length : 0;
}

}  // namespace

SmallGaps::~SmallGaps() {
  if (scratch_ != nullptr) flow::free_scratch(scratch_);
}

void SmallGaps::look_at(TableBuilder::SmallGap& gap) {
  const Architecture architecture = image::architecture_of(image_.machine());
  const auto code = image_.at_address(gap.begin, gap.end - gap.begin);
  if (!code) return;
  ByteView rest = *code;
  TraceRule rule = gap.rule;
  while (padding_size(rest, architecture == Architecture::kAArch64) != rest.size()) {
    const std::uint64_t address = gap.end - rest.size();
    const std::size_t length = instruction_length(rest, address, architecture);
    if (length == 0 || length > rest.size() || !leads_on(address, gap.rule)) {
      gap.rule = TraceRule{};
      return;
    }
    rule.proof = WL_PROOF_CODE;
    rest = *rest.sub(length, rest.size() - length);
  }
  gap.rule = rule;
}

// Does the code at an address certainly return as `rule` says?
bool SmallGaps::leads_on(std::uint64_t address, const TraceRule& rule) {
  if (scratch_ == nullptr) {
    scratch_ = flow::make_scratch();
    flow::budget_of(*scratch_) = flow::Budget(kMostFollowed);
  }
  const auto read = [this](std::uint64_t at, void* to, std::size_t size) {
    const auto bytes = image_.at_address(at, size);
    if (bytes) std::memcpy(to, bytes->data(), size);
    return bytes.has_value();
  };
  const auto kind = [this](std::uint64_t at) {
    const bool is_code =
        std::ranges::any_of(executable_, [at](const AddressRange& range) { return range.contains(at); });
    return is_code ? flow::CodeKind::kFile : flow::CodeKind::kNoCode;
  };
  const auto any = [](const FrameRow&) { return true; };
  const Architecture architecture = image::architecture_of(image_.machine());
  const flow::CodeSource source{.architecture = architecture, .read = read, .kind = kind, .plausible = any};
  const auto found = flow::synthesize(source, CodeAddress::instruction(address), *scratch_);
  if (!found || found->start != flow::Start::kNone || found->by_jump || found->certainty != flow::Certainty::kCertain)
    return false;
  TraceRule by_code = project(found->row, architecture, x_reg_);
  by_code.proof = rule.proof;
  return PackedRule::of(by_code) == PackedRule::of(rule);
}

}  // namespace windlass::table
