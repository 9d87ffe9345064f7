// An interpreter as one of a process's published codes. It has no code of its own, and answers for no addresses.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "runtimes/published_code.h"

namespace windlass::runtimes {

class InterpretedCode final : public manager::PublishedCode {
 public:
  // `map` is the first mapping of the image that the interpreter is in. Without one: why it is not understood.
  InterpretedCode(Expected<std::unique_ptr<manager::Interpreter>> interpreter, const os::ProcMap& map)
      : PublishedCode(map.begin, map.file), interpreter_(std::move(interpreter)) {}

  std::uint64_t begin() const override { return 0; }
  std::uint64_t end() const override { return 0; }
  std::uint64_t rank() const override { return 0; }
  void set_time(std::uint64_t) override {}
  std::optional<Function> function_at(std::uint64_t, std::uint64_t, std::span<char>) override { return std::nullopt; }
  bool has_code() const override { return false; }
  const manager::Interpreter* interpreter() const override { return interpreter_ ? interpreter_->get() : nullptr; }
  std::optional<Error> problem() const override {
    return interpreter_ ? std::nullopt : std::optional(interpreter_.error());
  }
  std::unique_ptr<sources::UnwindSource> make_source() override {
    return sources::make_failed_source(Error{ErrorCode::kNotFound, "an interpreter has no code"}, false);
  }

 private:
  Expected<std::unique_ptr<manager::Interpreter>> interpreter_;
};

}  // namespace windlass::runtimes
