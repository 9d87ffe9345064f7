// The facts of a V8 whose file has no symbols. The image names its version of V8, and the layouts of known versions are
// in a table. The builtins are found by the list of their places that V8 keeps (embedded-data.h). Where the first one
// is, the function table of a PE image shows (platform-embedded-file-writer-win.cc), and the padding in an ELF file.
#include <elf.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "runtimes/v8/heap.h"
#include "runtimes/v8/image_facts.h"
#include "windlass/format/winx64.h"

namespace windlass::runtimes::v8 {
namespace {

struct KnownVersion {
  std::uint16_t major, minor;
};
template <std::size_t kCount>
struct KnownNumber {
  std::string_view name;
  std::array<std::int16_t, kCount> of;  // by version
};
constexpr std::int16_t kAbsent = INT16_MIN;
#include "runtimes/v8/known_versions.inc"

constexpr std::uint32_t kCodeAlignment = 64;  // of code; one byte of padding at least
constexpr std::uint16_t kReordered = 12;  // from this major version on builtins are not in the order of their numbers
constexpr std::size_t kFewest = 1000, kMost = 8192;

struct Place {
  std::uint32_t begin = 0, end = 0, number = 0;  // from the first builtin on
};

// "12.4.254.21-node.33" of node or "15.0.245.2-rusty" of deno, and a zero. Other builds may compress pointers.
std::optional<KnownVersion> version_in(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789", kNumbers = "0123456789.";
  constexpr std::array<std::string_view, 2> kBuilds = {"-node.", "-rusty"};
  for (const std::string_view build : kBuilds)
    for (std::size_t at = text.find(build); at != text.npos; at = text.find(build, at + 1)) {
      const std::size_t end = text.find_first_not_of(kDigits, at + build.size());
      const std::size_t before = text.substr(0, at).find_last_not_of(kNumbers);
      const std::string_view version = text.substr(before + 1, at - before - 1);  // npos + 1 is 0
      if (end == text.npos || text[end] != '\0' || std::ranges::count(version, '.') != 3) continue;
      KnownVersion found{};
      const auto major = std::from_chars(version.data(), version.data() + version.size(), found.major);
      if (major.ec != std::errc() || *major.ptr != '.') continue;
      if (std::from_chars(major.ptr + 1, version.data() + version.size(), found.minor).ec == std::errc()) return found;
    }
  return std::nullopt;
}

// Linkers before 2018 put constants into one segment with the code.
template <typename Visit>
void each_constant_section(const image::ElfImage& image, Visit&& visit) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;  // node and Chromium: 20 to 80 MB
  const auto has_constants = [](const image::Segment& segment, std::uint32_t never) {
    return segment.type == PT_LOAD && (segment.flags & never) == 0 && segment.filesz <= kMostBytes;
  };
  const auto apart = [&](const image::Segment& segment) { return has_constants(segment, PF_W | PF_X); };
  const std::uint32_t never = std::ranges::any_of(image.segments(), apart) ? PF_W | PF_X : PF_W;
  for (const image::Segment& segment : image.segments())
    if (has_constants(segment, never))
      if (const auto bytes = image.from_address(segment.vaddr)) visit(*bytes);
}

template <typename Visit>
void each_constant_section(const image::PeImage& image, Visit&& visit) {
  for (const image::PeSection& section : image.sections())
    if (!section.executable() && !section.writable())
      if (const auto bytes = image.from_rva(section.rva)) visit(*bytes);
}

std::uint32_t word_at(ByteView bytes, std::size_t offset) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + offset, sizeof word);
  return word;
}

