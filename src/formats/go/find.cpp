#include "formats/go/find.h"

#include <elf.h>

#include <algorithm>
#include <string_view>

#include "formats/image/unwind_sections.h"
#include "windlass/function_ref.h"

namespace windlass::runtimes::go {
namespace {

constexpr std::uint64_t kHeader = 8;  // up to where the numbers begin
constexpr std::uint64_t kWord = 8;

std::optional<TableForm> form_of(std::uint32_t magic) {
  switch (magic) {
    case 0xfffffffb: return TableForm::k1_2;
    case 0xfffffffa: return TableForm::k1_16;
    case 0xfffffff0: return TableForm::k1_18;
    case 0xfffffff1: return TableForm::k1_20;
    default: return std::nullopt;
  }
}

const image::Section* find_section(const image::ElfImage& image, std::string_view name) {
  const auto found = std::ranges::find(image.sections(), name, &image::Section::name);
  return found == image.sections().end() ? nullptr : &*found;
}

struct Found {
  std::uint64_t address = 0;
  ByteView bytes;
};

// Where the system's linker has made a library, a plugin or a program with C in it, the table is a part of
// .data.rel.ro. Go's linker aligns it to 32 bytes (cmd/link/internal/ld/data.go), and its first 8 have no relocation.
Expected<Found> find_in_data(const image::ElfImage& image) {
  constexpr std::uint64_t kAlignment = 32;
  const image::Section* const section = find_section(image, ".data.rel.ro");
  if (section == nullptr || find_section(image, ".note.go.buildid") == nullptr)
    return fail(ErrorCode::kNotFound, "no program of Go's", 0);
  const auto bytes = image.stored_bytes(*section);
  if (!bytes) return Failure(bytes.error());
  const std::uint64_t begin = (kAlignment - section->address % kAlignment) % kAlignment;
  for (std::uint64_t at = begin; at + kHeader <= bytes->size(); at += kAlignment) {
    const bool is_header = form_of(*bytes->at<std::uint32_t>(at)).has_value() && *bytes->at<std::uint16_t>(at + 4) == 0;
    if (is_header && *bytes->at<std::uint8_t>(at + 7) == kWord)
      return Found{section->address + at, *bytes->sub(at, bytes->size() - at)};
  }
  return fail(ErrorCode::kNotFound, "a library of Go's without its table of functions", bytes->origin());
}

Expected<Found> find_bytes(const image::ElfImage& image) {
  for (const std::string_view name : {".gopclntab", ".data.rel.ro.gopclntab"}) {
    const image::Section* const section = find_section(image, name);
    if (section == nullptr) continue;
    const auto bytes = image.stored_bytes(*section);
    if (!bytes) return Failure(bytes.error());
    return Found{section->address, *bytes};
  }
  return find_in_data(image);
}

// Calls each(address, value) for the words that are relative to where the image is loaded; each says whether it wants
// more.
void each_relocated(const image::ElfImage& image, FunctionRef<bool(std::uint64_t, std::uint64_t)> each) {
  const std::uint32_t relative =
      image.machine() == image::Machine::kX86_64 ? std::uint32_t{R_X86_64_RELATIVE} : std::uint32_t{R_AARCH64_RELATIVE};
  for (const image::Section& section : image.sections()) {
    if (section.type != SHT_RELA) continue;
    const auto bytes = image.stored_bytes(section);
    if (!bytes) continue;
    for (std::uint64_t at = 0; at + sizeof(Elf64_Rela) <= bytes->size(); at += sizeof(Elf64_Rela)) {
      const Elf64_Rela entry = *bytes->at<Elf64_Rela>(at);
      if (ELF64_R_TYPE(entry.r_info) == relative && !each(entry.r_offset, static_cast<std::uint64_t>(entry.r_addend)))
        return;
    }
  }
}

// Reads the numbers of a header, one behind the other.
class Header {
 public:
  Header(ByteView table, std::uint64_t at) : table_(table), at_(at) {}
  std::uint64_t next() {
    const auto word = table_.at<std::uint64_t>(at_);
    at_ += kWord;
    if (!word) failed_ = word.error();
    return word.value_or(0);
  }
  // From an offset on, to the end: the parts are not told where they end.
  ByteView next_part() {
    const std::uint64_t offset = next();
    const auto part = table_.sub(offset, table_.size() - offset);
    if (offset <= table_.size() && part) return *part;
    failed_ = {ErrorCode::kMalformed, "a part of Go's table lies outside of it", table_.origin() + at_ - kWord, offset};
    return {};
  }
  [[nodiscard]] std::uint64_t position() const { return at_; }
  [[nodiscard]] const std::optional<Error>& failed() const { return failed_; }

