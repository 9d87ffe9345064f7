// Keeps whole functions of code without rows, so that each is followed once a file, and once more where generated code
// has changed. For users that walk many stacks of other processes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "flow/whole_function.h"
#include "walk/code_reads.h"

namespace windlass::walk {

// A place in code: which, and where in that.
struct CodePlace {
  std::uint64_t code = 0;
  std::uint64_t address = 0;
  bool operator==(const CodePlace&) const = default;
};

// One thread only.
class FunctionMemo {
 public:
  static constexpr std::size_t kMaxFunctions = std::size_t{64} << 10;
  static constexpr std::size_t kMaxRows = std::size_t{32} << 10;

  // The row at `at`, as the process has it: `bias` is its address there less that in the code. `changes`: the code may.
  // False: none is proved.
  [[nodiscard]] bool row_at(const CodePlace& at, std::uint64_t bias, bool changes, const flow::CodeSource& source,
                            FrameRow& row);
  // The function around `at`, with the addresses of the code; null: no row was asked for there, or lately none was.
  [[nodiscard]] std::shared_ptr<const flow::WholeFunction> known(const CodePlace& at) const;
  void clear();

 private:
  struct Kept {
    std::shared_ptr<const flow::WholeFunction> function;  // with the addresses of the code
    CodeReads reads;                                      // of code that changes
  };
  // By the code and where it begins there.
  using Functions = std::map<std::pair<std::uint64_t, std::uint64_t>, Kept>;
  [[nodiscard]] Functions::const_iterator find(const CodePlace& at) const;
  Kept follow(const CodePlace& at, std::uint64_t bias, bool changes, const flow::CodeSource& source);
  void drop(Functions::const_iterator known);
  void keep(std::uint64_t code, Kept kept);

  Functions functions_;
  std::size_t rows_ = 0;
};

}  // namespace windlass::walk
