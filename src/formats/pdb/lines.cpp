#include "formats/pdb/lines.h"

#include <algorithm>

#include "formats/pdb/subsections.h"

namespace windlass::pdb {

ModuleLines::ModuleLines(ByteView subsections) {
  each_subsection(subsections, [&](std::uint32_t kind, ByteView bytes) {
    if (kind == kLines) add_lines(bytes);
    if (kind == kInlineeLines) add_inlinees(bytes);
    if (kind == kFileChecksums) files_ = bytes;
  });
  std::ranges::stable_sort(runs_, {}, &Run::begin);
  std::ranges::stable_sort(inlinees_, {}, &Inlinee::id);
}

void ModuleLines::add_lines(ByteView bytes) {
  const auto header = bytes.at<LinesHeader>(0);
  if (!header) return;
  runs_.push_back({{header->section, header->offset},
                   header->size,
                   (header->flags & kHasColumns) != 0,
                   *bytes.sub(sizeof(LinesHeader), bytes.size() - sizeof(LinesHeader))});
}

void ModuleLines::add_inlinees(ByteView bytes) {
  ByteCursor cursor(bytes);
  const auto signature = cursor.read<std::uint32_t>();
  if (!signature || *signature > 1) return;
  const bool has_more_files = *signature == 1;
  while (cursor.remaining() >= 12) {
    const std::uint32_t id = cursor.read<std::uint32_t>().value_or(0);
    const auto line = cursor.read<SourceLine>();
    inlinees_.push_back({id, *line});
    if (!has_more_files) continue;
    const auto count = cursor.read<std::uint32_t>();
    if (!count || !cursor.bytes(std::uint64_t{*count} * 4)) return;
  }
}

std::optional<SourceLine> ModuleLines::at(SectionOffset place, Tie tie) const {
  const auto after = std::ranges::upper_bound(runs_, place, {}, &Run::begin);
  if (after == runs_.begin()) return std::nullopt;
  const Run& run = *std::prev(after);
  const std::uint32_t offset = place.offset - run.begin.offset;
  if (run.begin.section != place.section || offset >= run.size) return std::nullopt;
  // Each file has a block, and the lines of a block ascend. The line of a place may be in any block.
  std::optional<SourceLine> best;
  std::uint32_t best_offset = 0;
  for (ByteCursor cursor(run.blocks); const auto block = cursor.read<LineBlock>();) {
    const auto lines = cursor.bytes(std::uint64_t{block->count} * sizeof(LineRecord));
    if (!lines) break;
    if (run.has_columns && !cursor.bytes(std::uint64_t{block->count} * 4)) break;
    for (std::uint64_t i = 0; const auto line = lines->at<LineRecord>(i); i += sizeof(LineRecord)) {
      if (line->offset > offset) break;
      if (best && (line->offset < best_offset || (line->offset == best_offset && tie == Tie::kFirst))) continue;
      best = {block->file, line->line_and_flags & kLineMask};
      best_offset = line->offset;
    }
  }
  if (best && (best->line == kNeverStep || best->line == kAlwaysStep || best->line == 0)) return std::nullopt;
  return best;
}

void ModuleLines::each_place(FunctionRef<void(SectionOffset)> add) const {
  for (const Run& run : runs_) {
    const auto add_offset = [&](std::uint32_t offset) { add({run.begin.section, run.begin.offset + offset}); };
    add_offset(0);
    add_offset(run.size);
    for (ByteCursor cursor(run.blocks); const auto block = cursor.read<LineBlock>();) {
      const auto lines = cursor.bytes(std::uint64_t{block->count} * sizeof(LineRecord));
      if (!lines || (run.has_columns && !cursor.bytes(std::uint64_t{block->count} * 4))) break;
      for (std::uint64_t i = 0; const auto line = lines->at<LineRecord>(i); i += sizeof(LineRecord))
        add_offset(line->offset);
    }
  }
}

std::optional<SourceLine> ModuleLines::of_inlinee(std::uint32_t id) const {
  const auto found = std::ranges::lower_bound(inlinees_, id, {}, &Inlinee::id);
  return found != inlinees_.end() && found->id == id ? std::optional(found->line) : std::nullopt;
}

std::optional<std::uint32_t> ModuleLines::path_of(std::uint32_t file) const {
  const auto path = files_.at<std::uint32_t>(file);
  return path ? std::optional(*path) : std::nullopt;
}

}  // namespace windlass::pdb
