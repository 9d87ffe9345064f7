// The image of a program that may be Go's: an ELF file by its addresses, or a PE image by RVA. Linear costs are in the
// size of the part that is searched.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "formats/image/elf.h"
#include "formats/image/pe.h"
#include "windlass/bytes.h"
#include "windlass/function_ref.h"
#include "windlass/registers.h"

namespace windlass::runtimes::go {

inline constexpr std::uint64_t kWord = 8;  // bytes of an address; others are not read

// Copies the image; its bytes must outlive it. Immutable, so thread-safe. Look-ups of bytes do not allocate.
class Program {
 public:
  Program(const image::ElfImage& image) : image_(image) {}  // NOLINT(google-explicit-constructor): one of two kinds
  Program(const image::PeImage& image) : image_(image) {}   // NOLINT(google-explicit-constructor)

  [[nodiscard]] Architecture architecture() const;
  [[nodiscard]] bool has_wide_words() const;  // of 8 bytes
  // kOutOfRange as the image's own.
  [[nodiscard]] Expected<ByteView> at_address(std::uint64_t address, std::uint64_t size) const;
  [[nodiscard]] Expected<ByteView> from_address(std::uint64_t address) const;
  // What a stored address is larger by than one in the image's numbering.
  [[nodiscard]] std::uint64_t base() const;

  // A part of the image that may be a table of functions: its address, and its bytes from there on.
  struct Part {
    std::uint64_t address = 0;
    ByteView bytes;
  };
  // Calls back for the places that `is_header` accepts, until `use` takes one. By section name, else by search.
  // Nothing: none is there. An error: a section cannot be read.
  using IsHeader = FunctionRef<bool(ByteView bytes)>;
  using Use = FunctionRef<bool(const Part& part)>;
  [[nodiscard]] Expected<void> each_table(IsHeader is_header, Use use) const;

  // An address that the program stores at another one, as it is when the image is loaded where it was linked to.
  // Position-independent ELF files hold these in relocations. Linear in the relocations.
  [[nodiscard]] std::optional<std::uint64_t> pointer_at(std::uint64_t address) const;
  // Where the program's data have a stored address first. Linear in the data, and the relocations.
  [[nodiscard]] std::optional<std::uint64_t> find_pointer(std::uint64_t to) const;

 private:
  [[nodiscard]] const image::ElfImage* elf() const { return std::get_if<image::ElfImage>(&image_); }
  [[nodiscard]] const image::PeImage* pe() const { return std::get_if<image::PeImage>(&image_); }

  std::variant<image::ElfImage, image::PeImage> image_;
};

}  // namespace windlass::runtimes::go
