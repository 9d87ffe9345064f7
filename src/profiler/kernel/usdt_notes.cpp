#include "profiler/kernel/usdt_notes.h"

#include <elf.h>

#include <optional>

#include "windlass/bytes.h"

namespace windlass::profiler {
namespace {

constexpr std::uint32_t kStaticProbe = 3;  // NT_STAPSDT

struct Description {
  std::uint64_t pc, base, semaphore;
};

std::optional<std::uint64_t> file_offset(const image::ElfImage& image, std::uint64_t address) {
  for (const image::Segment& segment : image.segments())
    if (segment.type == PT_LOAD && address >= segment.vaddr && address - segment.vaddr < segment.filesz)
      return address - segment.vaddr + segment.offset;
  return std::nullopt;
}

std::uint64_t aligned(std::uint64_t size) { return (size + 3) & ~std::uint64_t{3}; }

// Of a note that names this probe. prelink moves images and leaves their notes: `base` is where a section is now, of
// which the note says where it was.
std::optional<StaticProbe> probe_of(const image::ElfImage& image, ByteView description, std::uint64_t base,
                                    std::string_view provider, std::string_view name) {
  const auto places = description.at<Description>(0);
  if (!places) return std::nullopt;
  const auto provided_by = description.string_at(sizeof(Description));
  if (!provided_by || *provided_by != provider) return std::nullopt;
  const auto named = description.string_at(sizeof(Description) + provider.size() + 1);
  if (!named || *named != name) return std::nullopt;
  const std::uint64_t moved = base != 0 && places->base != 0 ? base - places->base : 0;
  const auto place = file_offset(image, places->pc + moved);
  if (!place) return std::nullopt;
  const auto arguments = description.string_at(sizeof(Description) + provider.size() + 1 + name.size() + 1);
  StaticProbe probe{*place, 0, std::string(arguments.value_or(""))};
  if (places->semaphore == 0) return probe;
  const auto semaphore = file_offset(image, places->semaphore + moved);
  if (!semaphore) return std::nullopt;
  probe.semaphore = *semaphore;
  return probe;
}

}  // namespace

std::vector<StaticProbe> find_static_probes(const image::ElfImage& image, std::string_view provider,
                                            std::string_view name) {
  std::vector<StaticProbe> probes;
  const image::Section* notes = image.section(".note.stapsdt");
  const image::Section* base = image.section(".stapsdt.base");
  if (notes == nullptr || image.elf_class() != image::ElfClass::k64) return probes;
  const auto bytes = image.stored_bytes(*notes);
  if (!bytes) return probes;
  for (std::uint64_t at = 0; const auto note = bytes->at<Elf64_Nhdr>(at);) {
    const std::uint64_t description_at = at + sizeof(Elf64_Nhdr) + aligned(note->n_namesz);
    const auto owner = bytes->string_at(at + sizeof(Elf64_Nhdr));
    const auto description = bytes->sub(description_at, note->n_descsz);
    if (!description) break;
    at = description_at + aligned(note->n_descsz);
    if (note->n_type != kStaticProbe || !owner || *owner != "stapsdt") continue;
    const auto probe = probe_of(image, *description, base != nullptr ? base->address : 0, provider, name);
    if (probe) probes.push_back(*probe);
  }
  return probes;
}

}  // namespace windlass::profiler
