// Follows a function's code forward from its entry along all paths. Where paths join, the state keeps the part that
// both have in common. Architecture-neutral, over explorer.h's CodeMachine.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "flow/explorer.h"
#include "flow/way_in.h"
#include "windlass/jit/describe.h"

namespace windlass::flow {

// What the flow asks of its user beside the code.
struct FlowOptions {
  std::uint64_t preserved = 0;  // slots of registers that calls keep
  std::uint64_t told = 0;       // those of them that the function has to keep, too
  std::span<const std::uint32_t> entries;
  std::span<const LandingPad> landing_pads;
  FunctionRef<bool(std::uint64_t target)> call_returns;  // 0: target not known
  // Functions take their arguments off the stack. Where sp is not known, it has a symbol, so that what is pushed is
  // found again.
  bool drops_arguments = false;
  std::uint32_t budget = 0;  // instructions, of all ways together; a way that others join is followed anew
};

template <CodeMachine Machine>
class FrameFlow {
 public:
  using State = SymbolicState<Machine::kSlots>;
  static constexpr unsigned kSp = Registers::sp_number(Machine::kArchitecture);
  static constexpr unsigned kFp = Registers::fp_number(Machine::kArchitecture);

  // Ways that arrive at a place with frames that are not the same: CFA - sp, where known.
  struct Conflict {
    std::int64_t depths[2];
  };

  FrameFlow(const CodeSource& source, std::uint64_t begin, std::uint32_t size, const FlowOptions& options)
      : source_(source), begin_(begin), size_(size), options_(options), work_(std::make_unique<Workspace<Machine>>()) {}

  // What call behind which nothing fits was taken to return costs the work so far.
  void run() {
    constexpr unsigned kMostRestarts = 200;
    Ended ended = Ended::kByPolicy;
    for (unsigned i = 0; i <= kMostRestarts && ended == Ended::kByPolicy; ++i) {
      start();
      ended = follow_all();
    }
    if (ended != Ended::kByLastWay) conflicts_.clear();
    if (ended == Ended::kByBudget) nodes_.clear();  // what some ways agree on, others may not
  }

  // Calls visit(offset, length, path, flow, behind) for each instruction that was reached, in the order of addresses.
  // `path` is the state in front of the instruction, `behind` that behind it. `flow` is its effect: kStop with length 0
  // if the bytes are no instruction.
  // Calls conflict(offset, conflict) before the places where different frames meet.
  template <typename Visit, typename OnConflict>
  void for_each(Visit&& visit, OnConflict&& conflict) {
    std::uint32_t done = 0;
    Path<Machine> before;
    for (auto& [offset, node] : nodes_) {
      if (const auto found = conflicts_.find(offset); found != conflicts_.end()) conflict(offset, found->second);
      Path<Machine>& path = load(offset, node);
      for (std::uint32_t at = offset; at < size_ && owner_[at] == offset;) {
        before = path;
        const Flow flow = step(path);
        const std::uint32_t length = length_[at];
        if (at >= done) visit(at, length, before, flow, path);
        if (length == 0 || flow.kind != Flow::kNext) break;
        at += length;
        done = std::max(done, at);
      }
    }
  }

  // Jump tables inside the code, by where they begin and end.
  [[nodiscard]] const std::map<std::uint32_t, std::uint32_t>& tables() const { return tables_; }
  // Is there a jump whose target could not be found?
  [[nodiscard]] bool jumps_anywhere() const { return jumps_anywhere_; }

