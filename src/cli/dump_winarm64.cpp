#include "cli/dump_winarm64.h"

#include "cli/put.h"
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
  void head(RuntimeFunction function) { put(out_, "{\"format\":\"winarm64\",\"begin\":", function.begin); }

  void parent(RuntimeFunction function) {
    const auto parent = winarm64::parent_of(image_, function);
    if (!parent) {
      report_(parent.error());
      return;
    }
    if (json_) {
      head(function);
      put(out_, ",\"packed\":false,\"flag\":3,\"parent\":", function.target());
      put(out_, ",\"parent_begin\":", parent->begin, "}\n");
      return;
    }
    put(out_, Hex{function.begin}, " unwinds as the entry at ", Hex{function.target()});
    put(out_, ", function ", Hex{parent->begin}, '\n');
  }

  void json(RuntimeFunction function, const UnwindRecord& record) {
    head(function);
    put(out_, ",\"length\":", record.length, ",\"packed\":", function.packed(), ",\"flag\":", function.data & 3);
    if (function.packed()) {
      const PackedFields fields = winarm64::packed_fields(function);
      put(out_, ",\"reg_f\":", fields.reg_f, ",\"reg_i\":", fields.reg_i, ",\"h\":", fields.h ? 1 : 0);
      put(out_, ",\"cr\":", fields.cr, ",\"frame_size\":", fields.frame_size);
    } else {
      put(out_, ",\"info\":", record.rva, ",\"version\":", record.version);
      put(out_, ",\"single_epilog\":", record.single_epilogue);
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
      put(out_, first ? "{\"start\":" : ",{\"start\":", start, ",\"index\":", index, '}');
      first = false;
    });
    if (record.has_handler)
      put(out_, "],\"handler\":", record.handler, ",\"handler_data\":", record.handler_data, "}\n");
    else
      out_.text("],\"handler\":null}\n");
  }

  void json(std::uint64_t index, const UnwindCode& code) {
    put(out_, "{\"index\":", index, ",\"op\":\"", winarm64::operation_name(code.operation), '"');
    if (code.saves()) {
      put(out_, ",\"reg\":", code.reg);
      if (code.operation == Operation::kSaveAnyReg) {
        constexpr std::string_view kFiles[] = {"", "x", "d", "q", "z", "p"};
        put(out_, ",\"file\":\"", kFiles[static_cast<unsigned>(code.file)], "\",\"pair\":", code.pair);
        put(out_, ",\"writeback\":", code.writeback);
      }
      put(out_, ",\"disp\":", code.writeback ? -std::int64_t{code.value} : std::int64_t{code.value});
    } else if (code.operation == Operation::kAddFp) {
      put(out_, ",\"disp\":", code.value);
    } else if (allocates(code.operation)) {
      put(out_, ",\"size\":", code.value);
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
    put(out_, Hex{function.begin}, "..", Hex{std::uint64_t{function.begin} + record.length});
    if (function.packed()) {
      const PackedFields fields = winarm64::packed_fields(function);
      put(out_, function.kind() == EntryKind::kPacked ? " packed cr " : " packed fragment cr ", fields.cr);
      put(out_, " h ", fields.h ? 1 : 0, " reg_i ", fields.reg_i, " reg_f ", fields.reg_f);
      put(out_, " frame ", fields.frame_size);
    } else {
      put(out_, " record ", Hex{record.rva});
    }
    if (record.has_handler) put(out_, " handler ", Hex{record.handler}, " data ", Hex{record.handler_data});
    out_.character('\n');
    winarm64::CodeSet(record).each([&](std::uint64_t index, const Expected<UnwindCode>& code) {
      if (code) line(index, *code);
    });
    each_epilogue(record, [&](std::uint32_t start, std::uint32_t index) {
      put(out_, "  epilogue at +", Hex{start}, " from code ", index, '\n');
    });
  }

  void line(std::uint64_t index, const UnwindCode& code) {
    const std::string_view name = winarm64::operation_name(code.operation);
    put(out_, "  ", index, index < 10 ? ":   " : index < 100 ? ":  " : ": ", name);
    scratch_.clear();
    winarm64::append_instruction(scratch_, code, true);
    if (!scratch_.empty()) {
      constexpr std::string_view kSpaces = "                    ";
      put(out_, kSpaces.substr(name.size() < kSpaces.size() - 1 ? name.size() : kSpaces.size() - 1), scratch_);
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
