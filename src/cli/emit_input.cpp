#include "cli/emit_input.h"

#include <elf.h>
#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "formats/image/elf_structures.h"
#include "formats/image/unwind_sections.h"
#include "lookup/sources/unwind_source.h"

namespace windlass::cli {
namespace {

// The code of V8's own compiler keeps the frame pointer alone for its callers. What C enters it by keeps more.
bool is_v8_builtin(std::string_view name) {
  constexpr std::string_view kEnteredByC[] = {"Builtins_JSEntry", "Builtins_JSConstructEntry",
                                              "Builtins_JSRunMicrotasksEntry"};
  return name.starts_with("Builtins_") && std::ranges::find(kEnteredByC, name) == std::end(kEnteredByC);
}

class Reader {
 public:
  explicit Reader(const EmitInput& input) : input_(input), subject_(input.file) {}

  std::expected<EmitFunctions, EmitError> run() {
    auto file = MappedFile::open(input_.file);
    if (!file) return failed(file.error());
    to_.file = std::move(*file);
    if (const auto ok = input_.list.empty() ? object() : blob(); !ok) return failed(ok.error());
    auto& all = to_.functions;
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
    const auto last = std::unique(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.address == b.address && a.code.size() == b.code.size();
    });
    all.erase(last, all.end());
    return std::move(to_);
  }

 private:
  [[nodiscard]] std::unexpected<EmitError> failed(const Error& error) const {
    return std::unexpected(EmitError{subject_, error});
  }

  [[nodiscard]] bool wanted(const std::string& name) const {
    return fnmatch(input_.functions.c_str(), name.c_str(), 0) == 0;
  }

  // `address`: where the symbol is that everything counts from, if there is one.
  void add(const std::string& name, std::uint64_t address, ByteView code) {
    emit::Function function{.symbol = name,
                            .address = address,
                            .code = {code.data(), code.size()},
                            .keeps_frame_pointer_only = is_v8_builtin(name)};
    if (input_.addresses) function.symbol = fmt::format("{:#x}", address);
    if (!input_.base.empty()) {
      function.symbol = input_.base;
      function.addend = static_cast<std::int64_t>(address - base_);
    }
    to_.functions.push_back(std::move(function));
  }

  // ---- a blob: lines "START SIZE NAME", hexadecimal, as in the maps that JIT compilers write for perf ----

  Expected<void> blob() {
    subject_ = input_.list;
    const auto list = MappedFile::open(input_.list);
    if (!list) return Failure(list.error());
    to_.architecture = input_.architecture;
    const ByteView bytes = list->bytes();
    std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    for (std::uint64_t number = 1; !rest.empty(); ++number) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      if (line.empty() || line.front() == '#') continue;
      subject_ = fmt::format("{}: line {}", input_.list, number);
      if (const auto ok = list_line(line); !ok) return ok;
    }
    return {};
  }

  Expected<void> list_line(std::string_view line) {
    std::uint64_t start = 0, size = 0;
    const char* const begin = std::to_address(line.begin());
    const char* const end = begin + line.size();
    const auto first = std::from_chars(begin, end, start, 16);
    const auto second = first.ec == std::errc() && first.ptr != end && *first.ptr == ' '
                            ? std::from_chars(first.ptr + 1, end, size, 16)
                            : std::from_chars_result{end, std::errc::invalid_argument};
    if (second.ec != std::errc() || second.ptr == end || *second.ptr != ' ' || second.ptr + 1 == end)
      return fail(ErrorCode::kMalformed, "not 'START SIZE NAME' with hexadecimal numbers", 0);
    const std::string name(second.ptr + 1, end);
    const auto code = to_.file.bytes().sub(start, size);
    if (!code) return fail(ErrorCode::kOutOfRange, "code beyond the blob's end", start);
    if (wanted(name)) add(name, start, *code);
    return {};
  }

  // ---- an object ----

  Expected<void> object() {
    const auto image = image::ElfImage::parse(to_.file.bytes());
    if (!image) return Failure(image.error());
    const auto source = sources::open_source(to_.file.bytes(), image::PeLayout::kFile);
    if (!source) return Failure(source.error());
    to_.architecture = image::architecture_of(image->machine());
    if (const auto ok = image->type() == ET_REL ? lay_out(*image) : read_linked(*image); !ok) return ok;
    if (const auto ok = find_base(*image); !ok) return ok;
    Expected<void> done;
    for (const image::Section& table : image->sections())
      if (table.type == SHT_SYMTAB || table.type == SHT_DYNSYM)
        for_each_symbol(*image, table, [&](const Elf64_Sym& symbol, const std::string& name) {
          if (done && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_size != 0 && wanted(name))
            done = function(*image, **source, symbol, name);
        });
    return done;
  }

