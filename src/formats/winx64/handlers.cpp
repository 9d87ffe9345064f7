#include "formats/winx64/handlers.h"

#include <algorithm>
#include <bit>

namespace windlass::winx64 {
namespace {

constexpr std::uint32_t kMagicMask = 0x1fff'ffff;  // the upper bits are flags
constexpr std::uint32_t kFirstMagic = 0x1993'0520, kLastMagic = 0x1993'0522;
constexpr unsigned kMaxJumps = 3;

bool has_scopes(HandlerKind kind) { return kind == HandlerKind::kCSpecific || kind == HandlerKind::kGsCheckSeh; }
bool has_func_info(HandlerKind kind) { return kind == HandlerKind::kCxx3 || kind == HandlerKind::kGsCheckEh; }
bool has_func_info4(HandlerKind kind) { return kind == HandlerKind::kCxx4 || kind == HandlerKind::kGsCheckEh4; }
bool has_cookie(HandlerKind kind) {
  return kind == HandlerKind::kGsCheck || kind == HandlerKind::kGsCheckSeh || kind == HandlerKind::kGsCheckEh ||
         kind == HandlerKind::kGsCheckEh4;
}

Expected<void> read_scopes(ByteCursor& data, std::uint32_t rva, Handler& handler) {
  const auto count = data.read<std::uint32_t>();
  if (!count || *count > kMaxScopes)
    return fail(ErrorCode::kMalformed, "scope table has too many entries: RVA", rva, count.value_or(0));
  const auto scopes = data.bytes(16ULL * *count);
  if (!scopes) return fail(ErrorCode::kTruncated, "scope table reaches past its section: RVA", rva, *count);
  handler.scope_count = *count;
  handler.scopes = *scopes;
  return {};
}

Expected<FuncInfo> read_func_info(const image::PeImage& image, ByteCursor& data, std::uint32_t rva) {
  const auto at = data.read<std::uint32_t>();
  const auto info = at ? image.value_at_rva<FuncInfo>(*at) : Failure(at.error());
  if (!info) return fail(ErrorCode::kOutOfRange, "C++ function information is outside the image: RVA", rva);
  const std::uint32_t magic = info->magic & kMagicMask;
  if (magic < kFirstMagic || magic > kLastMagic)
    return fail(ErrorCode::kMalformed, "C++ function information has the wrong magic number: RVA", *at, info->magic);
  return info;
}

// FH4's unsigned integers: the number of low one-bits of the first byte, up to 4, is the number of further bytes.
Expected<std::uint32_t> read_compressed(ByteCursor& data) {
  const auto first = data.view().at<std::uint8_t>(data.position());
  if (!first) return Failure(first.error());
  const unsigned more = std::min(std::countr_one(*first), 4);
  const auto bytes = data.bytes(more + 1);
  if (!bytes) return Failure(bytes.error());
  std::uint64_t value = 0;
  for (unsigned i = 0; i <= more; ++i) value |= static_cast<std::uint64_t>(bytes->u8()[i]) << (8 * i);
  return static_cast<std::uint32_t>(more == 4 ? value >> 8 : value >> (more + 1));
}

Expected<FuncInfo4> read_func_info4(const image::PeImage& image, ByteCursor& data, std::uint32_t rva) {
  const auto at = data.read<std::uint32_t>();
  const auto bytes = at ? image.from_rva(*at) : Failure(at.error());
  if (!bytes) return fail(ErrorCode::kOutOfRange, "C++ function information is outside the image: RVA", rva);
  ByteCursor cursor(*bytes);
  FuncInfo4 info;
  bool ok = true;
  const auto word = [&](bool present, auto read) {
    if (!present || !ok) return std::uint32_t{0};
    const auto value = read();
    ok = value.has_value();
    return value.value_or(0);
  };
  const auto plain = [&] { return cursor.read<std::uint32_t>(); };
  const auto compressed = [&] { return read_compressed(cursor); };
  const auto header = cursor.read<std::uint8_t>();
  info.header = header.value_or(0);
  ok = header.has_value();
  info.bbt_flags = word((info.header & 4) != 0, compressed);
  info.unwind_map = word((info.header & 8) != 0, plain);
  info.try_map = word((info.header & 16) != 0, plain);
  info.ip_map = word(true, plain);
  info.frame = word((info.header & 1) != 0, compressed);
  if (!ok) return fail(ErrorCode::kTruncated, "C++ function information is cut off: RVA", *at);
  return info;
}

Expected<GsData> read_gs(ByteCursor& data, std::uint32_t rva) {
  const auto word = data.read<std::uint32_t>();
  if (!word) return fail(ErrorCode::kTruncated, "stack cookie data is cut off: RVA", rva);
  GsData gs;
  gs.cookie_offset = *word & ~7U;
  gs.ehandler = (*word & 1) != 0;
  gs.uhandler = (*word & 2) != 0;
  if ((*word & 4) != 0) {
    const auto base = data.read<std::uint32_t>();
    const auto alignment = data.read<std::uint32_t>();
    if (!base || !alignment) return fail(ErrorCode::kTruncated, "stack cookie data is cut off: RVA", rva);
    gs.aligned_base_offset = *base;
    gs.alignment = *alignment;
  }
  return gs;
}

// Static handlers of stripped images have no name, but their data can hardly be anything else: a FuncInfo has a magic
// number, and a scope table's ranges lie in the function.
HandlerKind kind_by_shape(const image::PeImage& image, ByteView data, const RuntimeFunction& function) {
  ByteCursor cursor(data);
  if (read_func_info(image, cursor, 0)) return HandlerKind::kCxx3;
  Handler table;
  cursor = ByteCursor(data);
  if (!read_scopes(cursor, 0, table) || table.scope_count == 0) return HandlerKind::kUnknown;
  for (std::uint32_t i = 0; i < table.scope_count; ++i) {
    const Scope scope = table.scope(i);
    if (scope.begin >= scope.end || scope.begin < function.begin || scope.end > function.end)
      return HandlerKind::kUnknown;
  }
  return HandlerKind::kCSpecific;
}

}  // namespace

std::string_view function_name(const image::PeImage& image, const image::PeSymbols& symbols, std::uint32_t rva) {
  for (unsigned jumps = 0; jumps < kMaxJumps; ++jumps) {
    if (const std::string_view name = symbols.at(rva); !name.empty()) return name;
    const auto code = image.at_rva(rva, 6);
    if (!code) return {};
    const auto relative = [&](unsigned at) { return *code->at<std::uint32_t>(at); };
    if (code->u8()[0] == 0xff && code->u8()[1] == 0x25) {  // jmp [rip + disp32]
      const auto import = image::import_at(image, rva + 6 + relative(2));
      return import ? import->name : std::string_view();
    }
    if (code->u8()[0] != 0xe9) return {};  // jmp rel32
    rva += 5 + relative(1);
  }
  return {};
}

HandlerKind handler_kind(std::string_view name) {
  if (name == "__C_specific_handler" || name == "_C_specific_handler") return HandlerKind::kCSpecific;
  if (name == "__CxxFrameHandler4") return HandlerKind::kCxx4;
  if (name.starts_with("__CxxFrameHandler")) return HandlerKind::kCxx3;
  if (name == "__GSHandlerCheck") return HandlerKind::kGsCheck;
  if (name == "__GSHandlerCheck_SEH") return HandlerKind::kGsCheckSeh;
  if (name == "__GSHandlerCheck_EH") return HandlerKind::kGsCheckEh;
  if (name == "__GSHandlerCheck_EH4") return HandlerKind::kGsCheckEh4;
  if (name.ends_with("_personality_seh0") || name == "_GCC_specific_handler") return HandlerKind::kGcc;
  return HandlerKind::kUnknown;
}

Expected<Handler> read_handler(const image::PeImage& image, std::string_view name, const RuntimeFunction& function,
                               const UnwindInfo& info) {
  Handler handler;
  handler.name = name;
  handler.kind = handler_kind(name);
  if (info.handler_data == 0) return handler;
  const auto data = image.from_rva(info.handler_data);
  if (!data) return handler;  // a handler without data at the end of a section
  if (name.empty()) {
    handler.kind = kind_by_shape(image, *data, function);
    handler.by_shape = handler.kind != HandlerKind::kUnknown;
  }
  ByteCursor cursor(*data);
  if (has_scopes(handler.kind)) {
    if (const auto ok = read_scopes(cursor, info.handler_data, handler); !ok) return Failure(ok.error());
  }
  if (has_func_info(handler.kind)) {
    const auto read = read_func_info(image, cursor, info.handler_data);
    if (!read) return Failure(read.error());
    handler.func_info = *read;
  }
  if (has_func_info4(handler.kind)) {
    const auto read = read_func_info4(image, cursor, info.handler_data);
    if (!read) return Failure(read.error());
    handler.func_info4 = *read;
  }
  if (has_cookie(handler.kind)) {
    const auto read = read_gs(cursor, info.handler_data);
    if (!read) return Failure(read.error());
    handler.gs = *read;
  }
  return handler;
}

}  // namespace windlass::winx64
