// Everything a section holds, for tests.
#pragma once

#include <string>
#include <vector>

#include "formats/dwarf/lower.h"
#include "support/cfi_builder.h"

namespace windlass::test {

struct Listing {
  std::vector<dwarf::Fde> fdes;  // without their CIE, which dies with the reader
  std::vector<FrameRow> rows;
  std::vector<Error> errors;

  [[nodiscard]] std::vector<std::string> error_texts() const {
    std::vector<std::string> out;
    for (const Error& error : errors) out.emplace_back(error.what);
    return out;
  }
};

inline Listing list(const dwarf::CfiSection& section) {
  Listing out;
  const auto report = [&](const Error& error) { out.errors.push_back(error); };
  dwarf::CfiReader reader(section, report);
  dwarf::RowEvaluator evaluator(section);
  for (dwarf::Fde fde; reader.next_fde(fde);) {
    out.fdes.push_back(fde);
    out.fdes.back().cie = nullptr;
    const auto done = evaluator.for_each_row(fde, [&](const FrameRow& row) { out.rows.push_back(row); });
    if (!done) report(done.error());
  }
  return out;
}

}  // namespace windlass::test
