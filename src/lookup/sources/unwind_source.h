// The source of rows, not of names (name_source.h): an ELF file, a PE image, an image mapped in the own process, or
// rows given as data. Tables, walks, listings and symbols all use this interface. Only code that prints or compiles a
// stored format looks behind it, as a FormatVisitor.
//
// Addresses are in the image's own numbering. ELF files have virtual addresses, PE images RVAs. An image read where it
// is mapped has addresses of the process. Rows given as data keep their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/image/pe.h"
#include "rows/known_rows.h"
#include "windlass/frame_row.h"
#include "windlass/function_ref.h"
#include "windlass/unwind_info.h"
#include "windlass/walk.h"

namespace windlass::image {
class ElfImage;
}
namespace windlass::winx64 {
class Functions;
}
namespace windlass::winarm64 {
class Functions;
}

namespace windlass::sources {

// ---- functions ----------------------------------------------------------------------------------------------------

using Pointer = CodePointer;
using Function = UnwindFunction;

// The same function in another numbering, whose addresses are larger by `bias`.
[[nodiscard]] Function moved(Function function, std::uint64_t bias);

// ---- virtual unwinding --------------------------------------------------------------------------------------------

// A frame for UnwindSource::unwind.
struct Callee {
  const Memory& memory;
  const Registers& registers;  // The pc in the process.
  std::uint64_t bias = 0;      // Address in the process - address in the image.
  std::uint64_t pac_mask = 0;
};

// The handler in force where a frame was left, and its arguments.
struct HandlerCall {
  std::uint64_t establisher_frame = 0;  // An address in the process.
  std::uint64_t handler = 0;            // In the image; 0: none, or the pc is in a prologue or an epilogue.
  std::uint64_t data = 0;               // Language-specific data, in the image.
  bool on_exception = false;            // As in Function.
  bool on_termination = false;
};

// ---- the source ---------------------------------------------------------------------------------------------------

using ErrorSink = FunctionRef<void(const Error&)>;
using RowSink = FunctionRef<void(const FrameRow&)>;
using FunctionSink = FunctionRef<bool(const Function&)>;  // False: no more.

// Receives rows of a listing.
class RowVisitor {
 public:
  virtual ~RowVisitor() = default;
  // The rows of a section follow; it may have none.
  virtual void begin_section(std::string_view name) = 0;
  virtual void row(const FrameRow& row) = 0;
  // The same. Rows of a listing with the same number differ in their addresses and their CFA alone. `known` has them.
  virtual void numbered_rows(std::span<const NumberedRow> rows, KnownRows& known) {
    for (const NumberedRow& numbered : rows) row(known.row_of(numbered));
  }
  // Called between functions.
  [[nodiscard]] virtual bool wants_more() const { return true; }
};

class UnwindSource;

// Receives the parsed image behind a source, valid as long as the source. A visitor that does not handle a format gets
// `rows` instead. (Inline: the library has no RTTI for classes that derive from it elsewhere.)
class FormatVisitor {
 public:
  virtual ~FormatVisitor() = default;
  virtual void elf(const UnwindSource& source, const image::ElfImage&) { rows(source); }
  // ELF of a Go program: its own table comes before all else.
  virtual void go(const UnwindSource& source, const image::ElfImage& image) { elf(source, image); }
  // ELF with .sframe and nothing else.
  virtual void sframe(const UnwindSource& source, const image::ElfImage& image) { elf(source, image); }
  virtual void winx64(const UnwindSource& source, const winx64::Functions&) { rows(source); }
  virtual void winarm64(const UnwindSource& source, const winarm64::Functions&) { rows(source); }
  // Only rows are known.
  virtual void rows(const UnwindSource& source) = 0;
};

// Immutable once made, so thread-safe. row_at, function_at and unwind allocate nothing and are signal-safe, unless the
// kind of source says otherwise. Other functions may allocate.
class UnwindSource {
 public:
  virtual ~UnwindSource() = default;

  // Empty: not known, and there are no rows.
  [[nodiscard]] virtual std::optional<Architecture> architecture() const = 0;

  // The row in force at an address. Expressions are views of the source's bytes. Errors: kNotFound if nothing covers
  // the address. kUnsupported if no row can express the code: use unwind(). Else the error of the image or the record.
  [[nodiscard]] virtual Expected<void> row_at(std::uint64_t address, FrameRow& to) const = 0;
  // The unwind information for the function that contains an address. Errors as row_at().
  [[nodiscard]] virtual Expected<Function> function_at(std::uint64_t address) const = 0;
  // All functions that have a record and a range, ascending by begin. Of functions with the same begin, the one that
  // function_at() prefers. Malformed records go to `report`. Linear; records that are not stored in order are sorted.
  virtual void for_each_function(FunctionSink callback, ErrorSink report) const = 0;

