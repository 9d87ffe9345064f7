// Rules from x86-64 code that is read in a straight line: for code whose unwind information is not complete. On Windows
// these are functions without any, which are not all leaves (MinGW's ___chkstk_ms, assembly). Also rows that rest on a
// register which calls destroy (Wine's __wine_unix_call_dispatcher).
#pragma once

#include <cstdint>
#include <optional>

#include "lookup/table/trace_row.h"
#include "windlass/bytes.h"
#include "windlass/frame_row.h"
#include "windlass/function_ref.h"

namespace windlass::table {

using RuleSink = FunctionRef<void(std::uint64_t begin, const TraceRule& rule)>;

// What has been pushed, in bytes, behind the call that returns to the address. Nothing: that is not known.
using SizeBehindCall = FunctionRef<std::optional<std::int64_t>(std::uint64_t return_address)>;

// Functions that take nothing but their return address for granted, one behind the other: calls emit(address, rule) for
// the first address and where the rule changes. CFA = rsp + 8 + what has been pushed. Calls on another stack, between
// `mov x_reg, rsp` with a change of rsp and `mov rsp, x_reg`: CFA = x_reg + 8 + what has been pushed (OCaml 5 calls C
// so). Where rsp becomes something else, up to the function's end: WL_CFA_UNSUPPORTED. Bytes that are no code are
// leaves. A function ends with a return, a jump or a trap, and where `starts_function(address)` says that another one
// begins, which is asked of ascending addresses. Linear in the size.
void rows_of_bare_code(ByteView code, std::uint64_t address, std::uint8_t x_reg,
                       FunctionRef<bool(std::uint64_t address)> starts_function, SizeBehindCall size_behind,
                       RuleSink emit);

// Calls copy(begin, end) for the addresses of `code` at which rsp certainly is what `reg` was at `address`: behind a
// `mov rsp, reg`, up to the next instruction that changes rsp. `function` is all of the function's code: a branch into
// the piece from outside of it makes it uncertain. Linear in the size of both.
void each_copy_in_rsp(ByteView code, std::uint64_t address, ByteView function, std::uint64_t function_address,
                      RegisterNumber reg, FunctionRef<void(std::uint64_t begin, std::uint64_t end)> copy);

}  // namespace windlass::table
