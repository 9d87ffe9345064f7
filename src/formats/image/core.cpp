#include "formats/image/core.h"

#include <algorithm>

#include <elf.h>

#include "formats/image/elf_structures.h"

namespace windlass::image {
namespace {

constexpr std::string_view kDeleted = " (deleted)";
constexpr std::uint32_t kArmPacMask = 0x406;  // NT_ARM_PAC_MASK

// Where fields are, and how long a `long` is.
struct NoteLayout {
  // struct elf_prstatus (linux include/linux/elfcore.h)
  std::uint64_t status_signal;     // short pr_cursig
  std::uint64_t status_pid;        // int pr_pid
  std::uint64_t status_registers;  // pr_reg
  std::uint64_t status_tail;       // int pr_fpvalid and padding
  // struct elf_prpsinfo
  std::uint64_t info_pid;
  std::uint64_t info_name;       // char pr_fname[16]
  std::uint64_t info_arguments;  // char pr_psargs[80]
  std::uint64_t word;
};
constexpr NoteLayout kLayout64{12, 32, 112, 8, 24, 40, 56, 8};
constexpr NoteLayout kLayout32{12, 24, 72, 4, 12, 28, 44, 4};

const NoteLayout& layout_of(Machine machine) { return class_of(machine) == ElfClass::k32 ? kLayout32 : kLayout64; }

Expected<std::uint64_t> word_at(const NoteLayout& layout, ByteView bytes, std::uint64_t offset) {
  if (layout.word == 8) return bytes.at<std::uint64_t>(offset);
  const auto narrow = bytes.at<std::uint32_t>(offset);
  if (!narrow) return Failure(narrow.error());
  return *narrow;
}

std::string padded_text(ByteView bytes) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  std::string out(text, strnlen(text, bytes.size()));
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

}  // namespace

Expected<CoreFile> CoreFile::parse(ByteView file) {
  const auto elf = ElfImage::parse(file);
  if (!elf) return Failure(elf.error());
  if (elf->type() != ET_CORE)
    return fail(ErrorCode::kUnsupported, "an ELF file, but no core file", offsetof(Elf64_Ehdr, e_type), elf->type());
  CoreFile core;
  core.machine = elf->machine();
  core.problems = elf->problems();
  core.read_segments(*elf);
  for (const Segment& segment : elf->segments()) {
    if (segment.type != PT_NOTE) continue;
    const std::uint64_t offset = std::min<std::uint64_t>(segment.offset, file.size());
    const std::uint64_t size = std::min(segment.filesz, file.size() - offset);
    if (size < segment.filesz)
      core.report(Error{ErrorCode::kTruncated, "notes reach past the end of the file", segment.offset, segment.filesz});
    core.read_notes(*file.sub(offset, size));
  }
  std::stable_sort(core.mappings.begin(), core.mappings.end(),
                   [](const CoreMapping& a, const CoreMapping& b) { return a.begin < b.begin; });
  if (core.threads.empty()) core.report(Error{ErrorCode::kNotFound, "no thread in the notes", file.size(), 0});
  return core;
}

void CoreFile::report(const Error& problem) {
  if (problems.size() < kMaxProblems) problems.push_back(problem);
}

void CoreFile::read_segments(const ElfImage& elf) {
  const ByteView file = elf.file();
  std::uint64_t missing = 0;
  std::uint64_t first_missing = 0;
  for (const Segment& s : elf.segments()) {
    if (s.type != PT_LOAD || s.memsz == 0) continue;
    if (s.vaddr > ~std::uint64_t{0} - s.memsz) {
      report(Error{ErrorCode::kMalformed, "segment reaches past the end of memory", s.offset, s.vaddr});
      continue;
    }
    const std::uint64_t wanted = std::min(s.filesz, s.memsz);
    const std::uint64_t offset = std::min<std::uint64_t>(s.offset, file.size());
    const std::uint64_t size = std::min(wanted, file.size() - offset);
    if (size < wanted && missing++ == 0) first_missing = s.offset;
    segments.push_back({s.vaddr, s.vaddr + s.memsz, (s.flags & PF_X) != 0, size < wanted, *file.sub(offset, size)});
  }
  if (missing != 0)
    report(Error{ErrorCode::kTruncated, "memory reaches past the end of the file; segments", first_missing, missing});
  std::stable_sort(segments.begin(), segments.end(),
                   [](const CoreSegment& a, const CoreSegment& b) { return a.begin < b.begin; });
}

// {namesz, descsz, type}, name and descriptor padded to 4 bytes: that of cores, whatever p_align says.
void CoreFile::read_notes(ByteView notes) {
  std::uint64_t at = 0;
  while (at < notes.size()) {
    const auto header = notes.at<Elf64_Nhdr>(at);
    const std::uint64_t name_at = at + sizeof(Elf64_Nhdr);
    const std::uint64_t desc_at = header ? name_at + ((std::uint64_t{header->n_namesz} + 3) & ~std::uint64_t{3}) : 0;
    if (!header || !notes.sub(desc_at, header->n_descsz)) {
      report(Error{ErrorCode::kTruncated, "note reaches past the end of the notes", notes.origin() + at,
                   header ? header->n_descsz : 0});
      return;
    }
    const ByteView owner = *notes.sub(name_at, header->n_namesz);
    const auto* text = reinterpret_cast<const char*>(owner.data());
    read_note(std::string_view(text, strnlen(text, owner.size())), header->n_type,
              *notes.sub(desc_at, header->n_descsz));
    at = desc_at + ((std::uint64_t{header->n_descsz} + 3) & ~std::uint64_t{3});
  }
}

void CoreFile::read_note(std::string_view owner, std::uint32_t type, ByteView desc) {
  if (owner == "LINUX") {
    // struct user_pac_mask { data_mask, insn_mask }
    if (type == kArmPacMask && machine == Machine::kAArch64 && !threads.empty())
      if (const auto mask = desc.at<std::uint64_t>(8)) threads.back().pac_mask = *mask;
    return;
  }
  if (owner != "CORE") return;
  switch (type) {
    case NT_PRSTATUS: read_status(desc); break;
    case NT_PRPSINFO: read_process_info(desc); break;
    case NT_FILE: read_files(desc); break;
    case NT_FPREGSET:
      if (!threads.empty()) threads.back().vector = desc;
      break;
    case NT_AUXV:
      for (std::uint64_t i = 0; auxiliary.size() < 256; i += stored_size<Elf64_auxv_t>(class_of(machine))) {
        const auto entry = read_stored<Elf64_auxv_t>(desc, class_of(machine), i);
        if (!entry) break;
        auxiliary.emplace_back(entry->a_type, entry->a_un.a_val);
      }
      break;
    default: break;
  }
}

void CoreFile::read_status(ByteView desc) {
  const NoteLayout& layout = layout_of(machine);
  const auto signal = desc.at<std::uint16_t>(layout.status_signal);
  const auto id = desc.at<std::uint32_t>(layout.status_pid);
  if (!signal || !id || desc.size() <= layout.status_registers + layout.status_tail) {
    report(Error{ErrorCode::kTruncated, "NT_PRSTATUS is too short", desc.origin(), desc.size()});
    return;
  }
  if (threads.size() >= kMaxThreads) return;
  CoreThread thread;
  thread.id = *id;
  thread.signal = *signal;
  thread.general = *desc.sub(layout.status_registers, desc.size() - layout.status_registers - layout.status_tail);
  threads.push_back(thread);
}

void CoreFile::read_process_info(ByteView desc) {
  const NoteLayout& layout = layout_of(machine);
  const auto pid = desc.at<std::uint32_t>(layout.info_pid);
  const auto fname = desc.sub(layout.info_name, 16);
  const auto psargs = desc.sub(layout.info_arguments, 80);
  if (!pid || !fname || !psargs) {
    report(Error{ErrorCode::kTruncated, "NT_PRPSINFO is too short", desc.origin(), desc.size()});
    return;
  }
  process = *pid;
  name = padded_text(*fname);
  arguments = padded_text(*psargs);
}

// long count, page size; count x {long begin, end, offset in pages}; count names, each ended by NUL (fill_files_note).
void CoreFile::read_files(ByteView desc) {
  const NoteLayout& layout = layout_of(machine);
  const auto count = word_at(layout, desc, 0);
  const auto page = word_at(layout, desc, layout.word);
  const std::uint64_t header = 2 * layout.word;
  const std::uint64_t entry = 3 * layout.word;
  if (!count || !page || *count > (desc.size() - header) / entry || *count > kMaxMappings) {
    report(Error{ErrorCode::kMalformed, "NT_FILE promises more than it holds", desc.origin(), count ? *count : 0});
    return;
  }
  std::uint64_t text_at = header + *count * entry;
  for (std::uint64_t i = 0; i < *count; ++i) {
    const std::uint64_t at = header + i * entry;
    CoreMapping mapping;
    mapping.begin = *word_at(layout, desc, at);
    mapping.end = *word_at(layout, desc, at + layout.word);
    mapping.offset = *word_at(layout, desc, at + 2 * layout.word) * *page;
    const auto path = desc.string_at(text_at);
    if (!path) {
      report(Error{ErrorCode::kTruncated, "NT_FILE ends before its names do", desc.origin() + text_at, i});
      return;
    }
    text_at += path->size() + 1;
    mapping.path = *path;
    mapping.deleted = mapping.path.ends_with(kDeleted);
    if (mapping.deleted) mapping.path.resize(mapping.path.size() - kDeleted.size());
    if (mapping.begin >= mapping.end) {
      report(Error{ErrorCode::kMalformed, "NT_FILE has an empty mapping", desc.origin() + at, i});
      continue;
    }
    mappings.push_back(std::move(mapping));
  }
}

std::optional<std::uint64_t> CoreFile::auxiliary_value(std::uint64_t type) const {
  for (const auto& [key, value] : auxiliary)
    if (key == type) return value;
  return std::nullopt;
}

const CoreSegment* CoreFile::segment_at(std::uint64_t address) const {
  const auto behind = std::upper_bound(segments.begin(), segments.end(), address,
                                       [](std::uint64_t a, const CoreSegment& s) { return a < s.begin; });
  return behind != segments.begin() && address < behind[-1].end ? &behind[-1] : nullptr;
}

}  // namespace windlass::image
