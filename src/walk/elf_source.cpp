// Call frame information of ELF files.
#include <elf.h>

#include <cstring>
#include <mutex>
#include <optional>

#include "dwarf/eh_frame_hdr.h"
#include "image/elf.h"
#include "image/function_symbols.h"
#include "image/unwind_sections.h"
#include "walk/indexed_row.h"
#include "walk/row_finder.h"
#include "walk/unwind_source.h"

namespace windlass::walk {
namespace {

class ElfSource final : public UnwindSource {
 public:
  explicit ElfSource(image::ElfImage image) : image_(std::move(image)) { find_index(); }

  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override {
    if (index_) {
      const auto found = indexed_row(index_->header, index_->section, address, to);
      if (found || found.error().code != ErrorCode::kNotFound || !image::has_other_unwind_sections(image_))
        return found;
    }
    const std::lock_guard hold(lock_);
    if (!rows_made_) {
      rows_made_ = true;
      rows_ = RowFinder::make(image_, index_.has_value());
    }
    if (rows_ == nullptr) return fail(ErrorCode::kNotFound, "module has no unwind information", 0);
    return rows_->find(address, to);
  }

  bool read_image(std::uint64_t address, void* to, std::size_t size) const override {
    const auto bytes = image_.at_address(address, size);
    if (!bytes) return false;
    std::memcpy(to, bytes->data(), size);
    return true;
  }

  std::uint64_t function_start(std::uint64_t address) const override {
    std::call_once(symbols_read_, [this] { symbols_ = image::FunctionSymbols(image_); });
    return symbols_.start_of(address);
  }

  std::uint64_t entry_point() const override { return image_.entry(); }

 private:
  // The section that .eh_frame_hdr indexes.
  struct Indexed {
    dwarf::EhFrameHdr header;
    dwarf::CfiSection section;
  };

  // A table that is sorted and names the section that the image has.
  void find_index() {
    const auto section = image::find_eh_frame(image_);
    if (!section) return;
    for (const image::Segment& segment : image_.segments()) {
      if (segment.type != PT_GNU_EH_FRAME) continue;
      const auto bytes = image_.at_address(segment.vaddr, segment.filesz);
      if (!bytes) return;
      const auto header = dwarf::EhFrameHdr::parse(*bytes, segment.vaddr);
      if (header && !header->table.empty() && header->eh_frame_address == section->address)
        index_ = Indexed{*header, *section};
    }
  }

  image::ElfImage image_;
  std::optional<Indexed> index_;
  mutable std::mutex lock_;
  mutable bool rows_made_ = false;
  mutable std::unique_ptr<RowFinder> rows_;
  mutable std::once_flag symbols_read_;
  mutable image::FunctionSymbols symbols_;
};

}  // namespace

Expected<std::unique_ptr<UnwindSource>> make_elf_source(ByteView bytes) {
  auto image = image::ElfImage::parse(bytes);
  if (!image) return std::unexpected(image.error());
  return std::make_unique<ElfSource>(std::move(*image));
}

}  // namespace windlass::walk
