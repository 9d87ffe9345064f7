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

}  // namespace windlass::runtimes::v8
