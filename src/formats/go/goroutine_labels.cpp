#include "formats/go/goroutine_labels.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>

#include "formats/go/find.h"
#include "formats/go/rows.h"
#include "windlass/bytes.h"

namespace windlass::runtimes::go {
namespace {

// runtime.g.labels in src/runtime/runtime2.go, as DWARF of programs for x86-64 says.
struct LabelPlace {
  unsigned first, last;  // minor releases of Go 1
  std::uint64_t labels;
  bool slice;
};
constexpr LabelPlace kPlaces[] = {{18, 20, 360, false}, {21, 22, 344, false}, {23, 23, 352, false},
                                  {24, 24, 352, true},  {25, 25, 344, true},  {26, 26, 352, true}};

std::optional<unsigned> number_at(std::string_view& text) {
  unsigned number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  return number;
}

}  // namespace

std::optional<Release> find_release(const image::ElfImage& image) {
  constexpr std::string_view kMagic = "\xff Go buildinf:";
  constexpr std::uint64_t kFlags = 15, kInline = 2, kText = 32, kMostText = 256;
  const image::Section* section = image.section(".go.buildinfo");
  if (section == nullptr) return std::nullopt;
  const auto bytes = image.stored_bytes(*section);
  if (!bytes || bytes->size() < kText ||
      !std::ranges::equal(kMagic, std::string_view(reinterpret_cast<const char*>(bytes->data()), kMagic.size())))
    return std::nullopt;
  const auto flags = bytes->at<std::uint8_t>(kFlags);
  if (!flags || (*flags & kInline) == 0) return std::nullopt;
  ByteCursor at(*bytes, kText);
  const auto size = at.uleb();
  const auto view = size && *size <= kMostText ? at.bytes(*size) : Expected<ByteView>(ByteView());
  if (!view) return std::nullopt;
  std::string_view text(reinterpret_cast<const char*>(view->data()), view->size());
  const std::size_t mark = text.find("go");  // "go1.19.8", "devel go1.27-0123abc"
  if (mark == std::string_view::npos) return std::nullopt;
  text.remove_prefix(mark + 2);
  const auto major = number_at(text);
  if (!major || !text.starts_with('.')) return std::nullopt;
  text.remove_prefix(1);
  const auto minor = number_at(text);
  return minor ? std::optional(Release{*major, *minor}) : std::nullopt;
}

std::optional<GoroutineLabels> find_goroutine_labels(const image::ElfImage& image) {
  const auto release = find_release(image);
  if (!release || release->major != 1 || image.machine() != image::Machine::kX86_64) return std::nullopt;
  const auto* const place = std::ranges::find_if(
      kPlaces, [&](const LabelPlace& one) { return one.first <= release->minor && release->minor <= one.last; });
  if (place == std::end(kPlaces)) return std::nullopt;
  const auto table = find_table(image);
  if (!table) return std::nullopt;
  const auto way = GoRows(*table, image).way_back();
  if (!way) return std::nullopt;
  return GoroutineLabels{way->thread, way->offsets[0], way->offsets[1], place->labels, place->slice};
}

}  // namespace windlass::runtimes::go
