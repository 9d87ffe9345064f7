// Where a module's rows come from: one class for each kind of image. Everything is asked in the image's own numbering:
// virtual addresses in ELF files, RVAs in PE images, addresses of the process in what is read where it is mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "image/pe.h"
#include "windlass/walk.h"

namespace windlass::walk {

// A frame for UnwindSource::unwind.
struct Callee {
  const Memory& memory;
  const Registers& registers;  // the pc in the process
  std::uint64_t bias = 0;      // address in the process - address in the image
  std::uint64_t pac_mask = 0;
};

// Immutable once made, so thread-safe; look-ups take no memory, and no lock unless it is said.
class UnwindSource {
 public:
  virtual ~UnwindSource() = default;

  // The row in force at an address. kNotFound where nothing covers it, kUnsupported where no row can say it (ask
  // `unwind`), otherwise what is wrong with the image or the record.
  [[nodiscard]] virtual Expected<void> row_at(std::uint64_t address, FrameRow& to) const = 0;
  // Executes the unwind information at the pc, where no row can say what it does. `caller` and `saved` are set on
  // success only; `saved` comes in as the callee's. The caller's pc says whether it was interrupted.
  [[nodiscard]] virtual Expected<void> unwind(const Callee& callee, Registers& caller, SavedLocations& saved) const;
  // Code of Windows: functions that its unwind information says nothing about are leaves, which move neither sp nor a
  // preserved register (Microsoft: "x64 exception handling", "ARM64 exception handling"), rsi and rdi are preserved,
  // and nothing marks an outermost frame.
  [[nodiscard]] virtual bool is_windows() const { return false; }

  // Bytes of the image as loaded, before relocation. False where it has none.
  [[nodiscard]] virtual bool read_image(std::uint64_t address, void* to, std::size_t size) const;
  // Where the function that contains an address starts; 0: not known. May lock when first called.
  [[nodiscard]] virtual std::uint64_t function_start(std::uint64_t address) const;
  // 0: none.
  [[nodiscard]] virtual std::uint64_t entry_point() const { return 0; }
};

// A source in static storage, which no walk at exit may find destroyed.
template <typename S>
union StaticSource {
  template <typename... Arguments>
  explicit constexpr StaticSource(const Arguments&... arguments) : source(arguments...) {}
  constexpr ~StaticSource() {}
  S source;
};

// The source for an image's bytes, which must outlive it: ELF or PE, told by their first bytes. `layout` is that of a
// PE image. Never null: an image that cannot be read has a source that says why for every address.
[[nodiscard]] std::unique_ptr<UnwindSource> make_source(ByteView image, image::PeLayout layout);
[[nodiscard]] std::unique_ptr<UnwindSource> make_failed_source(const Error& why, bool windows);
// Of code made at run time: it has no unwind information.
[[nodiscard]] const UnwindSource& generated_source();

// Its kinds. ELF: .eh_frame through .eh_frame_hdr, else an index of all sections, made under a lock when first needed.
[[nodiscard]] Expected<std::unique_ptr<UnwindSource>> make_elf_source(ByteView image);
// PE: the exception directory, of x64 or ARM64.
[[nodiscard]] Expected<std::unique_ptr<UnwindSource>> make_pe_source(ByteView image, image::PeLayout layout);

}  // namespace windlass::walk
