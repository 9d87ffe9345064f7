#include "walk/unwind_source.h"

namespace windlass::walk {
namespace {

class FailedSource final : public UnwindSource {
 public:
  explicit constexpr FailedSource(const Error& why, bool windows = false) : why_(why), windows_(windows) {}
  Expected<void> row_at(std::uint64_t, FrameRow&) const override { return std::unexpected(why_); }
  bool is_windows() const override { return windows_; }

 private:
  Error why_;
  bool windows_;
};

constinit const StaticSource<FailedSource> generated(Error{ErrorCode::kNotFound, "module has no unwind information"});

}  // namespace

Expected<void> UnwindSource::unwind(const Callee& callee, Registers&, SavedLocations&) const {
  return fail(ErrorCode::kUnsupported, "unwind information is not executed", callee.registers.pc().value());
}

bool UnwindSource::read_image(std::uint64_t, void*, std::size_t) const { return false; }

std::uint64_t UnwindSource::function_start(std::uint64_t) const { return 0; }

std::unique_ptr<UnwindSource> make_source(ByteView image, image::PeLayout layout) {
  const bool windows = image::PeImage::sniff(image);
  auto source = windows ? make_pe_source(image, layout) : make_elf_source(image);
  return source ? std::move(*source) : make_failed_source(source.error(), windows);
}

std::unique_ptr<UnwindSource> make_failed_source(const Error& why, bool windows) {
  return std::make_unique<FailedSource>(why, windows);
}

const UnwindSource& generated_source() { return generated.source; }

}  // namespace windlass::walk
