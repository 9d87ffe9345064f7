// Reads Windows ARM64 unwind information: the function table's entries, packed or with an .xdata record, and the unwind
// codes of either. Source: "ARM64 exception handling" (Microsoft). Existing unwinders differ from that page in places,
// and then they are followed: .NET's, which is Windows' own (coreclr/unwinder/arm64), and LLVM's. Nothing here
// allocates.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/image/function_table.h"
#include "formats/image/pe.h"
#include "windlass/bytes.h"
#include "windlass/format/winarm64.h"
#include "windlass/function_ref.h"
#include "windlass/registers.h"

namespace windlass::winarm64 {

inline constexpr RegisterNumber kFp = 29, kLr = 30, kSp = 31, kPc = 32;

inline constexpr unsigned kEntrySize = 8;
inline constexpr std::size_t kMaxCodeBytes = 255 * 4;  // the extension word counts up to 255 words

// What a packed entry says, in bytes where it counts words.
struct PackedFields {
  std::uint32_t length = 0;      // of the function
  std::uint8_t reg_f = 0;        // 0: no d register is saved; n: d8 to d(8+n)
  std::uint8_t reg_i = 0;        // x19 on, this many
  bool h = false;                // x0-x7 are homed
  std::uint8_t cr = 0;           // 0 unchained, 1 unchained with lr saved, 2 chained with lr signed, 3 chained
  std::uint32_t frame_size = 0;  // the whole frame
};
[[nodiscard]] PackedFields packed_fields(RuntimeFunction function);

// ---- unwind codes -------------------------------------------------------------------------------------------------

enum class Operation : std::uint8_t {
  kAllocS,
  kSaveR19R20X,
  kSaveFplr,
  kSaveFplrX,
  kAllocM,
  kSaveRegp,
  kSaveRegpX,
  kSaveReg,
  kSaveRegX,
  kSaveLrpair,
  kSaveFregp,
  kSaveFregpX,
  kSaveFreg,
  kSaveFregX,
  kAllocZ,
  kAllocL,
  kSetFp,
  kAddFp,
  kNop,
  kEnd,
  kEndC,
  kSaveNext,
  kSaveAnyReg,
  kSaveZreg,
  kSavePreg,
  kTrapFrame,
  kMachineFrame,
  kContext,
  kEcContext,
  kClearUnwoundToCall,
  kPacSignLr,
  kReservedNop,  // F8-FB with their operands, FD-FF: undefined, and every unwinder steps over them
  kReserved,     // ED-F7 and E7 with its top bit: undefined (once "arithmetic" codes), and no unwinder takes them
};
// "save_regp_x", as the page writes it.
[[nodiscard]] std::string_view operation_name(Operation operation);

enum class RegisterFile : std::uint8_t { kNone, kX, kD, kQ, kZ, kP };

struct UnwindCode {
  Operation operation = Operation::kReserved;
  std::uint8_t size = 1;          // bytes
  std::uint8_t instructions = 1;  // it stands for. 0 for E8-F7, which describe no instruction of a prologue
  RegisterFile file = RegisterFile::kNone;
  std::uint8_t reg = 0;     // first register saved, by its number in its file
  std::uint8_t second = 0;  // the other one of a pair
  bool pair = false;
  bool writeback = false;   // the store moves sp down by `value`; else it is at [sp + value]
  std::uint32_t value = 0;  // bytes (alloc_z and SVE saves: vector lengths; preg: eighths of one)

  [[nodiscard]] bool saves() const { return file != RegisterFile::kNone; }
  [[nodiscard]] bool ends() const { return operation == Operation::kEnd || operation == Operation::kEndC; }
};

// The code at byte `index` of a record's codes. kTruncated if they end before it does.
[[nodiscard]] Expected<UnwindCode> code_at(ByteView codes, std::uint64_t index);
// How many bytes the code with this first byte has, and how many instructions it stands for.
[[nodiscard]] std::uint8_t code_size(std::uint8_t first);
[[nodiscard]] std::uint8_t code_instructions(std::uint8_t first);

// Instructions that the codes from `index` to the next `end` or `end_c` (or the codes' own end) stand for. An epilogue
// has one more, its return or jump. Linear in the number of codes, of which there are at most 1,020 bytes.
[[nodiscard]] std::uint32_t count_instructions(ByteView codes, std::uint64_t index);

// ---- records ------------------------------------------------------------------------------------------------------

// Epilogue scope: where it starts, and the first of its codes.
struct EpilogueScope {
  std::uint32_t start = 0;  // bytes from the function's start
  std::uint32_t index = 0;  // byte in the codes; 10 bits (.NET, LLVM)
  std::uint8_t reserved = 0;
};

// An .xdata record, or what a packed entry stands for. `scopes` and `codes` are views: of the image, or of the
// Expansion that a packed entry was read into.
struct UnwindRecord {
  std::uint32_t rva = 0;     // of the record; of the function where it is packed
  std::uint32_t length = 0;  // of the function or fragment, in bytes
  std::uint8_t version = 0;
  bool single_epilogue = false;      // the E bit: its codes start at `epilogue_index`, its end is the function's
  std::uint32_t epilogue_index = 0;  // where E is set
  ByteView scopes;                   // 4 bytes each; empty where E is set
  ByteView codes;
  bool has_handler = false;
  std::uint32_t handler = 0;       // RVA
  std::uint32_t handler_data = 0;  // RVA of the language-specific data

