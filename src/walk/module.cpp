#include "walk/module.h"

#include <elf.h>
#include <sys/auxv.h>

#include <cstring>

#include "dwarf/compact_row.h"
#include "image/unwind_sections.h"
#include "walk/own/modules.h"

namespace windlass::walk {
namespace {

Expected<FrameRow> indexed_row(const dwarf::EhFrameHdr& header, const dwarf::CfiSection& section,
                               std::uint64_t address) {
  dwarf::LocatedFde found;
  if (auto located = header.find(section, address, found); !located) return std::unexpected(located.error());
  dwarf::CompactRow row;
  if (auto evaluated = dwarf::compact_row_at(section, found.fde, address, row); !evaluated)
    return std::unexpected(evaluated.error());
  return row.full();
}

}  // namespace

Module::Module(const LoadedObject& object) : mapped_(true), loaded_(true) {
  info_.begin = object.begin;
  info_.end = object.end;
  info_.bias = object.bias;
}

Module::~Module() { delete named_.load(std::memory_order_relaxed); }

void Module::set_name(std::string path) const {
  auto named = std::make_unique<ModuleInfo>(info_);
  named->path = std::move(path);
  const ModuleInfo* none = nullptr;
  if (named_.compare_exchange_strong(none, named.get(), std::memory_order_acq_rel)) (void)named.release();
}

void Module::load() const {
  if (loaded_.load(std::memory_order_acquire)) return;
  const std::lock_guard hold(lock_);
  if (loaded_.load(std::memory_order_relaxed)) return;
  load_file();
  loaded_.store(true, std::memory_order_release);
}

void Module::load_file() const {
  if (generated_) return;
  ByteView bytes(owned_.data(), owned_.size());
  if (owned_.empty()) {
    auto file = image::MappedFile::open(info_.file.empty() ? info_.path : info_.file);
    if (!file) {
      error_ = file.error();
      return;
    }
    file_ = std::move(*file);
    bytes = file_.bytes();
  }
  auto image = image::ElfImage::parse(bytes);
  if (!image) {
    error_ = image.error();
    return;
  }
  image_ = std::make_unique<image::ElfImage>(std::move(*image));
  find_index();
}

// A table that is sorted and names the section that the image has.
void Module::find_index() const {
  const auto section = image::find_eh_frame(*image_);
  if (!section) return;
  for (const image::Segment& segment : image_->segments()) {
    if (segment.type != PT_GNU_EH_FRAME) continue;
    const auto bytes = image_->at_address(segment.vaddr, segment.filesz);
    if (!bytes) return;
    const auto header = dwarf::EhFrameHdr::parse(*bytes, segment.vaddr);
    if (header && !header->table.empty() && header->eh_frame_address == section->address)
      index_ = Indexed{*header, *section};
  }
}

Expected<FrameRow> Module::mapped_row_at(std::uint64_t address) const {
  // Looked up anew each time: the module may have been unloaded, and another one be here.
  LoadedObject object;
  if (!find_loaded(address, object)) return fail(ErrorCode::kNotFound, "module has been unloaded", address);
  MappedCfi cfi;
  if (auto mapped = map_cfi(object, cfi); !mapped) return std::unexpected(mapped.error());
  return indexed_row(cfi.header, cfi.eh_frame, address);
}

Expected<FrameRow> Module::row_at(std::uint64_t address) const {
  if (mapped_) return mapped_row_at(address);
  load();
  const std::uint64_t in_file = address - info_.bias;
  if (index_) {
    auto row = indexed_row(index_->header, index_->section, in_file);
    if (row || row.error().code != ErrorCode::kNotFound || !image::has_other_unwind_sections(*image_)) return row;
  }
  const std::lock_guard hold(lock_);
  if (image_ != nullptr && !rows_made_) {
    rows_made_ = true;
    rows_ = RowFinder::make(*image_, index_.has_value());
  }
  if (rows_ == nullptr) return std::unexpected(error_);
  return rows_->find(in_file);
}

bool Module::read_image(std::uint64_t address, void* to, std::size_t size) const {
  load();
  if (image_ == nullptr) return false;
  const auto bytes = image_->at_address(address - info_.bias, size);
  if (!bytes) return false;
  std::memcpy(to, bytes->data(), size);
  return true;
}

std::uint64_t Module::function_start(std::uint64_t address) const {
  load();
  if (image_ == nullptr) return 0;
  std::call_once(symbols_read_, [this] { symbols_ = image::FunctionSymbols(*image_); });
  const std::uint64_t start = symbols_.start_of(address - info_.bias);
  return start != 0 ? start + info_.bias : 0;
}

std::uint64_t Module::entry_point() const {
  if (mapped_) {
    const std::uint64_t entry = getauxval(AT_ENTRY);  // of the program
    return entry - info_.begin < info_.end - info_.begin ? entry : 0;
  }
  load();
  return image_ != nullptr && image_->entry() != 0 ? image_->entry() + info_.bias : 0;
}

}  // namespace windlass::walk
