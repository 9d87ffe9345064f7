#include "lookup/table/compile_pe.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "flow/plain_instruction.h"
#include "formats/image/pe_names.h"
#include "formats/winx64/registers.h"
#include "lookup/sources/ocaml_frames.h"
#include "lookup/sources/ocaml_stacks.h"
#include "lookup/table/compile_rows.h"
#include "lookup/table/extra_register.h"
#include "lookup/table/linear_scan.h"
#include "lookup/table/project.h"

namespace windlass::table {
namespace {

// CFA = sp, the return address in x30.
TraceRule arm64_leaf_rule() {
  TraceRule rule{};
  rule.cfa_kind = WL_CFA_REG;
  rule.cfa_reg = aarch64::kSp;
  rule.ra_kind = WL_REG_IN_REG;
  rule.ra_offset = aarch64::kX30;
  return rule;
}

// Which register to follow besides rsp and rbp: the frame register that most entries name.
std::uint8_t x64_extra_register(const winx64::Functions& functions) {
  CfaRegisterUse use(kTrackable);
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const auto entry = functions.stored(i);
    const auto byte = functions.image().value_at_rva<std::uint8_t>((entry.info & ~1u) + 3);
    if (!byte || entry.indirect()) continue;
    const RegisterNumber reg = winx64::dwarf_number(*byte & 15);
    if ((*byte & 15) != 0 && reg != x86_64::kRbp) ++use[reg];
  }
  const std::uint8_t chosen = choose_extra_register(use, kPreservedOnWindowsX64);
  return chosen != WL_NO_XREG ? chosen : x86_64::kRbx;
}

// ---- leaf functions -------------------------------------------------------------------------------------------------

// The code that no entry covers. To the system its functions are leaves; to be on the safe side the x64 ones are read.
class Leaves {
 public:
  Leaves(const image::PeImage& image, bool arm64, TableBuilder& builder, std::uint8_t x_reg)
      : image_(image),
        ocaml_(sources::OcamlFrames::read(image)),
        starts_(function_starts(image, ocaml_)),
        arm64_(arm64),
        builder_(builder),
        x_reg_(x_reg) {}

  // `covered` sorted by begin.
  void add(const std::vector<AddressRange>& covered, const AddressRange& code) {
    auto next = std::ranges::lower_bound(covered, code.begin, {}, &AddressRange::begin);
    std::uint64_t at = code.begin;
    if (next != covered.begin()) at = std::max(at, std::prev(next)->end);
    for (; next != covered.end() && next->begin < code.end; ++next) {
      if (next->begin > at) gap(at, next->begin);
      at = std::max(at, next->end);
    }
    if (at < code.end) gap(at, code.end);
  }

 private:
  // RVAs, ascending. Assemblers say which symbol is a function, OCaml does not.
  static std::vector<std::uint32_t> function_starts(const image::PeImage& image, const sources::OcamlFrames& ocaml) {
    std::vector<std::uint32_t> starts;
    const auto symbols = image::PeSymbols::make(image);
    for (const image::PeSymbols::Symbol& symbol : symbols.all()) starts.push_back(symbol.rva);
    if (ocaml.size() != 0)
      image::each_coff_symbol(image, [&](std::string_view, std::uint32_t rva, bool is_function) {
        if (!is_function && ocaml.has_code(rva)) starts.push_back(rva);
      });
    std::ranges::sort(starts);
    return starts;
  }

  // Padding at its front is left to the function before, as the builder does with gaps of that size.
  void gap(std::uint64_t begin, std::uint64_t end) {
    constexpr std::size_t kMaxPadding = 15;
    const auto rest = image_.from_rva(static_cast<std::uint32_t>(begin));
    if (!rest) return;  // behind what the file holds there are zeros
    const ByteView bytes = *rest->sub(0, std::min<std::uint64_t>(rest->size(), end - begin));
    const std::size_t padding = padding_size(bytes, arm64_);
    if (padding == bytes.size()) return;
    const ByteView code = *bytes.sub(padding, bytes.size() - padding);
    const std::uint64_t first = begin + padding;
    if (padding <= kMaxPadding) begin = first;
    builder_.begin_function(begin, end);
    const auto row = [&](std::uint64_t address, const TraceRule& rule) {
      builder_.row(address == first ? begin : address, without_end(rule));
    };
    auto start = std::ranges::lower_bound(starts_, first);
    const auto starts_function = [&](std::uint64_t address) {  // ascending
      while (start != starts_.end() && *start < address) ++start;
      return start != starts_.end() && *start == address;
    };
    if (arm64_) {
      row(first, arm64_leaf_rule());
    } else {
      std::vector<Placed> rows;
      const auto keep = [&](std::uint64_t address, const TraceRule& rule) { rows.push_back({address, rule}); };
      const auto size_behind = [&](std::uint64_t return_address) -> std::optional<std::int64_t> {
        const auto size = ocaml_.size_at(return_address);
        return size ? std::optional(std::int64_t{*size} - 8) : std::nullopt;
      };
      rows_of_bare_code(code, first, x_reg_, starts_function, size_behind, keep);
      with_calls(rows, first, end, row);
    }
    builder_.end_function();
  }

