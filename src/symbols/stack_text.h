// Frames of a stack as lines for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/text_writer.h"
#include "windlass/symbols.h"
#include "windlass/target.h"
#include "windlass/walk.h"

namespace windlass::symbols {

struct StackTextOptions {
  int verbose = 0;  // 1: who unwound each frame, modules; 2: and its registers
  bool lines = false;
  bool inlines = false;
};

// A frame, wherever it is kept.
struct ShownFrame {
  const Registers& registers;
  FrameOrigin origin;
  FrameCertainty certainty;
  bool signal_frame;
  const NamedAddress& at;
  std::span<const FunctionArguments> arguments = {};  // Of at.frames. Empty: they are not wanted.
};

// The function whose code it is; without a name: not known.
[[nodiscard]] SourceFrame own_function(const NamedAddress& at);
// Of the pc as it is, as the module numbers it; what is named may be the call before it.
[[nodiscard]] std::uint64_t offset_in_module(CodeAddress pc, const NamedAddress& at);

// Writes one stack.
class StackText {
 public:
  StackText(const StackTextOptions& options, TextWriter& out) : options_(options), out_(out) {}

  void frame(const ShownFrame& frame);
  // Why it is not complete.
  void end(WalkEnd end, const Error& error);

 private:
  void place(const ShownFrame& frame);
  void arguments(const ShownFrame& frame, std::size_t function);
  void source(const SourceFrame& at);
  void registers(const Registers& registers);

  StackTextOptions options_;
  TextWriter& out_;
  std::size_t number_ = 0;
};

}  // namespace windlass::symbols
