#include "flow/whole_function.h"

#include <algorithm>
#include <optional>
#include <span>

#include "base/x86_signal_return.h"
#include "flow/frame_flow.h"
#include "flow/rows.h"
#include "flow/x86_64.h"

namespace windlass::flow {
namespace {

// Of a function. What generated code comes to is compared with the code often.
constexpr std::uint32_t most_bytes(CodeKind kind) { return kind == CodeKind::kFile ? 256 << 10 : 12 << 10; }
constexpr std::uint64_t kAlignment = 16;

// Where functions may begin around an address, as bytes show.
class Starts {
 public:
  Starts(const CodeSource& source, std::uint64_t around)
      : source_(source), kind_(source.kind(around)), around_(around), most_bytes_(flow::most_bytes(kind_)) {}
  [[nodiscard]] std::uint32_t most_bytes() const { return most_bytes_; }
  [[nodiscard]] bool are_generated() const { return kind_ == CodeKind::kGenerated; }

  // The nearest one at `address` or before; 0: none is near.
  std::uint64_t before(std::uint64_t address) {
    for (std::uint64_t at = address & ~(kAlignment - 1); around_ - at < most_bytes_; at -= kAlignment) {
      if (!load(at)) return 0;
      if (is_start(at)) return at;
      if (at < kAlignment) return 0;
    }
    return 0;
  }
  // The nearest one behind `address`, or where code or the largest function ends.
  std::uint64_t behind(std::uint64_t address) {
    std::uint64_t at = (address | (kAlignment - 1)) + 1;
    for (; at - address < most_bytes_ && load(at) && !is_start(at); at += kAlignment) {}
    return at;
  }

 private:
  static constexpr std::uint64_t kPiece = 1024, kBefore = X86_64::kBeforeStart, kAt = X86_64::kOfStart, kPage = 4096;

  // One read serves the places in one piece of the code.
  bool load(std::uint64_t at) {
    const std::uint64_t piece = at & ~(kPiece - 1);
    if (is_loaded_ && piece == piece_) return can_read_[(at - piece) / kAlignment];
    is_loaded_ = true;
    piece_ = piece;
    const bool whole = is_code(piece - kBefore) && is_code(piece + kPiece + kAt - 1) &&
                       source_.read(piece - kBefore, bytes_, sizeof bytes_);
    for (std::uint64_t i = 0; i < kPiece; i += kAlignment)
      can_read_[i / kAlignment] = whole || (is_code(piece + i) && load_place(piece + i, bytes_ + i));
    return can_read_[(at - piece) / kAlignment];
  }
  [[nodiscard]] bool is_code(std::uint64_t at) const { return source_.kind(at) == kind_; }
  // Compilers at run time may give each function a mapping of its own (GraalVM's native images).
  [[nodiscard]] bool begins_mapping(std::uint64_t at) const {
    return at % kPage == 0 && source_.kind(at - 1) == CodeKind::kNoCode;
  }
  // As if padding stood before a mapping.
  bool load_place(std::uint64_t at, std::uint8_t* to) {
    if (!begins_mapping(at)) return source_.read(at - kBefore, to, kBefore + kAt);
    std::fill_n(to, kBefore, X86_64::kPadding);
    return source_.read(at, to + kBefore, kAt);
  }
  [[nodiscard]] bool is_start(std::uint64_t at) const {
    return X86_64::begins_aligned(std::span<const std::uint8_t, kBefore + kAt>(bytes_ + (at - piece_), kBefore + kAt));
  }

  const CodeSource& source_;
  CodeKind kind_;
  std::uint64_t around_;
  std::uint32_t most_bytes_;
  bool is_loaded_ = false;
  std::uint64_t piece_ = 0;
  bool can_read_[kPiece / kAlignment];
  std::uint8_t bytes_[kBefore + kPiece + kAt];
};

// A stretch of code, taken for a function.
template <typename Machine>
class Function {
 public:
  // `budget`: instructions, of all ways together.
  Function(const CodeSource& source, AddressRange range, std::uint32_t budget)
      : source_(source), range_(range), flow_(source, range.begin, size(), options(budget)) {
    flow_.run();
    flow_.for_each(
        [this](std::uint32_t at, std::uint32_t length, const Path<Machine>& path, const Flow& flow,
               const Path<Machine>& behind) {
          if (length == 0) return;
          judge(path, flow, behind);
          if (!agrees_) return;
          add_row(at, length, path, flow);
          calls_system_ |= is_system_call(at, length);
        },
        [this](std::uint32_t, const auto&) { agrees_ = false; });
  }

