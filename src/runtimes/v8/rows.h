// The frames of V8's code: rows from the instructions (describe()), for builtins and for generated code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtimes/runtime_code.h"
#include "runtimes/v8/code_map.h"
#include "runtimes/v8/functions.h"
#include "runtimes/v8/image_file.h"
#include "runtimes/v8/positions.h"
#include "runtimes/v8/wasm_map.h"

namespace windlass::runtimes::v8 {

class Code : public Method {
 public:
  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override;
  void for_each_row(sources::RowSink row, sources::ErrorSink report) const override;
  std::size_t bytes() const override;

  // Runs functions of JavaScript in its frame, whose slots say which one and at which bytecode.
  [[nodiscard]] virtual bool interprets() const { return false; }
  // Of code that the process has made; null of builtins.
  [[nodiscard]] virtual const CodeObject* object() const { return nullptr; }
  // Of WebAssembly's code; null of all other.
  [[nodiscard]] virtual const WasmObject* wasm() const { return nullptr; }
  // Has it set its frame up there: rbp, with the slots below it?
  [[nodiscard]] bool has_frame(std::uint64_t address) const;

 protected:
  Code(std::uint64_t at, std::uint64_t size, std::shared_ptr<const Description> description, bool frames,
       std::uint32_t front = 0);

 private:
  // Null: nothing is known.
  [[nodiscard]] virtual const Description* description() const { return description_.get(); }
  // Was an instruction followed to with a frame that is not known?
  [[nodiscard]] bool loses_frame(std::uint64_t address) const;

  std::shared_ptr<const Description> description_;
  bool frames_;          // where the flow does not come to, it stands in its frame
  std::uint32_t front_;  // bytes in front of what is described
};

class BuiltinCode final : public Code {
 public:
  BuiltinCode(const ImageFile& file, const ImageFacts::Builtin& builtin, std::uint64_t bias)
      : BuiltinCode(file, builtin, bias,
                    builtin.name.find("InterpreterEnterAt") != std::string::npos ||
                        builtin.name.starts_with("InterpreterEnterBytecode")) {}
  bool interprets() const override { return interprets_; }
  // C++ enters JavaScript and WebAssembly by these (execution.cc, Invoke; Execution::CallWasm).
  bool may_be_outermost(std::uint64_t /*address*/) const override { return enters_; }

 private:
  // Some are returned to at their first instruction, behind which they are looked up in front of it.
  BuiltinCode(const ImageFile& file, const ImageFacts::Builtin& builtin, std::uint64_t bias, bool interprets)
      : BuiltinCode(file, builtin, bias, interprets, frame_of(builtin.name, interprets)) {}
  BuiltinCode(const ImageFile& file, const ImageFacts::Builtin& builtin, std::uint64_t bias, bool interprets,
              BuiltinFrame frame)
      : Code(builtin.begin + bias - 1, builtin.end - builtin.begin + 1, file.described(builtin, frame),
             frame == BuiltinFrame::kThere, 1),
        interprets_(interprets || builtin.name.starts_with("InterpreterEntryTrampoline")),
        enters_(file.facts().has_places_only() || is_entry(builtin.name)) {}
  static BuiltinFrame frame_of(std::string_view name, bool interprets) {
    if (name.starts_with("ContinueTo")) return BuiltinFrame::kContinued;
    // The number of the function to compile (jump-table-assembler.cc, EmitLazyCompileJumpSlot).
    if (name == "WasmCompileLazy") return BuiltinFrame::kPushed;
    return interprets || name == "BaselineLeaveFrame" ? BuiltinFrame::kThere : BuiltinFrame::kOwn;
  }
  static bool is_entry(std::string_view name) {
    return name == "JSEntry" || name == "JSConstructEntry" || name == "JSRunMicrotasksEntry" || name == "CWasmEntry";
  }
  bool interprets_;
  bool enters_;
};

// What V8's compilers have made of a function, and stubs. Most is met in the middle of stacks only, where it has called
// out of its frame. So its instructions are followed when it is first met elsewhere.
class CompiledCode final : public Code {
 public:
  // kUnreadable.
  [[nodiscard]] static Expected<std::unique_ptr<CompiledCode>> read(const Heap& heap, const CodeObject& object);

  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override;
  void for_each_ready_row(bool interrupted, sources::RowSink row) const override;
  const CodeObject* object() const override { return &object_; }
  // A function is called by builtins and generated code; C++ calls regular expressions and WebAssembly's entries. A
  // program without symbols of its builtins does not tell them from its other code.
  bool may_be_outermost(std::uint64_t /*address*/) const override { return !is_function_ || !knows_builtins; }
  std::size_t bytes() const override;

