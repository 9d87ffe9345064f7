#include "runtimes/coreclr/find.h"

#include <elf.h>

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtimes/coreclr/code_map.h"
#include "runtimes/coreclr/descriptor.h"
#include "runtimes/coreclr/names.h"
#include "runtimes/coreclr/rows.h"
#include "runtimes/dynamic_symbol.h"
#include "runtimes/image_text.h"
#include "runtimes/late_map.h"
#include "runtimes/memory_reader.h"
#include "runtimes/own_ranges.h"

namespace windlass::runtimes::coreclr {
namespace {

constexpr std::string_view kVersionText = "@(#)Version ";

class CoreClr final : public Runtime {
 public:
  CoreClr(std::shared_ptr<const Memory> memory, const Exports& exports)
      : memory_(std::move(memory)), exports_(exports) {
    prepare();
  }

  Architecture architecture() const override { return Architecture::kX86_64; }
  std::optional<Error> problem() const override { return tables_ ? tables_->problem : tables_.problem(); }
  bool is_understood() const override { return !tables_.is_ready() || has_map(); }

  // Its executable memory is a memfd of this name, mapped once more where it is written (src/coreclr/minipal/Unix/
  // doublemapping.cpp), unless the user has switched that off.
  void note_code(const os::ProcMap& map) override {
    if (!map.path.starts_with("/memfd:doublemapper")) return;
    own_.add({map.begin, map.end});
  }

  Expected<std::unique_ptr<Method>> method_at(std::uint64_t address) override {
    prepare();
    if (!has_map()) return fail(ErrorCode::kNotFound, "nothing is known of the runtime's code", address);
    auto block = tables_->map->find(*memory_, address);
    if (!block) {
      // Heaps of stubs that are in no range section: thunks of delegates, helpers made at run time.
      if (block.error().code == ErrorCode::kNotFound && own_.at(address)) return Stub::read(*memory_, address);
      return Failure(block.error());
    }
    const std::uint64_t method_desc = block->method_desc;
    auto code = read_code(*memory_, std::move(*block));
    if (!code) return Failure(code.error());
    if (tables_->names && method_desc != 0) (*code)->name = tables_->names->name_of(*memory_, method_desc);
    return std::move(*code);
  }

  bool teaches() const override { return true; }
  // Its frames run one function each.
  std::optional<std::vector<wl_taken>> words_of(const Method&, CodeAddress) override { return std::vector<wl_taken>{}; }
  std::optional<wl_code_heap> heap_of(std::uint64_t address) override {
    return has_map() ? tables_->map->heap_of(*memory_, address) : std::nullopt;
  }
  bool is_still(const Method& method) override {
    return has_map() && static_cast<const Code&>(method).is_still(*tables_->map, *memory_);
  }

 private:
  using Tables = Parts<CodeMap, Names>;
  // src/coreclr/inc/runtimeinfo.h: a signature, a number and three times 24 bytes stand in front of the version.
  static constexpr std::uint64_t kVersionInInfo = 96;
  static constexpr std::uint32_t kNotTold = 0;

  [[nodiscard]] bool has_map() const { return tables_ && tables_->map; }

  [[nodiscard]] Expected<Tables> read() const {
    const auto found = describe();
    if (!found) return Failure(found.error());
    if (found->text("Architecture").value_or("x64") != "x64")
      return fail(ErrorCode::kUnsupported, "code of a .NET runtime for another machine", exports_.descriptor);
    Tables tables;
    tables.take(CodeMap::make(*found));
    tables.take(Names::make(*found));
    return tables;
  }
  // .NET 9 has a descriptor without that contract, or none; .NET 8 has none.
  [[nodiscard]] Expected<Descriptor> describe() const {
    auto found =
        exports_.descriptor != 0 ? Descriptor::read(*memory_, exports_.descriptor) : Expected<Descriptor>(Descriptor());
    if (!found || found->contract("ExecutionManager") != 0 || exports_.dac_table == 0) return found;
    if (!exports_.x64)
      return fail(ErrorCode::kUnsupported, "code of a .NET runtime for another machine", exports_.dac_table);
    const auto version = exports_.descriptor == 0 ? version_told() : std::optional(kNotTold);
    if (!version) return fail(ErrorCode::kUnreadable, "the .NET runtime's version cannot be read", exports_.info);
    return Descriptor::of_known(std::move(*found), *memory_, exports_.dac_table, *version);
  }
  // Nothing: it cannot be read.
  [[nodiscard]] std::optional<std::uint32_t> version_told() const {
    if (exports_.info != 0) return read_value<std::uint32_t>(*memory_, exports_.info + kVersionInInfo);
    constexpr std::size_t kDigits = 4;
    const std::string digits =
        exports_.text != 0 ? read_text(*memory_, exports_.text + kVersionText.size(), kDigits) : std::string();
    std::uint32_t version = kNotTold;
    (void)std::from_chars(digits.data(), digits.data() + digits.size(), version);
    return version;
  }
  void prepare() {
    tables_.prepare([&] { return read(); });
  }

  std::shared_ptr<const Memory> memory_;
  Exports exports_;
  OwnRanges own_;
  LateMap<Tables> tables_;
};

}  // namespace

Expected<std::uint64_t> find_descriptor(const Memory& memory, std::uint64_t base) {
  return find_dynamic_symbol(memory, base, "DotNetRuntimeContractDescriptor");
}

Expected<std::uint64_t> find_version_text(const Memory& memory, std::uint64_t base) {
  return find_text(memory, base, SegmentKind::kData, kVersionText);
}

std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, const Exports& exports) {
  return std::make_unique<CoreClr>(std::move(memory), exports);
}

namespace {

Exports exports_of(const Memory& memory, std::uint64_t base) {
  const auto at = [&](const char* name) { return find_dynamic_symbol(memory, base, name).value_or(0); };
  Exports found{.descriptor = find_descriptor(memory, base).value_or(0)};
  found.dac_table = at("g_dacTable");
  if (found.descriptor == 0 && found.dac_table != 0) found.info = at("DotNetRuntimeInfo");
  const auto header = read_value<Elf64_Ehdr>(memory, base);
  found.x64 = header && header->e_machine == EM_X86_64;
  return found;
}

}  // namespace

Expected<std::uint64_t> find_image(const Memory& memory, std::uint64_t base) {
  const Exports found = exports_of(memory, base);
  if (found.descriptor == 0 && found.dac_table == 0)
    return fail(ErrorCode::kNotFound, "the image has no .NET runtime", base);
  return base;
}

std::unique_ptr<Runtime> open_image(std::shared_ptr<const Memory> memory, std::uint64_t base) {
  Exports exports = exports_of(*memory, base);
  if (exports.descriptor == 0 && exports.info == 0) exports.text = find_version_text(*memory, base).value_or(0);
  return open(std::move(memory), exports);
}

}  // namespace windlass::runtimes::coreclr
