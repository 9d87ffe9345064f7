// PE32+ images of x64 and ARM64 machines: sections, data directories, build id; as a file or as a loader mapped it.
// Reads hostile bytes: every count and address is checked against the bytes there are, and a damaged part costs only
// itself. Source: "PE Format" (Microsoft); sections named below are that text's. Addresses are RVAs: what the image
// base is added to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windlass/bytes.h"

namespace windlass::image {

enum class PeMachine : std::uint16_t { kAmd64 = 0x8664, kArm64 = 0xaa64, kArm64Ec = 0xa641, kArm64X = 0xa64e };

// What a header's number says. Images that .NET's crossgen has made for another system than Windows have the machine's
// number XOR the system's (dotnet/runtime, src/coreclr/inc/pedecoder.h, IMAGE_FILE_MACHINE_OS_MASK_*).
struct PeMachineNumber {
  PeMachine machine = PeMachine::kAmd64;  // which may be none that is known
  bool other_system = false;
};
constexpr PeMachineNumber machine_number(std::uint16_t field) {
  constexpr std::uint16_t kSystems[] = {0x4644, 0xadc4, 0x7b79, 0x1993,
                                        0x1992};  // Apple, FreeBSD, Linux, NetBSD, SunOS
  for (const std::uint16_t system : kSystems)
    for (const PeMachine machine : {PeMachine::kAmd64, PeMachine::kArm64})
      if (field == (static_cast<std::uint16_t>(machine) ^ system)) return {machine, true};
  return {static_cast<PeMachine>(field), false};
}

// "x64", "ARM64", "ARM64EC", "ARM64X".
[[nodiscard]] std::string_view machine_name(PeMachine machine);

// Code for one machine (kAmd64, kArm64 or kArm64Ec) in an image that has code for several.
struct CodeRange {
  std::uint32_t begin = 0;  // RVA
  std::uint32_t size = 0;
  PeMachine machine = PeMachine::kArm64;
};

// The identity in a CodeView record (IMAGE_DEBUG_TYPE_CODEVIEW, RSDS) as symbol servers write it: GUID in upper-case
// hex followed by the age. Empty: another kind of record.
[[nodiscard]] std::string codeview_identity(ByteView record);

enum class PeLayout : std::uint8_t {
  kFile,    // sections where PointerToRawData says
  kMapped,  // sections at their RVAs, as in a process or a minidump
};

// "Optional Header Data Directories".
enum class PeDirectory : std::uint8_t {
  kExport = 0,
  kImport = 1,
  kException = 3,
  kRelocation = 5,
  kDebug = 6,
  kLoadConfig = 10,
  kClrHeader = 14,
};

struct PeSection {
  std::string_view name;  // the long name where it is in the COFF string table; empty where that is damaged
  std::uint32_t rva;
  std::uint32_t virtual_size;
  std::uint32_t file_offset;
  std::uint32_t file_size;
  std::uint32_t characteristics;  // IMAGE_SCN_*