  // A function that runs at an instruction of an optimised one, and where; innermost first.
  struct Inlined {
    std::uint32_t function = Functions::kNone;  // number
    SourcePosition position;                    // its inlining is into `inlined`
  };
  std::uint32_t function = Functions::kNone;  // an optimised one's own
  std::vector<SourcePosition> positions;
  bool knows_builtins = true;    // where the program's are
  std::vector<Inlined> inlined;  // by the number that positions have: the function, and where it was called

  // Calls visit(function, position) for those at an offset; `none`: nothing is known of it.
  template <typename Visit>
  void each_function(std::uint64_t offset, Visit&& visit) const {
    if (function == Functions::kNone) return;
    const SourcePosition* at = position_at(positions, static_cast<std::int64_t>(offset));
    SourcePosition position = at != nullptr ? *at : SourcePosition();
    for (std::size_t depth = 0; depth < inlined.size(); ++depth) {
      const auto index = static_cast<std::size_t>(position.inlining);
      if (position.inlining < 0 || index >= inlined.size()) break;
      visit(inlined[index].function, position.position);
      position = inlined[index].position;
    }
    visit(function, position.position);
  }

  // Of baseline code: the bytecode of an instruction.
  std::vector<std::byte> offsets, bytecodes;

 private:
  CompiledCode(const CodeObject& object, std::vector<std::byte> code, bool is_function, bool is_baseline);
  const Description* description() const override;

  CodeObject object_;
  bool is_function_;
  std::optional<std::size_t> framed_from_;
  std::vector<std::uint32_t> calls_;  // where the calls out of its frame end
  mutable std::once_flag followed_;
  mutable std::vector<std::byte> code_;  // until it is described
  mutable std::shared_ptr<const Description> described_;
};

// What V8's compilers have made of a function of WebAssembly.
class WasmCode : public Code {
 public:
  // kUnreadable. What is no function is named.
  [[nodiscard]] static Expected<std::unique_ptr<WasmCode>> read(const Memory& memory, const WasmObject& object);

  const WasmObject* wasm() const override { return &object_; }
  // A function is called by generated code.
  bool may_be_outermost(std::uint64_t /*address*/) const override { return object_.index == WasmObject::kNone; }
  std::size_t bytes() const override { return Code::bytes() + (end - begin) / 2 + name.size() + file.size(); }

  std::string file;

 protected:
  WasmCode(const WasmObject& object, std::shared_ptr<const Description> description)
      : Code(object.begin, object.end - object.begin, std::move(description), true), object_(object) {}

 private:
  WasmObject object_;
};

// The jumps by which WebAssembly's functions are called, all alike: some push a number first.
class WasmJumps final : public WasmCode {
 public:
  // Null: they are none.
  [[nodiscard]] static std::unique_ptr<WasmJumps> read(const WasmObject& object, ByteView code);

  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override;
  void for_each_row(sources::RowSink row, sources::ErrorSink report) const override;

 private:
  WasmJumps(const WasmObject& object, std::uint32_t push, std::uint32_t slot)
      : WasmCode(object, nullptr), push_(push), slot_(slot) {}

  std::uint32_t push_, slot_;  // bytes of the push, if there is one, and of both
};

}  // namespace windlass::runtimes::v8
