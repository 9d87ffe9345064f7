#include "table/compile_pe.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "image/pe_names.h"
#include "table/compile_rows.h"
#include "table/extra_register.h"
#include "table/linear_scan.h"
#include "winx64/registers.h"

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

// ---- x64 ------------------------------------------------------------------------------------------------------------

// A handler that the system calls with a machine frame on the stack (UWOP_PUSH_MACHFRAME: rip, cs, eflags, rsp, ss): no
// row has an expression for it, but a rule does, CFA = [rsp + n + 24]. No rule where the frame is not found from rsp.
std::optional<TraceRule> machine_frame_rule(const winx64::Functions& functions, const winx64::RuntimeFunction& entry,
                                            std::uint8_t x_reg) {
  const auto info = winx64::read_unwind_info(functions.image(), entry.info);
  if (entry.indirect() || !info || info->version > 2 || info->chained || info->frame_register != 0) return {};
  std::int64_t size = 0;  // of what was pushed after it
  bool found = false, odd = false;
  TraceRule rule{};
  const auto saved = [&](unsigned number, std::int64_t offset) {
    const auto narrow = static_cast<std::int16_t>(offset);
    if (narrow != offset) return;  // then it is lost
    const RegisterNumber reg = winx64::dwarf_number(number);
    if (reg == x86_64::kRbp) rule.fp_kind = WL_REG_BASE, rule.fp_offset = narrow;
    if (reg == x_reg) rule.x_kind = WL_REG_BASE, rule.x_offset = narrow;
  };
  const auto all = winx64::each_code(*info, [&](const winx64::UnwindCode& code) {
    odd |= found;  // the machine frame is what was first
    switch (code.operation) {
      case winx64::Operation::kPushNonvol: saved(code.info, size), size += 8; break;
      case winx64::Operation::kAllocSmall:
      case winx64::Operation::kAllocLarge: size += code.value; break;
      case winx64::Operation::kSaveNonvol:
      case winx64::Operation::kSaveNonvolFar: saved(code.info, code.value); break;
      case winx64::Operation::kPushMachframe: found = true, size += code.info != 0 ? 8 : 0; break;
      default: break;  // XMM registers are not traced
    }
  });
  if (!all || !found || odd || size > INT16_MAX - 24) return {};
  rule.cfa_kind = WL_CFA_MEM;
  rule.cfa_reg = x86_64::kRsp;
  rule.cfa_offset = static_cast<std::int32_t>(size + 24);
  rule.ra_kind = WL_REG_BASE;
  rule.ra_offset = static_cast<std::int16_t>(size);
  rule.flags = WL_RULE_SIGNAL;
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
  return choose_extra_register(use, kPreservedOnWindowsX64);
}

// ---- leaf functions -------------------------------------------------------------------------------------------------

// The code that no entry covers. To the system its functions are leaves; to be on the safe side the x64 ones are read.
class Leaves {
 public:
  Leaves(const image::PeImage& image, bool arm64, TableBuilder& builder, std::uint8_t x_reg)
      : image_(image), symbols_(image::PeSymbols::make(image)), arm64_(arm64), builder_(builder), x_reg_(x_reg) {}

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
      builder_.row(address == first ? begin : address, rule);
    };
    const auto starts_function = [&](std::uint64_t address) {
      return !symbols_.at(static_cast<std::uint32_t>(address)).empty();
    };
    arm64_ ? row(first, arm64_leaf_rule()) : rows_of_bare_code(code, first, x_reg_, starts_function, row);
    builder_.end_function();
  }

  const image::PeImage& image_;
  image::PeSymbols symbols_;
  bool arm64_;
  TableBuilder& builder_;
  std::uint8_t x_reg_;
};

// Every entry of an image's function table, and then the code that none covers.
Expected<UnwindTable> compile_windows(const source::UnwindSource& source, const image::PeImage& image,
                                      std::size_t functions, const RowCompilation& how, source::ErrorSink report) {
  if (functions == 0) return UnwindTable();
  std::vector<AddressRange> executable;
  for (const image::PeSection& section : image.sections()) {
    const std::uint64_t size = std::max(section.virtual_size, section.virtual_size == 0 ? section.file_size : 0);
    if (section.executable() && size != 0) executable.push_back({section.rva, section.rva + size});
  }
  TableBuilder builder(executable);
  builder.reserve(functions * 8, functions * 2);
  std::vector<AddressRange> covered = add_functions(source, how, builder, report);
  builder.begin_fallback();
  // Where functions overlap, the furthest end counts.
  for (std::size_t i = 1; i < covered.size(); ++i) covered[i].end = std::max(covered[i].end, covered[i - 1].end);
  Leaves leaves(image, source.architecture() == Architecture::kAArch64, builder, how.x_reg);
  for (const AddressRange& code : executable) leaves.add(covered, code);
  return builder.finish();
}

// The length of the NOP that `code` begins with; 0: none. Intel SDM 2B, "NOP": 90, or 0F 1F /0 with any memory operand;
// assemblers put up to ten operand-size prefixes and a segment prefix in front.
std::size_t nop_length(ByteView code) {
  const std::uint8_t* bytes = code.u8();
  std::size_t at = 0;
  while (at < code.size() && (bytes[at] == 0x66 || bytes[at] == 0x2e) && at < 11) ++at;
  if (at < code.size() && bytes[at] == 0x90) return at + 1;
  if (code.size() - at < 3 || bytes[at] != 0x0f || bytes[at + 1] != 0x1f) return 0;
  const std::uint8_t modrm = bytes[at + 2], mod = modrm >> 6;
  if ((modrm & 0x38) != 0 || mod == 3) return 0;
  const std::size_t length = at + 3 + ((modrm & 7) == 4 ? 1 : 0) + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
  return length <= code.size() ? length : 0;
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
    const std::size_t nop = byte == 0xcc || byte == 0 ? 1 : nop_length(*code.sub(at, code.size() - at));
    if (nop == 0) break;
    at += nop;
  }
  return at;
}

Expected<UnwindTable> compile_winx64(const source::UnwindSource& source, const winx64::Functions& functions,
                                     source::ErrorSink report) {
  const std::uint8_t x_reg = x64_extra_register(functions);
  const auto missing = [&](const source::Function& function) {
    if (!function.signal_frame) return no_rule();
    const auto entry = functions.stored(function.record.offset / sizeof(winx64::RuntimeFunction));
    return machine_frame_rule(functions, entry, x_reg).value_or(no_rule());
  };
  return compile_windows(source, functions.image(), functions.size(), {x_reg, missing}, report);
}

Expected<UnwindTable> compile_winarm64(const source::UnwindSource& source, const winarm64::Functions& functions,
                                       source::ErrorSink report) {
  if (functions.image().machine() != image::PeMachine::kArm64)
    return fail(ErrorCode::kUnsupported, "no rows for this machine", 0);
  const auto missing = [](const source::Function&) { return no_rule(); };
  // A frame is found from sp or x29 alone.
  return compile_windows(source, functions.image(), functions.size(), {WL_NO_XREG, missing}, report);
}

}  // namespace windlass::table
