#include "runtimes/v8/find.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "runtimes/dynamic_symbol.h"
#include "runtimes/memory_reader.h"
#include "runtimes/own_ranges.h"
#include "runtimes/pe_export.h"
#include "runtimes/v8/code_map.h"
#include "runtimes/v8/image_file.h"
#include "runtimes/v8/names.h"
#include "runtimes/v8/rows.h"
#include "runtimes/v8/wasm_map.h"
#include "runtimes/v8/wasm_names.h"

namespace windlass::runtimes::v8 {
namespace {

class V8 final : public Runtime {
 public:
  // `has_symbols`: its file says where what is (ImageFile::open()).
  V8(std::shared_ptr<const Memory> memory, std::uint64_t image, Expected<MappedFile> file, bool has_symbols)
      : memory_(std::move(memory)) {
    const auto header = read_value<Elf64_Ehdr>(*memory_, image);
    const bool is_elf = header && std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0;
    if (is_elf && header->e_machine != EM_X86_64) {
      problem_ = Error{ErrorCode::kUnsupported, "code of a V8 for another machine", image};
      return;
    }
    auto opened = file ? ImageFile::open(std::move(*file), has_symbols) : Failure(file.error());
    if (!opened) {
      problem_ = opened.error();
      return;
    }
    if ((*opened)->facts().has_places_only()) {  // its heap is not known
      file_ = std::move(*opened);
      problem_ = file_->facts().unknown();
      return;
    }
    const auto map = CodeMap::make((*opened)->facts());
    if (!map) {
      problem_ = map.error();
      return;
    }
    file_ = std::move(*opened);
    code_map_ = *map;
    os::ProcMap first;
    first.begin = image;
    image_bias_ = file_->bias_of(first);
    heap_.emplace(*memory_, file_->layout());
    names_.emplace(*heap_, file_->facts());
    wasm_map_.emplace(*memory_, wasm_state(), file_->facts().version());
    wasm_names_.emplace(*memory_);
    if (is_pe()) note_pe_image(image);
    if (file_->facts().builtins().empty())
      problem_ = Error{ErrorCode::kNotFound, "a V8 without the symbols of its builtins", image};
  }

  Architecture architecture() const override { return Architecture::kX86_64; }
  std::optional<Error> problem() const override { return problem_; }
  bool is_understood() const override { return names_.has_value(); }
  [[nodiscard]] bool has_file() const { return file_ != nullptr; }
  std::string build_id() const override { return file_ != nullptr ? file_->build_id() : std::string(); }

  void note_code(const os::ProcMap& map) override {
    if (!names_ || is_own_text(map) || pe_image_.overlaps({map.begin, map.end})) return;
    note_copied_builtins(map);
    own_.add({map.begin, map.end});
  }

  // Builtins are part of the program, and mapped once more beside the code that calls them (Heap::
  // RemapEmbeddedBuiltins..., src/codegen/external-reference-table; short calls).
  void note_file_code(const os::ProcMap& map) override {
    if (!file_ || file_->facts().builtins().empty()) return;
    const auto bias = file_->bias_of(map);
    if (!bias) return;
    const std::uint64_t begin = std::max(map.begin, file_->facts().code_begin() + *bias);
    const std::uint64_t end = std::min(map.end, file_->facts().code_end() + *bias);
    if (begin < end) add_builtins({{begin, end}, *bias});
  }
  std::vector<AddressRange> file_code() const override {
    std::vector<AddressRange> ranges;
    for (const Builtins& known : builtins_) ranges.push_back(known.range);
    return ranges;
  }
  std::vector<manager::PublishedCode::HoldingCode> holding_code() const override {
    std::vector<manager::PublishedCode::HoldingCode> found;
    for (const Builtins& known : builtins_)
      for (const ImageFile::Deoptimizing& code : file_->deoptimizing())
        found.push_back({{code.builtin.begin + known.bias, code.builtin.end + known.bias}, code.code.held()});
    return found;
  }

