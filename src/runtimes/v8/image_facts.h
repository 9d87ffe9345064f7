// Facts from the file of a V8. Exported for debuggers (v8dbg_*): the offsets of its heap objects' fields, and the
// numbers of its types in this version. Also the places of its builtins.
//
// Windows' node.exe and deno export none of this. There the facts are those of the version of V8 that the image names
// (known_versions.py), and its builtins are known by their number. So are those of a stripped ELF file.
//
// v8/v8, tools/gen-postmortem-metadata.py; src/snapshot/embedded (v8_Default_embedded_blob_*, Builtins_*).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "formats/image/elf.h"
#include "formats/image/pe.h"
#include "windlass/error.h"

namespace windlass::runtimes::v8 {

// Its place is V8's major version.
inline constexpr const char* kUnknownVersion =
    "the layout of this version of V8 is not known, so functions of JavaScript have no names. Known are V8 7.8, 8.4, "
    "9.4 and 10 to 15.0 (node 12, 14, 16 and 18 to 26, deno 2.0 to 2.9)";

// Immutable once made.
class ImageFacts {
 public:
  static constexpr std::size_t kMaxSymbols = std::size_t{1} << 22;

  struct Builtin {
    std::uint64_t begin = 0, end = 0;  // as the file numbers it
    std::string name;                  // "InterpreterEntryTrampoline"; empty: not known
  };

  // kNotFound: no v8dbg_* in it; others: those of ElfImage::parse(). Linear in the symbols.
  [[nodiscard]] static Expected<ImageFacts> read(ByteView file);
  // Of an ELF file without v8dbg_*. By the version of V8 that the file names (deno), as read_pe(); else builtins alone,
  // without names (has_places_only()). kNotFound: none that are understood by their place alone. Linear in the file.
  [[nodiscard]] static Expected<ImageFacts> read_without_symbols(ByteView file);
  // kNotFound: the image names no version of V8. kUnsupported: the layout of that version is not known. Without
  // builtins if these are not found. Linear in the image.
  [[nodiscard]] static Expected<ImageFacts> read_pe(const image::PeImage& image);

  // Of v8dbg_NAME.
  [[nodiscard]] std::optional<std::int32_t> value(std::string_view name) const;
  // Of v8dbg_class_TYPE__FIELD__*: what the field's own type is called changes from version to version.
  [[nodiscard]] std::optional<std::uint32_t> field(std::string_view type, std::string_view field) const;
  // Of v8dbg_type_*__NAME.
  [[nodiscard]] std::optional<std::uint32_t> instance_type(std::string_view name) const;

  // Ascending. In a file without symbols by the list that V8 has for itself, if the version is known, else empty.
  [[nodiscard]] const std::vector<Builtin>& builtins() const { return builtins_; }
  [[nodiscard]] const Builtin* builtin_at(std::uint64_t address) const;
  // False: they are known by V8's list of their places, and few of them have names.
  [[nodiscard]] bool builtins_have_symbols() const { return builtins_have_symbols_; }
  // It is not known which builtins are entered by C++, nor anything but their places.
  [[nodiscard]] bool has_places_only() const { return values_.empty(); }
  // The file names a version of V8 whose layout is not known (has_places_only()).
  [[nodiscard]] const std::optional<Error>& unknown() const { return unknown_; }
  // Of all builtins and what is between them; 0, 0: not known.
  [[nodiscard]] std::uint64_t code_begin() const { return builtins_.empty() ? 0 : builtins_.front().begin; }
  [[nodiscard]] std::uint64_t code_end() const { return builtins_.empty() ? 0 : builtins_.back().end; }

  // Lengths of bytecodes with their operands, by bytecode, three times: as they are, behind Wide, behind ExtraWide.
  // Empty: not known.
  [[nodiscard]] const std::vector<std::uint8_t>& bytecode_sizes() const { return bytecode_sizes_; }
  // V8's own, the first number; 0: not known.
  [[nodiscard]] std::int32_t version() const { return version_; }
  [[nodiscard]] bool is_before(std::int32_t major, std::int32_t minor = 0) const {
    return version_ != 0 && (version_ != major ? version_ < major : minor_ < minor);
  }
  [[nodiscard]] bool is_since(std::int32_t major, std::int32_t minor) const {
    return version_ != 0 && !is_before(major, minor);
  }
  // Where the variable is that leads to all of WebAssembly, as the file numbers it; 0: not known.
  [[nodiscard]] std::uint64_t wasm_state() const { return wasm_state_; }

 private:
  void add(const image::ElfImage& image, std::string_view name, std::uint64_t address, std::uint64_t size);
  void add_table(const image::ElfImage& image, const image::Section& table);
  static Expected<ImageFacts> read_places(const image::ElfImage& image);
  // `index`: of a version in known_versions.inc.
  void set_version(std::size_t index);
  void add_known_values(std::size_t index);
  // Of an ELF file without symbols; none if they are not found.
  void add_builtins_of_blob(const image::ElfImage& image, std::size_t index);
  // Builtins and lengths of bytecodes of such a file that has v8dbg_*; nothing if the version is not found.
  void add_what_symbols_tell(const image::ElfImage& image);
  // What versions before 10 do not export; nothing of one that is not known.
  void add_untold();
  void end_builtins();  // of those without a size
  void add_builtin(ByteView code, std::uint64_t begin, std::uint32_t number, std::size_t version);

  std::map<std::string, std::int32_t, std::less<>> values_;  // without "v8dbg_", fields without their type
  std::vector<Builtin> builtins_;
  bool builtins_have_symbols_ = false;
  std::vector<std::uint8_t> bytecode_sizes_;
  std::int32_t version_ = 0, minor_ = 0;
  std::uint64_t wasm_state_ = 0;
  std::optional<Error> unknown_;
};

}  // namespace windlass::runtimes::v8
