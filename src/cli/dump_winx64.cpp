#include "cli/dump_winx64.h"

#include "base/shown.h"
#include "formats/image/pe_names.h"
#include "formats/winx64/handlers.h"
#include "formats/winx64/read.h"
#include "formats/winx64/registers.h"

namespace windlass::cli {
namespace {

using winx64::Flag;
using winx64::Operation;
using winx64::RuntimeFunction;
using winx64::UnwindCode;
using winx64::UnwindInfo;

constexpr struct {
  Flag flag;
  std::string_view name;
} kFlagNames[] = {{winx64::kEhandler, "EHANDLER"},
                  {winx64::kUhandler, "UHANDLER"},
                  {winx64::kChaininfo, "CHAININFO"},
                  {winx64::kLarge, "LARGE"}};

std::string_view kind_name(const winx64::Handler& handler) {
  switch (handler.kind) {
    case winx64::HandlerKind::kCSpecific: return "scope table";
    case winx64::HandlerKind::kCxx3: return "C++ FuncInfo";
    default: return "";
  }
}

// What both forms walk over. Names of handlers are looked up once each: an image has few.
class Walker {
 public:
  Walker(const image::PeImage& image, const image::PeSymbols& symbols) : image_(image), symbols_(symbols) {}

  std::string_view handler_name(std::uint32_t rva) {
    if (rva != last_handler_) {
      last_handler_ = rva;
      last_name_ = winx64::function_name(image_, symbols_, rva);
    }
    return last_name_;
  }

  // The prologue's operations, in stored order, whatever the version.
  template <typename Callback>
  static Expected<void> prologue(const UnwindInfo& info, Callback&& callback) {
    if (info.version < 3) {
      return winx64::each_code(info, [&](const UnwindCode& code) {
        if (info.version == 1 || code.operation != Operation::kEpilog) callback(code);
      });
    }
    const auto payload = winx64::read_payload_v3(info);
    if (!payload) return Failure(payload.error());
    return winx64::each_descriptor(payload->pool, 0, info.operation_count, payload->ip_offsets,
                                   info.has(winx64::kLarge), callback);
  }

 protected:
  const image::PeImage& image_;
  const image::PeSymbols& symbols_;

 private:
  std::uint32_t last_handler_ = 0;
  std::string_view last_name_;
};

class JsonPrinter : Walker {
 public:
  JsonPrinter(const image::PeImage& image, const image::PeSymbols& symbols, TextWriter& out)
      : Walker(image, symbols), out_(out) {}

  Expected<void> function(const RuntimeFunction& function, const UnwindInfo& info) {
    range("{\"format\":\"winx64\",\"begin\":", function);
    field(",\"version\":", info.version);
    out_.text(",\"flags\":[");
    bool first = true;
    for (const auto& [flag, name] : kFlagNames) {
      if (!info.has(flag)) continue;
      out_.text(first ? "\"" : ",\"");
      out_.text(name);
      out_.character('"');
      first = false;
    }
    field("],\"prolog_size\":", info.prolog_size);
    if (info.frame_register != 0) {
      out_.text(",\"frame_register\":\"");
      out_.text(winx64::register_name(info.frame_register));
      out_.character('"');
    } else {
      out_.text(",\"frame_register\":null");
    }
    field(",\"frame_offset\":", std::uint64_t{info.frame_offset} * 16);
    out_.text(",\"codes\":[");
    first_ = true;
    auto ok = prologue(info, [this](const UnwindCode& c) { code(c); });
    out_.text("],\"epilogs\":[");
    first_ = true;
    if (ok) ok = epilogs(function, info);
    out_.character(']');
    const auto handled = handler(function, info);
    if (info.chained) {
      range(",\"chained\":{\"begin\":", *info.chained);
      out_.text("}}\n");
    } else {
      out_.text(",\"chained\":null}\n");
    }
    return ok ? handled : ok;
  }

  void indirect(const RuntimeFunction& function) {
    range("{\"format\":\"winx64\",\"begin\":", {function.begin, function.end, function.info & ~1U});
    out_.text(",\"indirect\":true}\n");
  }
  void unreadable(const RuntimeFunction& function) {
    range("{\"format\":\"winx64\",\"begin\":", function);
    out_.text(",\"unreadable\":true}\n");
  }