  Expected<std::unique_ptr<Method>> method_at(std::uint64_t address) override {
    if (const Builtins* known = builtins_at(address)) {
      const ImageFacts::Builtin* builtin = file_->facts().builtin_at(address - known->bias);
      if (builtin == nullptr) builtin = file_->facts().builtin_at(address - known->bias + 1);
      if (builtin == nullptr) return fail(ErrorCode::kNotFound, "between two builtins", address);
      auto code = std::make_unique<BuiltinCode>(*file_, *builtin, known->bias);
      code->lasting = true;
      if (!builtin->name.empty()) code->name = "Builtins_" + builtin->name;
      return code;
    }
    if (!names_) return fail(ErrorCode::kNotFound, "nothing is known of the runtime's code", address);
    const auto own = own_.at(address);
    if (!own) return fail(ErrorCode::kNotFound, "no code of V8's heap is there", address);
    if (const auto range = wasm_map_->range_of(address)) return wasm_at(*range, address);
    const auto object = code_map_->find(*heap_, address, own->begin);
    if (!object) return Failure(object.error());
    auto code = CompiledCode::read(*heap_, *object);
    if (!code) return Failure(code.error());
    (*code)->knows_builtins = !builtins_.empty();
    names_->fill(**code);
    return std::move(*code);
  }

  bool is_still(const Method& method) override {
    const Code& code = static_cast<const Code&>(method);
    if (code.wasm() != nullptr) return wasm_map_->is_still(*code.wasm());
    return code.object() == nullptr || code_map_->is_still(*heap_, *code.object());
  }

  std::optional<FrameFunction> frame_function(const Method& method, std::uint64_t address, const Registers& frame,
                                              const Memory& memory) override {
    if (!names_) return std::nullopt;
    const auto found = names_->by_slots(static_cast<const Code&>(method), address, frame, memory);
    if (!found) return std::nullopt;
    return FrameFunction{found->function, names_->functions().line_of(found->function, found->position)};
  }
  bool names_the_past() const override { return true; }
  bool teaches() const override { return names_.has_value(); }
  std::optional<std::vector<wl_taken>> words_of(const Method& method, CodeAddress pc) override {
    if (!names_) return std::nullopt;
    return names_->words_of(static_cast<const Code&>(method), pc.lookup());
  }
  std::optional<Guard> guard_of(const Method& method) override {
    const CodeObject* object = static_cast<const Code&>(method).object();
    if (object == nullptr) return std::nullopt;
    return Guard{.address = code_map_->code_place(*object), .value = object->code};
  }
  sources::NamedFunction name_of(const FrameFunction& function) override {
    return names_->named(static_cast<std::uint32_t>(function.function), static_cast<std::uint32_t>(function.place));
  }

  void functions_at(const Method& method, std::uint64_t address, std::vector<sources::NamedFunction>& to) override {
    const Code& code = static_cast<const Code&>(method);
    if (code.wasm() != nullptr) return to.push_back({code.name, static_cast<const WasmCode&>(code).file});
    if (code.object() == nullptr) {                         // it has its symbol's name, if it is in the file
      const Builtins* known = builtins_at(code.begin + 1);  // what is returned to belongs to it, too
      if (known != nullptr && (known->copied || !file_->facts().builtins_have_symbols() || address == code.begin))
        to.push_back({code.name.empty() ? std::string("[V8 builtin]") : code.name});
      return;
    }
    const std::size_t before = to.size();
    static_cast<const CompiledCode&>(code).each_function(
        address - code.begin, [&](std::uint32_t function, std::int32_t position) {
          if (function != Functions::kNone)
            to.push_back(names_->named(function, names_->functions().line_of(function, position)));
        });
    if (to.size() == before) to.push_back({kind_name(code.object()->kind)});
  }

 private:
  static constexpr std::size_t kMaxBuiltins = 65536;
  [[nodiscard]] bool is_pe() const { return file_->pe_size() != 0; }
  [[nodiscard]] std::uint64_t wasm_state() const {
    const std::uint64_t address = file_->facts().wasm_state();
    return address != 0 && image_bias_ ? address + *image_bias_ : 0;
  }
  // A loader of PE images may copy all of it to memory of no file.
  void note_pe_image(std::uint64_t image) {
    pe_image_ = {image, image + file_->pe_size()};
    const ImageFacts& facts = file_->facts();
    if (!facts.builtins().empty()) add_builtins({{facts.code_begin() + image, facts.code_end() + image}, image});
  }
  // The program's text, which it moves to memory of no file and which is not whole there yet (os/moved_text.h).
  // To look for objects of the heap in it takes long, and there are none.
  [[nodiscard]] bool is_own_text(const os::ProcMap& map) const {
    return file_ && image_bias_ && map.begin < file_->facts().code_end() + *image_bias_ &&
           file_->facts().code_begin() + *image_bias_ < map.end;
  }
  [[nodiscard]] Expected<std::unique_ptr<Method>> wasm_at(const WasmMap::Range& range, std::uint64_t address) {
    const auto object = wasm_map_->find(range, address);
    auto code = object ? WasmCode::read(*memory_, *object) : Failure(object.error());
    if (!code) return Failure(code.error());
    if (object->index != WasmObject::kNone) {
      sources::NamedFunction named = wasm_names_->name_of(*object);
      (*code)->name = std::move(named.name);
      (*code)->file = std::move(named.file);
    }
    return std::move(*code);
  }
  // Of code that is no function of JavaScript, or whose function is not known.
  [[nodiscard]] const char* kind_name(std::uint32_t kind) const {
    if (kind == file_->layout().kind_regexp) return "[RegExp]";
    return kind == file_->layout().kind_wasm_entry ? "[JavaScript to WebAssembly]" : "[V8 code]";
  }

