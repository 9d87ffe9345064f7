// Reads unwind information: the functions and rows of an ELF file or a PE image, by the same interface for all formats.
//
// For example, to list all rows, and all malformed records with their places:
//
//   const auto reader = open_unwind_info("/bin/true");
//   std::vector<Error> problems;
//
//   for (const UnwindFunction& function : (*reader)->functions(&problems))
//     for (const FrameRow& row : (*reader)->rows(function, &problems)) use(function, row);
//
// To get the row at an address, which says how to find the caller from there:
//
//   const auto row = (*reader)->row_at(address);
//
// Addresses count as the file does: virtual addresses in ELF files, RVAs in PE images. Registers are DWARF numbers.
// Nothing here is signal-safe. A reader never changes, so any number of threads may use it.
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

// The format of a file's unwind information. Specifications: DWARF 5, section 6.4; LSB 5.0, sections 10.5 and 10.6;
// "The SFrame format" (GNU binutils); "x64 exception handling" and "ARM64 exception handling" (Microsoft).
enum class UnwindFormat : std::uint8_t {
  kDwarf,     // .eh_frame and .debug_frame, also compressed, or in .gnu_debugdata. Functions that these lack come from
              // .sframe.
  kWinX64,    // .pdata, and UNWIND_INFO of versions 1 to 3.
  kWinArm64,  // .pdata and .xdata, with packed entries.
  kSFrame,    // .sframe of versions 1 to 3, in a file that has nothing else.
  kGo,        // .gopclntab: the functions of a Go program. The file's call frame information is read too.
};
// A word for people. A string literal.
[[nodiscard]] std::string_view format_name(UnwindFormat format);

// An address in a record. If `indirect`, the record names the address of a pointer instead, which only a process can
// follow.
struct CodePointer {
  std::uint64_t address = 0;  // 0: none.
  bool indirect = false;
};

// Where a record is stored.
struct RecordPlace {
  static constexpr std::uint32_t kSFrame = 0xffffffff;       // The value of `section` for a record in .sframe.
  static constexpr std::uint32_t kGoFunctions = 0xfffffffe;  // The value of `section` for Go's table of functions.

  std::uint32_t section = 0;  // Which of the sections of call frame information, or a value above; 0 in PE images.
  std::uint64_t offset = 0;   // The offset in the section, or in the function table.
  std::uint64_t address = 0;  // The address of the record in the image; 0 if it is not loaded.
};

// The unwind information of a function, or of a part of a function that has a record of its own.
struct UnwindFunction {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;      // The byte behind the last.
  std::uint64_t primary = 0;  // Where the whole function begins. Equals `begin`, unless this part was split off.
  CodePointer personality;    // The routine that understands `language_data`.
  CodePointer language_data;
  // The passes in which the personality is called. on_exception: the search for a handler (UNW_FLAG_EHANDLER).
  // on_termination: unwinding, which runs cleanups (UNW_FLAG_UHANDLER). DWARF and ARM64 do not tell them apart.
  bool on_exception = false;
  bool on_termination = false;
  bool signal_frame = false;  // The caller's pc is an interrupted instruction.
  RecordPlace record;
  std::uint64_t text_base = 0;  // The bases of DW_EH_PE_textrel and DW_EH_PE_datarel in the language-specific data.
  std::uint64_t data_base = 0;

  // True if an address is in [begin, end).
  [[nodiscard]] bool contains(std::uint64_t address) const { return address >= begin && address < end; }
};

// The unwind information of a file. `where` of an error is an offset in the file for call frame information, and an
// RVA for PE images.
class UnwindReader {
 public:
  virtual ~UnwindReader() = default;

  // The format and the architecture of the file.
  [[nodiscard]] virtual UnwindFormat format() const = 0;
  [[nodiscard]] virtual Architecture architecture() const = 0;
  // ELF: GNU's build id in lower-case hex. PE: the CodeView identity. Empty: none.
  [[nodiscard]] virtual const std::string& build_id() const = 0;
  // The entry point of the program; 0: none.
  [[nodiscard]] virtual std::uint64_t entry_point() const = 0;
  // Errors of the file as a whole. The rest of the file is read nevertheless.
  [[nodiscard]] virtual std::span<const Error> problems() const = 0;

  // All functions that have a record, ascending by begin. A malformed record is left out, and appended to `problems`
  // unless that is null. Linear in the unwind information; records that are not in order are sorted.
  [[nodiscard]] virtual std::vector<UnwindFunction> functions(std::vector<Error>* problems = nullptr) const = 0;
  // The function that contains an address. kNotFound if none does; else the error of its record. Logarithmic. A file
  // without .eh_frame_hdr is indexed at the first call, under a lock.
  [[nodiscard]] virtual Expected<UnwindFunction> function_at(std::uint64_t address) const = 0;

  // The rows of a function from this reader, ascending and disjoint. Linear in the record. A malformed row is left out,
  // and appended to `problems`. So is a row of a kind that FrameRow cannot express (kUnsupported). Expressions in the
  // rows are valid as long as the reader.
  [[nodiscard]] virtual std::vector<FrameRow> rows(const UnwindFunction& function,
                                                   std::vector<Error>* problems = nullptr) const = 0;
  // The row in force at an address: one of rows(). Errors as function_at(). Also kUnsupported if FrameRow cannot
  // express the row.
  [[nodiscard]] virtual Expected<FrameRow> row_at(std::uint64_t address) const = 0;
};

// Opens an ELF file of x86-64, AArch64 or i386, or a PE32+ image of x64 or ARM64; the first bytes tell which. The file
// is mapped, and must not be cut short while the reader lives. A file without unwind information is no error: it has no
// functions.
//
// Errors: kSystem if the file cannot be opened. kMalformed, kTruncated or kUnsupported, with the offset, if its headers
// cannot be read.
[[nodiscard]] Expected<std::unique_ptr<UnwindReader>> open_unwind_info(const std::string& path);

// How the bytes of an image are laid out.
enum class ImageLayout : std::uint8_t {
  kFile,    // As on the disk.
  kLoaded,  // A PE image as a loader maps it: the byte at an RVA is at that index. For ELF the same as kFile.
};
// Reads unwind information from bytes in memory, which must not change while the reader lives. Errors as
// open_unwind_info().
[[nodiscard]] Expected<std::unique_ptr<UnwindReader>> read_unwind_info(std::span<const std::byte> bytes,
                                                                       ImageLayout layout = ImageLayout::kFile);

}  // namespace windlass
