// Which functions of JavaScript run in a frame, and at which of their lines.
//
// v8/v8, src/objects/{deoptimization-data,bytecode-array,code}.h; src/execution/frame-constants.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "runtimes/v8/functions.h"
#include "runtimes/v8/image_file.h"
#include "runtimes/v8/rows.h"

namespace windlass::runtimes::v8 {

class Names {
 public:
  static constexpr std::size_t kMaxTable = std::size_t{1} << 22;  // bytes of one table
  static constexpr std::size_t kMaxPositions = std::size_t{1} << 24;
  static constexpr std::uint64_t kStaleAfter = 100'000'000;  // ns

  Names(const Heap& heap, const ImageFacts& facts) : heap_(heap), facts_(facts), form_(position_form(facts)) {}

  // Fills in the names: of optimised code and the functions inlined there, and of the bytecodes of baseline code.
  void fill(CompiledCode& code);
  // The function that a frame with slots runs, by them; its number and the position in its script.
  struct Place {
    std::uint32_t function = Functions::kNone;
    std::int32_t position = -1;
  };
  [[nodiscard]] std::optional<Place> by_slots(const Code& code, std::uint64_t address, const Registers& frame,
                                              const Memory& memory);
  // What by_slots() reads of a frame. Nothing: the frame is not set up there.
  [[nodiscard]] std::optional<std::vector<wl_taken>> words_of(const Code& code, std::uint64_t address) const;
  [[nodiscard]] sources::NamedFunction named(std::uint32_t function, std::uint32_t line) const;
  [[nodiscard]] const Functions& functions() const { return functions_; }

 private:
  [[nodiscard]] static PositionForm position_form(const ImageFacts& facts);

  [[nodiscard]] bool is_baseline(const Code& code) const;

  void fill_optimized(CompiledCode& code);
  void fill_baseline(CompiledCode& code);
  [[nodiscard]] std::vector<std::byte> all_bytecodes(Tagged bytecodes) const;  // empty: not readable
  [[nodiscard]] Tagged baseline_bytecodes(const CompiledCode& code) const;
  [[nodiscard]] std::uint32_t function_of(Tagged shared);
  // The function of an object of JavaScript, or of what it shares, if it has these bytecodes. The collector moves young
  // functions, so a word of a sample can point to another by now. Then it is the function that had the bytecodes
  // before, or that has them in its script.
  [[nodiscard]] std::uint32_t function_of(Tagged function, Tagged bytecodes);
  // Of a SharedFunctionInfo; 0: it has none. By `steps` other objects: baseline code, InterpreterData.
  [[nodiscard]] Tagged bytecodes_of(Tagged object, unsigned steps = 2) const;
  void read_script(Tagged script);
  // The SharedFunctionInfo with these bytecodes in one of the scripts met so far; 0: none. Each script is looked
  // through at most every kFirstWait ns, and twice as long after each time up to kLongestWait.
  [[nodiscard]] Tagged shared_with(Tagged bytecodes);
  [[nodiscard]] std::int32_t position_of(std::uint32_t function, Tagged bytecodes, std::uint32_t bytecode);
  [[nodiscard]] std::vector<SourcePosition> positions_of(std::uint32_t function, Tagged bytecodes) const;

  const Heap& heap_;
  const ImageFacts& facts_;
  PositionForm form_;
  Functions functions_;
  struct Known {
    std::vector<SourcePosition> positions;
    std::uint64_t looked = 0;  // CLOCK_MONOTONIC
  };
  std::unordered_map<std::uint32_t, Known> positions_;  // by function
  struct Bytecodes {
    std::uint32_t length = 0;
    std::array<std::byte, 64> first{};
    bool operator==(const Bytecodes&) const = default;
  };
  [[nodiscard]] Bytecodes read_bytecodes(Tagged bytecodes) const;
  // Who has bytecodes: a SharedFunctionInfo, and the function of the bytecodes that were there.
  struct Runner {
    Tagged shared = 0;
    std::uint32_t function = Functions::kNone;  // kNone: it was met in its script only
    Bytecodes bytecodes = {};
  };
  std::unordered_map<Tagged, Runner> runners_;  // by the place of their bytecodes, which hardly moves; kMaxFunctions
  static constexpr std::uint64_t kFirstWait = 20'000'000, kLongestWait = 8'000'000'000;  // ns
  struct Look {
    std::uint64_t next = 0, wait = kFirstWait;
  };
  std::unordered_map<Tagged, Look> scripts_;  // Functions::kMaxScripts
  std::size_t known_ = 0;
};

}  // namespace windlass::runtimes::v8