 private:
  void field(std::string_view label, std::uint64_t value) {
    out_.text(label);
    out_.decimal(value);
  }
  void range(std::string_view label, const RuntimeFunction& function) {
    field(label, function.begin);
    field(",\"end\":", function.end);
    field(",\"info\":", function.info);
  }
  void separate() {
    if (!first_) out_.character(',');
    first_ = false;
  }
  void reg(std::string_view label, std::string_view name) {
    out_.text(label);
    out_.text(name);
    out_.character('"');
  }

  void code(const UnwindCode& code) {
    separate();
    field("{\"offset\":", code.offset);
    reg(",\"op\":\"", operation_name(code.operation));
    switch (code.operation) {
      case Operation::kPushNonvol: reg(",\"reg\":\"", winx64::register_name(code.info)); break;
      case Operation::kPush2:
      case Operation::kPushConsecutive2:
        reg(",\"reg\":\"", winx64::register_name(code.info));
        reg(",\"reg2\":\"", winx64::register_name(code.second));
        break;
      case Operation::kAllocLarge:
      case Operation::kAllocSmall:
      case Operation::kAllocHuge: field(",\"size\":", code.value); break;
      case Operation::kSaveNonvol:
      case Operation::kSaveNonvolFar:
        reg(",\"reg\":\"", winx64::register_name(code.info));
        field(",\"disp\":", code.value);
        break;
      case Operation::kSaveXmm128:
      case Operation::kSaveXmm128Far:
        field(",\"reg\":\"xmm", code.info);
        field("\",\"disp\":", code.value);
        break;
      case Operation::kPushMachframe:
        out_.text(code.info != 0 ? ",\"error_code\":true" : ",\"error_code\":false");
        break;
      case Operation::kPushCanonicalFrame: field(",\"type\":", code.info); break;
      case Operation::kSetFpreg:
      case Operation::kSetFpregLarge: field(",\"disp\":", code.value); break;
      case Operation::kEpilog:
      case Operation::kSpare: field(",\"info\":", code.info); break;
    }
    out_.character('}');
  }

  Expected<void> epilogs(const RuntimeFunction& function, const UnwindInfo& info) {
    winx64::each_epilog(info, function.end, [&](const winx64::Epilog& epilog) {
      separate();
      field("{\"begin\":", epilog.begin);
      field(",\"size\":", epilog.size);
      out_.character('}');
    });
    if (info.version != 3) return {};
    const auto payload = winx64::read_payload_v3(info);
    if (!payload) return Failure(payload.error());
    for (unsigned i = 0; i < payload->epilog_count; ++i) {
      const winx64::EpilogV3& epilog = payload->epilogs[i];
      separate();
      out_.text("{\"begin\":");
      out_.decimal(static_cast<std::int64_t>(epilog.offset < 0 ? function.end : function.begin) + epilog.offset);
      field(",\"last\":", epilog.last_instruction);
      out_.text(epilog.parent_transfer ? ",\"parent_transfer\":true,\"codes\":["
                                       : ",\"parent_transfer\":false,\"codes\":[");
      first_ = true;
      const auto ok = winx64::each_descriptor(payload->pool, epilog.first_op, epilog.operation_count, epilog.ip_offsets,
                                              epilog.large, [this](const UnwindCode& c) { code(c); });
      out_.text("]}");
      first_ = false;
      if (!ok) return ok;
    }
    return {};
  }

