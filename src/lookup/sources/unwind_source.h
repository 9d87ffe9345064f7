// Whatever has rows: an ELF file, a PE image, an image mapped in the own process, rows given as data. What tables,
// walks, listings and symbols ask about unwind information they ask here; only who prints or compiles what a format
// stores looks behind it, as a FormatVisitor.
//
// Everything is in the image's own numbering: virtual addresses in ELF files, RVAs in PE images, addresses of the
// process in what is read where it is mapped, whatever was given in rows given as data.
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

// The same in another numbering, whose addresses are larger by `bias`.
[[nodiscard]] Function moved(Function function, std::uint64_t bias);

// A place in a program's source, as long as the source of unwind information is there.
struct SourceLine {
  std::string_view file;
  std::uint32_t line = 0;
};

// ---- virtual unwinding --------------------------------------------------------------------------------------------

// What somebody calls a function, where that is not in a file.
struct NamedFunction {
  std::string name;
  std::string file = {};  // of its source, and the line in it; empty, 0: not known
  std::uint32_t line = 0;
};

// A frame for UnwindSource::unwind.
struct Callee {
  const Memory& memory;
  const Registers& registers;  // the pc in the process
  std::uint64_t bias = 0;      // address in the process - address in the image
  std::uint64_t pac_mask = 0;
};

// The handler that is in force where a frame was left, and what it is called with.
struct HandlerCall {
  std::uint64_t establisher_frame = 0;  // address in the process
  std::uint64_t handler = 0;            // in the image; 0: none, or the pc is in a prologue or an epilogue
  std::uint64_t data = 0;               // of the language, in the image
  bool on_exception = false;            // as in Function
  bool on_termination = false;
};

// ---- the source ---------------------------------------------------------------------------------------------------

using ErrorSink = FunctionRef<void(const Error&)>;
using RowSink = FunctionRef<void(const FrameRow&)>;
using FunctionSink = FunctionRef<bool(const Function&)>;  // false: no more

// Who lists rows.
class RowVisitor {
 public:
  virtual ~RowVisitor() = default;
  // The rows of a section follow; it may have none.
  virtual void begin_section(std::string_view name) = 0;
  virtual void row(const FrameRow& row) = 0;
  // Asked between functions.
  [[nodiscard]] virtual bool wants_more() const { return true; }
};

class UnwindSource;

// Who cares how a source stores its records: called back with what it is made of, valid as long as the source. What one
// does not know how to treat goes to `rows`. (Inline: the library has no RTTI for those that derive from it elsewhere.)
class FormatVisitor {
 public:
  virtual ~FormatVisitor() = default;
  virtual void elf(const UnwindSource& source, const image::ElfImage&) { rows(source); }
  // ELF, too, of a Go program: its own table goes before all else.
  virtual void go(const UnwindSource& source, const image::ElfImage& image) { elf(source, image); }
  // ELF, too, with .sframe and nothing else.
  virtual void sframe(const UnwindSource& source, const image::ElfImage& image) { elf(source, image); }
  virtual void winx64(const UnwindSource& source, const winx64::Functions&) { rows(source); }
  virtual void winarm64(const UnwindSource& source, const winarm64::Functions&) { rows(source); }
  // Nothing but rows is known.
  virtual void rows(const UnwindSource& source) = 0;
};

// Immutable once made, so thread-safe. row_at, function_at and unwind take no memory and are signal-safe, unless the
// kind of source says otherwise; everything else may allocate.
class UnwindSource {
 public:
  virtual ~UnwindSource() = default;

  // Empty: it is not known, and there are no rows.
  [[nodiscard]] virtual std::optional<Architecture> architecture() const = 0;

  // The row in force at an address. kNotFound where nothing covers it, kUnsupported where no row can say it (ask
  // `unwind`), otherwise what is wrong with the image or the record. Expressions are views of what the source is of.
  [[nodiscard]] virtual Expected<void> row_at(std::uint64_t address, FrameRow& to) const = 0;
  // What the unwind information says about the function that contains an address. Errors: as row_at.
  [[nodiscard]] virtual Expected<Function> function_at(std::uint64_t address) const = 0;
  // All that have a record and a range, ascending by begin; of those that begin at the same address the one that
  // function_at prefers. What is malformed goes to `report`. Linear, and a sort where they are not stored in order.
  virtual void for_each_function(FunctionSink callback, ErrorSink report) const = 0;

