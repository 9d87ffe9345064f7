// Windows' unwind information of PE images. Addresses are RVAs.
#include <cstring>

#include "image/pe_names.h"
#include "walk/unwind_source.h"
#include "winarm64/exec.h"
#include "winarm64/lower.h"
#include "winx64/exec.h"
#include "winx64/lower.h"

namespace windlass::walk {
namespace {

class PeSource : public UnwindSource {
 public:
  explicit PeSource(image::PeImage image) : image_(std::move(image)) {}

  bool is_windows() const final { return true; }

  bool read_image(std::uint64_t rva, void* to, std::size_t size) const final {
    const auto bytes = rva >> 32 == 0 ? image_.at_rva(static_cast<std::uint32_t>(rva), size)
                                      : fail(ErrorCode::kOutOfRange, "outside of the image", rva);
    if (!bytes) return false;
    std::memcpy(to, bytes->data(), size);
    return true;
  }

  std::uint64_t entry_point() const final { return image_.entry(); }

 protected:
  static std::unexpected<Error> uncovered(std::uint64_t rva) {
    return fail(ErrorCode::kNotFound, "no function table entry covers the address", rva);
  }

  const image::PeImage image_;
};

class X64Source final : public PeSource {
 public:
  explicit X64Source(image::PeImage image) : PeSource(std::move(image)), functions_(image_) { find_dispatchers(); }

  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override {
    const auto rva = static_cast<std::uint32_t>(address);
    const auto entry = rva == address ? functions_.find(rva) : std::nullopt;
    if (!entry) return uncovered(address);
    if (const auto found = winx64::row_at(functions_, *entry, rva, to); !found) return found;
    for (const std::uint32_t dispatcher : dispatchers_)
      to.signal_frame |= dispatcher != 0 && entry->begin == dispatcher;
    return {};
  }

  Expected<void> unwind(const Callee& callee, Registers& caller, SavedLocations& saved) const override {
    winx64::Unwound unwound;
    winx64::SavedAddresses addresses;
    if (const auto done =
            winx64::virtual_unwind(functions_, callee.bias, callee.memory, callee.registers, unwound, &addresses);
        !done)
      return done;
    caller = unwound.caller;
    for (unsigned number = 0; number < 16; ++number)
      if (addresses.integer[number] != 0) saved.set(caller, winx64::dwarf_number(number), addresses.integer[number]);
    saved.set(caller, Registers::pc_number(Architecture::kX86_64), addresses.return_address);
    return {};
  }

  std::uint64_t function_start(std::uint64_t address) const override {
    const auto rva = static_cast<std::uint32_t>(address);
    const auto entry = rva == address ? functions_.find(rva) : std::nullopt;
    if (!entry) return 0;
    const auto primary = winx64::primary(functions_, *entry);
    return primary ? primary->begin : entry->begin;
  }

 private:
  // What the system jumps to on top of interrupted code. Windows' ntdll.dll describes it by a machine frame; Wine 8's
  // makes its own call frame out of the context, so that the interrupted pc looks like a return address.
  void find_dispatchers() {
    constexpr std::string_view kNames[] = {"KiUserExceptionDispatcher", "KiUserApcDispatcher"};
    const auto exports = image::PeExports::open(image_);
    if (!exports || exports->module_name() != "ntdll.dll") return;
    for (std::size_t i = 0; i < std::size(kNames); ++i)
      if (const auto found = exports->find(kNames[i]); found) dispatchers_[i] = found->rva;
  }

  std::uint32_t dispatchers_[2] = {};
  winx64::Functions functions_;
};

class Arm64Source final : public PeSource {
 public:
  explicit Arm64Source(image::PeImage image) : PeSource(std::move(image)), functions_(image_) {}

  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override {
    const auto rva = static_cast<std::uint32_t>(address);
    const auto entry = rva == address ? functions_.candidate(rva) : std::nullopt;
    if (!entry) return uncovered(address);
    return winarm64::RowEvaluator(functions_).row_at(*entry, rva, to);
  }

  Expected<void> unwind(const Callee& callee, Registers& caller, SavedLocations& saved) const override {
    const winarm64::ExecContext context{callee.bias, callee.pac_mask, 0};
    const auto unwound = winarm64::virtual_unwind(functions_, context, callee.memory, callee.registers, caller, &saved);
    return unwound ? Expected<void>() : std::unexpected(unwound.error());
  }

  std::uint64_t function_start(std::uint64_t address) const override {
    const auto rva = static_cast<std::uint32_t>(address);
    const auto entry = rva == address ? functions_.candidate(rva) : std::nullopt;
    return entry ? entry->begin : 0;
  }

 private:
  winarm64::Functions functions_;
};

}  // namespace

Expected<std::unique_ptr<UnwindSource>> make_pe_source(ByteView bytes, image::PeLayout layout) {
  auto image = image::PeImage::parse(bytes, layout);
  if (!image) return std::unexpected(image.error());
  if (image->is_x64_format()) return std::make_unique<X64Source>(std::move(*image));
  return std::make_unique<Arm64Source>(std::move(*image));
}

}  // namespace windlass::walk
