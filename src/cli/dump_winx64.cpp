#include "cli/dump_winx64.h"

#include "base/shown.h"
#include "cli/put.h"
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
    put(out_, ",\"version\":", info.version, ",\"flags\":[");
    bool first = true;
    for (const auto& [flag, name] : kFlagNames) {
      if (!info.has(flag)) continue;
      put(out_, first ? "\"" : ",\"", name, '"');
      first = false;
    }
    put(out_, "],\"prolog_size\":", info.prolog_size);
    if (info.frame_register != 0)
      reg(",\"frame_register\":\"", winx64::register_name(info.frame_register));
    else
      out_.text(",\"frame_register\":null");
    put(out_, ",\"frame_offset\":", std::uint64_t{info.frame_offset} * 16, ",\"codes\":[");
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
  void range(std::string_view label, const RuntimeFunction& function) {
    put(out_, label, function.begin, ",\"end\":", function.end, ",\"info\":", function.info);
  }
  void separate() {
    if (!first_) out_.character(',');
    first_ = false;
  }
  void reg(std::string_view label, std::string_view name) { put(out_, label, name, '"'); }

  void code(const UnwindCode& code) {
    separate();
    put(out_, "{\"offset\":", code.offset, ",\"op\":\"", operation_name(code.operation), '"');
    switch (code.operation) {
      case Operation::kPushNonvol: reg(",\"reg\":\"", winx64::register_name(code.info)); break;
      case Operation::kPush2:
      case Operation::kPushConsecutive2:
        reg(",\"reg\":\"", winx64::register_name(code.info));
        reg(",\"reg2\":\"", winx64::register_name(code.second));
        break;
      case Operation::kAllocLarge:
      case Operation::kAllocSmall:
      case Operation::kAllocHuge: put(out_, ",\"size\":", code.value); break;
      case Operation::kSaveNonvol:
      case Operation::kSaveNonvolFar:
        put(out_, ",\"reg\":\"", winx64::register_name(code.info), "\",\"disp\":", code.value);
        break;
      case Operation::kSaveXmm128:
      case Operation::kSaveXmm128Far: put(out_, ",\"reg\":\"xmm", code.info, "\",\"disp\":", code.value); break;
      case Operation::kPushMachframe: put(out_, ",\"error_code\":", code.info != 0); break;
      case Operation::kPushCanonicalFrame: put(out_, ",\"type\":", code.info); break;
      case Operation::kSetFpreg:
      case Operation::kSetFpregLarge: put(out_, ",\"disp\":", code.value); break;
      case Operation::kEpilog:
      case Operation::kSpare: put(out_, ",\"info\":", code.info); break;
    }
    out_.character('}');
  }

  Expected<void> epilogs(const RuntimeFunction& function, const UnwindInfo& info) {
    winx64::each_epilog(info, function.end, [&](const winx64::Epilog& epilog) {
      separate();
      put(out_, "{\"begin\":", epilog.begin, ",\"size\":", epilog.size, '}');
    });
    if (info.version != 3) return {};
    const auto payload = winx64::read_payload_v3(info);
    if (!payload) return Failure(payload.error());
    for (unsigned i = 0; i < payload->epilog_count; ++i) {
      const winx64::EpilogV3& epilog = payload->epilogs[i];
      separate();
      const std::int64_t from = epilog.offset < 0 ? function.end : function.begin;
      put(out_, "{\"begin\":", from + epilog.offset, ",\"last\":", epilog.last_instruction);
      put(out_, ",\"parent_transfer\":", epilog.parent_transfer, ",\"codes\":[");
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
    put(out_, ",\"handler\":", info.handler, ",\"handler_data\":", info.handler_data);
    const auto handler = winx64::read_handler(image_, handler_name(info.handler), function, info);
    if (!handler) return Failure(handler.error());
    if (!handler->name.empty()) put(out_, ",\"handler_name\":", JsonString{handler->name});
    if (handler->scope_count != 0) {
      out_.text(",\"scopes\":[");
      for (std::uint32_t i = 0; i < handler->scope_count; ++i) {
        const winx64::Scope scope = handler->scope(i);
        put(out_, i == 0 ? "{\"begin\":" : ",{\"begin\":", scope.begin, ",\"end\":", scope.end);
        put(out_, ",\"handler\":", scope.handler, ",\"target\":", scope.target, '}');
      }
      out_.character(']');
    }
    if (const auto& of = handler->func_info) {
      put(out_, ",\"func_info\":{\"magic\":", of->magic, ",\"states\":", static_cast<std::uint32_t>(of->state_count));
      put(out_, ",\"try_blocks\":", of->try_count, ",\"ip_states\":", of->ip_count, '}');
    }
    if (const auto& of = handler->func_info4) {
      put(out_, ",\"func_info4\":{\"header\":", of->header, ",\"unwind_map\":", of->unwind_map);
      put(out_, ",\"try_map\":", of->try_map, ",\"ip_map\":", of->ip_map, '}');
    }
    if (handler->gs) put(out_, ",\"cookie_offset\":", handler->gs->cookie_offset);
    return {};
  }

  TextWriter& out_;
  bool first_ = true;
};

