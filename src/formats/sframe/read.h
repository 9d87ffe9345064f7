// Reads `.sframe` of versions 1 to 3 into rows.
#pragma once

#include <cstdint>

#include "formats/sframe/format.h"
#include "formats/sframe/rows.h"
#include "windlass/bytes.h"
#include "windlass/error.h"
#include "windlass/frame_row.h"
#include "windlass/function_ref.h"
#include "windlass/registers.h"

namespace windlass::sframe {

using ErrorSink = FunctionRef<void(const Error&)>;

// An entry of the index, with what it leads to.
struct Function {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t record = 0;       // its offset in the section
  std::uint64_t rows_offset = 0;  // of the first one, in the section
  std::uint32_t rows = 0;         // how many are stored
  std::uint8_t start_size = 1;    // of a row, bytes
  std::uint8_t block = 0;         // its rows are of so many bytes of code, which repeat; 0: of all of it
  bool flexible = false;
  bool signal_frame = false;
  bool b_key = false;
};

// A view of a section's bytes. Immutable, without allocation; signal-safe. `where` of errors is a file offset: it
// counts from the bytes' origin.
class Section {
 public:
  // `address` is that of bytes[0]. Errors: kTruncated, kMalformed; kUnsupported another version, byte order or
  // architecture. Constant.
  [[nodiscard]] static Expected<Section> parse(ByteView bytes, std::uint64_t address);

  [[nodiscard]] const Header& header() const { return header_; }
  [[nodiscard]] Architecture architecture() const { return architecture_; }
  [[nodiscard]] ByteView bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t address() const { return address_; }
  [[nodiscard]] std::uint32_t size() const { return header_.functions; }

  // By its number in the index. Constant.
  [[nodiscard]] Expected<Function> function(std::uint32_t number) const;
  // The one whose record is at an offset in the section.
  [[nodiscard]] Expected<Function> function_of(std::uint64_t record) const;
  // The one that contains an address. kNotFound. Logarithmic in an index that is sorted, as linkers leave it, else
  // linear.
  [[nodiscard]] Expected<Function> find(std::uint64_t address) const;
  // All, in the order of the index; what is malformed goes to `report`. callback: false ends. At the latest this ends
  // where functions have more rows than the header counts, so that all rows of all functions are linear in the bytes.
  void for_each_function(FunctionRef<bool(const Function&)> callback, ErrorSink report) const;

  // The rows of a function of this section as stored, in their order.
  [[nodiscard]] Expected<void> for_each_stored(const Function& function,
                                               FunctionRef<void(const StoredRow&)> callback) const;
  // The same lowered, ascending and disjoint; those of a block as often as it repeats. kLimit: more than 65,536
  // times.
  [[nodiscard]] Expected<void> for_each_row(const Function& function,
                                            FunctionRef<void(const FrameRow&)> callback) const;
  // The one in force at an address in the function. Linear in the function's rows.
  [[nodiscard]] Expected<void> row_at(const Function& function, std::uint64_t address, FrameRow& to) const;

 private:
  [[nodiscard]] std::uint32_t record_size() const;
  [[nodiscard]] std::uint64_t record_at(std::uint32_t number) const {
    return functions_at_ + std::uint64_t{number} * record_size();
  }
  [[nodiscard]] std::uint64_t begin_of(std::uint64_t record, std::int64_t start) const;
  [[nodiscard]] Expected<Function> last_at_or_before(std::uint64_t address) const;
  // The row at `position`, behind which it then is.
  [[nodiscard]] Expected<StoredRow> stored_row(const Function& function, std::uint64_t& position) const;

  ByteView bytes_;
  std::uint64_t address_ = 0;
  Header header_{};
  Architecture architecture_ = Architecture::kX86_64;
  std::uint64_t functions_at_ = 0;  // these two are offsets in the section
  std::uint64_t rows_at_ = 0;
};

}  // namespace windlass::sframe
