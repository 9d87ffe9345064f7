#include "cli/dump_winarm64.h"

#include "formats/winarm64/dump.h"

namespace windlass::cli {
namespace {

using winarm64::EntryKind;
using winarm64::Operation;
using winarm64::PackedFields;
using winarm64::RuntimeFunction;
using winarm64::UnwindCode;
using winarm64::UnwindRecord;

class Arm64Printer {
 public:
  Arm64Printer(const image::PeImage& image, TextWriter& out, dwarf::ErrorSink report, bool json)
      : image_(image), out_(out), report_(report), json_(json) {}

  void entry(RuntimeFunction function) {
    if (function.kind() == EntryKind::kParent) {
      parent(function);
      return;
    }
    const auto record = winarm64::read_record(image_, function, expansion_);
    if (!record) {
      report_(record.error());
      return;
    }
    json_ ? json(function, *record) : text(function, *record);
    winarm64::check_record(*record, report_);
  }

 private:
  // ---- JSON
  void field(std::string_view name, std::uint64_t value) {
    out_.text(name);
    out_.decimal(value);
  }
  void flag(std::string_view name, bool value) {
    out_.text(name);
    out_.text(value ? "true" : "false");
  }

  void head(RuntimeFunction function) { field("{\"format\":\"winarm64\",\"begin\":", function.begin); }

  void parent(RuntimeFunction function) {
    const auto parent = winarm64::parent_of(image_, function);
    if (!parent) {
      report_(parent.error());
      return;
    }
    if (json_) {
      head(function);
      field(",\"packed\":false,\"flag\":3,\"parent\":", function.target());
      field(",\"parent_begin\":", parent->begin);
      out_.text("}\n");
      return;
    }
    out_.hex(function.begin);
    out_.text(" unwinds as the entry at ");
    out_.hex(function.target());
    out_.text(", function ");
    out_.hex(parent->begin);
    out_.character('\n');
  }

  void json(RuntimeFunction function, const UnwindRecord& record) {
    head(function);
    field(",\"length\":", record.length);
    flag(",\"packed\":", function.packed());
    field(",\"flag\":", function.data & 3);
    if (function.packed()) {
      const PackedFields fields = winarm64::packed_fields(function);
      field(",\"reg_f\":", fields.reg_f);
      field(",\"reg_i\":", fields.reg_i);
      field(",\"h\":", fields.h ? 1 : 0);
      field(",\"cr\":", fields.cr);
      field(",\"frame_size\":", fields.frame_size);
    } else {
      field(",\"info\":", record.rva);
      field(",\"version\":", record.version);
      flag(",\"single_epilog\":", record.single_epilogue);
    }
    out_.text(",\"codes\":[");
    bool first = true;
    winarm64::CodeSet(record).each([&](std::uint64_t index, const Expected<UnwindCode>& code) {
      if (!code) return;  // check_record says so
      if (!first) out_.character(',');
      first = false;
      json(index, *code);
    });
    out_.text("],\"epilogs\":[");
    first = true;
    each_epilogue(record, [&](std::uint32_t start, std::uint32_t index) {
      field(first ? "{\"start\":" : ",{\"start\":", start);
      field(",\"index\":", index);
      out_.character('}');
      first = false;
    });
    if (record.has_handler) {
      field("],\"handler\":", record.handler);
      field(",\"handler_data\":", record.handler_data);
      out_.text("}\n");
    } else {
      out_.text("],\"handler\":null}\n");
    }
  }

  void json(std::uint64_t index, const UnwindCode& code) {
    field("{\"index\":", index);
    out_.text(",\"op\":\"");
    out_.text(winarm64::operation_name(code.operation));
    out_.character('"');
    if (code.saves()) {
      field(",\"reg\":", code.reg);
      if (code.operation == Operation::kSaveAnyReg) {
        constexpr std::string_view kFiles[] = {"", "x", "d", "q", "z", "p"};
        out_.text(",\"file\":\"");
        out_.text(kFiles[static_cast<unsigned>(code.file)]);
        flag("\",\"pair\":", code.pair);
        flag(",\"writeback\":", code.writeback);
      }
      out_.text(",\"disp\":");
      out_.decimal(code.writeback ? -std::int64_t{code.value} : std::int64_t{code.value});
    } else if (code.operation == Operation::kAddFp) {
      field(",\"disp\":", code.value);
    } else if (allocates(code.operation)) {
      field(",\"size\":", code.value);
    }
    out_.character('}');
  }

  [[nodiscard]] static bool allocates(Operation operation) {
    return operation == Operation::kAllocS || operation == Operation::kAllocM || operation == Operation::kAllocL ||
           operation == Operation::kAllocZ;
  }

  template <typename Callback>
  static void each_epilogue(const UnwindRecord& record, Callback&& callback) {
    if (record.single_epilogue) {
      const std::uint64_t size =
          std::uint64_t{winarm64::count_instructions(record.codes, record.epilogue_index)} * 4 + 4;
      if (size <= record.length) callback(static_cast<std::uint32_t>(record.length - size), record.epilogue_index);
    }
    for (std::uint32_t i = 0; i < record.scope_count(); ++i) {
      const winarm64::EpilogueScope scope = record.scope(i);
      callback(scope.start, scope.index);
    }
  }

  // ---- text
  void text(RuntimeFunction function, const UnwindRecord& record) {
    out_.hex(function.begin);
    out_.text("..");
    out_.hex(std::uint64_t{function.begin} + record.length);
    if (function.packed()) {
      const PackedFields fields = winarm64::packed_fields(function);
      field(function.kind() == EntryKind::kPacked ? " packed cr " : " packed fragment cr ", fields.cr);
      field(" h ", fields.h ? 1 : 0);
      field(" reg_i ", fields.reg_i);
      field(" reg_f ", fields.reg_f);
      field(" frame ", fields.frame_size);
    } else {
      out_.text(" record ");
      out_.hex(record.rva);
    }
    if (record.has_handler) {
      out_.text(" handler ");
      out_.hex(record.handler);
      out_.text(" data ");
      out_.hex(record.handler_data);
    }
    out_.character('\n');
    winarm64::CodeSet(record).each([&](std::uint64_t index, const Expected<UnwindCode>& code) {
      if (code) line(index, *code);
    });
    each_epilogue(record, [&](std::uint32_t start, std::uint32_t index) {
      out_.text("  epilogue at +");
      out_.hex(start);
      field(" from code ", index);
      out_.character('\n');
    });
  }

  void line(std::uint64_t index, const UnwindCode& code) {
    field("  ", index);
    out_.text(index < 10 ? ":   " : index < 100 ? ":  " : ": ");
    const std::string_view name = winarm64::operation_name(code.operation);
    out_.text(name);
    scratch_.clear();
    winarm64::append_instruction(scratch_, code, true);
    if (!scratch_.empty()) {
      constexpr std::string_view kSpaces = "                    ";
      out_.text(kSpaces.substr(name.size() < kSpaces.size() - 1 ? name.size() : kSpaces.size() - 1));
      out_.text(scratch_);
    }
    out_.character('\n');
  }

  const image::PeImage& image_;
  TextWriter& out_;
  dwarf::ErrorSink report_;
  bool json_;
  winarm64::Expansion expansion_;
  std::string scratch_;
};

}  // namespace

void dump_winarm64(const winarm64::Functions& functions, TextWriter& out, dwarf::ErrorSink report, bool json) {
  Arm64Printer printer(functions.image(), out, report, json);
  for (std::size_t i = 0; i < functions.size() && !out.closed(); ++i) printer.entry(functions.stored(i));
}

}  // namespace windlass::cli