 private:
  ByteView table_;
  std::uint64_t at_;
  std::optional<Error> failed_;
};

constexpr std::uint64_t kTextWord = 22;  // of moduledata: text, since Go 1.16 at least

// The header says it in programs that are loaded where they were linked, up to Go 1.25.
std::optional<std::uint64_t> find_text(const image::ElfImage& image, std::uint64_t table, std::uint64_t said_at) {
  if (const auto said = word_at(image, said_at); said && *said != 0) return said;
  const auto data = find_module_data(image, table);
  return data ? word_at(image, *data + kTextWord * kWord) : std::nullopt;
}

Expected<void> read_index(Table& table, std::uint64_t entry_size, std::uint64_t origin) {
  const std::uint64_t entries = table.function_count;
  if (entries > table.index.size() / entry_size)
    return fail(ErrorCode::kMalformed, "Go's table counts more functions than it has room for", origin, entries);
  const auto index = table.index.sub(0, entries * entry_size + entry_size / 2);
  if (!index) return Failure(index.error());
  table.index = *index;
  return {};
}

// Functions at 8 + a word, files behind them; all else wherever a function says, from the table's start.
Expected<Table> read_first_form(Table table, ByteView bytes) {
  Header header(bytes, kHeader);
  table.function_count = header.next();
  if (header.failed()) return Failure(*header.failed());
  table.functions = table.names = table.values = bytes;
  table.index = *bytes.sub(header.position(), bytes.size() - header.position());
  if (const auto done = read_index(table, 2 * kWord, bytes.origin()); !done) return Failure(done.error());
  const auto files = bytes.at<std::uint32_t>(header.position() + table.index.size());
  if (!files) return Failure(files.error());
  const auto part = bytes.sub(*files, bytes.size() - *files);
  if (*files > bytes.size() || !part)
    return fail(ErrorCode::kMalformed, "Go's list of files lies outside of its table", bytes.origin(), *files);
  table.units = *part;
  table.files = bytes;
  return table;
}

Expected<Table> read_parts(Table table, ByteView bytes, const image::ElfImage& image) {
  const bool has_text = table.form >= TableForm::k1_18;
  Header header(bytes, kHeader);
  table.function_count = header.next();
  (void)header.next();  // files
  const std::uint64_t text_at = table.address + header.position();
  if (has_text) (void)header.next();
  table.names = header.next_part();
  table.units = header.next_part();
  table.files = header.next_part();
  table.values = header.next_part();
  table.functions = table.index = header.next_part();
  if (header.failed()) return Failure(*header.failed());
  if (has_text) {
    const auto text = find_text(image, table.address, text_at);
    if (!text) return fail(ErrorCode::kUnsupported, "nothing says where Go's text begins", bytes.origin());
    table.text = *text;
  }
  if (const auto done = read_index(table, has_text ? kWord : 2 * kWord, bytes.origin()); !done)
    return Failure(done.error());
  return table;
}

}  // namespace

Expected<Table> find_table(const image::ElfImage& image) {
  const auto found = find_bytes(image);
  if (!found) return Failure(found.error());
  const ByteView bytes = found->bytes;
  const auto magic = bytes.at<std::uint32_t>(0);
  const auto quantum = bytes.at<std::uint8_t>(6), word = bytes.at<std::uint8_t>(7);
  if (!magic || !word) return fail(ErrorCode::kTruncated, "Go's table is too short", bytes.origin(), bytes.size());
  const auto form = form_of(*magic);
  if (!form) return fail(ErrorCode::kUnsupported, "Go's table is of a form that is not known", bytes.origin(), *magic);
  if (*word != kWord || image.elf_class() != image::ElfClass::k64)
    return fail(ErrorCode::kUnsupported, "Go's table has words of another size", bytes.origin() + 7, *word);
  if (*quantum == 0) return fail(ErrorCode::kMalformed, "Go's table has instructions of no size", bytes.origin() + 6);
  Table table;
  table.form = *form;
  table.architecture = image::architecture_of(image.machine());
  table.quantum = *quantum;
  table.address = found->address;
  table.origin = bytes.origin();
  return *form == TableForm::k1_2 ? read_first_form(table, bytes) : read_parts(table, bytes, image);
}

std::optional<std::uint64_t> word_at(const image::ElfImage& image, std::uint64_t address) {
  std::optional<std::uint64_t> found;
  const auto look = [&](std::uint64_t at, std::uint64_t value) {
    if (at == address) found = value;
    return !found;
  };
  each_relocated(image, look);
  if (found) return found;
  const auto bytes = image.at_address(address, kWord);
  return bytes ? std::optional(*bytes->at<std::uint64_t>(0)) : std::nullopt;
}

std::optional<std::uint64_t> find_module_data(const image::ElfImage& image, std::uint64_t table) {
  std::optional<std::uint64_t> found;
  const auto look = [&](std::uint64_t at, std::uint64_t value) {
    if (value == table) found = at;
    return !found;
  };
  each_relocated(image, look);
  for (const image::Section& section : image.sections()) {
    if (found) return found;
    if ((section.flags & SHF_WRITE) == 0 || section.type != SHT_PROGBITS) continue;
    const auto bytes = image.stored_bytes(section);
    for (std::uint64_t at = 0; bytes && at + kWord <= bytes->size() && !found; at += kWord)
      look(section.address + at, *bytes->at<std::uint64_t>(at));
  }
  return found;
}

}  // namespace windlass::runtimes::go
