#include "runtimes/mono/rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/registers.h"
#include "runtimes/memory_reader.h"
#include "windlass/jit/describe.h"

namespace windlass::runtimes::mono {
namespace {

// A specific trampoline calls the generic one. Its return address leads to data, and is popped into r11 at once
// (mini/tramp-amd64.c, mono_arch_create_generic_trampoline). The stack is then as the method's caller left it.
constexpr std::uint8_t kPopR11[] = {0x41, 0x5b};

bool pops_first(std::span<const std::byte> code) {
  return code.size() > sizeof kPopR11 && std::memcmp(code.data(), kPopR11, sizeof kPopR11) == 0;
}

FrameRow at_entry(std::uint64_t begin, std::uint64_t end, std::int32_t cfa) {
  FrameRow row;
  row.begin = begin;
  row.end = end;
  row.cfa = CfaRule::at(x86_64::kRsp, cfa);
  row.return_address = RegisterRule::at_cfa(-8);
  return row;
}

bool same_frame(const FrameRow& a, const FrameRow& b) {
  if (a.cfa != b.cfa || a.return_address != b.return_address || a.registers.size() != b.registers.size()) return false;
  for (const RegisterEntry entry : a.registers) {
    const RegisterRule* other = b.registers.find(entry.reg);
    if (other == nullptr || *other != entry.rule) return false;
  }
  return true;
}

// Of a method that has a frame pointer: the one frame that all its code has which counts from there. Exceptions'
// handlers run in it, too, and no way leads to them but through the runtime.
std::optional<FrameRow> frame_of_body(std::span<const FrameRow> rows) {
  std::optional<FrameRow> body;
  for (const FrameRow& row : rows) {
    if (!row.cfa.is_at(x86_64::kRbp)) continue;
    if (body && !same_frame(*body, row)) return std::nullopt;
    body = row;
  }
  return body;
}

Expected<std::vector<FrameRow>> rows_of(std::span<const std::byte> code, std::uint64_t address) {
  auto found = windlass::describe(code, address, Architecture::kX86_64);
  if (!found) return Failure(found.error());
  std::vector<FrameRow>& rows = found->rows;
  if (const auto body = frame_of_body(rows)) {
    const auto reached = static_cast<std::ptrdiff_t>(rows.size());
    for (const Unproved& stretch : found->unproved) {
      if (stretch.reason != Unproved::kNotReached) continue;
      rows.push_back(*body);
      rows.back().begin = stretch.begin;
      rows.back().end = stretch.end;
    }
    std::ranges::inplace_merge(rows, rows.begin() + reached, {}, &FrameRow::begin);
  }
  for (FrameRow& row : rows) {
    row.begin += address;
    row.end += address;
  }
  return std::move(rows);
}

}  // namespace

Code::Code(std::vector<FrameRow> rows, const CodeBlock& block) : DescribedCode(std::move(rows)), block_(block) {
  begin = block.begin;
  end = block.end;
  lasting = false;
}

Expected<std::unique_ptr<Code>> Code::read(const Memory& memory, const CodeBlock& block) {
  std::vector<std::byte> code(block.end - block.begin);
  if (!memory.read(block.begin, code.data(), code.size()))
    return fail(ErrorCode::kUnreadable, "a method's code cannot be read", block.begin);
  const std::size_t skipped = block.is_trampoline && pops_first(code) ? sizeof kPopR11 : 0;
  auto rows = rows_of(std::span(code).subspan(skipped), block.begin + skipped);
  if (!rows) return Failure(rows.error());
  if (skipped != 0) rows->insert(rows->begin(), at_entry(block.begin, block.begin + skipped, 16));
  return std::make_unique<Code>(std::move(*rows), block);
}

}  // namespace windlass::runtimes::mono
