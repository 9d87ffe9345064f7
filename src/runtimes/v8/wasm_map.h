// Finds the code of WebAssembly at a pc: the object that V8 keeps for it.
//
// The object is not on V8's heap, and v8dbg_* does not describe it. V8 finds it by C++ objects (v8/v8,
// src/wasm/wasm-code-manager.h), starting at a variable:
// - A map of memory ranges to modules.
// - In a module, a map of its code, and the code made since the map was last sorted.
// - Since V8 13, a map of its own for code that calls JavaScript, which belongs to no module.
//
// All maps are std::map of libstdc++, whose root points back to the map. A piece of code points to its module and to
// its instructions. By these pointers it is recognised.
#pragma once

#include <cstdint>
#include <optional>

#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes::v8 {

struct WasmObject {
  std::uint64_t object = 0, module = 0;  // WasmCode, NativeModule (0: no module's)
  std::uint64_t begin = 0, end = 0;      // of the instructions, and of what stands behind them
  std::int32_t index = kNone;            // of the function in the module, imported ones included; kNone: it is none
  bool operator==(const WasmObject&) const = default;

  static constexpr std::int32_t kNone = -1;
};

// What code that calls JavaScript is shown as.
inline constexpr const char* kToJavaScript = "[WebAssembly to JavaScript]";

class WasmMap {
 public:
  static constexpr std::uint32_t kLongest = 1 << 24;  // bytes of code
  static constexpr std::int32_t kMostFunctions = 1'000'000;
  static constexpr std::size_t kMostNew = 4096;  // code that is not sorted yet; what is before these is not found

  // `state`: where the variable is (global_wasm_state), 0 if that is not known; `version`: V8's.
  WasmMap(const Memory& memory, std::uint64_t state, std::int32_t version);

  // Memory that V8 has for WebAssembly's code; nothing: the address is in none.
  struct Range {
    std::uint64_t begin = 0, end = 0;
    std::uint64_t module = 0;  // whose code is there; 0: no module's
    std::uint64_t codes = 0;   // the map of it
  };
  [[nodiscard]] std::optional<Range> range_of(std::uint64_t pc);
  // kNotFound: no code is known to be there.
  [[nodiscard]] Expected<WasmObject> find(const Range& range, std::uint64_t pc) const;
  // Is it still there?
  [[nodiscard]] bool is_still(const WasmObject& object) const;

 private:
  struct Node {
    std::uint64_t colour = 0, parent = 0, left = 0, right = 0, key = 0, value[2] = {};
  };
  [[nodiscard]] std::optional<Node> floor(std::uint64_t header, std::uint64_t pc) const;
  [[nodiscard]] std::optional<WasmObject> code_at(std::uint64_t object, std::uint64_t module) const;
  [[nodiscard]] std::uint32_t find_ranges(std::uint64_t state) const;
  [[nodiscard]] std::uint32_t find_codes(std::uint64_t object, std::uint64_t module) const;
  template <typename Visit>
  bool any_new(std::uint64_t codes, Visit&& visit) const;

  const Memory& memory_;
  std::uint64_t state_;
  std::uint32_t size_at_ = 0, index_at_ = 0;  // in a WasmCode; 0: not known of this version
  // Where the maps are: in the state, in a module; 0: not known yet.
  std::uint32_t ranges_ = 0, shared_ = 0, codes_ = 0;
};

}  // namespace windlass::runtimes::v8
