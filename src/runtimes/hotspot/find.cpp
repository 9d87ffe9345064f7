#include "runtimes/hotspot/find.h"

#include <elf.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/registers.h"
#include "runtimes/dynamic_symbol.h"
#include "runtimes/hotspot/code_map.h"
#include "runtimes/hotspot/names.h"
#include "runtimes/hotspot/rows.h"
#include "runtimes/hotspot/vm_structs.h"
#include "runtimes/late_map.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes::hotspot {
namespace {

constexpr std::uint32_t kNullFreeSince = 20;  // JDK-8292758: see Compressed

struct Tables : Parts<CodeMap, Names> {
  bool null_free = false;
  std::uint64_t bcp_below_frame = 0;
};

class HotSpot final : public Runtime {
 public:
  HotSpot(std::shared_ptr<const Memory> memory, std::uint64_t image) : memory_(std::move(memory)), image_(image) {
    prepare();
  }

  Architecture architecture() const override { return Architecture::kX86_64; }
  std::optional<Error> problem() const override { return tables_ ? tables_->problem : tables_.problem(); }
  bool is_understood() const override { return !tables_.is_ready() || has_map(); }

  Expected<std::unique_ptr<Method>> method_at(std::uint64_t address) override {
    prepare();
    if (!has_map()) return fail(ErrorCode::kNotFound, "nothing is known of the runtime's code", address);
    auto blob = tables_->map->find(*memory_, address);
    if (!blob && blob.error().code == ErrorCode::kNotFound)
      if (auto jump = tables_->map->find_archived(*memory_, address)) blob = std::move(*jump);
    if (!blob) return Failure(blob.error());
    auto code = Code::read(*memory_, std::move(*blob), tables_->null_free);
    if (!code) return Failure(code.error());
    (*code)->name = name_of((*code)->blob());
    // All names now: the process may have ended when they are asked for.
    for (const std::uint64_t inlined : (*code)->debug().methods()) (void)named_of(inlined, kNoBci);
    return std::move(*code);
  }

  bool is_still(const Method& method) override {
    return has_map() && tables_->map->is_still(*memory_, static_cast<const Code&>(method).blob());
  }

  // The interpreter's: the method that runs in its frame, and the bytecode.
  std::optional<FrameFunction> frame_function(const Method& method, std::uint64_t address, const Registers& frame,
                                              const Memory& memory) override {
    FrameRow row;
    const Code& code = static_cast<const Code&>(method);
    if (!has_names() || code.blob().kind != Blob::Kind::kCodelet || !code.row_at(address, row) ||
        !row.cfa.is(CfaRule::kLoaded) || !frame.has(x86_64::kRbp))
      return std::nullopt;
    const std::uint64_t fp = frame.get(x86_64::kRbp);
    // While the entry builds its frame, what lies below sp is left from another.
    const auto slot = [&](std::uint64_t below) -> std::optional<std::uint64_t> {
      if (frame.has_sp() && frame.sp() > fp - below) return std::nullopt;
      return read_value<std::uint64_t>(memory, fp - below);
    };
    const auto running = slot(kMethodBelowFrame);
    const std::uint64_t of = running ? names().const_method(*memory_, *running) : 0;
    if (of == 0) return std::nullopt;
    // A register has it as long as no call has been made.
    std::optional<std::int32_t> bci;
    if (!frame.pc().is_return_address() && frame.has(kBcpRegister))
      bci = names().bci_of(*memory_, of, frame.get(kBcpRegister));
    if (const auto saved = slot(tables_->bcp_below_frame); saved && !bci) bci = names().bci_of(*memory_, of, *saved);
    return FrameFunction{of, static_cast<std::uint64_t>(std::int64_t{bci.value_or(kNoBci)})};
  }
  bool teaches() const override { return true; }
  std::optional<std::vector<wl_taken>> words_of(const Method& method, CodeAddress pc) override {
    const Code& code = static_cast<const Code&>(method);
    if (code.is_return_barrier(pc.lookup())) return std::nullopt;  // the frame above is where the thread's data say
    if (code.blob().kind != Blob::Kind::kCodelet) return std::vector<wl_taken>{};
    FrameRow row;
    if (!has_names() || !code.row_at(pc.lookup(), row)) return std::nullopt;
    // Without the interpreter's frame, or not yet: frame_function() does not look.
    if (!row.cfa.is(CfaRule::kLoaded)) return std::vector<wl_taken>{};
    const auto below = [](std::uint64_t bytes) {
      return wl_taken{static_cast<std::int16_t>(-static_cast<std::int64_t>(bytes)), x86_64::kRbp, 0};
    };
    std::vector<wl_taken> words{below(kMethodBelowFrame), below(tables_->bcp_below_frame)};
    if (!pc.is_return_address()) words.push_back({0, kBcpRegister, WL_TAKEN_REGISTER});
    return words;
  }
  std::vector<NewMethod> new_methods(std::size_t most) override {
    std::vector<NewMethod> methods;
    if (!has_map()) return methods;
    if (!std::exchange(told_codelets_, most != 0))
      for (const std::uint64_t begin : tables_->map->codelets(*memory_)) methods.push_back({begin, 0});
    for (const Blob& blob : tables_->map->new_methods(*memory_, most)) methods.push_back({blob.begin, blob.id});
    return methods;
  }
  // Stubs in assembly: copies, cryptography, checks of types.
  bool is_told_by_code(const Method& method) const override {
    return static_cast<const Code&>(method).blob().kind == Blob::Kind::kOther;
  }
  std::optional<Guard> guard_of(const Method& method) override {
    // Each compilation has a number of its own.
    const Blob& blob = static_cast<const Code&>(method).blob();
    if (!has_map() || !blob.is_compiled()) return std::nullopt;
    return Guard{tables_->map->id_of(blob), 0xffffffff, blob.id};
  }
  sources::NamedFunction name_of(const FrameFunction& function) override {
    return named(names().method(*memory_, function.function), static_cast<std::int32_t>(function.place));
  }

