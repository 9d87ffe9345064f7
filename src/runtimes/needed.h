// Keeps the first missing part of a runtime's description. So a reader asks for all parts and checks once.
#pragma once

#include <optional>

#include "windlass/error.h"

namespace windlass::runtimes {

class Needed {
 public:
  // What is missing; nothing: all was there.
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 protected:
  // What was found, else nothing's value, and `missing` says why.
  template <typename T>
  [[nodiscard]] T need(const std::optional<T>& found, const char* missing) {
    if (!found) note({ErrorCode::kUnsupported, missing});
    return found.value_or(T());
  }
  void note(const Error& error) {
    if (!error_) error_ = error;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace windlass::runtimes