  // Do all the ways out give the frame back, and at least one by a return?
  [[nodiscard]] bool is_proved() const { return agrees_ && returns_; }
  // A jump leads behind the end with the frame still there: the function goes on there.
  [[nodiscard]] bool goes_on() const { return goes_on_; }

  [[nodiscard]] WholeFunction whole() const {
    WholeFunction whole{.range = range_, .rows = {}, .calls_system = calls_system_};
    const bool keeps_fp = (kept_ >> kFp & 1) != 0;
    for (const FrameRow& found : rows_) {
      if (!keeps_fp && found.cfa.is_at(Registers::fp_number(Machine::kArchitecture))) continue;
      FrameRow row = found;
      lose_registers(row);
      append(whole.rows, row);
    }
    return whole;
  }

 private:
  using State = SymbolicState<Machine::kSlots>;
  static constexpr unsigned kSp = FrameFlow<Machine>::kSp, kFp = FrameFlow<Machine>::kFp;

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(range_.end - range_.begin); }
  // What a call has not kept is no reason to doubt that it comes back. So ways may differ in all registers but sp.
  [[nodiscard]] static FlowOptions options(std::uint32_t budget) {
    return {.preserved = preserved_slots<Machine>(),
            .entries = {},
            .landing_pads = {},
            .call_returns = kReturns,
            .budget = budget};
  }
  static constexpr auto kReturns = [](std::uint64_t) { return true; };

  // Is the state that of a function's entry, as far as the frame goes?
  [[nodiscard]] static bool is_given_back(State state) {
    State scratch;
    const Value return_address = Machine::return_from_entry(state);
    return is_left_as_entered<Machine>(state, return_address, scratch);
  }
  [[nodiscard]] bool is_inside(std::uint64_t target) const { return range_.contains(target); }

  void judge(const Path<Machine>& path, const Flow& flow, const Path<Machine>& behind) {
    switch (flow.kind) {
      case Flow::kReturn:
        returns_ = true;
        agrees_ &= is_given_back(path.state) && behind.state[kSp] == entry_cfa<Machine>();
        for (unsigned i = 0; i < Machine::kSlots; ++i)
          if (!behind.state[i].is_initial(i)) kept_ &= ~(std::uint64_t{1} << i);
        break;
      case Flow::kJump:
      case Flow::kBranch:
        if (is_inside(flow.target) || is_given_back(path.state)) break;
        agrees_ = false;
        goes_on_ |= flow.target - range_.end < most_bytes(CodeKind::kFile);
        break;
      case Flow::kJumpTo:
        if (flow.value.kind == Value::kTableTarget) break;
        [[fallthrough]];
      case Flow::kLeave: agrees_ &= is_given_back(path.state); break;
      default: break;
    }
  }

  [[nodiscard]] bool is_system_call(std::uint32_t at, std::uint32_t length) const {
    std::uint8_t bytes[x86::kSystemCallSize];
    return length == sizeof bytes && source_.read(range_.begin + at, bytes, sizeof bytes) && x86::is_syscall(bytes);
  }