  // Behind what does nothing. What stands there behind a call is more likely than not something else, and no way from
  // the call visits the padding.
  std::uint32_t behind_padding(std::uint32_t offset) {
    Path<Machine>& scratch = padding_;
    for (scratch.pc = begin_ + offset; scratch.pc - begin_ < size_;) {
      const auto at = static_cast<std::uint32_t>(scratch.pc - begin_);
      if (!work_->machine.step(work_->code, scratch).padding) return at;
      offset = at;
    }
    return offset;
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr unsigned kSharedSymbol = 255;
  static constexpr unsigned kManyStores = State::kMaxStores - 6;  // an instruction adds a few

  // What of a path goes on behind an edge.
  struct Point {
    State state;
    bool signed_return = false;
    std::uint32_t compared = 0, limit = 0;

    void take(const Path<Machine>& path) {
      state = path.state;
      signed_return = path.signed_return;
      compared = path.compared;
      limit = path.limit;
    }
    void put(Path<Machine>& path) const {
      path.state = state;
      path.signed_return = signed_return;
      path.compared = compared;
      path.limit = limit;
      path.sp_if_equal = {};
    }
  };
  struct Node {
    Point at;
    std::uint32_t doubtful = kNone;   // reached only from there, by an edge that may not be one
    std::uint32_t only_from = kNone;  // reached only from that node
  };
  using Edge = std::pair<std::uint32_t, std::uint32_t>;

  void start() {
    work_->code.start(source_);
    nodes_.clear();
    conflicts_.clear();
    tables_.clear();
    symbols_.clear();
    queue_.clear();
    doubtful_.clear();
    owner_.assign(size_, kNone);
    length_.assign(size_, 0);
    jumps_anywhere_ = false;
    work_->path.start(0);
    current_ = kNone;
    arrive(0, work_->path, kNone);
    for (const std::uint32_t entry : options_.entries) {
      if (entry >= size_) continue;
      work_->path.start(0);
      arrive(entry, work_->path, kNone);
    }
  }

  // Ended by the policy: an edge has turned out not to be one, and what came of it has to be forgotten.
  Ended follow_all() {
    if (!next_node()) return Ended::kByLastWay;
    return flow::follow(
        options_.budget, [&] { return arrive_at_next(); }, [&] { return pass(); }, [&] { return next_node(); });
  }

  bool next_node() {
    while (queue_.empty()) {  // certain edges first: they tell the doubtful ones apart
      if (doubtful_.empty()) return false;
      const auto first = doubtful_.extract(doubtful_.begin());
      first.mapped()->put(work_->path);
      const auto [to, from] = first.key();
      if (!inside_instruction(to)) (void)arrive(to, work_->path, from);
    }
    current_ = *queue_.begin();
    queue_.erase(queue_.begin());
    (void)load(current_, nodes_.at(current_));
    return true;
  }

  Path<Machine>& load(std::uint32_t offset, const Node& node) {
    Path<Machine>& path = work_->path;
    path.pc = begin_ + offset;
    node.at.put(path);
    return path;
  }

  static Go way_ends(bool edges_hold) { return edges_hold ? Go::kNextWay : Go::kEnd; }

  // A node's way is the straight code to the next node.
  Go arrive_at_next() {
    Path<Machine>& path = work_->path;
    const std::uint64_t at64 = path.pc - begin_;
    if (at64 >= size_) return Go::kNextWay;
    const auto at = static_cast<std::uint32_t>(at64);
    if (at == current_ || (nodes_.count(at) == 0 && (owner_[at] == kNone || owner_[at] == current_))) return Go::kOn;
    return way_ends(arrive(at, path, kNone));
  }
  Go pass() {
    Path<Machine>& path = work_->path;
    const auto at = static_cast<std::uint32_t>(path.pc - begin_);
    owner_[at] = current_;
    const Flow flow = step(path);
    const std::uint64_t length = path.pc - begin_ - at;
    const bool fits = length != 0 && length <= size_ - at;
    length_[at] = static_cast<std::uint8_t>(fits ? length : 0);
    if (!fits || flow.kind == Flow::kStop) return Go::kNextWay;
    return flow.kind == Flow::kNext ? Go::kOn : way_ends(leave(at, path, flow));
  }

  // Symbols are numbered by the place in the code that makes them, so that ways which pass it can be compared. One made
  // again is another one: nothing may hold the old value.
  Flow step(Path<Machine>& path) {
    constexpr std::uint64_t kBefore = std::uint64_t{1} << 63;  // the instruction does not make it, but needs it
    const std::uint64_t at = path.pc - begin_;
    if (options_.drops_arguments && !path.state[kSp].known())
      make_symbol(path.state, at | kBefore, [&] { path.state[kSp] = path.state.fresh(); });
    Flow flow;
    make_symbol(path.state, at, [&] { flow = work_->machine.step(work_->code, path); });
    if (path.state.store_count() >= kManyStores) tidy(path.state);
    return flow;
  }

  // run() may make the symbol of a place.
  template <typename Run>
  void make_symbol(State& state, std::uint64_t place, Run&& run) {
    const auto known = symbols_.find(place);
    const unsigned free = Value::kFirstSymbol + static_cast<unsigned>(symbols_.size());
    const auto number = static_cast<std::uint8_t>(known != symbols_.end() ? known->second
                                                  : free < kSharedSymbol  ? free
                                                                          : kSharedSymbol);
    if (known != symbols_.end() || number == kSharedSymbol) forget_symbol(state, number);
    state.set_next_symbol(number);
    run();
    if (state.next_symbol() != number) symbols_[place] = number;
  }

  static void forget_symbol(State& state, std::uint8_t number) {
    for (unsigned i = 0; i < Machine::kSlots; ++i)
      if (state[i].is_address() && state[i].reg == number) state[i] = {};
    state.forget_stores([number](const Value& address, unsigned, const Value& value) {
      return address.reg != number && !(value.is_address() && value.reg == number);
    });
  }

  [[nodiscard]] bool is_frame_address(const Value& value) const {
    return value.kind == Value::kRegister && (value.reg == kSp || value.is_symbol());
  }
  // Is it a value that a row can need: what the caller's registers held, or an address in the frame?
  [[nodiscard]] bool is_of_frame(const Value& value) const {
    if (is_frame_address(value)) return true;
    if (value == Value::initial(kSp).loaded()) return Machine::kEntryCfa != 0;  // the return address
    return value.kind == Value::kRegister && value.addend == 0;
  }
  // Do rows tell of this register?
  [[nodiscard]] bool is_told(unsigned slot) const { return (options_.told >> slot & 1) != 0; }
  [[nodiscard]] static bool is_link(unsigned slot) {
    if constexpr (requires { Machine::kLinkRegister; }) return slot == Machine::kLinkRegister;
    return false;
  }
  [[nodiscard]] static bool is_over_return_address(const Value& address, unsigned size) {
    const Value place = Value::initial(kSp);
    return Machine::kEntryCfa != 0 && address.same_base(place) && address.addend < 8 && address.addend + size > 0;
  }
  // Only what a row can need is kept of the stores, and addresses of tables. Where there are many of these: registers
  // that the caller relies on, and addresses in the frame, from which a frame pointer is loaded again. Then the former
  // alone.
  void tidy(State& state) const {
    const auto keep = [&](bool all, bool locals) {
      state.forget_stores([&](const Value& address, unsigned size, const Value& value) {
        if (is_over_return_address(address, size)) return true;
        if (size != 8 || !is_frame_address(address)) return false;
        if (value.is_constant()) return all;
        if (!is_of_frame(value)) return false;
        if (is_frame_address(value)) return locals || value == entry_cfa<Machine>();
        const bool relied_on = (options_.preserved >> value.reg & 1) != 0 || is_told(value.reg) || is_link(value.reg);
        return all || value.kind != Value::kRegister || relied_on;
      });
      return state.store_count() < kManyStores;
    };
    (void)(keep(true, true) || keep(false, true) || keep(false, false));
  }

  // Would the one way lose by the other what can be said of the frame? Where that counts from the frame pointer sp may
  // be anywhere: in a landing pad there are the arguments of the call that threw. Behind a call (`doubtful`) there is
  // no reason for it.
  [[nodiscard]] bool different(const Point& a, const Point& b, bool doubtful) const {
    const Value cfa = entry_cfa<Machine>();
    if (a.signed_return != b.signed_return) return true;
    const Value &a_sp = a.state[kSp], &b_sp = b.state[kSp], &a_fp = a.state[kFp], &b_fp = b.state[kFp];
    const bool by_fp = a_fp.same_base(cfa) && a_fp == b_fp;
    if (a_sp != b_sp && (!by_fp || (doubtful && a_sp.same_base(cfa) && b_sp.same_base(cfa)))) return true;
    for (unsigned i = 0; i < Machine::kSlots; ++i) {
      if (!is_told(i)) continue;
      const Value what = Value::initial(i);
      if (a.state[i] == what && b.state[i] == what) continue;  // saved by one of them, and restored
      if (kept_rule<Machine>(a.state, what, i) != kept_rule<Machine>(b.state, what, i)) return true;
    }
    return false;
  }

  // The nearest doubtful edge without which the node would not have been reached, and how many nodes back.
  struct Doubt {
    Edge edge;
    unsigned distance = kFarthest;
    static constexpr unsigned kFarthest = 16;
  };
  [[nodiscard]] Doubt doubt_of(std::uint32_t offset) const {
    Doubt doubt;
    for (unsigned distance = 0; distance < Doubt::kFarthest && offset != kNone; ++distance) {
      const Node& node = nodes_.at(offset);
      if (node.doubtful != kNone) return {{offset, node.doubtful}, distance};
      offset = node.only_from;
    }
    return doubt;
  }

  // A way arrives; `from`: by an edge from there that may not be one. False: an earlier one was none.
  bool arrive(std::uint32_t to, Path<Machine>& path, std::uint32_t from) {
    const bool doubtful = from != kNone;
    tidy(path.state);
    const auto [found, is_new] = nodes_.try_emplace(to);
    Node& node = found->second;
    if (is_new) {
      node.at.take(path);
      node.doubtful = from;
      node.only_from = doubtful ? kNone : current_;
      split(to);
      queue_.insert(to);
      return true;
    }
    arriving_.take(path);
    if (different(node.at, arriving_, doubtful)) {
      if (doubtful && node.doubtful != from) {
        refused_.insert({to, from});
        return true;
      }
      if (!doubtful && refuse_nearest(to)) return false;
    }
    if (!doubtful) {
      node.doubtful = kNone;
      if (node.only_from != current_) node.only_from = kNone;
    }
    if (node.at.state[kSp] != path.state[kSp] || node.at.signed_return != path.signed_return)
      note_conflict(to, node.at.state[kSp], path.state[kSp]);
    if (node.at.limit != path.limit) node.at.limit = 0;
    if (node.at.compared != path.compared) node.at.compared = 0;
    const bool overwritten = !holds_return_address(node.at.state) || !holds_return_address(path.state);
    if (options_.drops_arguments) find_return_address(node.at.state, arriving_.state);
    if (node.at.state.meet(arriving_.state)) queue_.insert(to);
    if (overwritten && holds_return_address(node.at.state)) node.at.state.store(Value::initial(kSp), 8, {});
    return true;
  }

  // Two ways arrive that do not fit: one may be none. False: neither is doubtful.
  bool refuse_nearest(std::uint32_t to) {
    const Doubt theirs = doubt_of(to), ours = doubt_of(current_);
    const Doubt& nearest = ours.distance < theirs.distance ? ours : theirs;
    if (nearest.distance == Doubt::kFarthest || refused_.count(nearest.edge) != 0) return false;
    refused_.insert(nearest.edge);
    return true;
  }

  [[nodiscard]] static bool holds_return_address(const State& state) {
    if constexpr (Machine::kArchitecture == Architecture::kX86_64) return has_return_address(state);
    return true;
  }

  // Behind a call that took its arguments off the stack nothing of it is known, not where the return address was kept
  // either. From where ways join it is in one place: a register of the other way's.
  static void find_return_address(const State& known, State& lost) {
    const Value return_address = Value::initial(kSp).loaded();
    if (Machine::kEntryCfa == 0 || holds_return_address(lost)) return;
    for (unsigned i = 0; i < Machine::kSlots; ++i)
      if (known[i] == return_address && !lost[i].known()) lost[i] = return_address;
  }

  void note_conflict(std::uint32_t at, const Value& a, const Value& b) {
    const Value cfa = entry_cfa<Machine>();
    const auto depth = [&](const Value& sp) { return sp.same_base(cfa) ? cfa.minus(sp) : -1; };
    if (a.known()) conflicts_.try_emplace(at, Conflict{{depth(a), depth(b)}});
  }

  // In the middle of one that was followed: no table's entry leads there.
  [[nodiscard]] bool inside_instruction(std::uint32_t offset) const {
    constexpr std::uint32_t kLongest = 15;
    if (owner_[offset] != kNone) return false;
    for (std::uint32_t back = 1; back < kLongest && back <= offset; ++back)
      if (owner_[offset - back] != kNone && length_[offset - back] > back) return true;
    return false;
  }

  // A node in the middle of what was walked from another one.
  void split(std::uint32_t at) {
    const std::uint32_t owner = owner_[at];
    if (owner == kNone || owner == at) return;
    queue_.insert(owner);
    for (std::uint32_t i = at; i < size_ && owner_[i] == owner;) {
      owner_[i] = at;
      if (length_[i] == 0) break;
      i += length_[i];
    }
  }

  // Behind an instruction that does not just go on.
  bool leave(std::uint32_t at, Path<Machine>& path, const Flow& flow) {
    const auto next = static_cast<std::uint32_t>(path.pc - begin_);
    switch (flow.kind) {
      case Flow::kJump:
      case Flow::kLeave: pass_unwritten(flow.target, path); return go(flow.target, path);
      case Flow::kBranch:
        if (const std::uint32_t limit = path.limit; true) {
          if (flow.limit != 0) path.limit = flow.limit;
          if (!go(flow.target, path)) return false;
          path.limit = limit;
        }
        if (flow.value.known()) path.state[kSp] = flow.value;
        return go(begin_ + next, path);
      case Flow::kCall:
        pass_call(path.state);
        path.limit = path.compared = 0;
        for (const LandingPad& pad : options_.landing_pads)
          if (at - pad.begin < pad.end - pad.begin && !go(begin_ + pad.pad, path)) return false;
        if (!options_.call_returns(flow.target)) return true;
        put_off(at, behind_padding(next), path);
        return true;
      case Flow::kJumpTo:
        if (flow.value.is_constant()) return go(static_cast<std::uint64_t>(flow.value.addend), path);
        if (flow.value.kind == Value::kTableTarget)
          table(at, flow.value, path);
        else
          jumps_anywhere_ = true;
        return true;
      default: return true;
    }
  }

  bool go(std::uint64_t target, Path<Machine>& path) {
    if (target - begin_ >= size_) return true;
    return arrive(static_cast<std::uint32_t>(target - begin_), path, kNone);
  }

  // HotSpot's C1 writes some code later, when a value is known. Until then a jump stands there. It leads to a call
  // behind the function, which writes the code and comes back to run it (PatchingStub). The code to be written ends
  // behind zeros or nops.
  void pass_unwritten(std::uint64_t target, Path<Machine>& path) {
    const std::uint32_t call = nodes_.at(current_).doubtful;
    if (call == kNone || target - begin_ >= size_) return;
    padding_.pc = target;
    const Flow jump = work_->machine.step(work_->code, padding_);
    if (jump.kind != Flow::kJump || jump.target != begin_ + owner_[call]) return;
    auto behind = static_cast<std::uint32_t>(padding_.pc - begin_);
    for (std::uint8_t byte = 0; behind < size_ && source_.read(begin_ + behind, &byte, 1) && byte == 0;) ++behind;
    put_off(static_cast<std::uint32_t>(target - begin_), behind_padding(behind), path);
  }

  void put_off(std::uint32_t from, std::uint32_t to, Path<Machine>& path) {
    if (to >= size_ || refused_.count({to, from}) != 0) return;
    tidy(path.state);
    auto point = std::make_unique<Point>();
    point->take(path);
    doubtful_[{to, from}] = std::move(point);
  }

  // The registers that calls need not keep are lost, and what is below sp. How many arguments a function has taken off
  // is not known: in a frame sp is lost. Where sp was aligned, C++ is called, which takes none off.
  void pass_call(State& state) const {
    Machine::forget_by_call(state, options_.preserved);
    const Value sp = state[kSp];
    state.forget_stores([&](const Value& address, unsigned, const Value&) {
      return !address.same_base(sp) || address.addend >= sp.addend;
    });
    if (options_.drops_arguments && state[kFp].same_base(entry_cfa<Machine>()) && !sp.is_symbol()) state[kSp] = {};
  }

  // A jump table. How long it is the comparison in front of the jump says; without one it ends where an entry leads out
  // of the function.
  void table(std::uint32_t from, const Value& targets, Path<Machine>& path) {
    constexpr unsigned kMost = 4096;
    const auto size = static_cast<unsigned>(targets.slot2 < 0 ? -targets.slot2 : targets.slot2);
    const auto address = static_cast<std::uint64_t>(targets.addend);
    unsigned count = 0;
    for (; count < (path.limit != 0 ? path.limit : kMost); ++count) {
      const auto target = table_target(targets, count, source_);
      if (!target || *target % Machine::kInstructionStep != 0) break;
      if (*target - begin_ >= size_) {
        if (path.limit == 0) break;
        continue;
      }
      put_off(from, static_cast<std::uint32_t>(*target - begin_), path);
    }
    jumps_anywhere_ |= count == 0;
    if (address - begin_ < size_ && std::uint64_t{count} * size <= size_ - (address - begin_)) {
      const auto at = static_cast<std::uint32_t>(address - begin_);
      tables_[at] = std::max(tables_[at], at + count * size);
    }
  }

  const CodeSource& source_;
  std::uint64_t begin_;
  std::uint32_t size_;
  FlowOptions options_;
  std::unique_ptr<Workspace<Machine>> work_;
  std::map<std::uint32_t, Node> nodes_;  // by offset: where ways join
  std::map<std::uint32_t, Conflict> conflicts_;
  std::map<std::uint32_t, std::uint32_t> tables_;
  std::map<std::uint64_t, unsigned> symbols_;
  std::set<std::uint32_t> queue_;                    // nodes to walk (again), the lowest first
  std::map<Edge, std::unique_ptr<Point>> doubtful_;  // to, from
  std::set<Edge> refused_;                           // to, from: edges that are none
  std::vector<std::uint32_t> owner_;                 // of each instruction: the node it was walked from
  std::vector<std::uint8_t> length_;                 // and its length
  bool jumps_anywhere_ = false;
  std::uint32_t current_ = kNone;  // the node being walked
  Point arriving_;
  Path<Machine> padding_;
};

}  // namespace windlass::flow