// Since V8 12: {end, number} of each builtin, ascending (EmbeddedData::BuiltinLookupEntry). The longest such list.
std::vector<Place> places_by_end(ByteView bytes) {
  constexpr std::uint32_t kLongest = 1 << 20;
  constexpr std::size_t kEntry = 8;
  std::vector<Place> longest;
  for (const std::size_t phase : {0, 4}) {
    std::vector<Place> run;
    for (std::size_t at = phase; at + kEntry <= bytes.size(); at += kEntry) {
      const std::uint32_t end = word_at(bytes, at), number = word_at(bytes, at + 4);
      const auto goes_on_from = [&](std::uint32_t begin) {
        return end % kCodeAlignment == 0 && number < kMost && end > begin && end - begin <= kLongest;
      };
      if (!run.empty() && !goes_on_from(run.back().end)) {
        if (run.size() > longest.size()) longest.swap(run);
        run.clear();
      }
      const std::uint32_t begin = run.empty() ? 0 : run.back().end;
      if (run.size() < kMost && goes_on_from(begin)) run.push_back({begin, end, number});
    }
    if (run.size() > longest.size()) longest.swap(run);
  }
  return longest;
}

// Up to V8 11: {offset, length, five or six more words} of each builtin, by its number
// (EmbeddedData::LayoutDescription).
std::vector<Place> places_by_layout(ByteView bytes, std::size_t entry) {
  std::vector<Place> places;
  for (std::size_t first = 0; first + entry <= bytes.size() && places.size() < kFewest; first += 4) {
    places.clear();
    std::uint32_t begin = 0;
    for (std::size_t at = first; at + entry <= bytes.size() && places.size() < kMost; at += entry) {
      const std::uint32_t length = word_at(bytes, at + 4);
      if (word_at(bytes, at) != begin || length == 0 || length > 1 << 20) break;
      places.push_back({begin, begin + length, static_cast<std::uint32_t>(places.size())});
      begin = (begin + length + kCodeAlignment) / kCodeAlignment * kCodeAlignment;
    }
  }
  return places;
}

template <typename Image>
std::vector<Place> places_in(const Image& image, std::int32_t version) {
  constexpr std::size_t kEntryOfV8_10 = 28, kEntry = 32;
  std::vector<Place> places;
  each_constant_section(image, [&](ByteView bytes) {
    auto found = version >= kReordered ? places_by_end(bytes)
                                       : places_by_layout(bytes, version < kStreamsSince ? kEntryOfV8_10 : kEntry);
    if (found.size() > places.size()) places = std::move(found);
  });
  return places.size() >= kFewest ? places : std::vector<Place>();
}

// Bytecodes::kBytecodeSizes: three tables of the same length, which begin with the prefixes and DebugBreak0 to 2.
std::vector<std::uint8_t> bytecode_sizes_in(ByteView bytes) {
  using namespace std::string_view_literals;
  constexpr std::size_t kFewestBytecodes = 150, kMostBytecodes = 256;
  constexpr std::string_view kBegins[] = {"\1\1\1\1\1\2\3"sv, "\1\1\1\1\1\3\5"sv, "\1\1\1\1\1\5\11"sv};
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (std::size_t at = text.find(kBegins[0]); at != text.npos; at = text.find(kBegins[0], at + 1))
    for (std::size_t count = kFewestBytecodes; count < kMostBytecodes && at + 3 * count <= text.size(); ++count)
      if (text.substr(at + count).starts_with(kBegins[1]) && text.substr(at + 2 * count).starts_with(kBegins[2]))
        return {text.begin() + static_cast<std::ptrdiff_t>(at),
                text.begin() + static_cast<std::ptrdiff_t>(at + 3 * count)};
  return {};
}

template <typename Image>
std::vector<std::uint8_t> bytecode_sizes_of(const Image& image) {
  std::vector<std::uint8_t> sizes;
  each_constant_section(image, [&](ByteView bytes) {
    if (sizes.empty()) sizes = bytecode_sizes_in(bytes);
  });
  return sizes;
}

