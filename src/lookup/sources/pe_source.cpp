#include "lookup/sources/pe_source.h"

#include <cstring>

namespace windlass::sources {

Function PeSource::begin_function(std::size_t stored) const {
  Function function;
  function.begin = function.end = function.primary = table().begin_of(stored);
  function.record.offset = stored * entry_size_;
  function.record.address = image_.functions_rva(is_x64()) + function.record.offset;
  return function;
}

Expected<Function> PeSource::function_at(std::uint64_t address) const {
  const auto stored = candidate(address);
  if (!stored) return uncovered(address);
  Function function;
  const auto described = describe(*stored, function);
  if (!described && (function.begin == function.end || function.contains(address))) return Failure(described.error());
  if (!function.contains(address)) return uncovered(address);
  return function;
}

void PeSource::for_each_function(FunctionSink callback, ErrorSink report) const {
  for (std::size_t i = 0; i < table().size(); ++i) {
    Function function;
    if (const auto described = describe(table().stored_index(i), function); !described) report(described.error());
    if (function.begin < function.end && !callback(function)) return;
  }
}

void PeSource::for_each_row(const Function& function, RowSink callback, ErrorSink report) const {
  const std::uint64_t stored = function.record.offset / entry_size_;
  if (stored < table().size()) lower(stored, callback, report);
}

void PeSource::for_each_row(RowVisitor& visitor, ErrorSink report) const {
  if (table().size() == 0) return;
  visitor.begin_section(is_x64() == image_.is_x64_format() ? ".pdata" : "ExtraRFETable");
  lower_all(visitor, report);
}

void PeSource::lower_all(RowVisitor& visitor, ErrorSink report) const {
  const auto give = [&](const FrameRow& row) { visitor.row(row); };
  for (std::size_t i = 0; i < table().size() && visitor.wants_more(); ++i) lower(table().stored_index(i), give, report);
}

bool PeSource::read_image(std::uint64_t rva, void* to, std::size_t size) const {
  const auto bytes = rva >> 32 == 0 ? image_.at_rva(static_cast<std::uint32_t>(rva), size)
                                    : fail(ErrorCode::kOutOfRange, "outside of the image", rva);
  if (!bytes) return false;
  std::memcpy(to, bytes->data(), size);
  return true;
}

// Code of an ARM64EC or ARM64X image is a leaf of the header's machine only if the code ranges say so.
std::optional<Error> PeSource::foreign_code(std::uint64_t rva) const {
  if (!image_.is_hybrid() || rva >> 32 != 0) return std::nullopt;
  const auto refuse = [&](const char* why) { return Error{ErrorCode::kUnsupported, why, rva}; };
  const auto machine = image_.machine_at(static_cast<std::uint32_t>(rva));
  if (!machine && function_at(rva)) return std::nullopt;
  if (!machine) return refuse("code ranges of an ARM64EC image do not say which machine the code is for");
  if ((*machine == image::PeMachine::kAmd64) == is_x64()) return std::nullopt;
  if (!is_x64()) return refuse("x64 code of an ARM64X image is not walked");
  return refuse(*machine == image::PeMachine::kArm64Ec ? "ARM64EC code is not walked"
                                                       : "ARM64 code of an ARM64EC image is not walked");
}

std::uint64_t PeSource::function_start(std::uint64_t address) const {
  const auto function = function_at(address);
  return function ? function->primary : 0;
}

std::unique_ptr<UnwindSource> make_source(const image::PeImage& image) {
  return image.is_x64_format() ? make_winx64_source(image) : make_winarm64_source(image);
}

std::unique_ptr<UnwindSource> make_extra_source(const image::PeImage& image) {
  if (!image.has_extra_functions()) return nullptr;
  return image.is_x64_format() ? make_winarm64_source(image) : make_winx64_source(image);
}

Expected<std::unique_ptr<UnwindSource>> open_pe_source(ByteView bytes, image::PeLayout layout) {
  const auto image = image::PeImage::parse(bytes, layout);
  if (!image) return Failure(image.error());
  return make_source(*image);
}

}  // namespace windlass::sources