  // The rows of a function that this source gave, ascending, with all their registers. What is malformed goes to
  // `report`, and so does, as kUnsupported, what no row can say. The row is only valid during the call.
  virtual void for_each_row(const Function& function, RowSink callback, ErrorSink report) const = 0;
  // Everything that is stored, section by section, in the order of the records (of PE images: of the functions).
  virtual void for_each_row(RowVisitor& visitor, ErrorSink report) const = 0;

  // Executes the unwind information at the pc, where no row can say what it does. `caller` and `saved` are set on
  // success only; `saved` comes in as the callee's. The caller's pc says whether it was interrupted. kUnsupported for
  // formats of which the rows say everything.
  [[nodiscard]] virtual Expected<HandlerCall> unwind(const Callee& callee, Registers& caller,
                                                     SavedLocations& saved) const;
  // Its rows hold at every instruction, by what made the code: the code need not be asked.
  [[nodiscard]] virtual bool is_exact() const { return false; }
  // Code of Windows: functions that its unwind information says nothing about are leaves, which move neither sp nor a
  // preserved register (Microsoft: "x64 exception handling", "ARM64 exception handling"), rsi and rdi are preserved,
  // and nothing marks an outermost frame.
  [[nodiscard]] virtual bool is_windows() const { return false; }

  // Bytes of the image as loaded, before relocation. False where it has none.
  [[nodiscard]] virtual bool read_image(std::uint64_t address, void* to, std::size_t size) const;
  // Where the function that contains an address starts, by symbols too, where there is no unwind information; 0: not
  // known. May lock when first called.
  [[nodiscard]] virtual std::uint64_t function_start(std::uint64_t address) const;
  // What made the code calls the function that contains an address, copied, and cut where it is longer; empty: nothing.
  // kNotFound of all sources but those of code made at run time: symbols are no unwind information.
  [[nodiscard]] virtual Expected<std::string_view> name_at(std::uint64_t address, std::span<char> to) const;
  // Where the code at an address comes from; kNotFound likewise, and where it was not said.
  [[nodiscard]] virtual Expected<SourceLine> line_at(std::uint64_t address) const;
  // Of a frame in code that runs many functions, an interpreter's: what stands for the one that it runs, for
  // functions_at(). 0: the code at the address says it. Reads the frame; may allocate and lock.
  [[nodiscard]] virtual std::uint64_t frame_function(std::uint64_t /*address*/, const Registers& /*frame*/,
                                                     const Memory& /*memory*/) const {
    return 0;
  }
  // More than name_at() and line_at(): the function with those that are inlined in it, innermost first, or the one that
  // frame_function() gave. Appends. False: nobody tells of more.
  virtual bool functions_at(std::uint64_t /*address*/, std::uint64_t /*function*/,
                            std::vector<NamedFunction>& /*to*/) const {
    return false;
  }
  // 0: none.
  [[nodiscard]] virtual std::uint64_t entry_point() const { return 0; }
  // ELF: GNU's, lower-case hex; PE: the CodeView identity. Empty: none.
  [[nodiscard]] virtual const std::string& build_id() const;
  // What is wrong with the image as a whole.
  [[nodiscard]] virtual std::span<const Error> problems() const { return {}; }

  virtual void accept(FormatVisitor& visitor) const { visitor.rows(*this); }

  // Of code that comes and goes: a number that has grown before an address with a row gets another one. Thread-safe,
  // signal-safe. Nothing: nobody counts.
  [[nodiscard]] virtual std::optional<std::uint64_t> taken_away() const { return std::nullopt; }
};

// One section of all functions' rows.
void for_each_row_by_function(const UnwindSource& source, std::string_view section, RowVisitor& visitor,
                              ErrorSink report);

// ---- where sources come from --------------------------------------------------------------------------------------

// The source for an image's bytes, which must outlive it: ELF or PE, by their first bytes. `layout` is that of a PE
// image. Errors: those of parsing the image's headers.
[[nodiscard]] Expected<std::unique_ptr<UnwindSource>> open_source(ByteView image, image::PeLayout layout);
// The same, never null: an image that cannot be read has a source that says why for every address.
[[nodiscard]] std::unique_ptr<UnwindSource> make_source(ByteView image, image::PeLayout layout);
[[nodiscard]] std::unique_ptr<UnwindSource> make_failed_source(const Error& why, bool windows);
// Of code made at run time: it has no unwind information.
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

}  // namespace windlass::sources
