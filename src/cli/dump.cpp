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
    out_.text("{\"format\":\"dwarf\",\"section\":\"");
    out_.text(section_.name);
    out_.text("\",\"offset\":");
    out_.decimal(fde.offset);
    out_.text(",\"begin\":");
    out_.decimal(fde.begin);
    out_.text(",\"end\":");
    out_.decimal(fde.end);
    out_.text(",\"cie\":");
    out_.decimal(fde.cie->offset);
    out_.text(fde.cie->signal_frame ? ",\"signal\":true,\"lsda\":" : ",\"signal\":false,\"lsda\":");
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
    out_.hex(cie.offset);
    out_.text(" CIE version ");
    out_.decimal(std::uint64_t{cie.version});
    out_.text(" augmentation ");
    out_.json_string(cie.augmentation);
    out_.text(" code alignment ");
    out_.decimal(cie.code_alignment);
    out_.text(" data alignment ");
    out_.decimal(cie.data_alignment);
    out_.text(" return address ");
    name(cie.return_address_register);
    if (cie.signal_frame) out_.text(" signal frame");
    if (cie.personality) pointer(" personality ", *cie.personality);
    out_.character('\n');
    lines(cie, cie.instructions, 0);
  }

  void text(const dwarf::Fde& fde) {
    out_.hex(fde.offset);
    out_.text(" FDE ");
    out_.hex(fde.begin);
    out_.text("..");
    out_.hex(fde.end);
    out_.text(" cie ");
    out_.hex(fde.cie->offset);
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
    out_.text("  DW_CFA_");
    out_.text(instruction.name);
    if (instruction.has_register) {
      out_.character(' ');
      name(instruction.reg);
    }
    if (instruction.has_source) {
      out_.text(" in ");
      name(instruction.source);
    }
    if (instruction.has_offset) {
      out_.character(' ');
      out_.signed_decimal(instruction.offset);
    }
    if (instruction.has_location) {
      out_.text(" +");
      out_.decimal(instruction.delta);
      out_.text(" to ");
      out_.hex(instruction.location);
    }
    if (instruction.has_expression) {
      out_.text(" (");
      expression(instruction.expression);
      out_.character(')');
    }
    out_.character('\n');
  }

  void json(const dwarf::CfaInstruction& instruction) {
    out_.text("{\"op\":\"");
    out_.text(instruction.name);
    out_.character('"');
    if (instruction.has_register) {
      out_.text(",\"reg\":\"");
      name(instruction.reg);
      out_.character('"');
    }
    if (instruction.has_source) {
      out_.text(",\"source\":\"");
      name(instruction.source);
      out_.character('"');
    }
    if (instruction.has_offset) {
      out_.text(",\"offset\":");
      out_.decimal(instruction.offset);
    }
    if (instruction.has_location) {
      out_.text(",\"delta\":");
      out_.decimal(instruction.delta);
      out_.text(",\"location\":");
      out_.decimal(instruction.location);
    }
    if (instruction.has_expression) {
      out_.text(",\"expr\":\"");
      expression(instruction.expression);
      out_.character('"');
    }
    out_.character('}');
  }

  void name(std::uint64_t reg) {
    const std::string_view known = register_name(section_.architecture, reg);
    if (!known.empty()) {
      out_.text(known);
    } else {
      out_.character('r');
      out_.decimal(reg);
    }
  }

  void pointer(std::string_view label, const dwarf::EncodedPointer& pointer) {
    out_.text(label);
    if (pointer.indirect) out_.character('*');
    out_.hex(pointer.value);
  }

  void expression(ByteView bytes) {
    scratch_.clear();
    dwarf::append_expression_text(scratch_, bytes, section_.architecture);
    out_.text(scratch_);
  }

  const dwarf::CfiSection& section_;
  TextWriter& out_;
  dwarf::ErrorSink report_;
  std::string scratch_;
};

void dump_section(const dwarf::CfiSection& section, TextWriter& out, dwarf::ErrorSink report, bool json) {
  DwarfPrinter printer(section, out, report);
  if (!json) {
    out.text(section.name);
    out.text(" at file offset ");
    out.hex(section.bytes.origin());
    out.text(":\n");
  }
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

// What is stored is printed by who knows the format.
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

// What Microsoft's dumpbin prints of PE images of x64. Of ARM64 it disassembles what the codes stand for and what is
// there, side by side, in the syntax of Microsoft's assembler; that is not written here.
class DumpbinDumper final : public sources::FormatVisitor {
 public:
  DumpbinDumper(TextWriter& out, sources::ErrorSink report) : out_(out), report_(report) {}
  void winx64(const sources::UnwindSource&, const winx64::Functions& functions) override {
    dump_winx64(functions, out_, report_, DumpForm::kDumpbin);
  }
  void winarm64(const sources::UnwindSource&, const winarm64::Functions&) override {
    report_(Error{ErrorCode::kUnsupported, "ARM64 images are not printed in dumpbin's form: leave --dumpbin out"});
  }
  void rows(const sources::UnwindSource&) override {
    report_(Error{ErrorCode::kUnsupported, "dumpbin's form is that of PE images of x64: leave --dumpbin out"});
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
  command->add_option("FILE", options->file, "An ELF or PE file")->required();
  command->callback([options, dumpbin, &status] { status = list_file(*options, *dumpbin ? dump_as_dumpbin : dump); });
}

}  // namespace windlass::cli