  Expected<void> handler(const RuntimeFunction& function, const UnwindInfo& info) {
    if (info.handler == 0) {
      out_.text(",\"handler\":null");
      return {};
    }
    field(",\"handler\":", info.handler);
    field(",\"handler_data\":", info.handler_data);
    const auto handler = winx64::read_handler(image_, handler_name(info.handler), function, info);
    if (!handler) return Failure(handler.error());
    if (!handler->name.empty()) {
      out_.text(",\"handler_name\":");
      out_.json_string(handler->name);
    }
    if (handler->scope_count != 0) {
      out_.text(",\"scopes\":[");
      for (std::uint32_t i = 0; i < handler->scope_count; ++i) {
        const winx64::Scope scope = handler->scope(i);
        field(i == 0 ? "{\"begin\":" : ",{\"begin\":", scope.begin);
        field(",\"end\":", scope.end);
        field(",\"handler\":", scope.handler);
        field(",\"target\":", scope.target);
        out_.character('}');
      }
      out_.character(']');
    }
    if (handler->func_info) {
      field(",\"func_info\":{\"magic\":", handler->func_info->magic);
      field(",\"states\":", static_cast<std::uint32_t>(handler->func_info->state_count));
      field(",\"try_blocks\":", handler->func_info->try_count);
      field(",\"ip_states\":", handler->func_info->ip_count);
      out_.character('}');
    }
    if (handler->func_info4) {
      field(",\"func_info4\":{\"header\":", handler->func_info4->header);
      field(",\"unwind_map\":", handler->func_info4->unwind_map);
      field(",\"try_map\":", handler->func_info4->try_map);
      field(",\"ip_map\":", handler->func_info4->ip_map);
      out_.character('}');
    }
    if (handler->gs) field(",\"cookie_offset\":", handler->gs->cookie_offset);
    return {};
  }

  TextWriter& out_;
  bool first_ = true;
};

// As dumpbin prints it: RVAs and offsets as upper-case hex without 0x, sizes with it.
class TextPrinter : Walker {
 public:
  TextPrinter(const image::PeImage& image, const image::PeSymbols& symbols, TextWriter& out, bool dumpbin)
      : Walker(image, symbols), out_(out), dumpbin_(dumpbin) {}

  void table(std::size_t count) {
    out_.text("Function Table (");
    out_.decimal(std::uint64_t{count});
    out_.text(")\n\n           Begin    End      Info      Function Name\n\n");
  }

  void entry(std::size_t index, const RuntimeFunction& function) {
    out_.text("  ");
    hex(index * 12, 8);
    out_.character(' ');
    range(function);
    out_.text("  ");
    out_.text(symbols_.at(function.begin));
    out_.character('\n');
  }

  Expected<void> function(const RuntimeFunction& function, const UnwindInfo& info) {
    number("    Unwind version: ", info.version);
    out_.text("    Unwind flags:");
    for (const auto& [flag, name] : kFlagNames) {
      if (!info.has(flag)) continue;
      out_.character(' ');
      out_.text(name);
    }
    out_.text(info.flags == 0 ? " None\n" : "\n");
    sized("    Size of prologue: ", info.prolog_size);
    if (info.version == 3) {
      number("    Payload words: ", info.slot_count);
      number("    Count of operations: ", info.operation_count);
      number("    Count of epilogues: ", info.epilog_count);
    } else {
      number("    Count of codes: ", info.slot_count);
    }
    if (info.frame_register != 0) {
      out_.text("    Frame register: ");
      out_.text(winx64::register_name(info.frame_register));
      sized("\n    Frame offset: ", std::uint64_t{info.frame_offset} * 16);
    }
    const bool as_stored = dumpbin_ && info.version == 2;
    auto ok = as_stored ? codes_v2(info) : codes(info);
    if (ok && !as_stored) ok = epilogs(function, info);
    if (ok && info.handler != 0) ok = handler(function, info);
    if (info.chained) {
      out_.text("    Chained to: ");
      range(*info.chained);
      out_.character('\n');
    }
    return ok;
  }

  void indirect(const RuntimeFunction& function) {
    out_.text("    Unwind information of the entry at ");
    hex(function.info & ~1U, 8);
    out_.character('\n');
  }

 private:
  void hex(std::uint64_t value, unsigned digits) {
    for (unsigned i = digits; i-- > 0;) out_.character("0123456789ABCDEF"[value >> (4 * i) & 15]);
  }
  void range(const RuntimeFunction& function) {
    hex(function.begin, 8);
    out_.character(' ');
    hex(function.end, 8);
    out_.character(' ');
    hex(function.info, 8);
  }
  void number(std::string_view label, std::uint64_t value) {
    out_.text(label);
    out_.decimal(value);
    out_.character('\n');
  }
  void sized(std::string_view label, std::uint64_t value) {
    out_.text(label);
    out_.text("0x");
    hex(value, value > 0xff ? 8 : 2);
    out_.character('\n');
  }

