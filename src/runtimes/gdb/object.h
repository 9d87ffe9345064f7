// An ELF object that a process has registered with GDB: what it says of the code that the process has made, copied.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "formats/image/elf.h"
#include "lookup/sources/unwind_source.h"
#include "runtimes/published_code.h"
#include "windlass/walk.h"

namespace windlass::runtimes::gdb {

// Immutable once read, so thread-safe.
class Object {
 public:
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{16} << 20;

  // Of `size` bytes at an address of the process. Sections are where their headers say; a relocatable object's
  // unwind information and symbols are made to lead there. kUnreadable, kLimit, errors of ElfImage::parse().
  [[nodiscard]] static Expected<std::shared_ptr<const Object>> read(const Memory& memory, std::uint64_t address,
                                                                    std::uint64_t size);

  // The sections with code, in addresses of the process.
  [[nodiscard]] std::span<const AddressRange> code() const { return code_; }
  // That which contains an address; null: none does. Linear in them.
  [[nodiscard]] const AddressRange* code_at(std::uint64_t address) const;
  // In addresses of the process, too; lives as long as this.
  [[nodiscard]] const sources::UnwindSource& source() const { return *source_; }
  struct Function {
    std::uint64_t begin = 0, end = 0;
    std::string_view name;  // as long as this
  };
  // The largest range around an address that has one name and one record of unwind information. One of the two may be
  // missing. Nothing: both are missing. Logarithmic.
  [[nodiscard]] std::optional<Function> function_at(std::uint64_t address) const;
  [[nodiscard]] std::size_t bytes() const { return bytes_.size() + symbols_.size() * sizeof(Function); }

  explicit Object(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

 private:
  void read_symbols(const image::ElfImage& image);

  std::vector<std::byte> bytes_;
  std::vector<AddressRange> code_;
  std::vector<Function> symbols_;  // by begin
  std::unique_ptr<sources::UnwindSource> source_;
};

}  // namespace windlass::runtimes::gdb
