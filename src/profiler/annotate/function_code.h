// The machine code of a function, from the file of its module.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "formats/image/elf.h"
#include "formats/image/pe.h"
#include "lookup/sources/unwind_source.h"
#include "profiler/profile/profile.h"

namespace windlass::annotate {

// A function, or a part of one that a compiler has put elsewhere ("main.cold").
struct FunctionCode {
  Architecture architecture = Architecture::kX86_64;
  std::uint64_t begin = 0;  // numbered as Location::address is
  ByteView bytes{};         // of the file, valid as long as the CodeFile
};

class CodeFile {
 public:
  // Nothing: the module has no file, or it cannot be read, or it is another one (its build id differs).
  [[nodiscard]] static std::optional<CodeFile> open(const profile::Module& module);

  // Where the file was opened.
  [[nodiscard]] const std::string& path() const { return path_; }
  // The function that an address lies in, by the unwind information. Nothing: none covers the address, the file lacks
  // the bytes, or the function has more than kMost bytes.
  [[nodiscard]] std::optional<FunctionCode> function_at(std::uint64_t address) const;

  static constexpr std::uint64_t kMost = std::uint64_t{4} << 20;

 private:
  std::string path_;
  MappedFile file_;
  std::unique_ptr<sources::UnwindSource> source_;
  std::optional<image::ElfImage> elf_;
  std::optional<image::PeImage> pe_;
};

}  // namespace windlass::annotate