// Which of kKnownVersions. kNotFound: the image names none. kUnsupported: it is another one; its place is the
// version's.
template <typename Image>
Expected<std::size_t> known_version(const Image& image) {
  std::optional<KnownVersion> version;
  each_constant_section(image, [&](ByteView bytes) {
    if (!version) version = version_in({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  });
  if (!version) return fail(ErrorCode::kNotFound, "the image names no version of V8", 0);
  const auto is_this = [&](const KnownVersion& it) { return it.major == version->major && it.minor == version->minor; };
  const auto known = std::ranges::find_if(kKnownVersions, is_this);
  if (known == std::end(kKnownVersions))
    return fail(ErrorCode::kUnsupported, kUnknownVersion, version->major, version->minor);
  return static_cast<std::size_t>(known - std::begin(kKnownVersions));
}

// The address of the first builtin in an ELF file. Since V8 11 it begins a page. In front of each other one is padding,
// which no code begins with: at a thousand places this is no accident.
std::optional<std::uint64_t> first_builtin(const std::vector<Place>& places, std::int32_t version,
                                           const image::ElfImage& image) {
  constexpr std::uint64_t kPage = 4096;
  constexpr std::byte kPadding{0xcc};
  const std::uint64_t alignment = version < kStreamsSince ? kCodeAlignment : kPage;
  for (const image::ExecutableSegment& segment : image.executable_segments()) {
    const auto bytes = image.from_address(segment.vaddr);
    if (!bytes) continue;
    for (std::uint64_t at = (0 - segment.vaddr) % alignment; at + places.back().end <= bytes->size(); at += alignment)
      if (bytes->data()[at] != kPadding && std::all_of(places.begin() + 1, places.end(), [&](const Place& it) {
            return bytes->data()[at + it.begin - 1] == kPadding;
          }))
        return segment.vaddr + at;
  }
  return std::nullopt;
}

// Where the entries of V8's part of the function table begin: they share one UNWIND_INFO, of push rbp; mov rbp, rsp.
std::vector<std::uint32_t> described_begins(const image::PeImage& image) {
  constexpr std::array<std::uint8_t, 8> kOfV8 = {0x09, 0x04, 0x02, 0x05, 0x04, 0x03, 0x01, 0x50};
  const ByteView table = image.exception_directory();
  std::vector<std::uint32_t> begins;
  std::uint32_t shared = 0;
  for (std::size_t at = 0; at + sizeof(winx64::RuntimeFunction) <= table.size();
       at += sizeof(winx64::RuntimeFunction)) {
    winx64::RuntimeFunction entry;
    std::memcpy(&entry, table.data() + at, sizeof entry);
    if (shared == 0) {
      const auto info = image.at_rva(entry.info, kOfV8.size());
      if (info && std::memcmp(info->data(), kOfV8.data(), kOfV8.size()) == 0) shared = entry.info;
    }
    if (shared != 0 && entry.info == shared) begins.push_back(entry.begin);
  }
  std::ranges::sort(begins);
  return begins;
}

// The RVA of the first builtin, from which on most builtins begin where an entry begins. Code without a frame has an
// entry that begins 4 bytes early, or none.
std::optional<std::uint32_t> first_builtin(const std::vector<Place>& places, const std::vector<std::uint32_t>& begins) {
  constexpr std::size_t kTried = 64;
  constexpr std::uint32_t kEarly = 4;
  if (begins.empty()) return std::nullopt;
  const auto has = [&](std::uint32_t rva) { return std::ranges::binary_search(begins, rva); };
  for (std::size_t i = 0; i < std::min(kTried, places.size()); ++i)
    for (const std::uint32_t early : {0U, kEarly}) {
      const std::uint32_t base = begins.front() + early - places[i].begin;
      const auto begins_there = [&](const Place& it) { return has(base + it.begin) || has(base + it.begin - kEarly); };
      if (static_cast<std::size_t>(std::ranges::count_if(places, begins_there)) > places.size() / 2) return base;
    }
  return std::nullopt;
}

}  // namespace

void ImageFacts::set_version(std::size_t index) {
  version_ = kKnownVersions[index].major;
  minor_ = kKnownVersions[index].minor;
}

void ImageFacts::add_known_values(std::size_t index) {
  set_version(index);
  for (const auto& value : kKnownValues)
    if (value.of[index] != kAbsent) values_.try_emplace(std::string(value.name), value.of[index]);
}

Expected<ImageFacts> ImageFacts::read_pe(const image::PeImage& image) {
  const auto index = known_version(image);
  if (!index) return Failure(index.error());
  ImageFacts facts;
  facts.add_known_values(*index);
  facts.bytecode_sizes_ = bytecode_sizes_of(image);
  const std::vector<Place> places = places_in(image, facts.version_);
  if (const auto base = places.empty() ? std::nullopt : first_builtin(places, described_begins(image)))
    for (const Place& place : places) {
      const auto code = image.at_rva(*base + place.begin, place.end - place.begin);
      if (!code) {
        facts.builtins_.clear();
        break;
      }
      facts.add_builtin(*code, *base + std::uint64_t{place.begin}, place.number, *index);
    }
  return facts;
}

void ImageFacts::add_builtins_of_blob(const image::ElfImage& image, std::size_t index) {
  const std::vector<Place> places = places_in(image, version_);
  if (const auto base = places.empty() ? std::nullopt : first_builtin(places, version_, image))
    for (const Place& place : places)
      if (const auto code = image.at_address(*base + place.begin, place.end - place.begin))
        add_builtin(*code, *base + place.begin, place.number, index);
}

void ImageFacts::add_what_symbols_tell(const image::ElfImage& image) {
  if (image.machine() != image::Machine::kX86_64) return;
  const auto index = known_version(image);
  if (!index) return;
  set_version(*index);
  add_builtins_of_blob(image, *index);
  if (bytecode_sizes_.empty()) bytecode_sizes_ = bytecode_sizes_of(image);
}

Expected<ImageFacts> ImageFacts::read_without_symbols(ByteView file) {
  const auto image = image::ElfImage::parse(file);
  if (!image) return Failure(image.error());
  if (image->machine() != image::Machine::kX86_64)
    return fail(ErrorCode::kNotFound, "the file says nothing of a V8", 0);
  const auto index = known_version(*image);
  ImageFacts facts;
  if (!index) {
    auto places = read_places(*image);
    if (places && index.error().code == ErrorCode::kUnsupported) places->unknown_ = index.error();
    return places;
  }
  facts.add_known_values(*index);
  facts.add_builtins_of_blob(*image, *index);
  // bun names a version of V8 for programs that ask for one, and has none.
  if (facts.builtins_.empty()) return fail(ErrorCode::kNotFound, "the file says nothing of a V8", 0);
  facts.bytecode_sizes_ = bytecode_sizes_of(*image);
  return facts;
}

// Chromium and Electron. A few builtins have no return address at their entry, only their caller's frame. They are
// written by hand and among the first numbers, so these are left out. (Numbers of V8 10 to 14: 78 to 117.)
Expected<ImageFacts> ImageFacts::read_places(const image::ElfImage& image) {
  constexpr std::uint32_t kByHand = 256, kUnnamed = kMost;
  ImageFacts facts;
  std::vector<Place> places;
  std::optional<std::uint64_t> base;
  for (std::int32_t version = kReordered; !base && version >= kStreamsSince - 1; --version) {
    places = places_in(image, version);
    if (!places.empty()) base = first_builtin(places, version, image);
  }
  for (std::uint32_t i = 0; base && i < places.size(); ++i) {
    if (places[i].number != i) return fail(ErrorCode::kNotFound, "the file says nothing of a V8", i);
    const auto code = image.at_address(*base + places[i].begin, places[i].end - places[i].begin);
    if (code && i >= kByHand) facts.add_builtin(*code, *base + places[i].begin, kUnnamed, 0);
  }
  if (facts.builtins_.empty()) return fail(ErrorCode::kNotFound, "the file says nothing of a V8", 0);
  return facts;
}

void ImageFacts::add_builtin(ByteView code, std::uint64_t begin, std::uint32_t number, std::size_t version) {
  std::size_t size = code.size();  // int3 behind it is padding
  while (size > 1 && code.data()[size - 1] == std::byte{0xcc}) --size;
  const auto named = std::ranges::find_if(
      kKnownBuiltins, [&](const auto& it) { return it.of[version] == static_cast<std::int32_t>(number); });
  builtins_.push_back(
      {begin, begin + size, named != std::end(kKnownBuiltins) ? std::string(named->name) : std::string()});
}

}  // namespace windlass::runtimes::v8
