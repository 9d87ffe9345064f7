#include "cli/dump_sframe.h"

#include "base/registers.h"

namespace windlass::cli {
namespace {

class SFramePrinter {
 public:
  SFramePrinter(const sframe::Section& section, TextWriter& out) : section_(section), out_(out) {}

  void text(const sframe::Function& function) {
    out_.hex(function.record);
    out_.text(" FDE ");
    out_.hex(function.begin);
    out_.text("..");
    out_.hex(function.end);
    if (function.flexible) out_.text(" flexible");
    if (function.signal_frame) out_.text(" signal frame");
    if (function.b_key) out_.text(" b key");
    if (function.block != 0) {
      out_.text(" repeats every ");
      out_.decimal(std::uint64_t{function.block});
    }
    out_.character('\n');
  }

  void text(const sframe::StoredRow& row) {
    out_.text("  +");
    out_.hex(row.start);
    if (row.outermost) out_.text(" no caller");
    labelled(" cfa=", row.cfa);
    labelled(" ra=", row.return_address);
    labelled(" fp=", row.frame_pointer);
    if (row.is_signed) out_.text(" return address signed");
    out_.character('\n');
  }

  void json(const sframe::Function& function) {
    out_.text("{\"format\":\"sframe\",\"section\":\".sframe\",\"offset\":");
    out_.decimal(function.record);
    out_.text(",\"begin\":");
    out_.decimal(function.begin);
    out_.text(",\"end\":");
    out_.decimal(function.end);
    out_.text(function.signal_frame ? ",\"signal\":true" : ",\"signal\":false");
    out_.text(function.flexible ? ",\"flexible\":true,\"repeats\":" : ",\"flexible\":false,\"repeats\":");
    out_.decimal(std::uint64_t{function.block});
    out_.text(",\"rows\":[");
  }

  void json(const sframe::StoredRow& row) {
    out_.text("{\"start\":");
    out_.decimal(std::uint64_t{row.start});
    member(",\"cfa\":", row.cfa);
    member(",\"ra\":", row.return_address);
    member(",\"fp\":", row.frame_pointer);
    out_.text(row.outermost ? ",\"outermost\":true}" : row.is_signed ? ",\"signed\":true}" : "}");
  }

 private:
  void labelled(std::string_view label, const sframe::Place& place) {
    if (!place.said()) return;
    out_.text(label);
    print(place);
  }
  void member(std::string_view key, const sframe::Place& place) {
    if (!place.said()) return;
    out_.text(key);
    out_.character('"');
    print(place);
    out_.character('"');
  }
  void print(const sframe::Place& place) {
    if (place.loaded()) out_.character('[');
    if (place.from_register())
      out_.text(register_text(section_.architecture(), place.reg()));
    else
      out_.text("cfa");
    out_.signed_decimal(place.offset);
    if (place.loaded()) out_.character(']');
  }

  const sframe::Section& section_;
  TextWriter& out_;
};

}  // namespace

void dump_sframe(const sframe::Section& section, TextWriter& out, sframe::ErrorSink report, bool json) {
  SFramePrinter printer(section, out);
  if (!json) {
    out.text(".sframe at file offset ");
    out.hex(section.bytes().origin());
    out.text(", version ");
    out.decimal(std::uint64_t{section.header().version});
    out.text(":\n");
  }
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