  // The rows of a function from this source, ascending, with all registers. A row is valid during the call only.
  // Malformed rows go to `report`. So does a row of a kind that FrameRow cannot express, as kUnsupported.
  virtual void for_each_row(const Function& function, RowSink callback, ErrorSink report) const = 0;
  // Everything stored, section by section, in the order of the records; for PE images in the order of the functions.
  virtual void for_each_row(RowVisitor& visitor, ErrorSink report) const = 0;

  // Executes the unwind information at the pc, for code that no row can express. `caller` and `saved` are set on
  // success only; `saved` comes in as the callee's. The caller's pc says if it was interrupted. kUnsupported for
  // formats whose rows say everything.
  [[nodiscard]] virtual Expected<HandlerCall> unwind(const Callee& callee, Registers& caller,
                                                     SavedLocations& saved) const;
  // True if the rows hold at every instruction, by the maker of the code: the code need not be read.
  [[nodiscard]] virtual bool is_exact() const { return false; }
  // May code that is not this source's have called the frame at an address? A runtime lists the frames by which other
  // code enters its own: its outermost ones.
  [[nodiscard]] virtual bool may_be_outermost(std::uint64_t /*address*/) const { return true; }
  // True for code of Windows. A function without unwind information is a leaf, which moves neither sp nor a preserved
  // register (Microsoft: "x64 exception handling", "ARM64 exception handling"). rsi and rdi are preserved. Nothing
  // marks an outermost frame.
  [[nodiscard]] virtual bool is_windows() const { return false; }
  // Of Windows: is code at an address without unwind information a leaf? Not if its compiler never writes any.
  [[nodiscard]] virtual bool may_be_leaf(std::uint64_t /*address*/) const { return is_windows(); }
  // Code of another machine than architecture() has a reason why its instructions are not read. Images of Windows for
  // two machines have such code. unwind() goes through it, or fails with this reason (kUnsupported).
  [[nodiscard]] virtual std::optional<Error> foreign_code(std::uint64_t /*address*/) const { return std::nullopt; }

  // Bytes of the image as loaded, before relocation. False if the image does not have them.
  [[nodiscard]] virtual bool read_image(std::uint64_t address, void* to, std::size_t size) const;
  // The start of the function that contains an address. Without unwind information, symbols are used too. 0: not known.
  // May lock when first called.
  [[nodiscard]] virtual std::uint64_t function_start(std::uint64_t address) const;
  // 0: none.
  [[nodiscard]] virtual std::uint64_t entry_point() const { return 0; }
  // ELF: GNU's, lower-case hex. PE: the CodeView identity. Empty: none.
  [[nodiscard]] virtual const std::string& build_id() const;
  // Errors of the image as a whole.
  [[nodiscard]] virtual std::span<const Error> problems() const { return {}; }

  virtual void accept(FormatVisitor& visitor) const { visitor.rows(*this); }

  // For code that comes and goes: a number that grows before an address with a row gets another row. Thread-safe,
  // signal-safe. Nothing: not counted.
  [[nodiscard]] virtual std::optional<std::uint64_t> taken_away() const { return std::nullopt; }
};

// The rows of all functions, as one section.
void for_each_row_by_function(const UnwindSource& source, std::string_view section, RowVisitor& visitor,
                              ErrorSink report);

// ---- where sources come from --------------------------------------------------------------------------------------

// The source for an image's bytes, ELF or PE by their first bytes. The bytes must outlive the source. `layout` is that
// of a PE image. Errors: those of parsing the image's headers.
[[nodiscard]] Expected<std::unique_ptr<UnwindSource>> open_source(ByteView image, image::PeLayout layout);
// The same, never null: the source of an image that cannot be read fails for every address, with the reason.
[[nodiscard]] std::unique_ptr<UnwindSource> make_source(ByteView image, image::PeLayout layout);
[[nodiscard]] std::unique_ptr<UnwindSource> make_failed_source(const Error& why, bool windows);
// For code made at run time: has no unwind information.
[[nodiscard]] const UnwindSource& generated_source();

// The source for an image that has been parsed, which is copied; its bytes must outlive it.
// ELF: .eh_frame through .eh_frame_hdr, else an index of all sections, made under a lock when first needed: then
// look-ups lock and allocate. Where none of them says anything: .sframe. Before all of them, of a
// Go program's functions: its own table.
[[nodiscard]] std::unique_ptr<UnwindSource> make_source(const image::ElfImage& image);
[[nodiscard]] Expected<std::unique_ptr<UnwindSource>> open_elf_source(ByteView bytes);
// PE: the exception directory, of x64 or ARM64.
[[nodiscard]] Expected<std::unique_ptr<UnwindSource>> open_pe_source(ByteView bytes, image::PeLayout layout);
[[nodiscard]] std::unique_ptr<UnwindSource> make_source(const image::PeImage& image);
// Of the second function table of an ARM64EC or ARM64X image, whose entries are of the other format. Null: none.
[[nodiscard]] std::unique_ptr<UnwindSource> make_extra_source(const image::PeImage& image);

}  // namespace windlass::sources
