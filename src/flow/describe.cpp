#include "windlass/jit/describe.h"

#include <algorithm>
#include <cstring>

#include "flow/aarch64.h"
#include "flow/described_frames.h"
#include "flow/frame_flow.h"
#include "flow/x86_64.h"

namespace windlass {

namespace flow {
namespace {

template <typename Machine>
class Describer {
 public:
  Describer(const CodeSource& source, std::span<const std::byte> code, std::uint64_t address,
            const DescribeOptions& options, const FlowOptions& flow_options)
      : code_(code),
        size_(static_cast<std::uint32_t>(code.size())),
        by_frame_pointer_(options.by_frame_pointer),
        drops_arguments_(options.drops_arguments),
        slots_(flow_options.told),
        flow_(source, address, size_, flow_options) {}

  Description run() {
    flow_.run();
    if (by_frame_pointer_) find_frame_pointer();
    flow_.for_each([&](std::uint32_t at, std::uint32_t length, const Path<Machine>& path, const Flow& flow,
                       const Path<Machine>&) { instruction(at, length, path, flow); },
                   [&](std::uint32_t, const auto& conflict) { conflict_ = conflict; });
    not_reached(size_);
    join_rows();
    const FoundPrologue found = prologue_of(stretches_, Machine::kArchitecture, size_);
    result_.prologue = found.prologue;
    result_.no_prologue = found.why_not;
    result_.no_prologue_at = found.where;
    return std::move(result_);
  }

 private:
  using State = SymbolicState<Machine::kSlots>;
  using FrameFlow = flow::FrameFlow<Machine>;
  static constexpr unsigned kSp = FrameFlow::kSp, kFp = FrameFlow::kFp;

  [[nodiscard]] static bool of_frame(const Value& value) { return value.same_base(entry_cfa<Machine>()); }
  [[nodiscard]] static std::int64_t depth_of(const Value& value) {
    return of_frame(value) ? entry_cfa<Machine>().minus(value) : FrameStretch::kUnknownDepth;
  }
  // Does the frame pointer hold an address of the frame, its old value being saved there?
  [[nodiscard]] static bool has_frame_pointer(const State& state) {
    return of_frame(state[kFp]) && kept_rule<Machine>(state, Value::initial(kFp), kFp).is(RegisterRule::kAtCfa);
  }

  // Where the code makes a frame pointer it is that one, and where sp is lost the one that is left.
  void find_frame_pointer() {
    std::optional<std::int64_t> made, needed;
    bool sets = false;
    flow_.for_each(
        [&](std::uint32_t, std::uint32_t, const Path<Machine>& path, const Flow& flow, const Path<Machine>&) {
          if (has_frame_pointer(path.state)) {
            if (sets && !made) made = depth_of(path.state[kFp]);
            if (!of_frame(path.state[kSp]) && !needed) needed = depth_of(path.state[kFp]);
          }
          sets = flow.sets_frame_pointer;
        },
        [](std::uint32_t, const auto&) {});
    frame_pointer_ = needed ? needed : made;
  }

  // By an address of the frame that is saved where a register points: GCC's frames aligned above 16 bytes.
  [[nodiscard]] static std::optional<CfaRule> cfa_in_memory(const State& state) {
    std::optional<CfaRule> found;
    state.for_each_store([&](const Value& address, const Value& value) {
      if (!of_frame(value)) return;
      for (const unsigned base : {kFp, kSp}) {
        if (!state[base].same_base(address)) continue;
        const std::int64_t offset = address.minus(state[base]), addend = depth_of(value);
        if (fits_row(offset) && addend == static_cast<std::int16_t>(addend))
          found = CfaRule::loaded(register_of_slot(base), static_cast<std::int32_t>(offset),
                                  static_cast<std::int16_t>(addend));
      }
    });
    return found;
  }

  [[nodiscard]] std::optional<CfaRule> cfa(const State& state) const {
    if (frame_pointer_ && depth_of(state[kFp]) == *frame_pointer_ && has_frame_pointer(state))
      return cfa_by<Machine>(state, kFp);
    for (const unsigned base : {drops_arguments_ ? kFp : kSp, drops_arguments_ ? kSp : kFp})
      if (of_frame(state[base])) return cfa_by<Machine>(state, base);
    if (const auto loaded = cfa_in_memory(state)) return loaded;
    for (unsigned i = 0; i < Machine::kSlots; ++i)
      if (of_frame(state[i])) return cfa_by<Machine>(state, i);
    return std::nullopt;
  }

