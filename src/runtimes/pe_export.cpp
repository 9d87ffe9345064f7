#include "runtimes/pe_export.h"

#include <vector>

#include "base/pages.h"
#include "formats/image/pe.h"
#include "formats/image/pe_format.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes {
namespace {

// The view into `page` must not outlive it.
Expected<image::PeImage> read_headers(const Memory& memory, std::uint64_t base, std::vector<std::byte>& page) {
  page.resize(kSmallestPage);
  if (!has_pe_header(memory, base)) return fail(ErrorCode::kNotFound, "no PE image", base);
  if (!memory.read(base, page.data(), page.size())) return fail(ErrorCode::kUnreadable, "headers of a PE image", base);
  return image::PeImage::parse(ByteView(page.data(), page.size()), image::PeLayout::kMapped);
}

}  // namespace

bool has_pe_header(const Memory& memory, std::uint64_t base) {
  return read_value<std::uint16_t>(memory, base) == image::pe::kDosMagic;
}

Expected<std::uint64_t> find_pe_exporting(const Memory& memory, std::uint64_t base, std::string_view name) {
  std::vector<std::byte> page;
  const auto headers = read_headers(memory, base, page);
  if (!headers) return Failure(headers.error());
  const image::RvaRange exports = headers->directory(image::PeDirectory::kExport);
  if (headers->machine() != image::PeMachine::kAmd64 || exports.size == 0)
    return fail(ErrorCode::kNotFound, "no x64 image that exports", base);
  const auto directory = read_value<image::pe::ExportDirectory>(memory, base + exports.rva);
  if (!directory) return fail(ErrorCode::kUnreadable, "exports of a PE image", base + exports.rva);
  std::uint32_t begin = 0, end = directory->name_count;
  while (begin < end) {
    const std::uint32_t middle = begin + (end - begin) / 2;
    const auto rva = read_value<std::uint32_t>(memory, base + directory->names + std::uint64_t{middle} * 4);
    if (!rva) return fail(ErrorCode::kUnreadable, "exports of a PE image", base + directory->names);
    const std::string found = read_text(memory, base + *rva, name.size() + 1);
    if (found == name) return base;
    if (found < name)
      begin = middle + 1;
    else
      end = middle;
  }
  return fail(ErrorCode::kNotFound, "the image does not export the name", base);
}

bool is_pe_loaded(const Memory& memory, std::uint64_t base) {
  std::vector<std::byte> page;
  const auto headers = read_headers(memory, base, page);
  if (!headers) return true;
  const image::RvaRange exports = headers->directory(image::PeDirectory::kExport);
  if (exports.size == 0) return true;
  const auto directory = read_value<image::pe::ExportDirectory>(memory, base + exports.rva);
  return directory && directory->name != 0;
}

}  // namespace windlass::runtimes
