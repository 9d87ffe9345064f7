// The modules of the own process on Windows. The loader tells of each that comes or goes, so what is kept about one
// needs no check: a module that is found is there.
#pragma once

#include <atomic>
#include <cstdint>

#include "formats/winx64/read.h"
#include "walk/own_modules.h"

namespace windlass::walk {

// One loaded image, read where it is mapped. Made when it is loaded, so that steps need not allocate.
class OwnImage {
 public:
  OwnImage(image::PeImage image, std::uint64_t base, std::string path);

  [[nodiscard]] const Module& module() const { return module_; }
  [[nodiscard]] const winx64::Functions& functions() const { return functions_; }
  [[nodiscard]] std::uint64_t base() const { return module_.info().begin; }

 private:
  image::PeImage image_;
  winx64::Functions functions_;
  std::unique_ptr<sources::UnwindSource> source_;
  Module module_;
};

// The image around an address, or null. Lock-free: a reader starts anew if two changes overtake it. At most 1,024
// images are known at a time.
[[nodiscard]] const OwnImage* find_own_image(std::uint64_t address);

}  // namespace windlass::walk
