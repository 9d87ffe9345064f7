// Reads the CIEs and FDEs of `.eh_frame` and `.debug_frame`. LSB 5.0 "Exception Frames", DWARF 5 section 6.4.
//
//   CfiReader reader(section, report);
//   for (Fde fde; reader.next_fde(fde);) ...   // fde.cie is valid as long as the reader
//
// A malformed entry goes to the error sink with its offset in the file, and the walk goes on at the next entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "base/registers.h"
#include "formats/dwarf/constants.h"
#include "windlass/bytes.h"
#include "windlass/function_ref.h"

namespace windlass::dwarf {

using ErrorSink = FunctionRef<void(const Error&)>;

using windlass::Architecture;

// What one section of call frame information is and where it is loaded. A view.
struct CfiSection {
  std::string_view name = ".eh_frame";
  ByteView bytes;             // its origin is what errors count from
  std::uint64_t address = 0;  // of bytes[0]; what DW_EH_PE_pcrel counts from
  Architecture architecture = Architecture::kX86_64;
  bool is_debug_frame = false;      // .debug_frame's CIE pointers and ids instead of .eh_frame's
  bool stop_at_terminator = false;  // the size is not known: a zero length ends it (as libgcc reads it)
  std::uint64_t text_address = 0;   // what DW_EH_PE_textrel counts from
  ByteView text = {};               // the code there, where FDEs are compared with it (misplaced_epilogue.h); or empty
  std::uint64_t data_address = 0;   // what DW_EH_PE_datarel counts from (the GOT; in .eh_frame_hdr its own start)
};

// A pointer as decoded. `indirect`: `value` is the address of the pointer, which is not followed here.
struct EncodedPointer {
  std::uint64_t value = 0;
  bool indirect = false;
};

struct Cie {
  std::uint64_t offset = 0;  // of its length field, in the section
  std::uint32_t index = 0;   // order of first use; dense, for caches keyed by CIE
  std::uint8_t version = 1;
  std::uint8_t address_size = 8;
  std::uint8_t segment_selector_size = 0;
  std::uint8_t fde_encoding = DW_EH_PE_absptr;  // 'R'
  std::uint8_t lsda_encoding = DW_EH_PE_omit;   // 'L'
  bool is_64bit = false;                        // 64-bit DWARF: an 8-byte length
  bool has_augmentation_data = false;           // 'z'
  bool signal_frame = false;                    // 'S'
  bool aarch64_b_key = false;                   // 'B': return addresses signed with key B
  bool aarch64_mte = false;                     // 'G': tagged stack
  std::string_view augmentation;
  std::uint64_t code_alignment = 1;
  std::int64_t data_alignment = 1;
  std::uint64_t return_address_register = 0;
  std::optional<EncodedPointer> personality;  // 'P'
  ByteView instructions;
};

struct Fde {
  std::uint64_t offset = 0;  // of its length field, in the section
  const Cie* cie = nullptr;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // == begin: covers nothing
  std::optional<EncodedPointer> lsda;
  ByteView instructions;
};

// Reads an encoded pointer at `position` of `section` and moves the position past it. `function` is what
// DW_EH_PE_funcrel counts from. Errors: truncated, unknown encoding.
[[nodiscard]] Expected<EncodedPointer> read_encoded_pointer(const CfiSection& section, std::uint64_t& position,
                                                            std::uint8_t encoding, std::uint8_t address_size,
                                                            std::uint64_t function);

struct EntryHeader;
class EntryParser;

// One pass forward over a section, and random access by offset. Not thread-safe; allocates only for CIEs not seen
// before.
class CfiReader {
 public:
  // `report` is kept by reference: a lambda must be a named one that outlives the reader.
  CfiReader(const CfiSection& section, ErrorSink report) : section_(section), report_(report) {}
  template <typename Temporary>
  requires(!std::is_lvalue_reference_v<Temporary> && !std::is_same_v<std::remove_cv_t<Temporary>, ErrorSink>)
      CfiReader(const CfiSection& section, Temporary&& report)
  = delete;

  // The next FDE, or false at the end. Amortised constant time.
  bool next_fde(Fde& fde);

  // The next entry of either kind: exactly one of `cie` and `fde.cie` (then with `cie` null) is set.
  struct Entry {
    const Cie* cie = nullptr;  // set where the entry is a CIE
    Fde fde;                   // set where it is an FDE
  };
  bool next(Entry& entry);

  // The FDE whose length field is at `offset`.
  [[nodiscard]] Expected<Fde> fde_at(std::uint64_t offset);

  [[nodiscard]] const CfiSection& section() const { return section_; }
  [[nodiscard]] std::uint64_t position() const { return position_; }  // of the next entry

 private:
  enum class Step : std::uint8_t { kEntry, kEnd, kError };

  [[nodiscard]] bool next_usual_fde(Fde& fde);
  [[nodiscard]] EntryParser parser() const;
  [[nodiscard]] Step next_header(EntryHeader& header);
  [[nodiscard]] Expected<const Cie*> cached_cie(std::uint64_t offset);
  [[nodiscard]] bool parse_fde(const EntryHeader& header, Fde& fde, Error& problem);
  [[nodiscard]] bool next(const Cie*& cie, Fde& fde);

  CfiSection section_;
  ErrorSink report_;
  std::uint64_t position_ = 0;
  const Cie* last_cie_ = nullptr;
  std::deque<Cie> cies_;                                     // a deque: addresses stay valid
  std::unordered_map<std::uint64_t, const Cie*> by_offset_;  // null: malformed, already known to be
};

}  // namespace windlass::dwarf
