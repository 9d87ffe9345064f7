// The rows that a function's DWARF is read as, once it is written.
#pragma once

#include <vector>

#include "formats/dwarf/lower.h"
#include "windlass/format/dwarf.h"

namespace windlass::test {

// By offset from the function's begin; none where it cannot be written or read. Rules that are expressions refer to
// bytes that are gone.
inline std::vector<FrameRow> written_frames(const Prologue& prologue) {
  constexpr std::uint64_t kAddress = 0x100000;
  std::vector<FrameRow> rows;
  const auto report = [](const Error&) {};
  dwarf::Writer writer({.architecture = prologue.architecture, .address = kAddress});
  if (!writer.add(prologue, {.personality = prologue.handler ? kAddress : 0})) return rows;
  const dwarf::Written written = std::move(writer).take();
  dwarf::CfiSection section;
  section.bytes = ByteView(written.bytes.data(), written.bytes.size());
  section.address = kAddress;
  section.architecture = prologue.architecture;
  section.stop_at_terminator = true;
  dwarf::CfiReader reader(section, report);
  for (dwarf::Fde fde; reader.next_fde(fde);) {
    if (!dwarf::for_each_row(section, fde, [&](const FrameRow& row) { rows.push_back(row); })) rows.clear();
  }
  return rows;
}

}  // namespace windlass::test