  // Where the frame is gone, sp with its arguments, and the return address is in a register or on the stack again.
  [[nodiscard]] bool dropped_row(const State& state, std::uint64_t at, FrameRow& row) const {
    const Value return_address = Value::initial(kSp).loaded(), sp = state[kSp];
    if (!drops_arguments_ || Machine::kEntryCfa == 0 || of_frame(sp) || state[kFp] != Value::initial(kFp)) return false;
    std::optional<std::int64_t> behind;  // sp
    state.for_each_store([&](const Value& address, const Value& value) {
      if (value != return_address || !address.same_base(sp) || address.addend < sp.addend) return;
      const std::int64_t distance = address.minus(sp);
      if (!behind || distance < *behind) behind = distance;
    });
    row = {};
    row.begin = at;
    if (behind) {
      if (!fits_row(*behind) || !fits_row(*behind + 8)) return false;
      row.cfa = CfaRule::at(register_of_slot(kSp), static_cast<std::int32_t>(*behind + 8));
      row.return_address = RegisterRule::at_cfa(-8);
      return true;
    }
    for (unsigned i = 0; i < Machine::kSlots; ++i) {
      if (state[i] != return_address) continue;
      row.cfa = CfaRule::at(register_of_slot(kSp), 0);
      row.return_address = RegisterRule::in_register(register_of_slot(i));
      return true;
    }
    return false;
  }

  // The row of a call is also that of the return address behind it, where registers that calls need not preserve are
  // lost.
  void instruction(std::uint32_t at, std::uint32_t length, const Path<Machine>& path, const Flow& flow) {
    if (flow.kind != Flow::kCall) return instruction_with(path, at, length, flow);
    call_ = path;
    Machine::forget_by_call(call_.state, 0);
    instruction_with(call_, at, length, flow);
  }

  void instruction_with(const Path<Machine>& path, std::uint32_t at, std::uint32_t length, const Flow& flow) {
    const std::uint32_t end = at + std::max(length, 1u);
    not_reached(at);
    const auto rule = cfa(path.state);
    FrameRow row;
    if (length == 0) {
      unproved(at, end, Unproved::kNotFollowed);
    } else if (dropped_row(path.state, at, row)) {
      row.end = end;
      add(row, FrameStretch::kUnknownDepth);
      conflict_.reset();
    } else if (!rule || !row_but_cfa(path, slots_, at, row)) {
      unproved(at, end, conflict_ ? Unproved::kDifferentFrames : Unproved::kFrameLost);
    } else {
      row.cfa = *rule;
      row.end = end;
      add(row, depth_of(path.state[kSp]));
      conflict_.reset();
    }
    done_ = end;
    last_ = at;
    sp_from_frame_pointer_ = flow.uses_frame_pointer;
    straight_ &= flow.kind == Flow::kNext;
    goes_on_ = flow.kind == Flow::kNext || flow.kind == Flow::kCall || flow.kind == Flow::kBranch;
  }

  void add(const FrameRow& row, std::int64_t depth) {
    if (!stretches_.empty()) {
      FrameStretch& last = stretches_.back();
      if (last.row.end == row.begin && last.depth == depth && same_rules(last.row, row)) {
        last.row.end = row.end;
        return;
      }
    }
    const bool follows = goes_on_ && !stretches_.empty() && stretches_.back().row.end == row.begin;
    stretches_.push_back({row, depth, follows ? last_ : static_cast<std::uint32_t>(row.begin),
                          follows && sp_from_frame_pointer_, straight_});
  }

  void unproved(std::uint32_t begin, std::uint32_t end, Unproved::Reason reason) {
    if (!result_.unproved.empty()) {
      Unproved& last = result_.unproved.back();
      if (last.end == begin && last.reason == reason) {
        last.end = end;
        return;
      }
    }
    result_.unproved.push_back({begin, end, reason});
    if (conflict_)
      std::copy(std::begin(conflict_->depths), std::end(conflict_->depths), result_.unproved.back().depths);
  }

  // What lies between the last instruction and the next one that was reached.
  void not_reached(std::uint32_t next) {
    while (done_ < next) {
      const auto table = flow_.tables().lower_bound(done_);
      const std::uint32_t end = table == flow_.tables().end() ? next : std::min(table->first, next);
      if (!is_padding(done_, end))
        unproved(done_, end, flow_.jumps_anywhere() ? Unproved::kUnknownJump : Unproved::kNotReached);
      done_ = end == next ? next : std::min(table->second, next);
    }
  }
  [[nodiscard]] bool is_padding(std::uint32_t begin, std::uint32_t end) const {
    return is_padding(code_.subspan(begin, end - begin));
  }
  [[nodiscard]] static bool is_padding(std::span<const std::byte> bytes);

  void join_rows() {
    for (const FrameStretch& stretch : stretches_) {
      if (!result_.rows.empty() && result_.rows.back().end == stretch.row.begin &&
          same_rules(result_.rows.back(), stretch.row))
        result_.rows.back().end = stretch.row.end;
      else
        result_.rows.push_back(stretch.row);
    }
  }

