#include "lookup/sources/ocaml_frames.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "formats/image/pe_names.h"
#include "formats/winx64/registers.h"
#include "formats/winx64/unwound.h"

namespace windlass::sources {
namespace {

constexpr std::string_view kSymbol = "caml_frametable";
constexpr std::size_t kMostTables = 1 << 16, kMostFrames = std::size_t{1} << 24;

struct Descriptor {
  std::uint64_t return_address;
  std::uint16_t frame_size;  // its two lowest bits are flags
  std::uint16_t live_count;
  std::uint32_t live;  // the first two of the words that follow
};
constexpr std::uint64_t kLive = 12;
constexpr std::uint16_t kDebug = 1, kLengths = 2;
// Of the call of caml_start_program, below which is C: its frame is left by its code.
constexpr std::uint16_t kStart = 0xffff;

constexpr std::uint64_t align(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

std::optional<std::uint32_t> rva_of(const image::PeImage& image, std::uint64_t address) {
  const std::uint64_t rva = address - image.image_base();
  return rva < image.image_size() ? std::optional(static_cast<std::uint32_t>(rva)) : std::nullopt;
}

std::uint32_t find_list(const image::PeImage& image) {
  const ByteView names = image.coff_strings();
  const std::string_view text(reinterpret_cast<const char*>(names.data()), names.size());
  std::uint32_t found = 0;
  if (text.find(kSymbol) == text.npos) return found;
  image::each_coff_symbol(image, [&](std::string_view name, std::uint32_t rva, bool) {
    if (name == kSymbol) found = rva;
  });
  return found;
}

}  // namespace

OcamlFrames OcamlFrames::read(const image::PeImage& image) {
  const std::uint32_t list = find_list(image);
  for (const Form form : {Form::kPointers, Form::kOffsets}) {
    OcamlFrames frames;
    if (list == 0 || !frames.read_all(image, list, form)) continue;
    std::ranges::stable_sort(frames.frames_, {}, &Frame::rva);
    return frames;
  }
  return {};
}

bool OcamlFrames::read_all(const image::PeImage& image, std::uint32_t list, Form form) {
  for (std::size_t i = 0; i < kMostTables; ++i) {
    const auto address = image.value_at_rva<std::uint64_t>(list + static_cast<std::uint32_t>(i * 8));
    if (!address) return false;
    if (*address == 0) return !frames_.empty();
    const auto table = rva_of(image, *address);
    if (!table || !read_table(image, *table, form)) return false;
  }
  return false;
}

// False in another form, or damaged: all calls are in code.
bool OcamlFrames::read_table(const image::PeImage& image, std::uint32_t table, Form form) {
  const auto rest = image.from_rva(table);
  const auto count = rest ? rest->at<std::uint64_t>(0) : Failure(rest.error());
  if (!count || *count > kMostFrames) return false;
  std::uint64_t at = sizeof(std::uint64_t);
  for (std::uint64_t i = 0; i < *count; ++i) {
    const auto call = rest->at<Descriptor>(at);
    const auto rva = call ? rva_of(image, call->return_address) : std::nullopt;
    const image::PeSection* section = rva ? image.section_at(*rva) : nullptr;
    if (section == nullptr || !section->executable() || frames_.size() == kMostFrames) return false;
    add(*rva, call->frame_size == kStart ? 0 : call->frame_size & ~std::uint32_t{kDebug | kLengths});
    at += kLive + std::uint64_t{2} * call->live_count;
    const bool has_debug = (call->frame_size & kDebug) != 0;
    if (form == Form::kPointers) {
      at = align(at, 8) + (has_debug ? 8 : 0);
    } else if (call->frame_size != kStart) {
      std::uint64_t places = 1;
      if ((call->frame_size & kLengths) != 0) {
        places = rest->at<std::uint8_t>(at).value_or(0);
        at += places + 1;
      }
      if (has_debug) at = align(at, 4) + 4 * places;
    }
    at = align(at, 8);
  }
  return true;
}

void OcamlFrames::add(std::uint32_t rva, std::uint32_t size) {
  code_begin_ = code_end_ == 0 ? rva : std::min<std::uint64_t>(code_begin_, rva);
  code_end_ = std::max<std::uint64_t>(code_end_, rva + std::uint64_t{1});
  if (size != 0 && size % 8 == 0) frames_.push_back({rva, size});
}

FrameRow OcamlFrames::row(std::uint64_t rva, std::uint32_t size) {
  FrameRow row;
  row.begin = rva;
  row.end = rva + 1;
  row.cfa = CfaRule::at(winx64::dwarf_number(winx64::kRsp), static_cast<std::int32_t>(size));
  row.return_address = RegisterRule::at_cfa(-8);
  for (const unsigned number : winx64::kPreservedNumbers)
    (void)row.registers.set(winx64::dwarf_number(number), RegisterRule::undefined());
  return row;
}

std::optional<std::uint32_t> OcamlFrames::size_at(std::uint64_t return_rva) const {
  const auto found = std::ranges::lower_bound(frames_, return_rva, {}, &Frame::rva);
  return found != frames_.end() && found->rva == return_rva ? std::optional(found->size) : std::nullopt;
}

}  // namespace windlass::sources