// With that many digits.
struct Digits {
  std::uint64_t value;
  unsigned digits;
};
void put_piece(TextWriter& out, Digits piece) {
  for (unsigned i = piece.digits; i-- > 0;) out.character("0123456789ABCDEF"[piece.value >> (4 * i) & 15]);
}
// With as many digits as it needs.
struct Value {
  std::uint32_t value;
};
void put_piece(TextWriter& out, Value piece) {
  unsigned digits = 1;
  while (digits < 8 && piece.value >> 4 * digits != 0) ++digits;
  put(out, "0x", Digits{piece.value, digits});
}

struct Range {
  const RuntimeFunction& function;
};
void put_piece(TextWriter& out, Range piece) {
  const RuntimeFunction& of = piece.function;
  put(out, Digits{of.begin, 8}, ' ', Digits{of.end, 8}, ' ', Digits{of.info, 8});
}

// As dumpbin prints it: RVAs and offsets as upper-case hex without 0x, sizes with it.
class TextPrinter : Walker {
 public:
  TextPrinter(const image::PeImage& image, const image::PeSymbols& symbols, TextWriter& out, bool dumpbin)
      : Walker(image, symbols), out_(out), dumpbin_(dumpbin) {}

  void table(std::size_t count) {
    put(out_, "Function Table (", count, ")\n\n           Begin    End      Info      Function Name\n\n");
  }

  void entry(std::size_t index, const RuntimeFunction& function) {
    put(out_, "  ", Digits{index * 12, 8}, ' ', Range{function}, "  ", symbols_.at(function.begin), '\n');
  }

  Expected<void> function(const RuntimeFunction& function, const UnwindInfo& info) {
    number("    Unwind version: ", info.version);
    out_.text("    Unwind flags:");
    for (const auto& [flag, name] : kFlagNames) {
      if (info.has(flag)) put(out_, ' ', name);
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
      put(out_, "    Frame register: ", winx64::register_name(info.frame_register));
      sized("\n    Frame offset: ", std::uint64_t{info.frame_offset} * 16);
    }
    const bool as_stored = dumpbin_ && info.version == 2;
    auto ok = as_stored ? codes_v2(info) : codes(info);
    if (ok && !as_stored) ok = epilogs(function, info);
    if (ok && info.handler != 0) ok = handler(function, info);
    if (info.chained) put(out_, "    Chained to: ", Range{*info.chained}, '\n');
    return ok;
  }

  void indirect(const RuntimeFunction& function) {
    put(out_, "    Unwind information of the entry at ", Digits{function.info & ~1U, 8}, '\n');
  }

