// windlass dump: the unwind information as it is stored.
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "base/registers.h"
#include "base/text_writer.h"
#include "cli/commands.h"
#include "cli/dump_sframe.h"
#include "cli/dump_winarm64.h"
#include "cli/dump_winx64.h"
#include "cli/input.h"
#include "cli/put.h"
#include "cli/rows.h"
#include "formats/dwarf/expression.h"
#include "formats/dwarf/instructions.h"
#include "formats/image/unwind_sections.h"

namespace windlass::cli {
namespace {

class DwarfPrinter {
 public:
  DwarfPrinter(const dwarf::CfiSection& section, TextWriter& out, dwarf::ErrorSink report)
      : section_(section), out_(out), report_(report) {}

  void json(const dwarf::Fde& fde) {
    put(out_, "{\"format\":\"dwarf\",\"section\":\"", section_.name, "\",\"offset\":", fde.offset);
    put(out_, ",\"begin\":", fde.begin, ",\"end\":", fde.end, ",\"cie\":", fde.cie->offset);
    put(out_, ",\"signal\":", fde.cie->signal_frame, ",\"lsda\":");
    if (fde.lsda)
      out_.decimal(fde.lsda->value);
    else
      out_.text("null");
    out_.text(",\"instructions\":[");
    bool first = true;
    const auto error = each(*fde.cie, fde.instructions, fde.begin, [&](const dwarf::CfaInstruction& instruction) {
      if (!first) out_.character(',');
      first = false;
      json(instruction);
    });
    out_.text("]}\n");
    if (!error) report_(error.error());
  }

  void text(const dwarf::Cie& cie) {
    put(out_, Hex{cie.offset}, " CIE version ", cie.version, " augmentation ", JsonString{cie.augmentation});
    put(out_, " code alignment ", cie.code_alignment, " data alignment ", cie.data_alignment);
    put(out_, " return address ", name(cie.return_address_register));
    if (cie.signal_frame) out_.text(" signal frame");
    if (cie.personality) pointer(" personality ", *cie.personality);
    out_.character('\n');
    lines(cie, cie.instructions, 0);
  }

  void text(const dwarf::Fde& fde) {
    put(out_, Hex{fde.offset}, " FDE ", Hex{fde.begin}, "..", Hex{fde.end}, " cie ", Hex{fde.cie->offset});
    if (fde.lsda) pointer(" lsda ", *fde.lsda);
    out_.character('\n');
    lines(*fde.cie, fde.instructions, fde.begin);
  }

 private:
  template <typename Callback>
  Expected<void> each(const dwarf::Cie& cie, ByteView program, std::uint64_t location, Callback&& callback) {
    dwarf::CfaInstructionReader reader(section_, cie, program, location);
    while (!reader.at_end()) {
      const auto instruction = reader.next();
      if (!instruction) return Failure(instruction.error());
      if (instruction->opcode != dwarf::DW_CFA_nop) callback(*instruction);  // padding
    }
    return {};
  }

  void lines(const dwarf::Cie& cie, ByteView program, std::uint64_t location) {
    const auto error = each(cie, program, location, [&](const dwarf::CfaInstruction& i) { line(i); });
    if (!error) report_(error.error());
  }

  void line(const dwarf::CfaInstruction& instruction) {
    put(out_, "  DW_CFA_", instruction.name);
    if (instruction.has_register) put(out_, ' ', name(instruction.reg));
    if (instruction.has_source) put(out_, " in ", name(instruction.source));
    if (instruction.has_offset) put(out_, ' ', Signed{instruction.offset});
    if (instruction.has_location) put(out_, " +", instruction.delta, " to ", Hex{instruction.location});
    if (instruction.has_expression) put(out_, " (", expression(instruction.expression), ')');
    out_.character('\n');
  }

  void json(const dwarf::CfaInstruction& instruction) {
    put(out_, "{\"op\":\"", instruction.name, '"');
    if (instruction.has_register) put(out_, ",\"reg\":\"", name(instruction.reg), '"');
    if (instruction.has_source) put(out_, ",\"source\":\"", name(instruction.source), '"');
    if (instruction.has_offset) put(out_, ",\"offset\":", instruction.offset);
    if (instruction.has_location) put(out_, ",\"delta\":", instruction.delta, ",\"location\":", instruction.location);
    if (instruction.has_expression) put(out_, ",\"expr\":\"", expression(instruction.expression), '"');
    out_.character('}');
  }

  void pointer(std::string_view label, const dwarf::EncodedPointer& pointer) {
    put(out_, label, pointer.indirect ? "*" : "", Hex{pointer.value});
  }

  [[nodiscard]] std::string name(std::uint64_t reg) const { return register_text(section_.architecture, reg); }

