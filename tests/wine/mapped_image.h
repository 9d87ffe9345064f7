// A PE file laid out as by a loader, without running or relocating any of it. RtlVirtualUnwind and Windlass both get
// this image.
#pragma once

#include <windows.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "formats/image/pe.h"
#include "formats/winx64/read.h"

namespace windlass::test {

class MappedImage {
 public:
  explicit MappedImage(const image::PeImage& file) : size_((file.image_size() + 0xfffULL) & ~0xfffULL) {
    memory_ = static_cast<std::byte*>(VirtualAlloc(nullptr, size_, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE));
    if (memory_ == nullptr) return;
    copy(0, *file.bytes().sub(0, std::min<std::uint64_t>(file.bytes().size(), 0x1000)));
    for (const image::PeSection& section : file.sections())
      if (const auto bytes = file.from_rva(section.rva)) copy(section.rva, *bytes);
    auto parsed = image::PeImage::parse(ByteView(memory_, size_), image::PeLayout::kMapped);
    if (!parsed) return;
    image_ = std::move(*parsed);
    functions_.emplace(*image_);
  }
  ~MappedImage() { VirtualFree(memory_, 0, MEM_RELEASE); }
  MappedImage(const MappedImage&) = delete;
  MappedImage& operator=(const MappedImage&) = delete;

  [[nodiscard]] bool ok() const { return functions_.has_value(); }
  [[nodiscard]] std::uint64_t base() const { return reinterpret_cast<std::uint64_t>(memory_); }
  [[nodiscard]] const winx64::Functions& functions() const { return *functions_; }

 private:
  void copy(std::uint64_t rva, ByteView bytes) {
    if (rva < size_) std::memcpy(memory_ + rva, bytes.data(), std::min<std::uint64_t>(bytes.size(), size_ - rva));
  }

  std::uint64_t size_;
  std::byte* memory_ = nullptr;
  std::optional<image::PeImage> image_;
  std::optional<winx64::Functions> functions_;
};

}  // namespace windlass::test