  struct Placed {
    std::uint64_t address;
    TraceRule rule;
  };
  // Gives the rows of a scan. At the last byte of each call that OCaml's table knows, its row comes instead.
  template <typename Give>
  void with_calls(const std::vector<Placed>& scanned, std::uint64_t begin, std::uint64_t end, const Give& give) {
    auto next = scanned.begin();
    const auto give_until = [&](std::uint64_t address) {
      for (; next != scanned.end() && next->address < address; ++next) give(next->address, next->rule);
    };
    std::uint64_t again = begin;  // where the scan's row is in force once more
    ocaml_.each_call(begin, end, [&](std::uint64_t at, std::uint32_t size) {
      if (at < again) return;
      give_until(at);
      const TraceRule* before = next != scanned.begin() ? &std::prev(next)->rule : nullptr;
      while (next != scanned.end() && next->address <= at + 1) before = &(next++)->rule;
      const auto [known, is_new] = rules_.try_emplace(size);
      if (is_new) known->second = project(sources::OcamlFrames::row(at, size), Architecture::kX86_64, x_reg_);
      give(at, known->second);
      again = at + 1;
      if (before != nullptr && again < end) give(again, *before);
    });
    give_until(end);
  }

  const image::PeImage& image_;
  sources::OcamlFrames ocaml_;
  std::vector<std::uint32_t> starts_;
  std::unordered_map<std::uint32_t, TraceRule> rules_;  // of OCaml's calls, by the size of their frame
  bool arm64_;
  TableBuilder& builder_;
  std::uint8_t x_reg_;
};

// The rows of the code by which OCaml's runtime changes stacks: no entry covers it.
void add_ocaml_stacks(const sources::OcamlStacks& stacks, std::uint8_t x_reg, TableBuilder& builder,
                      std::vector<AddressRange>& covered) {
  for (const FrameRow& row : stacks.rows()) {
    builder.begin_function(row.begin, row.end);
    builder.row(row.begin, project(row, Architecture::kX86_64, x_reg));
    builder.end_function();
    covered.push_back({row.begin, row.end});
  }
  if (!stacks.rows().empty()) std::ranges::sort(covered, {}, &AddressRange::begin);
}

// Every entry of an image's function table, and then the code that none covers.
Expected<UnwindTable> compile_windows(const sources::UnwindSource& source, const image::PeImage& image,
                                      std::size_t functions, std::uint8_t x_reg, sources::ErrorSink report) {
  std::vector<AddressRange> executable;
  for (const image::PeSection& section : image.sections()) {
    const std::uint64_t size = std::max(section.virtual_size, section.virtual_size == 0 ? section.file_size : 0);
    if (section.executable() && size != 0) executable.push_back({section.rva, section.rva + size});
  }
  TableBuilder builder(executable);
  builder.reserve(functions * 8, functions * 2);
  const bool arm64 = source.architecture() == Architecture::kAArch64;
  const sources::OcamlStacks stacks = arm64 ? sources::OcamlStacks() : sources::OcamlStacks::read(image);
  if (!stacks.rows().empty()) x_reg = x86_64::kRbx;  // it has OCaml's rsp while C runs (asmcomp/amd64/emit.mlp, 5.0)
  std::vector<AddressRange> covered = add_functions(source, x_reg, builder, report);
  if (covered.empty()) return UnwindTable();
  add_ocaml_stacks(stacks, x_reg, builder, covered);
  builder.begin_fallback();
  // Where functions overlap, the furthest end counts.
  for (std::size_t i = 1; i < covered.size(); ++i) covered[i].end = std::max(covered[i].end, covered[i - 1].end);
  Leaves leaves(image, arm64, builder, x_reg);
  for (const AddressRange& code : executable) leaves.add(covered, code);
  return builder.finish();
}

}  // namespace

std::size_t padding_size(ByteView code, bool arm64) {
  std::size_t at = 0;
  if (arm64) {
    constexpr std::uint32_t kNop = 0xd503201f, kBrkF000 = 0xd43e0000, kUdf = 0;
    for (; at + 4 <= code.size(); at += 4) {
      const std::uint32_t word = *code.at<std::uint32_t>(at);
      if (word != kNop && word != kBrkF000 && word != kUdf) return at;
    }
    return code.size();
  }
  while (at < code.size()) {
    const std::uint8_t byte = code.u8()[at];
    const std::size_t nop = byte == 0xcc || byte == 0 ? 1 : flow::nop_length(*code.sub(at, code.size() - at));
    if (nop == 0) break;
    at += nop;
  }
  return at;
}

Expected<UnwindTable> compile_winx64(const sources::UnwindSource& source, const winx64::Functions& functions,
                                     sources::ErrorSink report) {
  return compile_windows(source, functions.image(), functions.size(), x64_extra_register(functions), report);
}

Expected<UnwindTable> compile_winarm64(const sources::UnwindSource& source, const winarm64::Functions& functions,
                                       sources::ErrorSink report) {
  if (functions.image().machine() != image::PeMachine::kArm64)
    return fail(ErrorCode::kUnsupported, "no rows for this machine", 0);
  // A frame is found from sp or x29 alone.
  return compile_windows(source, functions.image(), functions.size(), WL_NO_XREG, report);
}

}  // namespace windlass::table