  Expected<void> read_linked(const image::ElfImage& image) {
    to_.read = [kept = std::make_shared<const image::ElfImage>(image)](std::uint64_t at, void* to, std::size_t size) {
      const auto bytes = kept->at_address(at, size);
      if (bytes) std::memcpy(to, bytes->data(), size);
      return bytes.has_value();
    };
    return {};
  }

  Expected<void> lay_out(const image::ElfImage& image) {
    if (input_.addresses)
      return fail(ErrorCode::kUnsupported, "an object that is not linked has no addresses: leave --addresses out", 0);
    auto object = image::LaidOutObject::make(image);
    if (!object) return Failure(object.error());
    to_.object = std::make_shared<const image::LaidOutObject>(std::move(*object));
    to_.read = [kept = to_.object](std::uint64_t at, void* to, std::size_t size) { return kept->read(at, to, size); };
    return {};
  }

  Expected<void> find_base(const image::ElfImage& image) {
    bool found = input_.base.empty();
    for (const image::Section& table : image.sections())
      if (table.type == SHT_SYMTAB || table.type == SHT_DYNSYM)
        for_each_symbol(image, table, [&](const Elf64_Sym& symbol, const std::string& name) {
          if (name != input_.base || found) return;
          base_ = place(symbol);
          base_section_ = symbol.st_shndx;
          found = true;
        });
    if (!found) return fail(ErrorCode::kNotFound, "no symbol has the name that --base gives", 0);
    return {};
  }

  template <typename Callback>
  static void for_each_symbol(const image::ElfImage& image, const image::Section& table, Callback&& callback) {
    const auto bytes = image.stored_bytes(table);
    if (!bytes || table.link >= image.sections().size()) return;
    const auto names = image.stored_bytes(image.sections()[table.link]);
    if (!names) return;
    const std::size_t size = image::stored_size<Elf64_Sym>(image.elf_class());
    for (std::size_t i = 0; i < bytes->size() / size; ++i) {
      const auto symbol = image::read_stored<Elf64_Sym>(*bytes, image.elf_class(), i * size);
      if (!symbol || symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= image.sections().size()) continue;
      const auto name = names->string_at(symbol->st_name);
      if (name && !name->empty()) callback(*symbol, std::string(*name));
    }
  }

  [[nodiscard]] std::uint64_t place(const Elf64_Sym& symbol) const {
    return symbol.st_value + (to_.object ? to_.object->address_of(symbol.st_shndx) : 0);
  }

  Expected<void> function(const image::ElfImage& image, const sources::UnwindSource& source, const Elf64_Sym& symbol,
                          const std::string& name) {
    if (to_.object ? to_.object->is_described(place(symbol)) : source.function_at(symbol.st_value).has_value()) {
      ++to_.covered;
      return {};
    }
    if (!to_.object) {
      if (const auto code = image.at_address(symbol.st_value, symbol.st_size)) add(name, symbol.st_value, *code);
      return {};
    }
    const auto code = to_.object->code(symbol.st_shndx, symbol.st_value, symbol.st_size);
    if (!code) return Failure(code.error());
    if (!input_.base.empty() && symbol.st_shndx != base_section_)
      return fail(
          ErrorCode::kUnsupported,
          "a function is in another section than the --base, which linking moves apart: choose others with --functions",
          image.sections()[symbol.st_shndx].offset + symbol.st_value);
    to_.several_sections |= !to_.functions.empty() && symbol.st_shndx != section_;
    section_ = symbol.st_shndx;
    add(name, place(symbol), *code);
    return {};
  }

  const EmitInput& input_;
  std::string subject_;  // of an error
  EmitFunctions to_;
  std::uint64_t base_ = 0;
  std::size_t base_section_ = 0, section_ = 0;  // of the base; of the function before
};

}  // namespace

std::expected<EmitFunctions, EmitError> read_emit_input(const EmitInput& input) { return Reader(input).run(); }

}  // namespace windlass::cli
