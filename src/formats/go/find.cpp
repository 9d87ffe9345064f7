#include "formats/go/find.h"

namespace windlass::runtimes::go {
namespace {

constexpr std::uint64_t kHeader = 8;  // up to where the numbers begin

std::optional<TableForm> form_of(std::uint32_t magic) {
  switch (magic) {
    case 0xfffffffb: return TableForm::k1_2;
    case 0xfffffffa: return TableForm::k1_16;
    case 0xfffffff0: return TableForm::k1_18;
    case 0xfffffff1: return TableForm::k1_20;
    default: return std::nullopt;
  }
}

// Of a table, wherever it is.
bool is_header(ByteView bytes) {
  return form_of(bytes.at<std::uint32_t>(0).value_or(0)).has_value() && bytes.at<std::uint16_t>(4).value_or(1) == 0 &&
         bytes.at<std::uint8_t>(7).value_or(0) == kWord;
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
std::optional<std::uint64_t> find_text(const Program& program, std::uint64_t table, std::uint64_t said_at) {
  if (const auto said = program.pointer_at(said_at); said && *said + program.base() != 0) return said;
  const auto data = program.find_pointer(table);
  return data ? program.pointer_at(*data + kTextWord * kWord) : std::nullopt;
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

Expected<Table> read_parts(Table table, ByteView bytes, const Program& program) {
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
    const auto text = find_text(program, table.address, text_at);
    if (!text) return fail(ErrorCode::kUnsupported, "nothing says where Go's text begins", bytes.origin());
    table.text = *text;
  }
  if (const auto done = read_index(table, has_text ? kWord : 2 * kWord, bytes.origin()); !done)
    return Failure(done.error());
  return table;
}

}  // namespace

Expected<Table> find_table(const Program& program) {
  Program::Part found;
  const bool is_windows = program.base() != 0;
  const auto use = [&](const Program::Part& part) {
    found = part;
    // Among constants of another program the first bytes prove little.
    return !is_windows || program.find_pointer(part.address).has_value();
  };
  const auto accept = [](ByteView bytes) { return is_header(bytes); };
  if (const auto done = program.each_table(accept, use); !done) return Failure(done.error());
  const ByteView bytes = found.bytes;
  const auto magic = bytes.at<std::uint32_t>(0);
  const auto quantum = bytes.at<std::uint8_t>(6), word = bytes.at<std::uint8_t>(7);
  if (!magic || !word) return fail(ErrorCode::kTruncated, "Go's table is too short", bytes.origin(), bytes.size());
  const auto form = form_of(*magic);
  if (!form) return fail(ErrorCode::kUnsupported, "Go's table is of a form that is not known", bytes.origin(), *magic);
  if (*word != kWord || !program.has_wide_words())
    return fail(ErrorCode::kUnsupported, "Go's table has words of another size", bytes.origin() + 7, *word);
  if (*quantum == 0) return fail(ErrorCode::kMalformed, "Go's table has instructions of no size", bytes.origin() + 6);
  Table table;
  table.form = *form;
  table.architecture = program.architecture();
  table.quantum = *quantum;
  table.address = found.address;
  table.origin = bytes.origin();
  table.base = program.base();
  return *form == TableForm::k1_2 ? read_first_form(table, bytes) : read_parts(table, bytes, program);
}

}  // namespace windlass::runtimes::go
