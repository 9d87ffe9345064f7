// Reading unwind information: the functions and rows of an ELF file or a PE image, by one interface whatever the
// format.
//
//   const auto reader = open_unwind_info("/bin/true");       // or read_unwind_info(bytes)
//   if (!reader) return complain(reader.error());
//   std::vector<Error> problems;                             // malformed records, each with its place
//   for (const UnwindFunction& function : (*reader)->functions(&problems))
//     for (const FrameRow& row : (*reader)->rows(function, &problems)) use(function, row);
//   const auto row = (*reader)->row_at(address);             // how to get from there to the caller
//
// Addresses are in the file's own numbering: virtual addresses in ELF files, RVAs in PE images. Registers are DWARF
// numbers. None of this is signal-safe; a reader is immutable, and may be asked by any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windlass/error.h"
#include "windlass/frame_row.h"
#include "windlass/registers.h"

namespace windlass {

enum class UnwindFormat : std::uint8_t {
  kDwarf,     // .eh_frame and .debug_frame, also compressed and in .gnu_debugdata; .sframe for what these lack
  kWinX64,    // .pdata and UNWIND_INFO of versions 1 to 3
  kWinArm64,  // .pdata and .xdata, packed entries included
  kSFrame,    // .sframe of versions 1 to 3, in a file that has nothing else
  kGo,        // .gopclntab, the functions of a Go program; what call frame information it has is read, too
};
[[nodiscard]] std::string_view format_name(UnwindFormat format);

// An address that a record names, or, `indirect`, the address of a pointer to it, which only a process can follow.
struct CodePointer {
  std::uint64_t address = 0;  // 0: there is none
  bool indirect = false;
};

// Where a record is stored.
struct RecordPlace {
  static constexpr std::uint32_t kSFrame = 0xffffffff;       // `section` where .sframe holds the record
  static constexpr std::uint32_t kGoFunctions = 0xfffffffe;  // where Go's table of functions does

  std::uint32_t section = 0;  // which of the sections of call frame information, or one of the above; 0 in PE images
  std::uint64_t offset = 0;   // in the section, or in the function table
  std::uint64_t address = 0;  // of the record in the image; 0: it is not loaded
};

// What the unwind information says about a function, or about a part of one that has a record of its own.
struct UnwindFunction {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;      // one past the last byte
  std::uint64_t primary = 0;  // where the function begins that this is a part of: `begin`, unless it was split off
  CodePointer personality;    // the routine that understands `language_data`
  CodePointer language_data;
  // In which pass the personality is called: the search for a handler (UNW_FLAG_EHANDLER), and unwinding, which runs
  // cleanups (UNW_FLAG_UHANDLER). DWARF and ARM64 know no difference.
  bool on_exception = false;
  bool on_termination = false;
  bool signal_frame = false;  // the caller's pc is an interrupted instruction
  RecordPlace record;
  std::uint64_t text_base = 0;  // what DW_EH_PE_textrel and datarel in the language-specific data count from
  std::uint64_t data_base = 0;

  [[nodiscard]] bool contains(std::uint64_t address) const { return address >= begin && address < end; }
};

// `where` of an error is an offset in the file (call frame information) or an RVA (PE images).
class UnwindReader {
 public:
  virtual ~UnwindReader() = default;

  [[nodiscard]] virtual UnwindFormat format() const = 0;
  [[nodiscard]] virtual Architecture architecture() const = 0;
  // ELF: GNU's, lower-case hex; PE: the CodeView identity. Empty: none.
  [[nodiscard]] virtual const std::string& build_id() const = 0;
  // Of the program; 0: none.
  [[nodiscard]] virtual std::uint64_t entry_point() const = 0;
  // What is wrong with the file as a whole; the rest of it is read all the same.
  [[nodiscard]] virtual std::span<const Error> problems() const = 0;

  // Every function with a record, ascending by begin. Malformed records are left out and, where `problems` is not null,
  // appended to it. Linear in the unwind information, and a sort where it is not stored in order.
  [[nodiscard]] virtual std::vector<UnwindFunction> functions(std::vector<Error>* problems = nullptr) const = 0;
  // The one that contains an address. kNotFound: none does; else what is wrong with its record. Logarithmic, but that a
  // file without an .eh_frame_hdr is indexed, under a lock, when first asked.
  [[nodiscard]] virtual Expected<UnwindFunction> function_at(std::uint64_t address) const = 0;

  // The rows of a function that this reader gave, ascending, disjoint. What is malformed, or (kUnsupported) cannot be
  // said by a row, is left out and appended to `problems`. Expressions are valid as long as the reader. Linear in the
  // record.
  [[nodiscard]] virtual std::vector<FrameRow> rows(const UnwindFunction& function,
                                                   std::vector<Error>* problems = nullptr) const = 0;
  // The row in force at an address, one of rows(). Errors: as function_at; kUnsupported where no row can say it.
  [[nodiscard]] virtual Expected<FrameRow> row_at(std::uint64_t address) const = 0;
};

// An ELF file of x86-64, AArch64 or i386, or a PE32+ image of x64 or ARM64, by its first bytes. The file is mapped, and
// must not be cut short while the reader lives. Errors: kSystem where it cannot be opened; kMalformed, kTruncated or
// kUnsupported, with the offset, where its headers cannot be read. A file without unwind information is no error: it
// has no functions.
[[nodiscard]] Expected<std::unique_ptr<UnwindReader>> open_unwind_info(const std::string& path);

enum class ImageLayout : std::uint8_t {
  kFile,    // as on the disk
  kLoaded,  // a PE image as a loader maps it, the byte at an RVA at that index; of ELF the same as kFile
};
// The same of bytes in memory, which must stay as they are as long as the reader lives.
[[nodiscard]] Expected<std::unique_ptr<UnwindReader>> read_unwind_info(std::span<const std::byte> bytes,
                                                                       ImageLayout layout = ImageLayout::kFile);

}  // namespace windlass
