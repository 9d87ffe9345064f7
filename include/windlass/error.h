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
#include <new>
#include <string>
#include <type_traits>
#include <utility>

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

// The Error of a call that failed. Every Expected can be made of a Failure: `return Failure(file.error());`.
class [[nodiscard]] Failure {
 public:
  constexpr explicit Failure(const Error& error) : error_(error) {}
  [[nodiscard]] constexpr const Error& error() const { return error_; }

 private:
  Error error_;
};

// A Failure with an Error of its own: `return fail(ErrorCode::kLimit, "too many rows", offset);`. Allocates nothing;
// signal-safe.
constexpr Failure fail(ErrorCode code, const char* what, std::uint64_t where, std::uint64_t detail = 0) {
  return Failure(Error{code, what, where, detail});
}

template <typename T>
class Expected;

namespace detail {

template <typename T>
inline constexpr bool kIsExpected = false;
template <typename T>
inline constexpr bool kIsExpected<Expected<T>> = true;

// Prints the error and ends the program.
[[noreturn]] void no_value(const Error& error);

// A T or an Error. This one is for a T whose bytes can be copied: then an Either is copied in the same way.
template <typename T, bool kBytes = std::is_trivially_copyable_v<T>>
struct Either {
  template <typename... Arguments>
  constexpr explicit Either(std::in_place_t, Arguments&&... arguments)
      : value(std::forward<Arguments>(arguments)...), has_value(true) {}
  constexpr explicit Either(const Error& of) : error(of), has_value(false) {}

  union {
    T value;
    Error error;
  };
  bool has_value;
};

template <typename T>
struct Either<T, false> {
  template <typename... Arguments>
  constexpr explicit Either(std::in_place_t, Arguments&&... arguments)
      : value(std::forward<Arguments>(arguments)...), has_value(true) {}
  constexpr explicit Either(const Error& of) : error(of), has_value(false) {}
  Either(const Either& other) requires std::is_copy_constructible_v<T> : Either(Error()) { take(other); }
  Either(Either&& other) noexcept(std::is_nothrow_move_constructible_v<T>) : Either(Error()) { take(std::move(other)); }
  Either& operator=(const Either& other) requires std::is_copy_constructible_v<T> {
    if (this != &other) *this = Either(other);
    return *this;
  }
  Either& operator=(Either&& other) noexcept(std::is_nothrow_move_constructible_v<T>) {
    if (this == &other) return *this;
    if (has_value) drop();
    take(std::move(other));
    return *this;
  }
  ~Either() {
    if (has_value) value.~T();
  }

  union {
    T value;
    Error error;
  };
  bool has_value;

 private:
  void drop() {
    value.~T();
    ::new (static_cast<void*>(&error)) Error();
    has_value = false;
  }
  // Of an Either that holds an Error. The flag is set last, so that a constructor that throws leaves an Error.
  template <typename Other>
  void take(Other&& other) {
    if (!other.has_value) {
      error = other.error;
      return;
    }
    ::new (static_cast<void*>(&value)) T(std::forward<Other>(other).value);
    has_value = true;
  }
};

struct Nothing {};

}  // namespace detail

// A T, or the Error that says why there is none. It is used as C++23's std::expected is. value() of an Expected that
// holds an Error prints that Error and ends the program.
template <typename T>
class [[nodiscard]] Expected {
 public:
  using value_type = T;

  constexpr Expected() requires std::is_default_constructible_v<T> : either_(std::in_place) {}
  template <typename U = T>
  requires(!detail::kIsExpected<std::remove_cvref_t<U>> && !std::is_same_v<std::remove_cvref_t<U>, Failure> &&
           std::is_constructible_v<T, U>) constexpr explicit(!std::is_convertible_v<U, T>) Expected(U&& value)
      : either_(std::in_place, std::forward<U>(value)) {}
  constexpr Expected(const Failure& failure) : either_(failure.error()) {}
  // For example, of a pointer to a derived class.
  template <typename U>
  requires(!std::is_same_v<T, U> && std::is_constructible_v<T, U>) constexpr explicit(!std::is_convertible_v<U, T>)
      Expected(Expected<U> other)
      : either_(other ? detail::Either<T>(std::in_place, *std::move(other)) : detail::Either<T>(other.error())) {}

  [[nodiscard]] constexpr bool has_value() const { return either_.has_value; }
  constexpr explicit operator bool() const { return either_.has_value; }

  [[nodiscard]] constexpr T& operator*() & { return either_.value; }
  [[nodiscard]] constexpr const T& operator*() const& { return either_.value; }
  [[nodiscard]] constexpr T&& operator*() && { return std::move(either_.value); }
  constexpr T* operator->() { return &either_.value; }
  constexpr const T* operator->() const { return &either_.value; }

  constexpr T& value() & { return checked(*this).either_.value; }
  [[nodiscard]] constexpr const T& value() const& { return checked(*this).either_.value; }
  constexpr T&& value() && { return std::move(checked(*this).either_.value); }
  template <typename U>
  [[nodiscard]] constexpr T value_or(U&& other) const& {
    return has_value() ? either_.value : static_cast<T>(std::forward<U>(other));
  }
  template <typename U>
  [[nodiscard]] constexpr T value_or(U&& other) && {
    return has_value() ? std::move(either_.value) : static_cast<T>(std::forward<U>(other));
  }

  [[nodiscard]] constexpr Error& error() & { return either_.error; }
  [[nodiscard]] constexpr const Error& error() const& { return either_.error; }
  [[nodiscard]] constexpr Error error() && { return either_.error; }

 private:
  template <typename Self>
  static constexpr Self& checked(Self& self) {
    if (!self.has_value()) detail::no_value(self.either_.error);
    return self;
  }

  detail::Either<T> either_;
};

// Success, or the Error that says what failed.
template <>
class [[nodiscard]] Expected<void> {
 public:
  using value_type = void;

  constexpr Expected() : either_(std::in_place) {}
  constexpr Expected(const Failure& failure) : either_(failure.error()) {}

  [[nodiscard]] constexpr bool has_value() const { return either_.has_value; }
  constexpr explicit operator bool() const { return either_.has_value; }
  constexpr void value() const {
    if (!has_value()) detail::no_value(either_.error);
  }

  [[nodiscard]] constexpr Error& error() & { return either_.error; }
  [[nodiscard]] constexpr const Error& error() const& { return either_.error; }
  [[nodiscard]] constexpr Error error() && { return either_.error; }

 private:
  detail::Either<detail::Nothing> either_;
};

}  // namespace windlass
