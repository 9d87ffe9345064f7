// Language handlers of x64 unwind information, and their data. A handler is recognised by the name, where the image has
// one (COFF symbol, export, import thunk), or by the shape of the data. Nothing here allocates. Sources: "x64 exception
// handling" (SCOPE_TABLE); the runtime's ehdata.h and ehdata4.h (FuncInfo), gshandler.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/image/pe_names.h"
#include "formats/winx64/read.h"

namespace windlass::winx64 {

enum class HandlerKind : std::uint8_t {
  kUnknown,
  kCSpecific,   // __C_specific_handler: a scope table
  kGsCheck,     // __GSHandlerCheck: a stack cookie
  kGsCheckSeh,  // scope table, then cookie
  kGsCheckEh,   // FuncInfo, then cookie
  kGsCheckEh4,  // FuncInfo4, then cookie
  kCxx3,        // __CxxFrameHandler, 2, 3: RVA of a FuncInfo
  kCxx4,        // __CxxFrameHandler4: RVA of a compressed FuncInfo4
  kGcc,         // libgcc's personalities (MinGW): an LSDA
};

// One __try of a function. `handler` 1: EXCEPTION_EXECUTE_HANDLER instead of a filter; `target` 0: a __finally, whose
// function `handler` is.
struct Scope {
  std::uint32_t begin, end, handler, target;
};

struct FuncInfo {  // the header of version 3 (_s_FuncInfo)
  std::uint32_t magic;
  std::int32_t state_count;
  std::uint32_t unwind_map;
  std::uint32_t try_count;
  std::uint32_t try_map;
  std::uint32_t ip_count;
  std::uint32_t ip_map;
  std::int32_t unwind_help;  // displacement in the frame
  std::uint32_t type_list;   // from here on only with newer magics
  std::uint32_t flags;
};

struct FuncInfo4 {
  std::uint8_t header = 0;  // bit 0 catch, 1 separated code, 2 bbt, 3 unwind map, 4 try map, 5 EHs, 6 noexcept
  std::uint32_t bbt_flags = 0;
  std::uint32_t unwind_map = 0, try_map = 0;
  std::uint32_t ip_map = 0;  // or, separated, the map of segments
  std::uint32_t frame = 0;   // catch funclets: where the parent's frame pointer is
};

struct GsData {
  std::uint32_t cookie_offset = 0;  // from the establisher frame
  bool ehandler = false, uhandler = false;
  std::optional<std::uint32_t> aligned_base_offset, alignment;
};

struct Handler {
  HandlerKind kind = HandlerKind::kUnknown;
  std::string_view name;  // as the image says it; empty: it does not
  bool by_shape = false;  // no name: the data looks like it
  std::uint32_t scope_count = 0;
  ByteView scopes;  // scope_count * 16 bytes
  std::optional<FuncInfo> func_info;
  std::optional<FuncInfo4> func_info4;
  std::optional<GsData> gs;

  [[nodiscard]] Scope scope(std::uint32_t i) const { return *scopes.at<Scope>(16ULL * i); }
};

inline constexpr std::uint32_t kMaxScopes = 65536;

// The name of the function at `rva`: the symbol or export there. If the function is a jump (an import thunk, an
// incremental linker's stub), the name of its target. Empty: not known.
[[nodiscard]] std::string_view function_name(const image::PeImage& image, const image::PeSymbols& symbols,
                                             std::uint32_t rva);
// The kind of a handler of that name.
[[nodiscard]] HandlerKind handler_kind(std::string_view name);

// The handler of `info`, which has one, and its data. A known handler with data that cannot be right is an error that
// names the data's RVA.
[[nodiscard]] Expected<Handler> read_handler(const image::PeImage& image, std::string_view name,
                                             const RuntimeFunction& function, const UnwindInfo& info);

}  // namespace windlass::winx64