  std::span<const std::byte> code_;
  std::uint32_t size_;
  bool by_frame_pointer_, drops_arguments_;
  std::uint64_t slots_;
  FrameFlow flow_;
  std::optional<std::int64_t> frame_pointer_;             // CFA - the frame pointer
  std::optional<typename FrameFlow::Conflict> conflict_;  // of the place reached last, while there is no row
  std::uint32_t done_ = 0, last_ = 0;
  bool sp_from_frame_pointer_ = false, goes_on_ = false;  // the last instruction
  Path<Machine> call_;                                    // the state at a call, without what that does not preserve
  bool straight_ = true;
  std::vector<FrameStretch> stretches_;
  Description result_;
};

// Zeros, int3, ud2, hlt (HotSpot's) and nop of any length.
template <>
bool Describer<X86_64>::is_padding(std::span<const std::byte> bytes) {
  static const ZydisDecoder decoder = [] {
    ZydisDecoder made;
    ZydisDecoderInit(&made, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    return made;
  }();
  while (!bytes.empty()) {
    ZydisDecodedInstruction info;
    std::size_t length = 1;
    if (bytes.front() != std::byte{0} && bytes.front() != std::byte{0xcc}) {
      if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, nullptr, bytes.data(), bytes.size(), &info)) ||
          (info.mnemonic != ZYDIS_MNEMONIC_NOP && info.mnemonic != ZYDIS_MNEMONIC_UD2 &&
           info.mnemonic != ZYDIS_MNEMONIC_HLT))
        return false;
      length = info.length;
    }
    bytes = bytes.subspan(length);
  }
  return true;
}

// udf #0, nop, brk.
template <>
bool Describer<AArch64>::is_padding(std::span<const std::byte> bytes) {
  constexpr std::uint32_t kNop = 0xd503201f, kBrk = 0xd4200000, kBrkMask = 0xffe0001f;
  for (; bytes.size() >= 4; bytes = bytes.subspan(4)) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    if (word != 0 && word != kNop && (word & kBrkMask) != kBrk) return false;
  }
  return true;
}

template <typename Machine>
Description describe_by(std::span<const std::byte> code, std::uint64_t address, const DescribeOptions& options) {
  const auto inside = [&](std::uint64_t at) { return at - address < code.size(); };
  const auto read = [&](std::uint64_t at, void* to, std::size_t size) {
    if (inside(at) && size <= code.size() - (at - address)) {
      std::memcpy(to, code.data() + (at - address), size);
      return true;
    }
    return options.read && options.read(at, to, size);
  };
  const auto kind = [&](std::uint64_t at) { return inside(at) ? CodeKind::kFile : CodeKind::kNoCode; };
  const auto plausible = [](const FrameRow&) { return true; };
  const auto returns = [&](std::uint64_t target) { return !options.returns || options.returns(target); };
  const CodeSource source{Machine::kArchitecture, read, kind, plausible};
  std::uint64_t preserved = preserved_slots<Machine>();
  if constexpr (Machine::kArchitecture == Architecture::kX86_64)
    if (options.windows_calls) preserved |= std::uint64_t{1} << x86_64::kRsi | std::uint64_t{1} << x86_64::kRdi;
  const std::uint64_t frame_pointer = std::uint64_t{1} << Registers::fp_number(Machine::kArchitecture);
  constexpr std::uint64_t kMostPerByte = 1024;  // of the budget
  const FlowOptions flow{
      .preserved = preserved,
      .told = options.keeps_frame_pointer_only ? frame_pointer : preserved,
      .entries = options.entries,
      .landing_pads = options.landing_pads,
      .call_returns = returns,
      .drops_arguments = options.drops_arguments,
      .budget = static_cast<std::uint32_t>(std::min<std::uint64_t>(kMostPerByte * code.size(), ~std::uint32_t{0})),
  };
  return Describer<Machine>(source, code, address, options, flow).run();
}

}  // namespace
}  // namespace flow

Expected<Description> describe(std::span<const std::byte> code, std::uint64_t address, Architecture architecture,
                               const DescribeOptions& options) {
  if (code.empty() || code.size() > 0x7fff'ffff)
    return fail(ErrorCode::kOutOfRange, "no code, or 2 GiB of it", address, code.size());
  if (architecture == Architecture::kX86_64) return flow::describe_by<flow::X86_64>(code, address, options);
  if (architecture == Architecture::kAArch64) return flow::describe_by<flow::AArch64>(code, address, options);
  return fail(ErrorCode::kUnsupported, "code of this machine is not followed", address);
}

}  // namespace windlass
