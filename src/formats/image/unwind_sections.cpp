#include "formats/image/unwind_sections.h"

#include <elf.h>

#include "formats/dwarf/eh_frame_hdr.h"

namespace windlass::image {
namespace {

const Section* with_bytes(const ElfImage& image, std::string_view name) {
  const Section* section = image.section(name);
  return section != nullptr && section->type != SHT_NOBITS && section->size != 0 ? section : nullptr;
}

std::uint64_t address_or_zero(const ElfImage& image, std::string_view name) {
  const Section* section = image.section(name);
  return section != nullptr ? section->address : 0;
}

dwarf::CfiSection describe(const ElfImage& image, std::string_view name, ByteView bytes, std::uint64_t address) {
  dwarf::CfiSection out;
  out.name = name;
  out.bytes = bytes;
  out.address = address;
  out.architecture = architecture_of(image.machine());
  out.text_address = address_or_zero(image, ".text");
  out.data_address = address_or_zero(image, ".got");
  return out;
}

Expected<dwarf::CfiSection> eh_frame_by_header(const ElfImage& image) {
  for (const Segment& segment : image.segments()) {
    if (segment.type != PT_GNU_EH_FRAME) continue;
    const auto bytes = image.at_address(segment.vaddr, segment.filesz);
    if (!bytes) return Failure(bytes.error());
    const auto header = dwarf::EhFrameHdr::parse(*bytes, segment.vaddr);
    if (!header) return Failure(header.error());
    const auto frames = image.from_address(header->eh_frame_address);
    if (!frames) return Failure(frames.error());
    auto out = describe(image, ".eh_frame", *frames, header->eh_frame_address);
    out.stop_at_terminator = true;
    return out;
  }
  return fail(ErrorCode::kNotFound, "no .eh_frame", 0);
}

void add_debug_frame(const ElfImage& image, std::string_view name, UnwindSections& out, dwarf::ErrorSink report) {
  const Section* section = with_bytes(image, ".debug_frame");
  if (section == nullptr) section = with_bytes(image, ".zdebug_frame");
  if (section == nullptr) return;
  auto bytes = image.bytes(*section);
  if (!bytes) {
    report(bytes.error());
    return;
  }
  auto found = describe(image, name, bytes->view, section->address);
  found.is_debug_frame = true;
  if (found.architecture == Architecture::kX86_64)
    if (const Section* text = with_bytes(image, ".text"))
      if (const auto code = image.stored_bytes(*text)) found.text = *code;
  out.sections.push_back(found);
  if (!bytes->owned.empty()) out.storage.push_back(std::move(bytes->owned));
}

}  // namespace

Expected<dwarf::CfiSection> find_eh_frame(const ElfImage& image) {
  if (const Section* section = with_bytes(image, ".eh_frame")) {
    const auto bytes = image.stored_bytes(*section);
    if (bytes) return describe(image, ".eh_frame", *bytes, section->address);
    if (auto found = eh_frame_by_header(image)) return found;  // a damaged section header
    return Failure(bytes.error());
  }
  // A separate debug file keeps the headers and leaves the bytes to the stripped file.
  const Section* section = image.section(".eh_frame");
  if (section != nullptr && section->type == SHT_NOBITS) return fail(ErrorCode::kNotFound, "no .eh_frame", 0);
  return eh_frame_by_header(image);
}

Expected<sframe::Section> find_sframe(const ElfImage& image) {
  constexpr std::uint32_t kSegment = 0x6474e554;  // PT_GNU_SFRAME, which Debian 12's <elf.h> does not know
  Expected<ByteView> bytes = fail(ErrorCode::kNotFound, "no .sframe", 0);
  std::uint64_t address = 0;
  if (const Section* section = with_bytes(image, ".sframe")) {
    bytes = image.stored_bytes(*section);
    address = section->address;
  } else {
    for (const Segment& segment : image.segments()) {
      if (segment.type != kSegment) continue;
      bytes = image.at_address(segment.vaddr, segment.filesz);
      address = segment.vaddr;
      break;
    }
  }
  if (!bytes) return Failure(bytes.error());
  const auto section = sframe::Section::parse(*bytes, address);
  if (section && section->architecture() != architecture_of(image.machine()))
    return fail(ErrorCode::kMalformed, "SFrame section of another architecture than the file's", bytes->origin());
  return section;
}

bool has_other_unwind_sections(const ElfImage& image) {
  return with_bytes(image, ".debug_frame") != nullptr || with_bytes(image, ".zdebug_frame") != nullptr ||
         with_bytes(image, ".gnu_debugdata") != nullptr;
}

UnwindSections find_unwind_sections(const ElfImage& image, dwarf::ErrorSink report) {
  UnwindSections out;
  if (image.type() == ET_REL)
    report(Error{ErrorCode::kUnsupported, "relocatable file: its addresses are not final", image.file().origin(), 0});
  if (auto eh_frame = find_eh_frame(image))
    out.sections.push_back(*eh_frame);
  else if (eh_frame.error().code != ErrorCode::kNotFound)
    report(eh_frame.error());
  add_debug_frame(image, ".debug_frame", out, report);

  auto mini = image.mini_debug_info();
  if (!mini) {
    if (mini.error().code != ErrorCode::kNotFound) report(mini.error());
    return out;
  }
  const auto embedded = ElfImage::parse(ByteView(mini->data(), mini->size()));
  if (!embedded) {
    report(embedded.error());
    return out;
  }
  add_debug_frame(*embedded, ".gnu_debugdata(.debug_frame)", out, report);
  if (const Section* section = with_bytes(*embedded, ".eh_frame")) {
    if (const auto bytes = embedded->stored_bytes(*section))
      out.sections.push_back(describe(*embedded, ".gnu_debugdata(.eh_frame)", *bytes, section->address));
    else
      report(bytes.error());
  }
  out.storage.push_back(std::move(*mini));
  return out;
}

}  // namespace windlass::image