  void functions_at(const Method& method, std::uint64_t address, std::vector<sources::NamedFunction>& to) override {
    const Code& code = static_cast<const Code&>(method);
    const std::size_t before = to.size();
    if (code.is_return_barrier(address)) {
      to.push_back({"[virtual thread: more frames on the heap]"});
      return;
    }
    scopes_.clear();
    code.debug().scopes_at(static_cast<std::uint32_t>(address - code.begin), scopes_);
    for (const Scope& scope : scopes_) {
      sources::NamedFunction function = named_of(scope.method, scope.bci);
      if (!function.name.empty()) to.push_back(std::move(function));
    }
    if (to.size() == before && !code.name.empty()) to.push_back({code.name});
  }

 private:
  // frame_x86.hpp: interpreter_frame_method_offset. The bytecode pointer's offset is interpreter_frame_bcp_offset, of
  // JDK 8 interpreter_frame_bcx_offset.
  static constexpr std::uint64_t kMethodBelowFrame = 3 * 8;
  static constexpr RegisterNumber kBcpRegister = 13;  // interp_masm_x86.hpp: _bcp_register
  static constexpr std::int32_t kNoBci = -2;

  [[nodiscard]] static sources::NamedFunction named(const JavaMethod& method, std::int32_t bci) {
    return {method.name, method.file, bci == kNoBci ? 0 : method.line_at(std::max(bci, 0))};
  }
  [[nodiscard]] sources::NamedFunction named_of(std::uint64_t method, std::int32_t bci) {
    const std::uint64_t of = has_names() ? names().const_method(*memory_, method) : 0;
    return of == 0 ? sources::NamedFunction() : named(names().method(*memory_, of), bci);
  }
  [[nodiscard]] std::string name_of(const Blob& blob) {
    if (!blob.is_compiled()) return "[" + blob.name + "]";
    return named_of(blob.method, kNoBci).name;
  }

  [[nodiscard]] bool has_map() const { return tables_ && tables_->map; }
  [[nodiscard]] bool has_names() const { return tables_ && tables_->names; }
  [[nodiscard]] Names& names() { return *tables_->names; }

  [[nodiscard]] Expected<Tables> read() const {
    const auto header = read_value<Elf64_Ehdr>(*memory_, image_);
    if (header && header->e_machine != EM_X86_64)
      return fail(ErrorCode::kUnsupported, "code of a Java virtual machine for another machine", image_);
    const auto structs = VmStructs::read(*memory_, image_);
    if (!structs) return Failure(structs.error());
    Tables tables;
    tables.take(CodeMap::make(*structs));
    tables.null_free = structs->jdk_version(*memory_) >= kNullFreeSince;
    tables.bcp_below_frame = std::uint64_t{structs->is_jdk_8() ? 7U : 8U} * 8;
    tables.take(Names::make(*structs, tables.null_free));
    return tables;
  }
  void prepare() {
    tables_.prepare([&] { return read(); });
  }

  std::shared_ptr<const Memory> memory_;
  std::uint64_t image_;
  bool told_codelets_ = false;
  std::vector<Scope> scopes_;
  LateMap<Tables> tables_;
};

}  // namespace

Expected<std::uint64_t> find_tables(const Memory& memory, std::uint64_t base) {
  return find_image_defining(memory, base, "gHotSpotVMStructs");
}

std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t image) {
  return std::make_unique<HotSpot>(std::move(memory), image);
}

}  // namespace windlass::runtimes::hotspot
