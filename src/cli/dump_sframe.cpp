#include "cli/dump_sframe.h"

#include <string>

#include <fmt/format.h>

#include "base/registers.h"
#include "cli/put.h"

namespace windlass::cli {
namespace {

class SFramePrinter {
 public:
  SFramePrinter(const sframe::Section& section, TextWriter& out) : section_(section), out_(out) {}

  void text(const sframe::Function& function) {
    put(out_, Hex{function.record}, " FDE ", Hex{function.begin}, "..", Hex{function.end});
    if (function.flexible) out_.text(" flexible");
    if (function.signal_frame) out_.text(" signal frame");
    if (function.b_key) out_.text(" b key");
    if (function.block != 0) put(out_, " repeats every ", function.block);
    out_.character('\n');
  }

  void text(const sframe::StoredRow& row) {
    put(out_, "  +", Hex{row.start});
    if (row.outermost) out_.text(" no caller");
    labelled(" cfa=", row.cfa);
    labelled(" ra=", row.return_address);
    labelled(" fp=", row.frame_pointer);
    if (row.is_signed) out_.text(" return address signed");
    out_.character('\n');
  }

  void json(const sframe::Function& function) {
    put(out_, "{\"format\":\"sframe\",\"section\":\".sframe\",\"offset\":", function.record);
    put(out_, ",\"begin\":", function.begin, ",\"end\":", function.end, ",\"signal\":", function.signal_frame);
    put(out_, ",\"flexible\":", function.flexible, ",\"repeats\":", function.block, ",\"rows\":[");
  }

  void json(const sframe::StoredRow& row) {
    put(out_, "{\"start\":", row.start);
    member(",\"cfa\":", row.cfa);
    member(",\"ra\":", row.return_address);
    member(",\"fp\":", row.frame_pointer);
    out_.text(row.outermost ? ",\"outermost\":true}" : row.is_signed ? ",\"signed\":true}" : "}");
  }

 private:
  void labelled(std::string_view label, const sframe::Place& place) {
    if (place.said()) put(out_, label, text_of(place));
  }
  void member(std::string_view key, const sframe::Place& place) {
    if (place.said()) put(out_, key, '"', text_of(place), '"');
  }
  [[nodiscard]] std::string text_of(const sframe::Place& place) const {
    const std::string base = place.from_register() ? register_text(section_.architecture(), place.reg()) : "cfa";
    const std::string sum = fmt::format("{}{:+}", base, place.offset);
    return place.loaded() ? "[" + sum + "]" : sum;
  }

  const sframe::Section& section_;
  TextWriter& out_;
};

}  // namespace

void dump_sframe(const sframe::Section& section, TextWriter& out, sframe::ErrorSink report, bool json) {
  SFramePrinter printer(section, out);
  if (!json)
    put(out, ".sframe at file offset ", Hex{section.bytes().origin()}, ", version ", section.header().version, ":\n");
  const auto each = [&](const sframe::Function& function) {
    bool first = true;
    json ? printer.json(function) : printer.text(function);
    const auto row = [&](const sframe::StoredRow& stored) {
      if (json && !first) out.character(',');
      first = false;
      json ? printer.json(stored) : printer.text(stored);
    };
    const auto done = section.for_each_stored(function, row);
    if (json) out.text("]}\n");
    if (!done) report(done.error());
    return !out.closed();
  };
  section.for_each_function(each, report);
}

}  // namespace windlass::cli
