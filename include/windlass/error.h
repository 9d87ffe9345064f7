// Errors as values. Nothing in the library throws, and making an Error never allocates, so that a step in a signal
// handler can fail with one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>

#ifndef __cpp_lib_expected
#error "Windlass's C++ headers need std::expected: C++23 and its library (g++ 12 with -std=c++23)"
#endif

namespace windlass {

enum class ErrorCode : std::uint8_t {
  kTruncated,    // the bytes end before the record does
  kMalformed,    // the bytes contradict their specification
  kUnsupported,  // well-formed, but of a kind this build does not interpret
  kOutOfRange,   // a size, index or address outside what contains it
  kNotFound,     // no such section, row, mapping or file
  kLimit,        // a stated bound against hostile input was reached
  kUnreadable,   // target memory could not be read
  kSystem,       // the operating system refused; `detail` is errno
};

// What went wrong, and where. `what` is a string literal (static storage).
// `where` is a file offset, a section offset or a target address; `what` or the caller's context says which.
struct Error {
  ErrorCode code = ErrorCode::kMalformed;
  const char* what = "";
  std::uint64_t where = 0;
  std::uint64_t detail = 0;

  // "0x1234: unknown CFA opcode (0x3f)". Allocates; for people, never on a step.
  [[nodiscard]] std::string text() const;
  // The same into `size` bytes, NUL-terminated and cut where it is longer. Signal-safe.
  void text_to(char* to, std::size_t size) const;
};

template <typename T>
using Expected = std::expected<T, Error>;

[[nodiscard]] constexpr std::unexpected<Error> fail(ErrorCode code, const char* what, std::uint64_t where,
                                                    std::uint64_t detail = 0) {
  return std::unexpected<Error>(Error{code, what, where, detail});
}

}  // namespace windlass