  [[nodiscard]] bool executable() const { return (characteristics & 0x2000'0000) != 0; }
  [[nodiscard]] bool writable() const { return (characteristics & 0x8000'0000) != 0; }
};

struct RvaRange {
  std::uint32_t rva = 0;
  std::uint32_t size = 0;
};

// A view: it points into the bytes given to `parse`, which must outlive it. Immutable after parse, so any number of
// threads may read it. No look-up allocates; all are signal-safe.
class PeImage {
 public:
  // Errors: not PE, not PE32+, not one of the machines. Damaged section headers are none: `sections()` then lacks what
  // could not be read, and `problems()` says why.
  [[nodiscard]] static Expected<PeImage> parse(ByteView bytes, PeLayout layout = PeLayout::kFile);
  // Do the bytes look like a PE file at all ("MZ" and a "PE\0\0" where it points)?
  [[nodiscard]] static bool sniff(ByteView bytes);

  [[nodiscard]] ByteView bytes() const { return bytes_; }
  [[nodiscard]] PeLayout layout() const { return layout_; }
  // What the header says: the format of the exception directory follows from it alone.
  [[nodiscard]] PeMachine machine() const { return machine_; }
  // Of .NET, compiled ahead for another system than Windows: calls keep what they keep there.
  [[nodiscard]] bool is_of_other_system() const { return other_system_; }
  // What the code is: an ARM64EC image calls itself x64 and an ARM64X image ARM64, and both have hybrid (CHPE)
  // metadata in their load configuration.
  [[nodiscard]] PeMachine effective_machine() const { return effective_machine_; }
  // Has the image code for several machines?
  [[nodiscard]] bool is_hybrid() const {
    return effective_machine_ == PeMachine::kArm64Ec || effective_machine_ == PeMachine::kArm64X;
  }
  [[nodiscard]] bool is_x64_format() const { return machine_ == PeMachine::kAmd64; }
  [[nodiscard]] std::uint64_t image_base() const { return image_base_; }
  [[nodiscard]] std::uint32_t image_size() const { return image_size_; }
  [[nodiscard]] std::uint32_t entry() const { return entry_; }
  [[nodiscard]] std::uint32_t timestamp() const { return timestamp_; }
  [[nodiscard]] std::span<const PeSection> sections() const { return sections_; }
  [[nodiscard]] const std::vector<Error>& problems() const { return problems_; }
  // The CodeView identity as symbol servers write it: GUID in upper-case hex followed by the age; empty if there is
  // none. "Debug Directory", IMAGE_DEBUG_TYPE_CODEVIEW, RSDS.
  [[nodiscard]] const std::string& build_id() const { return build_id_; }
  // Path of the PDB file as the linker knew it; may be empty where there is a build id (MinGW).
  [[nodiscard]] std::string_view pdb_path() const { return pdb_path_; }

  // {0, 0} where there is none.
  [[nodiscard]] RvaRange directory(PeDirectory which) const;

  // The bytes of [rva, rva + size) in one section or in the headers. kOutOfRange names an RVA that is outside of every
  // section, or past the part that the file holds. Logarithmic in the number of sections.
  [[nodiscard]] Expected<ByteView> at_rva(std::uint32_t rva, std::uint64_t size) const;
  // The bytes from `rva` to the end of what contains it.
  [[nodiscard]] Expected<ByteView> from_rva(std::uint32_t rva) const;
  // The same, empty where there are none: what unwinding asks for at every step. Linear in the number of sections, of
  // which code and unwind information are the first ones.
  [[nodiscard]] ByteView rest_from(std::uint32_t rva) const {
    for (const Extent& extent : extents_) {
      const std::uint32_t within = rva - extent.rva;
      if (within < extent.size)
        return {bytes_.data() + extent.offset + within, extent.size - within, bytes_.origin() + extent.offset + within};
    }
    return {};
  }
  // A NUL-terminated string.
  [[nodiscard]] Expected<std::string_view> string_at_rva(std::uint32_t rva) const;
  template <typename T>
  [[nodiscard]] Expected<T> value_at_rva(std::uint32_t rva) const {
    const auto view = at_rva(rva, sizeof(T));
    if (!view) return Failure(view.error());
    return view->at<T>(0);
  }
  // The section that contains `rva`, or null. Where sections overlap, the one that begins last.
  [[nodiscard]] const PeSection* section_at(std::uint32_t rva) const;

  // The stored function table (.pdata): 12 bytes an entry for x64, 8 for ARM64. Empty where there is none; cut to whole
  // entries, and to what is there, with a problem reported by `parse`.
  [[nodiscard]] ByteView exception_directory() const { return exception_directory_; }

  // The same by the format of its entries. An ARM64EC or ARM64X image has code of both, and a second table for the
  // entries of the format that its header does not say.
  [[nodiscard]] ByteView x64_functions() const { return is_x64_format() ? exception_directory_ : extra_functions_; }
  [[nodiscard]] ByteView arm64_functions() const { return is_x64_format() ? extra_functions_ : exception_directory_; }
  [[nodiscard]] bool has_extra_functions() const { return !extra_functions_.empty(); }
  [[nodiscard]] std::uint32_t functions_rva(bool x64) const {
    return x64 == is_x64_format() ? directory(PeDirectory::kException).rva : extra_functions_rva_;
  }
  // What the code of an ARM64EC or ARM64X image is for: ranges as stored. An address leads to them. Loaders change this
  // address and ImageBase alike.
  [[nodiscard]] std::span<const CodeRange> code_ranges() const { return code_ranges_; }
  // The machine of the first range that contains an RVA. Nothing: in no range, as all code of images for one machine.
  [[nodiscard]] std::optional<PeMachine> machine_at(std::uint32_t rva) const;

  // COFF symbol table and its string table, which only file layout has (MinGW keeps it; deprecated for images, says the
  // text). Both empty where there is none.
  [[nodiscard]] ByteView coff_symbols() const { return coff_symbols_; }
  [[nodiscard]] ByteView coff_strings() const { return coff_strings_; }

 private:
  Expected<void> read_headers();
  void read_coff_tables(std::uint32_t offset, std::uint32_t count);
  void read_sections(std::uint64_t offset, std::uint32_t count);
  void read_directories(std::uint64_t offset, std::uint32_t count);
  void find_exception_directory();
  void find_build_id();
  void find_hybrid_metadata();
  void read_hybrid_metadata(std::uint64_t address);
  [[nodiscard]] std::uint32_t contained_size(const PeSection& section) const;
  void problem(ErrorCode code, const char* what, std::uint64_t where, std::uint64_t detail = 0) {
    problems_.push_back(Error{code, what, where, detail});
  }

  void find_extents();

  // RVAs and the bytes behind them.
  struct Extent {
    std::uint32_t rva;
    std::uint32_t size;
    std::uint64_t offset;
  };

  static constexpr std::size_t kDirectories = 16;

  ByteView bytes_;
  PeLayout layout_ = PeLayout::kFile;
  PeMachine machine_ = PeMachine::kAmd64;
  bool other_system_ = false;
  PeMachine effective_machine_ = PeMachine::kAmd64;
  std::uint64_t image_base_ = 0;
  std::uint32_t image_size_ = 0;
  std::uint32_t headers_size_ = 0;
  std::uint32_t entry_ = 0;
  std::uint32_t timestamp_ = 0;
  RvaRange directories_[kDirectories];
  std::vector<PeSection> sections_;    // as stored: COFF symbols count from 1 in this order
  std::vector<std::uint16_t> by_rva_;  // indices into sections_, ascending RVA
  std::vector<Extent> extents_;        // those of the sections are disjoint; then the headers'
  ByteView exception_directory_;
  ByteView extra_functions_;
  std::uint32_t extra_functions_rva_ = 0;
  std::vector<CodeRange> code_ranges_;
  ByteView coff_symbols_;
  ByteView coff_strings_;
  std::vector<Error> problems_;
  std::string build_id_;
  std::string_view pdb_path_;
};

}  // namespace windlass::image
