// A library's code and call frame information, for sweeps that compare the two.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "flow/synthesis.h"
#include "formats/dwarf/lower.h"
#include "formats/image/elf.h"
#include "formats/image/unwind_sections.h"

namespace windlass::test {

class ElfCode {
 public:
  // False: there is no such file, or it is none.
  bool open(const std::string& path) {
    auto mapped = MappedFile::open(path);
    if (!mapped) return false;
    file_ = std::move(*mapped);
    auto parsed = image::ElfImage::parse(file_.bytes());
    if (!parsed) return false;
    image_.emplace(std::move(*parsed));
    segments_ = image_->executable_segments();
    return true;
  }
  [[nodiscard]] const image::ElfImage& image() const { return *image_; }

  // The FDEs of `section`, as stored. `is_entry` decides by the first row whether an FDE is a function, or the cold
  // part of one; start_of() knows functions only. The data of the FDEs live until the next call.
  template <typename IsEntry>
  std::vector<dwarf::Fde> functions(const dwarf::CfiSection& section, dwarf::RowEvaluator& rows, IsEntry&& is_entry) {
    reader_.emplace(section, ignore_);
    std::vector<dwarf::Fde> fdes;
    for (dwarf::Fde fde; reader_->next_fde(fde);) fdes.push_back(fde);
    starts_.clear();
    for (const dwarf::Fde& fde : fdes) {
      FrameRow row;
      if (rows.row_at(fde, fde.begin, row) && row.cfa.is(CfaRule::kRegister) && is_entry(row, row.cfa))
        starts_[fde.begin] = fde.end;
    }
    return fdes;
  }

  // What a flow::CodeSource asks.
  bool read(std::uint64_t address, void* to, std::size_t size) const {
    const auto bytes = image_->at_address(address, size);
    if (!bytes) return false;
    std::memcpy(to, bytes->data(), size);
    return true;
  }
  [[nodiscard]] flow::CodeKind kind(std::uint64_t address) const {
    for (const auto& segment : segments_)
      if (address - segment.vaddr < segment.filesz) return flow::CodeKind::kFile;
    return flow::CodeKind::kNoCode;
  }
  [[nodiscard]] std::uint64_t start_of(std::uint64_t address) const {
    auto next = starts_.upper_bound(address);
    if (next == starts_.begin()) return 0;
    --next;
    return address < next->second ? next->first : 0;
  }

 private:
  MappedFile file_;
  std::optional<image::ElfImage> image_;
  std::vector<image::ExecutableSegment> segments_;
  std::map<std::uint64_t, std::uint64_t> starts_;
  static constexpr auto ignore_ = [](const Error&) {};
  std::optional<dwarf::CfiReader> reader_;  // owns the CIEs of the FDEs it gave
};

}  // namespace windlass::test