  [[nodiscard]] std::uint32_t scope_count() const { return static_cast<std::uint32_t>(scopes.size() / 4); }
  // i < scope_count().
  [[nodiscard]] EpilogueScope scope(std::uint32_t i) const {
    const std::uint32_t word = *scopes.at<std::uint32_t>(std::uint64_t{i} * 4);
    return {(word & 0x3ffff) * 4, word >> 22, static_cast<std::uint8_t>(word >> 18 & 15)};
  }
};

// A packed entry's unwind codes: those of the prologue and, where they differ, of the epilogue behind them.
class Expansion {
 public:
  [[nodiscard]] ByteView codes() const {
    return {reinterpret_cast<const std::byte*>(bytes_) + first_, static_cast<std::size_t>(end_ - first_)};
  }
  // kNoEpilogue: a fragment has none.
  static constexpr std::uint8_t kNoEpilogue = 0xff;
  [[nodiscard]] std::uint8_t epilogue_index() const { return epilogue_index_; }

  // kMalformed where the fields contradict each other: more registers than there are, or a frame too small for them.
  [[nodiscard]] Expected<void> expand(const PackedFields& fields, bool fragment, std::uint32_t rva);

 private:
  void put(std::uint8_t byte) { bytes_[--first_] = byte; }
  void put2(unsigned code) {
    put(static_cast<std::uint8_t>(code));
    put(static_cast<std::uint8_t>(code >> 8));
  }
  void put_alloc(std::uint32_t size);
  void put_integer_saves(const PackedFields& fields, std::uint32_t saved_size, std::uint32_t& offset);
  void put_vector_saves(const PackedFields& fields, std::uint32_t saved_size, std::uint32_t& offset);
  void put_locals(const PackedFields& fields, std::uint32_t size);

  // The prologue's codes are put backwards from the middle on, as they are stored in reverse; the epilogue's follow.
  static constexpr std::uint8_t kMiddle = 36;
  std::uint8_t bytes_[72];
  std::uint8_t first_ = kMiddle;
  std::uint8_t end_ = kMiddle;
  std::uint8_t epilogue_index_ = 0;
};

// ---- the function table -------------------------------------------------------------------------------------------

// The image and its function table in order. Look-ups neither allocate nor lock.
class Functions {
 public:
  explicit Functions(const image::PeImage& image) : image_(&image), table_(image.arm64_functions(), kEntrySize) {}

  [[nodiscard]] const image::PeImage& image() const { return *image_; }
  [[nodiscard]] const image::FunctionTable& table() const { return table_; }
  [[nodiscard]] std::size_t size() const { return table_.size(); }
  [[nodiscard]] RuntimeFunction stored(std::size_t index) const {
    return {table_.word(index, 0), table_.word(index, 1)};
  }
  // The last entry that begins at or before `rva`. Whether it reaches that far its record says. Logarithmic.
  [[nodiscard]] std::optional<RuntimeFunction> candidate(std::uint32_t rva) const {
    const auto rank = table_.last_at_or_before(rva);
    if (!rank) return std::nullopt;
    return stored(table_.stored_index(*rank));
  }

 private:
  const image::PeImage* image_;
  image::FunctionTable table_;
};

// The record of an entry that is not of kind kParent; of a packed one by expanding it into `storage`, which must
// outlive the result. Errors name the record's RVA.
[[nodiscard]] Expected<UnwindRecord> read_record(const image::PeImage& image, RuntimeFunction function,
                                                 Expansion& storage);
// The same of a packed entry alone.
[[nodiscard]] Expected<UnwindRecord> expand_packed(RuntimeFunction function, Expansion& storage);
// An .xdata record from bytes, the first of which is that at `rva`.
[[nodiscard]] Expected<UnwindRecord> parse_record(ByteView bytes, std::uint32_t rva);

// The first words of a record: what it has, and so how many bytes.
struct RecordHead {
  std::uint32_t length = 0;  // of the function, in bytes
  std::uint8_t version = 0;
  bool has_handler = false;
  bool single_epilogue = false;
  bool extended = false;        // there is a second word, which has these two
  std::uint32_t epilogues = 0;  // with single_epilogue the index of its first code, else how many scopes there are
  std::uint32_t words = 0;      // of codes

  [[nodiscard]] std::uint32_t scopes_at() const { return extended ? 8 : 4; }
  [[nodiscard]] std::uint32_t codes_at() const { return scopes_at() + (single_epilogue ? 0 : epilogues * 4); }
  [[nodiscard]] std::uint32_t handler_at() const { return codes_at() + words * 4; }
  [[nodiscard]] std::uint32_t size() const { return handler_at() + (has_handler ? 4 : 0); }
};
// From 4 or 8 bytes; kUnsupported for a version that nobody knows.
[[nodiscard]] Expected<RecordHead> read_head(ByteView bytes, std::uint32_t rva);
// The entry that a kParent entry points at. kMalformed: another kParent; kUnsupported: bit 2 is set.
[[nodiscard]] Expected<RuntimeFunction> parent_of(const image::PeImage& image, RuntimeFunction function);

// Reports contradictions in a record that could be read. Of codes: no end, cut off, undefined, or with registers that
// do not exist. Of epilogues: outside of the function, or with codes outside of the record. Each error has the RVA of
// the fault. Linear in the record's size.
using ErrorSink = FunctionRef<void(const Error&)>;
void check_record(const UnwindRecord& record, ErrorSink report);

}  // namespace windlass::winarm64