  Expected<void> codes(const UnwindInfo& info) {
    bool first = true;
    return prologue(info, [&](const UnwindCode& c) {
      if (first) out_.text("    Unwind codes:\n");
      first = false;
      code(c, info, "      ");
    });
  }

  // With the codes that stand for epilogues, the first of which has their size.
  Expected<void> codes_v2(const UnwindInfo& info) {
    out_.text("    Unwind codes:\n");
    bool first = true;
    return winx64::each_code(info, [&](const UnwindCode& c) {
      if (c.operation != Operation::kEpilog) return code(c, info, "      ");
      out_.text("      ");
      hex(c.offset, 2);
      if (first) {
        out_.text(": EPILOG, flags = 0x");
        hex(c.info, 1);
        value(", size = ", c.offset);
      } else {
        value(": EPILOG, offset from end = ", c.offset | c.info << 8U);
      }
      out_.character('\n');
      first = false;
    });
  }

  void code(const UnwindCode& code, const UnwindInfo& info, std::string_view indent) {
    out_.text(indent);
    hex(code.offset, code.offset > 0xff ? 4 : 2);
    out_.text(": ");
    out_.text(operation_name(code.operation));
    switch (code.operation) {
      case Operation::kPushNonvol: reg(winx64::register_name(code.info)); break;
      case Operation::kPush2:
      case Operation::kPushConsecutive2:
        reg(winx64::register_name(code.info));
        reg(winx64::register_name(code.second));
        break;
      case Operation::kAllocLarge:
      case Operation::kAllocSmall:
      case Operation::kAllocHuge: value(", size=", code.value); break;
      case Operation::kSaveNonvol:
      case Operation::kSaveNonvolFar:
        reg(winx64::register_name(code.info));
        value(" offset=", code.value);
        break;
      case Operation::kSaveXmm128:
      case Operation::kSaveXmm128Far:
        out_.text(", register=xmm");
        out_.decimal(std::uint64_t{code.info});
        value(" offset=", code.value);
        break;
      case Operation::kPushMachframe: out_.text(code.info != 0 ? ", with error code" : ", without error code"); break;
      case Operation::kPushCanonicalFrame: value(", type=", code.info); break;
      case Operation::kSetFpreg:
      case Operation::kSetFpregLarge:
        reg(winx64::register_name(info.version == 3 ? code.info : info.frame_register));
        value(", offset=", code.value);
        break;
      case Operation::kEpilog:
      case Operation::kSpare: value(", info=", code.info); break;
    }
    out_.character('\n');
  }
  void reg(std::string_view name) {
    out_.text(", register=");
    out_.text(name);
  }
  void value(std::string_view label, std::uint32_t value) {
    out_.text(label);
    out_.text("0x");
    unsigned digits = 1;
    while (digits < 8 && value >> 4 * digits != 0) ++digits;
    hex(value, digits);
  }

  Expected<void> epilogs(const RuntimeFunction& function, const UnwindInfo& info) {
    winx64::each_epilog(info, function.end, [&](const winx64::Epilog& epilog) {
      out_.text("    Epilogue: ");
      hex(epilog.begin, 8);
      value(", size=", epilog.size);
      out_.character('\n');
    });
    if (info.version != 3) return {};
    const auto payload = winx64::read_payload_v3(info);
    if (!payload) return Failure(payload.error());
    for (unsigned i = 0; i < payload->epilog_count; ++i) {
      const winx64::EpilogV3& epilog = payload->epilogs[i];
      out_.text("    Epilogue: ");
      hex(static_cast<std::uint32_t>((epilog.offset < 0 ? function.end : function.begin) + epilog.offset), 8);
      value(", last instruction=", epilog.last_instruction);
      if (epilog.parent_transfer) out_.text(", goes on in the parent fragment");
      out_.text(epilog.inherited ? ", as the one before\n" : "\n");
      if (epilog.inherited) continue;
      const auto ok = winx64::each_descriptor(payload->pool, epilog.first_op, epilog.operation_count, epilog.ip_offsets,
                                              epilog.large, [&](const UnwindCode& c) { code(c, info, "      "); });
      if (!ok) return ok;
    }
    return {};
  }

