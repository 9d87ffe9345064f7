// Which function an address of a Go program is in, and the values that the table has for each of its instructions.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/go/find.h"
#include "windlass/error.h"
#include "windlass/function_ref.h"

namespace windlass::runtimes::go {

// A record of the table (runtime._func), as far as it is used.
struct Function {
  std::uint64_t begin = 0, end = 0;  // addresses in the image; the end is where the next one begins
  std::uint64_t record = 0;          // its offset in Table::functions
  std::uint64_t value_lists = 0;     // of the records that follow it: where, and how many there are
  std::uint32_t value_count = 0;
  std::int32_t name = 0;
  std::uint32_t stack = 0, file = 0, line = 0;  // lists of values: bytes on the stack, numbers of files, lines
  std::uint32_t unit = 0;                       // where the numbers of its files begin
  std::uint32_t begins_line = 0;                // 0 before Go 1.20
  std::uint8_t special = 0;                     // not 0: the runtime treats it in a way of its own; differs by release
  std::uint8_t flags = 0;                       // kMarkedOutermost, kMarkedSetsStack; 0 before Go 1.17
  std::uint8_t data_count = 0;                  // behind the lists of values
};
inline constexpr std::uint8_t kMarkedOutermost = 1;  // FuncFlagTopFrame
inline constexpr std::uint8_t kMarkedSetsStack =
    2;  // FuncFlagSPWrite: sp becomes what is not known when it is compiled

// `value` holds for [begin, end).
using ValueSink = FunctionRef<bool(std::uint64_t begin, std::uint64_t end, std::int32_t value)>;  // false: no more

// Of an image's table, whose bytes must outlive it. Nothing here allocates or locks; signal-safe.
class CodeMap {
 public:
  explicit CodeMap(const Table& table) : table_(table) {}

  [[nodiscard]] const Table& table() const { return table_; }
  [[nodiscard]] std::uint64_t size() const { return table_.function_count; }
  // Logarithmic. The last byte of padding counts as the next function's, since look-ups of return addresses subtract
  // one. kNotFound: no function of Go is there. Any other error says how the record is damaged.
  [[nodiscard]] Expected<Function> function_at(std::uint64_t address) const;
  // By its number, ascending by address.
  [[nodiscard]] Expected<Function> function(std::uint64_t number) const;
  // Package path, receiver and name, as Go writes them; empty where it is damaged.
  [[nodiscard]] std::string_view name(std::int32_t offset) const;
  // The values of a list, ascending; those beyond the function's end are left out. Linear in the list.
  Expected<void> for_each_value(const Function& function, std::uint32_t list, ValueSink value) const;
  // The one at an address; -1 where there is none.
  [[nodiscard]] std::int32_t value_at(const Function& function, std::uint32_t list, std::uint64_t address) const;
  // The list of values with a number (PCDATA); 0: there is none.
  [[nodiscard]] std::uint32_t value_list(const Function& function, std::uint32_t number) const;

 private:
  // Of entry `number`, or of the end of the last.
  [[nodiscard]] std::uint64_t begin_of(std::uint64_t number) const;

  Table table_;
};

}  // namespace windlass::runtimes::go