  // The row of a call is also that of the return address behind it, and of padding there.
  void add_row(std::uint32_t at, std::uint32_t length, const Path<Machine>& path, const Flow& flow) {
    if (flow.kind == Flow::kCall) {
      call_ = path;
      Machine::forget_by_call(call_.state, 0);
    }
    const Path<Machine>& here = flow.kind == Flow::kCall ? call_ : path;
    const std::uint64_t begin = range_.begin + at;
    const std::uint64_t end =
        flow.kind == Flow::kCall ? range_.begin + flow_.behind_padding(at + length) : begin + length;
    if (has_last_ && same_for_rows(last_.state, here.state)) {
      if (!last_row_) return;
      if (rows_.back().end == begin) {  // it was appended last
        rows_.back().end = end;
        return;
      }
    } else {
      last_ = here;
      has_last_ = true;
      last_row_ = row_of(here);
      if (!last_row_) return;
    }
    last_row_->begin = begin;
    last_row_->end = end;
    append(rows_, *last_row_);
  }
  // Whatever it begins and ends at.
  [[nodiscard]] static std::optional<FrameRow> row_of(const Path<Machine>& here) {
    const Value cfa = entry_cfa<Machine>();
    const bool by_sp = here.state[kSp].same_base(cfa);
    if (!by_sp && !here.state[kFp].same_base(cfa)) return std::nullopt;
    const auto rule = cfa_by<Machine>(here.state, by_sp ? kSp : kFp);
    FrameRow row;
    if (!rule || !row_but_cfa(here, preserved_slots<Machine>(), 0, row)) return std::nullopt;
    if (row.return_address != RegisterRule::at_cfa(-Machine::kEntryCfa)) return std::nullopt;  // it may be changed
    row.cfa = *rule;
    return row;
  }
  // Do both states have the same row? Nearly all instructions leave the frame alone.
  [[nodiscard]] static bool same_for_rows(const State& a, const State& b) {
    constexpr std::uint64_t kOfRows = preserved_slots<Machine>() | std::uint64_t{1} << kSp;
    if (!a.same_stores(b)) return false;
    std::optional<bool> elsewhere;  // is anything stored that is not found by the frame's address?
    for (unsigned i = 0; i < Machine::kSlots; ++i) {
      if (a[i] == b[i]) continue;
      if ((kOfRows >> i & 1) != 0 || a[i].kind == Value::kRegister || b[i].kind == Value::kRegister) return false;
      if (!elsewhere) elsewhere = stores_elsewhere(a);
      if (*elsewhere && (a[i].is_address() || b[i].is_address())) return false;
    }
    return true;
  }
  [[nodiscard]] static bool stores_elsewhere(const State& state) {
    bool any = false;
    state.for_each_store([&](const Value& address, const Value&) { any |= !address.same_base(entry_cfa<Machine>()); });
    return any;
  }
  static void append(std::vector<FrameRow>& rows, const FrameRow& row) {
    if (!rows.empty() && rows.back().end == row.begin && same_row(Machine::kArchitecture, rows.back(), row))
      rows.back().end = row.end;
    else
      rows.push_back(row);
  }

  // A register that the function does not keep, the functions that it calls do not keep either.
  void lose_registers(FrameRow& row) const {
    for (unsigned i = 0; i < Machine::kSlots; ++i) {
      if ((preserved_slots<Machine>() >> i & 1) == 0 || (kept_ >> i & 1) != 0) continue;
      const RegisterRule* const rule = row.registers.find(register_of_slot(i));
      if (rule == nullptr || !rule->is(RegisterRule::kAtCfa))
        (void)row.registers.set(register_of_slot(i), RegisterRule::undefined());
    }
  }

  const CodeSource& source_;
  AddressRange range_;
  FrameFlow<Machine> flow_;
  Path<Machine> call_, last_;
  std::optional<FrameRow> last_row_;  // of last_
  bool has_last_ = false;
  std::vector<FrameRow> rows_;
  bool agrees_ = true, returns_ = false, goes_on_ = false, calls_system_ = false;
  std::uint64_t kept_ = preserved_slots<Machine>();  // of these, as the returns have them
};

}  // namespace

WholeFunction whole_function(const CodeSource& source, std::uint64_t address) {
  constexpr unsigned kMostStarts = 3, kMostEnds = 3;
  WholeFunction found;
  found.range = {address, address + 1};
  if (source.architecture != Architecture::kX86_64) return found;
  Starts starts(source, address);
  std::uint32_t budget = std::min(starts.most_bytes() * 2, 1U << 17);  // of the first try; then half as much each time
  std::uint64_t begin = address + 1;
  for (unsigned i = 0; i < kMostStarts; ++i) {
    begin = starts.before(begin - 1);
    if (begin == 0) return found;
    std::uint64_t end = address;
    for (unsigned j = 0; j < kMostEnds; ++j) {
      end = starts.behind(end);
      if (end - begin > starts.most_bytes()) {
        if (!starts.are_generated()) break;
        end = begin + starts.most_bytes();  // behind the last function is nothing yet
      }
      const AddressRange range{begin, end};
      if (i == 0 && j == 0) found.range = range;
      Function<X86_64> function(source, range, budget);
      budget /= 2;
      if (function.is_proved()) {
        WholeFunction proved = function.whole();
        if (proved.find(address) != nullptr) return proved;
        if (found.rows.empty()) found = std::move(proved);  // it may be another one's, or reached by no jump
      }
      if (!function.goes_on()) break;
    }
  }
  return found;
}

}  // namespace windlass::flow