  Expected<void> handler(const RuntimeFunction& function, const UnwindInfo& info) {
    const std::string_view name = handler_name(info.handler);
    out_.text("    Handler: ");
    hex(info.handler, 8);
    if (!name.empty()) {
      out_.character(' ');
      out_.text(shown(name));
    }
    out_.character('\n');
    const auto handler = winx64::read_handler(image_, name, function, info);
    if (!handler) return Failure(handler.error());
    if (handler->by_shape) {
      out_.text("    Handler data, by its shape: ");
      out_.text(kind_name(*handler));
      out_.character('\n');
    }
    if (handler->scope_count != 0) scopes(*handler);
    if (handler->func_info) {
      value("    FuncInfo: magic=", handler->func_info->magic);
      value(", states=", static_cast<std::uint32_t>(handler->func_info->state_count));
      value(", try blocks=", handler->func_info->try_count);
      value(", ip states=", handler->func_info->ip_count);
      out_.character('\n');
    }
    if (handler->func_info4) {
      value("    FuncInfo4: header=", handler->func_info4->header);
      value(", unwind map=", handler->func_info4->unwind_map);
      value(", try map=", handler->func_info4->try_map);
      value(", ip map=", handler->func_info4->ip_map);
      out_.character('\n');
    }
    if (handler->gs) {
      out_.text("    GS unwind flags:");
      if (handler->gs->ehandler) out_.text(" EHANDLER");
      if (handler->gs->uhandler) out_.text(" UHANDLER");
      out_.text(handler->gs->ehandler || handler->gs->uhandler ? "\n" : " None\n");
      sized("    Cookie offset: ", handler->gs->cookie_offset);
      if (handler->gs->alignment) {
        sized("    Aligned base offset: ", *handler->gs->aligned_base_offset);
        sized("    Alignment: ", *handler->gs->alignment);
      }
    }
    return {};
  }

  void scopes(const winx64::Handler& handler) {
    number("    Count of scope table entries: ", handler.scope_count);
    out_.text("      Begin    End      Handler  Target\n");
    for (std::uint32_t i = 0; i < handler.scope_count; ++i) {
      const winx64::Scope scope = handler.scope(i);
      out_.text("     ");
      for (const std::uint32_t word : {scope.begin, scope.end, scope.handler, scope.target}) {
        out_.character(' ');
        hex(word, 8);
      }
      out_.text(scope.target == 0    ? "  __finally\n"
                : scope.handler == 1 ? "  __except(EXECUTE_HANDLER)\n"
                                     : "  __except\n");
    }
  }

  TextWriter& out_;
  bool dumpbin_;
};

template <typename Printer>
void each_function(const winx64::Functions& functions, TextWriter& out, dwarf::ErrorSink report, Printer& printer,
                   bool headings) {
  for (std::size_t i = 0; i < functions.size() && !out.closed(); ++i) {
    const RuntimeFunction function = functions.stored(i);
    if constexpr (std::is_same_v<Printer, TextPrinter>) {
      if (headings) printer.entry(i, function);
    }
    // No use to any unwinder, but it is what is stored.
    if (function.begin >= function.end)
      report(Error{ErrorCode::kMalformed, "function ends before it begins: RVA", function.begin, function.end});
    if (function.indirect()) {
      printer.indirect(function);
      continue;
    }
    const auto info = winx64::read_unwind_info(functions.image(), function.info);
    if (!info) {
      report(info.error());
      if constexpr (std::is_same_v<Printer, JsonPrinter>) printer.unreadable(function);
      continue;
    }
    if (const auto ok = printer.function(function, *info); !ok) report(ok.error());
  }
}

}  // namespace

void dump_winx64(const winx64::Functions& functions, TextWriter& out, dwarf::ErrorSink report, DumpForm form) {
  const image::PeImage& image = functions.image();
  const image::PeSymbols symbols = image::PeSymbols::make(image);
  if (form == DumpForm::kJson) {
    JsonPrinter printer(image, symbols, out);
    each_function(functions, out, report, printer, false);
  } else {
    TextPrinter printer(image, symbols, out, form == DumpForm::kDumpbin);
    printer.table(image.exception_directory().size() / 12);
    each_function(functions, out, report, printer, true);
  }
}

}  // namespace windlass::cli