  // Valid until the next call.
  std::string_view expression(ByteView bytes) {
    scratch_.clear();
    dwarf::append_expression_text(scratch_, bytes, section_.architecture);
    return scratch_;
  }

  const dwarf::CfiSection& section_;
  TextWriter& out_;
  dwarf::ErrorSink report_;
  std::string scratch_;
};

void dump_section(const dwarf::CfiSection& section, TextWriter& out, dwarf::ErrorSink report, bool json) {
  DwarfPrinter printer(section, out, report);
  if (!json) put(out, section.name, " at file offset ", Hex{section.bytes.origin()}, ":\n");
  dwarf::CfiReader reader(section, report);
  for (dwarf::CfiReader::Entry entry; !out.closed() && reader.next(entry);) {
    if (json) {
      if (entry.cie == nullptr) printer.json(entry.fde);
    } else if (entry.cie != nullptr) {
      printer.text(*entry.cie);
    } else {
      printer.text(entry.fde);
    }
  }
}

// Each format's own dumper prints the stored form.
class Dumper final : public sources::FormatVisitor {
 public:
  Dumper(TextWriter& out, sources::ErrorSink report, bool json) : out_(out), report_(report), json_(json) {}

  void elf(const sources::UnwindSource&, const image::ElfImage& image) override {
    const auto found = image::find_unwind_sections(image, report_);
    for (dwarf::CfiSection section : found.sections) {
      section.text = {};  // as they are stored
      if (!out_.closed()) dump_section(section, out_, report_, json_);
    }
    listed_ = !found.sections.empty();
    const auto simple = image::find_sframe(image);
    if (simple && !out_.closed()) dump_sframe(*simple, out_, report_, json_);
    if (!simple && simple.error().code != ErrorCode::kNotFound) report_(simple.error());
    listed_ = listed_ || simple;
  }
  void winx64(const sources::UnwindSource&, const winx64::Functions& functions) override {
    listed_ = functions.size() != 0;
    if (listed_) dump_winx64(functions, out_, report_, json_ ? DumpForm::kJson : DumpForm::kText);
  }
  void winarm64(const sources::UnwindSource&, const winarm64::Functions& functions) override {
    listed_ = functions.size() != 0;
    if (listed_) dump_winarm64(functions, out_, report_, json_);
  }
  void rows(const sources::UnwindSource& source) override { listed_ = list_rows(source, out_, report_, json_); }

  [[nodiscard]] bool listed() const { return listed_; }

 private:
  TextWriter& out_;
  sources::ErrorSink report_;
  bool json_;
  bool listed_ = false;
};

// Prints PE images of x64 as Microsoft's dumpbin does. Images of ARM64 are refused: dumpbin disassembles both the
// instructions of the codes and those of the function, side by side, in the syntax of Microsoft's assembler.
class DumpbinDumper final : public sources::FormatVisitor {
 public:
  DumpbinDumper(TextWriter& out, sources::ErrorSink report) : out_(out), report_(report) {}
  void winx64(const sources::UnwindSource&, const winx64::Functions& functions) override {
    dump_winx64(functions, out_, report_, DumpForm::kDumpbin);
  }
  void winarm64(const sources::UnwindSource&, const winarm64::Functions&) override {
    report_(
        Error{ErrorCode::kUnsupported, "ARM64 images are not printed in dumpbin's form. Way out: leave --dumpbin out"});
  }
  void rows(const sources::UnwindSource&) override {
    report_(Error{ErrorCode::kUnsupported, "dumpbin's form is that of PE images of x64. Way out: leave --dumpbin out"});
  }

 private:
  TextWriter& out_;
  sources::ErrorSink report_;
};

bool dump_as_dumpbin(const sources::UnwindSource& source, TextWriter& out, sources::ErrorSink report, bool) {
  DumpbinDumper dumper(out, report);
  source.accept(dumper);
  return true;
}

bool dump(const sources::UnwindSource& source, TextWriter& out, sources::ErrorSink report, bool json) {
  Dumper dumper(out, report, json);
  source.accept(dumper);
  return dumper.listed();
}

}  // namespace

void register_dump(CLI::App& app, int& status) {
  auto options = std::make_shared<ListingOptions>();
  auto dumpbin = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("dump", "The unwind information of a file as stored, one record a function");
  CLI::Option* json = command->add_flag("--json", options->json, "One JSON object a line");
  command->add_flag("--dumpbin", *dumpbin, "As `dumpbin /unwindinfo` prints it (PE of x64 only)")->excludes(json);
  command->add_option("FILE", options->file, "An ELF or PE file")->required()->type_name("FILE");
  command->callback([options, dumpbin, &status] {
    options->ranges = !*dumpbin;
    options->errors_apart = *dumpbin;
    status = list_file(*options, *dumpbin ? dump_as_dumpbin : dump);
  });
}

}  // namespace windlass::cli
