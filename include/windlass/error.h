// Errors as values: a function that can fail returns Expected<T>, which holds a T or an Error.
//
// No function of the library throws. Making an Error never allocates, so a step of a walk in a signal handler can fail
// with an Error.
//
// For example:
//
//   const auto target = open_process(pid);
//   if (!target) return print(target.error().text());
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>

#ifndef __cpp_lib_expected
#error "Windlass's C++ headers need std::expected: C++23 and its library (g++ 12 with -std=c++23)"
#endif

namespace windlass {

// The kind of an error. The C interface has the same kinds, for example WINDLASS_TRUNCATED.
enum class ErrorCode : std::uint8_t {
  kTruncated,    // The bytes end before the record does.
  kMalformed,    // The bytes contradict their specification.
  kUnsupported,  // Well-formed, but of a kind that this build does not interpret.
  kOutOfRange,   // A size, index or address outside the thing that contains it.
  kNotFound,     // No such section, row, mapping or file.
  kLimit,        // A stated bound against hostile input was reached.
  kUnreadable,   // Memory of the target could not be read.
  kSystem,       // The operating system refused; `detail` is errno.
};

// The kind of an error, a sentence for people, and the place.
struct Error {
  ErrorCode code = ErrorCode::kMalformed;
  const char* what = "";    // A string literal, so the pointer stays valid.
  std::uint64_t where = 0;  // A file offset, a section offset or an address in the target. `what`, or the function that
                            // failed, says which.
  std::uint64_t detail = 0;  // A number that belongs to the error, for example errno; 0 if there is none.

  // The error as a line for people, for example "0x1234: unknown CFA opcode (0x3f)". Allocates, so a step of a walk
  // never calls this function.
  [[nodiscard]] std::string text() const;
  // Writes the same line into `size` bytes, with a NUL at the end. A line that does not fit is cut. Signal-safe.
  void text_to(char* to, std::size_t size) const;
};

// A T, or the Error that says why there is none.
template <typename T>
using Expected = std::expected<T, Error>;

// An Expected that holds an Error: `return fail(ErrorCode::kLimit, "too many rows", offset);`. Allocates nothing;
// signal-safe.
[[nodiscard]] constexpr std::unexpected<Error> fail(ErrorCode code, const char* what, std::uint64_t where,
                                                    std::uint64_t detail = 0) {
  return std::unexpected<Error>(Error{code, what, where, detail});
}

}  // namespace windlass