 private:
  void number(std::string_view label, std::uint64_t value) { put(out_, label, value, '\n'); }
  void sized(std::string_view label, std::uint64_t value) {
    put(out_, label, "0x", Digits{value, value > 0xff ? 8U : 2U}, '\n');
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
      put(out_, "      ", Digits{c.offset, 2});
      if (first)
        put(out_, ": EPILOG, flags = 0x", Digits{c.info, 1}, ", size = ", Value{c.offset}, '\n');
      else
        put(out_, ": EPILOG, offset from end = ", Value{c.offset + c.info * 256U}, '\n');
      first = false;
    });
  }

  void code(const UnwindCode& code, const UnwindInfo& info, std::string_view indent) {
    put(out_, indent, Digits{code.offset, code.offset > 0xff ? 4U : 2U}, ": ", operation_name(code.operation));
    switch (code.operation) {
      case Operation::kPushNonvol: reg(winx64::register_name(code.info)); break;
      case Operation::kPush2:
      case Operation::kPushConsecutive2:
        reg(winx64::register_name(code.info));
        reg(winx64::register_name(code.second));
        break;
      case Operation::kAllocLarge:
      case Operation::kAllocSmall:
      case Operation::kAllocHuge: put(out_, ", size=", Value{code.value}); break;
      case Operation::kSaveNonvol:
      case Operation::kSaveNonvolFar:
        reg(winx64::register_name(code.info));
        put(out_, " offset=", Value{code.value});
        break;
      case Operation::kSaveXmm128:
      case Operation::kSaveXmm128Far: put(out_, ", register=xmm", code.info, " offset=", Value{code.value}); break;
      case Operation::kPushMachframe: out_.text(code.info != 0 ? ", with error code" : ", without error code"); break;
      case Operation::kPushCanonicalFrame: put(out_, ", type=", Value{code.info}); break;
      case Operation::kSetFpreg:
      case Operation::kSetFpregLarge:
        reg(winx64::register_name(info.version == 3 ? code.info : info.frame_register));
        put(out_, ", offset=", Value{code.value});
        break;
      case Operation::kEpilog:
      case Operation::kSpare: put(out_, ", info=", Value{code.info}); break;
    }
    out_.character('\n');
  }
  void reg(std::string_view name) { put(out_, ", register=", name); }

  Expected<void> epilogs(const RuntimeFunction& function, const UnwindInfo& info) {
    winx64::each_epilog(info, function.end, [&](const winx64::Epilog& epilog) {
      put(out_, "    Epilogue: ", Digits{epilog.begin, 8}, ", size=", Value{epilog.size}, '\n');
    });
    if (info.version != 3) return {};
    const auto payload = winx64::read_payload_v3(info);
    if (!payload) return Failure(payload.error());
    for (unsigned i = 0; i < payload->epilog_count; ++i) {
      const winx64::EpilogV3& epilog = payload->epilogs[i];
      const auto begin =
          static_cast<std::uint32_t>((epilog.offset < 0 ? function.end : function.begin) + epilog.offset);
      put(out_, "    Epilogue: ", Digits{begin, 8}, ", last instruction=", Value{epilog.last_instruction});
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
    put(out_, "    Handler: ", Digits{info.handler, 8}, name.empty() ? "" : " ", shown(name), '\n');
    const auto handler = winx64::read_handler(image_, name, function, info);
    if (!handler) return Failure(handler.error());
    if (handler->by_shape) put(out_, "    Handler data, by its shape: ", kind_name(*handler), '\n');
    if (handler->scope_count != 0) scopes(*handler);
    if (const auto& of = handler->func_info) {
      const auto states = static_cast<std::uint32_t>(of->state_count);
      put(out_, "    FuncInfo: magic=", Value{of->magic}, ", states=", Value{states});
      put(out_, ", try blocks=", Value{of->try_count}, ", ip states=", Value{of->ip_count}, '\n');
    }
    if (const auto& of = handler->func_info4) {
      put(out_, "    FuncInfo4: header=", Value{of->header}, ", unwind map=", Value{of->unwind_map});
      put(out_, ", try map=", Value{of->try_map}, ", ip map=", Value{of->ip_map}, '\n');
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
      for (const std::uint32_t word : {scope.begin, scope.end, scope.handler, scope.target})
        put(out_, ' ', Digits{word, 8});
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
    printer.table(functions.size());
    each_function(functions, out, report, printer, true);
  }
}

}  // namespace windlass::cli
