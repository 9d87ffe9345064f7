// What code of V8 does to its frame, followed from its first instruction (windlass/jit/describe.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "runtimes/described_code.h"
#include "windlass/bytes.h"
#include "windlass/error.h"
#include "windlass/jit/describe.h"

namespace windlass::runtimes::v8 {

// As code is entered: the return address is so many bytes up the stack, and rbp is the caller's.
[[nodiscard]] FrameRow entry_row(std::uint64_t begin, std::uint64_t end, std::int32_t above = 0);

// `called_by_c`: it keeps what C++ wants kept, not the frame pointer alone.
[[nodiscard]] Expected<Description> describe_code(ByteView code, std::uint64_t address, bool called_by_c,
                                                  const std::function<bool(std::uint64_t, void*, std::size_t)>& read);

// Of code that stands in its frame from an offset on; in front of that it has set up nothing.
[[nodiscard]] Expected<Description> describe_framed(std::vector<std::byte> code, std::uint64_t address,
                                                    std::size_t from);

// Of code that is entered with a word on top of the return address.
[[nodiscard]] Expected<Description> describe_pushed(std::vector<std::byte> code, std::uint64_t address);

// Of the builtins by which a builtin goes on whose caller was optimised code that is left for good
// (Builtins_ContinueToJavaScriptBuiltinWithResult and others; v8/v8, Generate_ContinueToBuiltinHelper). The deoptimiser
// has made their frame. They are returned to at their first instruction, load the caller's frame pointer
// (mov rbp, [rsp + N]), and move sp up to the return address. kNotFound: the code is another.
[[nodiscard]] Expected<Description> describe_continuation(ByteView code, std::uint64_t address);

}  // namespace windlass::runtimes::v8
