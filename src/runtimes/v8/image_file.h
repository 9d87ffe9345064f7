// The file of a V8, shared by all processes that run it: its facts, and the effects of its builtins on their frames.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/mapped_file.h"
#include "os/proc_maps.h"
#include "runtimes/v8/deoptimization.h"
#include "runtimes/v8/heap.h"
#include "runtimes/v8/image_facts.h"
#include "windlass/jit/describe.h"

namespace windlass::runtimes::v8 {

// Whose frame a builtin stands in at its first instruction: it makes one; one is there, which goes on; one that the
// deoptimiser has made (describe_continuation()); or it makes one, and has a word on top of its return address.
enum class BuiltinFrame : std::uint8_t { kOwn, kThere, kContinued, kPushed };

// Thread-safe.
class ImageFile {
 public:
  // The same one for files of the same build. Errors of ImageFacts::read(), or read_without_symbols() if it has none,
  // and of Layout::make(). There is no layout of a file that has_places_only().
  [[nodiscard]] static Expected<std::shared_ptr<const ImageFile>> open(MappedFile file, bool has_symbols = true);

  [[nodiscard]] const ImageFacts& facts() const { return facts_; }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  // Of an ELF file; others are told apart by inodes.
  [[nodiscard]] std::string build_id() const { return elf_ ? elf_->build_id() : std::string(); }
  // Of a PE image, as it is mapped; 0: another kind of file.
  [[nodiscard]] std::uint64_t pe_size() const { return pe_ ? pe_->image_size() : 0; }
  // Of a file's mapping: address in the process - address in the file; nothing: it is none of it.
  [[nodiscard]] std::optional<std::uint64_t> bias_of(const os::ProcMap& map) const;
  // Of a mapping that begins with a copy of the builtins, by their bytes: address in the process - address in the file.
  [[nodiscard]] std::optional<std::uint64_t> copied_builtins(const Memory& memory, const os::ProcMap& map) const;
  // The builtins that take their caller's frame off the stack, as far as they are understood.
  struct Deoptimizing {
    ImageFacts::Builtin builtin;
    Deoptimization code;
    std::vector<std::uint8_t> expressions;
  };
  [[nodiscard]] const std::vector<Deoptimizing>& deoptimizing() const { return deoptimizing_; }
  // Rows by offset into the builtin; null: its code could not be followed.
  [[nodiscard]] std::shared_ptr<const Description> described(const ImageFacts::Builtin& builtin,
                                                             BuiltinFrame frame) const;

 private:
  explicit ImageFile(MappedFile file) : file_(std::move(file)) {}
  [[nodiscard]] Expected<void> parse();
  [[nodiscard]] Expected<void> read_facts(bool has_symbols);
  // Which file it is; empty: not known.
  [[nodiscard]] std::string key() const;
  [[nodiscard]] Expected<ByteView> at_address(std::uint64_t address, std::uint64_t size) const;
  void find_deoptimizing();

  MappedFile file_;
  std::optional<image::ElfImage> elf_;  // or
  std::optional<image::PeImage> pe_;    // whose addresses are RVAs
  ImageFacts facts_;
  Layout layout_;
  std::vector<Deoptimizing> deoptimizing_;
  mutable std::mutex lock_;
  mutable std::map<std::uint64_t, std::shared_ptr<const Description>> described_;  // by begin
};

}  // namespace windlass::runtimes::v8
