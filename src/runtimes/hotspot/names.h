// Names of a HotSpot's methods, and source lines of bytecodes.
//
// openjdk/jdk, src/hotspot/share/oops: method.hpp, constMethod.hpp (with the data behind a ConstMethod),
// constantPool.hpp, symbol.hpp; code/compressedStream.hpp (line numbers).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtimes/hotspot/vm_structs.h"
#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes::hotspot {

struct JavaMethod {
  std::string name;  // "java.util.HashMap.put"; empty: not known
  std::string file;  // "HashMap.java"; empty: not known
  std::uint16_t code_size = 0;
  struct Line {
    std::uint16_t bci = 0, line = 0;
  };
  std::vector<Line> lines;  // in the order of the table, which need not ascend
  // 0: not known.
  [[nodiscard]] std::uint32_t line_at(std::int32_t bci) const;
};

class Names {
 public:
  static constexpr std::size_t kMaxMethods = std::size_t{1} << 16;  // kept at a time
  static constexpr std::uint64_t kStaleAfter = 100'000'000;         // ns
  static constexpr std::size_t kMaxLineBytes = std::size_t{1} << 16;

  // kUnsupported: a field that is missing. `null_free` is how numbers are compressed: see Compressed.
  [[nodiscard]] static Expected<Names> make(const VmStructs& structs, bool null_free);

  // The ConstMethod of a Method, which has all that does not change; looked at again after kStaleAfter. Of a process
  // that has ended the one that it had last. 0: it cannot be read.
  [[nodiscard]] std::uint64_t const_method(const Memory& memory, std::uint64_t method);
  // Of a ConstMethod; nothing is kept of one that cannot be read. Valid up to the next call.
  [[nodiscard]] const JavaMethod& method(const Memory& memory, std::uint64_t const_method);
  // The bci of a bytecode pointer in a ConstMethod; nothing: it is not within it.
  [[nodiscard]] std::optional<std::int32_t> bci_of(const Memory& memory, std::uint64_t const_method,
                                                   std::uint64_t pointer);

 private:
  [[nodiscard]] JavaMethod read(const Memory& memory, std::uint64_t const_method) const;
  [[nodiscard]] std::string symbol(const Memory& memory, std::uint64_t address) const;
  [[nodiscard]] std::string text_of_pool(const Memory& memory, std::uint64_t pool, std::uint16_t index) const;
  void read_lines(const Memory& memory, std::uint64_t const_method, JavaMethod& to) const;

  bool null_free_ = false;
  bool file_is_of_class_ = false;  // before JDK 15; later of the pool of constants
  std::uint32_t method_const_ = 0, const_pool_ = 0, const_name_ = 0, const_code_size_ = 0, const_flags_ = 0;
  std::uint32_t const_size_ = 0, pool_holder_ = 0, file_ = 0, pool_size_ = 0, klass_name_ = 0;
  std::uint32_t symbol_length_ = 0, symbol_body_ = 0;
  struct Known {
    std::uint64_t const_method = 0;
    std::uint64_t looked = 0;  // CLOCK_MONOTONIC
  };
  std::unordered_map<std::uint64_t, JavaMethod> methods_;  // by ConstMethod
  std::unordered_map<std::uint64_t, Known> known_;         // by Method
};

// Numbers of one to five bytes, least significant first: six bits in each that is not the last. From JDK 20 on no byte
// is 0, so that each counts one less (utilities/unsigned5.hpp).
class Compressed {
 public:
  Compressed(ByteView bytes, bool null_free) : bytes_(bytes), excluded_(null_free ? 1 : 0) {}
  // Nothing at the end.
  [[nodiscard]] std::optional<std::uint32_t> next();
  [[nodiscard]] std::optional<std::int32_t> next_signed();
  [[nodiscard]] std::optional<std::uint8_t> byte();

 private:
  ByteView bytes_;
  std::size_t at_ = 0;
  unsigned excluded_;
};

}  // namespace windlass::runtimes::hotspot
