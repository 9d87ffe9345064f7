#include "walk/module.h"

#include <cstring>

namespace windlass::walk {

void Module::load() const {
  const std::lock_guard hold(lock_);
  if (loaded_) return;
  loaded_ = true;
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
  rows_ = RowFinder::make(*image_);
}

Expected<FrameRow> Module::row_at(std::uint64_t address) const {
  load();
  const std::lock_guard hold(lock_);
  if (rows_ == nullptr) return std::unexpected(error_);
  return rows_->find(address - info_.bias);
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
  load();
  return image_ != nullptr && image_->entry() != 0 ? image_->entry() + info_.bias : 0;
}

}  // namespace windlass::walk