  struct Builtins {
    AddressRange range;
    std::uint64_t bias = 0;
    bool copied = false;  // to memory of no file
  };
  [[nodiscard]] const Builtins* builtins_at(std::uint64_t address) const {
    const auto has = [&](const Builtins& known) { return known.range.contains(address); };
    const auto found = std::ranges::find_if(builtins_, has);
    return found != builtins_.end() ? &*found : nullptr;
  }
  void add_builtins(const Builtins& added) {
    std::erase_if(builtins_, [&](const Builtins& known) { return known.range.overlaps(added.range); });
    if (builtins_.size() < kMaxBuiltins) builtins_.push_back(added);
  }
  // Where the program's text is in no file (node --use-largepages), V8 cannot map the builtins once more and copies
  // them (CodeRange::RemapEmbeddedBuiltins). The copy is a mapping of its own: all else there may be written.
  void note_copied_builtins(const os::ProcMap& map) {
    if (!file_ || file_->facts().builtins().empty()) return;
    const auto copied = file_->copied_builtins(*memory_, map);
    if (!copied) return;
    const ImageFacts& facts = file_->facts();
    add_builtins({{facts.code_begin() + *copied, facts.code_end() + *copied}, *copied, true});
  }

  std::shared_ptr<const Memory> memory_;
  std::shared_ptr<const ImageFile> file_;
  std::optional<std::uint64_t> image_bias_;  // of the program
  AddressRange pe_image_;                    // empty: it is an ELF file
  OwnRanges own_;
  std::vector<Builtins> builtins_;
  std::optional<CodeMap> code_map_;
  std::optional<Heap> heap_;
  std::optional<Names> names_;
  std::optional<WasmMap> wasm_map_;
  std::optional<WasmNames> wasm_names_;
  std::optional<Error> problem_;
};

// Is it an ELF image with a lot of code, as V8 has in it?
bool is_large(const Memory& memory, std::uint64_t image) {
  constexpr std::uint64_t kLeastCode = std::uint64_t{8} << 20;
  const auto header = read_value<Elf64_Ehdr>(memory, image);
  return header && header->e_machine == EM_X86_64 &&
         std::ranges::any_of(program_headers(memory, image), [](const Elf64_Phdr& segment) {
           return segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0 && segment.p_filesz >= kLeastCode;
         });
}

}  // namespace

Expected<std::uint64_t> find_large_image(const Memory& memory, std::uint64_t base) {
  if (!is_large(memory, base)) return fail(ErrorCode::kNotFound, "the file says nothing of a V8", base);
  return base;
}

std::unique_ptr<Runtime> open_without_symbols(std::shared_ptr<const Memory> memory, std::uint64_t image,
                                              Expected<MappedFile> file) {
  auto opened = std::make_unique<V8>(std::move(memory), image, std::move(file), false);
  return opened->has_file() ? std::move(opened) : nullptr;
}

Expected<std::uint64_t> find_metadata(const Memory& memory, std::uint64_t base) {
  if (has_pe_header(memory, base)) return find_pe_exporting(memory, base, "?GetVersion@V8@v8@@SAPEBDXZ");
  return find_image_defining(memory, base, "v8dbg_SmiTagMask");
}

std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t image, Expected<MappedFile> file) {
  return std::make_unique<V8>(std::move(memory), image, std::move(file), true);
}

}  // namespace windlass::runtimes::v8
