#include "flow/whole_function.h"

#include <algorithm>
#include <span>

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
    flow_.for_each([this](std::uint32_t, std::uint32_t length, const Path<Machine>& path, const Flow& flow,
                          const Path<Machine>& behind) { judge(length, path, flow, behind); },
                   [this](std::uint32_t, const auto&) { agrees_ = false; });
  }

  // Do all the ways out give the frame back, and at least one by a return?
  [[nodiscard]] bool is_proved() const { return agrees_ && returns_; }
  // A jump leads behind the end with the frame still there: the function goes on there.
  [[nodiscard]] bool goes_on() const { return goes_on_; }

  WholeFunction whole() {
    WholeFunction whole{.range = range_, .rows = {}};
    flow_.for_each(
        [&](std::uint32_t at, std::uint32_t length, const Path<Machine>& path, const Flow& flow, const Path<Machine>&) {
          if (length == 0) return;
          add_row(whole.rows, at, length, path, flow);
          whole.calls_system |= is_system_call(at, length);
        },
        [](std::uint32_t, const auto&) {});
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

  void judge(std::uint32_t length, const Path<Machine>& path, const Flow& flow, const Path<Machine>& behind) {
    if (length == 0) return;
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
    constexpr std::uint8_t kSystemCall[] = {0x0f, 0x05};
    std::uint8_t bytes[sizeof kSystemCall];
    return length == sizeof bytes && source_.read(range_.begin + at, bytes, sizeof bytes) &&
           std::ranges::equal(bytes, kSystemCall);
  }

  // The row of a call is also that of the return address behind it, and of padding there.
  void add_row(std::vector<FrameRow>& rows, std::uint32_t at, std::uint32_t length, const Path<Machine>& path,
               const Flow& flow) {
    if (flow.kind == Flow::kCall) {
      call_ = path;
      Machine::forget_by_call(call_.state, 0);
    }
    const Path<Machine>& here = flow.kind == Flow::kCall ? call_ : path;
    const Value cfa = entry_cfa<Machine>();
    const bool by_sp = here.state[kSp].same_base(cfa);
    if (!by_sp && ((kept_ >> kFp & 1) == 0 || !here.state[kFp].same_base(cfa))) return;
    const auto rule = cfa_by<Machine>(here.state, by_sp ? kSp : kFp);
    FrameRow row;
    if (!rule || !row_but_cfa(here, preserved_slots<Machine>(), range_.begin + at, row)) return;
    if (row.return_address != RegisterRule::at_cfa(-Machine::kEntryCfa)) return;  // who has it now may change it
    row.cfa = *rule;
    row.end = row.begin + length;
    if (flow.kind == Flow::kCall) row.end = range_.begin + flow_.behind_padding(at + length);
    lose_registers(row);
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
  Path<Machine> call_;
  bool agrees_ = true, returns_ = false, goes_on_ = false;
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
