// Functions made up: machine code of x86-64, the Prologue that describes it, and what each instruction does, so that
// the code can be run without a processor. What decides is given: random numbers, or a fuzzer's bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "formats/winx64/registers.h"
#include "windlass/prologue.h"

namespace windlass::test {

// Integer registers by instruction number, xmm registers as two halves.
struct X64State {
  std::array<std::uint64_t, 16> integer{};
  std::array<std::array<std::uint64_t, 2>, 16> xmm{};
  [[nodiscard]] std::uint64_t rsp() const { return integer[winx64::kRsp]; }
};

struct X64Instruction {
  enum class Kind : std::uint8_t { kNop, kPush, kPop, kAddRsp, kStore, kLoad, kLea, kClobber, kLeave, kExit };
  std::uint32_t begin = 0, end = 0;
  Kind kind = Kind::kNop;
  bool xmm = false;
  unsigned reg = 0, base = 0;  // instruction numbers
  std::int32_t disp = 0;       // of memory or lea; what is added to rsp
};

// Encodes what prologues, bodies and epilogues need.
class X64Code {
 public:
  using Kind = X64Instruction::Kind;

  void push(unsigned reg) { add({.kind = Kind::kPush, .reg = reg}, rex_b(reg), {0x50 + (reg & 7)}); }
  void pop(unsigned reg) { add({.kind = Kind::kPop, .reg = reg}, rex_b(reg), {0x58 + (reg & 7)}); }
  void add_rsp(std::int32_t value) {
    const bool frees = value > 0;
    const std::int32_t size = frees ? value : -value;
    std::vector<unsigned> bytes{0x48, size < 128 ? 0x83U : 0x81U, frees ? 0xc4U : 0xecU};
    little(bytes, size, size < 128 ? 1 : 4);
    add({.kind = Kind::kAddRsp, .disp = value}, {}, bytes);
  }
  void store(unsigned reg, bool xmm, unsigned base, std::int32_t disp) {
    memory({.kind = Kind::kStore, .xmm = xmm, .reg = reg, .base = base, .disp = disp}, xmm ? 0x11 : 0x89);
  }
  void load(unsigned reg, bool xmm, unsigned base, std::int32_t disp) {
    memory({.kind = Kind::kLoad, .xmm = xmm, .reg = reg, .base = base, .disp = disp}, xmm ? 0x10 : 0x8b);
  }
  void lea(unsigned reg, unsigned base, std::int32_t disp) {
    memory({.kind = Kind::kLea, .reg = reg, .base = base, .disp = disp}, 0x8d);
  }
  void move(unsigned reg, unsigned from) {  // mov reg, from
    add({.kind = Kind::kLea, .reg = reg, .base = from}, {},
        {0x48 | (from >= 8 ? 4U : 0U) | (reg >= 8 ? 1U : 0U), 0x89, 0xc0 | (from & 7) << 3 | (reg & 7)});
  }
  void clobber(unsigned reg, bool xmm) {
    if (xmm)  // pcmpeqd
      add({.kind = Kind::kClobber, .xmm = true, .reg = reg}, {},
          {0x66, 0x40 | (reg >= 8 ? 5U : 0U), 0x0f, 0x76, 0xc0 | (reg & 7) << 3 | (reg & 7)});
    else  // mov reg, -1
      add({.kind = Kind::kClobber, .reg = reg}, {},
          {0x48 | (reg >= 8 ? 1U : 0U), 0xc7, 0xc0 | (reg & 7), 0xff, 0xff, 0xff, 0xff});
  }
  void leave() { add({.kind = Kind::kLeave}, {}, {0xc9}); }
  void nop() { add({}, {}, {0x90}); }
  // how: below 20. Few are such as unwinders do not know.
  void exit(unsigned how) {
    if (how == 18) return add({.kind = Kind::kExit}, {}, {0xff, 0xe1});        // jmp rcx
    if (how == 19) return add({.kind = Kind::kExit}, {}, {0x41, 0xff, 0xe2});  // jmp r10
    if (how % 3 == 0) return add({.kind = Kind::kExit}, {}, {0xc3});
    if (how % 3 == 1) return add({.kind = Kind::kExit}, {}, {0xe9, 0, 0, 0x10, 0});  // far out of the code
    add({.kind = Kind::kExit}, {}, {0xf3, 0xc3});
  }

  [[nodiscard]] std::uint32_t at() const { return static_cast<std::uint32_t>(bytes_.size()); }
  [[nodiscard]] const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  [[nodiscard]] const std::vector<X64Instruction>& instructions() const { return instructions_; }

 private:
  static std::vector<unsigned> rex_b(unsigned reg) {
    return reg >= 8 ? std::vector<unsigned>{0x41} : std::vector<unsigned>();
  }
  static void little(std::vector<unsigned>& to, std::int32_t value, unsigned size) {
    for (unsigned i = 0; i < size; ++i) to.push_back(static_cast<std::uint32_t>(value) >> (8 * i) & 0xff);
  }
  // op reg, [base + disp], movups for xmm registers.
  void memory(X64Instruction instruction, unsigned opcode) {
    const unsigned reg = instruction.reg, base = instruction.base;
    const std::int32_t disp = instruction.disp;
    const bool small = disp >= -128 && disp < 128;
    std::vector<unsigned> bytes{(instruction.xmm ? 0x40U : 0x48U) | (reg >= 8 ? 4U : 0U) | (base >= 8 ? 1U : 0U)};
    if (instruction.xmm) bytes.push_back(0x0f);
    bytes.push_back(opcode);
    bytes.push_back((small ? 0x40U : 0x80U) | (reg & 7) << 3 | (base & 7));
    if ((base & 7) == 4) bytes.push_back(0x24);
    little(bytes, disp, small ? 1 : 4);
    add(instruction, {}, bytes);
  }
  void add(X64Instruction instruction, const std::vector<unsigned>& prefix, const std::vector<unsigned>& bytes) {
    instruction.begin = at();
    for (const auto* part : {&prefix, &bytes}) {
      for (const unsigned byte : *part) bytes_.push_back(static_cast<std::uint8_t>(byte));
    }
    instruction.end = at();
    instructions_.push_back(instruction);
  }

  std::vector<std::uint8_t> bytes_;
  std::vector<X64Instruction> instructions_;
};

struct MadeFunction {
  Prologue prologue;
  X64Code code;
  // Stretches that run from begin to end, each from the state in which another has ended (that of the call: none).
  struct Stretch {
    std::uint32_t begin, end;
    std::optional<std::size_t> after;
  };
  std::vector<Stretch> stretches;
};

// Decides: a number below the one given, which is not 0.
using Choose = std::function<std::uint32_t(std::uint32_t)>;

class X64FunctionMaker {
 public:
  // unknown_exits: some epilogues end by what no unwinder takes for their end.
  explicit X64FunctionMaker(Choose choose, bool unknown_exits = false)
      : choose_(std::move(choose)), unknown_exits_(unknown_exits) {}

  MadeFunction make() {
    wild_ = choose_(4) == 0;
    shuffle();
    prologue();
    made_.prologue.size = code_.at();
    if (choose_(4) == 0) made_.prologue.size = 0;
    body();
    const std::size_t trunk = stretch(0, std::nullopt);
    const unsigned items = 1 + choose_(4);
    for (unsigned i = 0; i < items; ++i) {
      const std::uint32_t begin = code_.at();
      if (choose_(3) == 0 && !made_.prologue.ops.empty()) {
        part(trunk);
      } else {
        made_.prologue.epilogues.push_back(epilogue());
        stretch(begin, trunk);
      }
      for (unsigned pad = choose_(3); pad > 0; --pad) code_.nop();
    }
    made_.prologue.code_size = code_.at();
    if (choose_(4) == 0) made_.prologue.handler = prologue::Handler{0x9000, choose_(2) == 0, true, {std::byte{7}}};
    made_.code = code_;
    return std::move(made_);
  }

 private:
  struct Place {
    RegisterNumber reg;  // DWARF
    std::int64_t depth;  // [CFA - depth]
    bool pushed;
  };
  struct Frame {
    std::int64_t depth = 8;  // from the CFA down to rsp, without what the body allocated
    std::vector<Place> saved;
    std::optional<unsigned> pointer;  // instruction number
    std::int64_t pointer_depth = 0, set_depth = 0;
    bool alloca = false;
  };

  std::size_t stretch(std::uint32_t begin, std::optional<std::size_t> after) {
    made_.stretches.push_back({begin, code_.at(), after});
    return made_.stretches.size() - 1;
  }

  void shuffle() {
    integers_ = {3, 5, 6, 7, 12, 13, 14, 15};
    for (std::size_t i = integers_.size(); i > 1; --i)
      std::swap(integers_[i - 1], integers_[choose_(static_cast<std::uint32_t>(i))]);
    xmms_ = {6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  }
  std::optional<unsigned> next_integer() {
    if (integers_.empty()) return std::nullopt;
    const unsigned reg = integers_.back();
    integers_.pop_back();
    return reg;
  }

  // ---- instructions and the ops that describe them ----

  void did(std::vector<prologue::Op>& ops, const prologue::Action& action) { ops.push_back({code_.at(), action}); }

  void push_one(std::vector<prologue::Op>& ops) {
    const auto reg = next_integer();
    if (!reg) return;
    code_.push(*reg);
    frame_.depth += 8;
    frame_.saved.push_back({winx64::dwarf_number(*reg), frame_.depth, true});
    did(ops, prologue::push(winx64::dwarf_number(*reg)));
  }
  void allocate(std::vector<prologue::Op>& ops) {
    constexpr std::uint32_t kSizes[] = {8, 32, 40, 128, 136, 0x7fff8, 0x80000, 0x80008};
    const std::uint32_t size = choose_(3) == 0 ? kSizes[choose_(8)] : 8 + 8 * choose_(40);
    code_.add_rsp(-static_cast<std::int32_t>(size));
    frame_.depth += size;
    did(ops, prologue::Allocate{size});
  }
  // How many pushes came before all else: what an epilogue can pop.
  [[nodiscard]] std::size_t poppable() const {
    std::size_t count = 0;
    while (count < frame_.saved.size() && frame_.saved[count].pushed &&
           frame_.saved[count].depth == 16 + 8 * static_cast<std::int64_t>(count))
      ++count;
    return count;
  }
  void set_pointer(std::vector<prologue::Op>& ops) {
    const std::size_t pushed = poppable();
    if (frame_.pointer || pushed == 0) return;
    const unsigned reg = winx64::instruction_number(frame_.saved[choose_(static_cast<std::uint32_t>(pushed))].reg);
    const auto most = static_cast<std::uint32_t>(std::min<std::int64_t>(frame_.depth - 8, 240) / 16);
    const std::int32_t offset = choose_(2) == 0 ? 0 : static_cast<std::int32_t>(16 * choose_(most + 1));
    if (offset == 0)
      code_.move(reg, winx64::kRsp);
    else
      code_.lea(reg, winx64::kRsp, offset);
    frame_.pointer = reg;
    frame_.set_depth = frame_.depth;
    frame_.pointer_depth = frame_.depth - offset;
    did(ops, prologue::SetFramePointer{winx64::dwarf_number(reg), static_cast<std::uint32_t>(offset)});
  }
  void save_one(std::vector<prologue::Op>& ops, bool home) {
    const bool xmm = !home && choose_(2) == 0 && !xmms_.empty();
    const std::int64_t size = xmm ? 16 : 8;
    // A free place: 16-aligned as seen from the frame pointer, or from rsp.
    const std::int64_t unit = choose_(16) == 0 ? 8 : size;
    const std::int64_t from = frame_.pointer ? frame_.set_depth : frame_.depth;
    for (unsigned tries = 0; tries < 8; ++tries) {
      const std::int64_t lowest = lowest_free();
      const std::int64_t room = std::min<std::int64_t>(frame_.depth - lowest, choose_(4) == 0 ? 1 << 21 : 256);
      std::int64_t depth = home ? -8 * static_cast<std::int64_t>(choose_(4)) : 0;
      if (!home) {
        if (room < 24) return;
        depth = frame_.depth - static_cast<std::int64_t>(choose_(static_cast<std::uint32_t>(room / 8))) * 8;
        depth = from + (depth - from) / unit * unit;
      }
      const bool taken = std::any_of(frame_.saved.begin(), frame_.saved.end(), [&](const Place& place) {
        const std::int64_t its = winx64::is_xmm(place.reg) ? 16 : 8;
        return place.depth - its < depth && depth - size < place.depth;
      });
      if (taken || depth > frame_.depth || (!home && depth - size < 8)) continue;
      const auto integer = xmm ? std::optional<unsigned>(xmms_.back()) : next_integer();
      if (!integer) return;
      if (xmm) xmms_.pop_back();
      address(depth, [&](unsigned base, std::int32_t disp) { code_.store(*integer, xmm, base, disp); });
      const RegisterNumber reg =
          xmm ? static_cast<RegisterNumber>(winx64::kXmm0 + *integer) : winx64::dwarf_number(*integer);
      did(ops, prologue::Save{reg, static_cast<std::uint32_t>(frame_.depth - depth)});
      frame_.saved.push_back({reg, depth, false});
      return;
    }
  }
  [[nodiscard]] std::int64_t lowest_free() const {
    std::int64_t lowest = 8;
    for (const Place& place : frame_.saved) lowest = place.pushed ? std::max(lowest, place.depth) : lowest;
    return lowest;
  }
  // How [CFA - depth] is addressed now.
  template <typename Emit>
  void address(std::int64_t depth, Emit&& emit) {
    if (frame_.pointer && (frame_.alloca || choose_(2) == 0))
      emit(*frame_.pointer, static_cast<std::int32_t>(frame_.pointer_depth - depth));
    else
      emit(winx64::kRsp, static_cast<std::int32_t>(frame_.depth - depth));
  }

  // ---- the pieces of a function ----

  void prologue() {
    std::vector<prologue::Op>& ops = made_.prologue.ops;
    if (wild_) {
      for (unsigned i = choose_(12); i > 0; --i) {
        switch (choose_(6)) {
          case 0:
          case 1: push_one(ops); break;
          case 2: allocate(ops); break;
          case 3: save_one(ops, choose_(4) == 0); break;
          case 4: set_pointer(ops); break;
          default: code_.nop(); break;
        }
      }
      return;
    }
    if (choose_(4) == 0) save_one(ops, true);
    const unsigned style = choose_(4);  // 0, 1: no frame pointer; 2: one set last; 3: one set first
    if (style >= 2) push_one(ops);
    if (style == 3) set_pointer(ops);
    for (unsigned i = choose_(6); i > 0; --i) push_one(ops);
    if (choose_(8) != 0) allocate(ops);
    if (style == 2 && choose_(2) == 0) set_pointer(ops);
    for (unsigned i = choose_(6); i > 0; --i) save_one(ops, false);
    if (style == 2) set_pointer(ops);
  }

  void body() {
    code_.nop();
    for (const Place& place : frame_.saved) clobber(place.reg);
    if (frame_.pointer && choose_(2) == 0) {
      code_.add_rsp(-static_cast<std::int32_t>(16 * (1 + choose_(20))));
      frame_.alloca = true;
    }
    code_.nop();
  }
  void clobber(RegisterNumber reg) {
    if (winx64::is_xmm(reg))
      code_.clobber(reg - winx64::kXmm0, true);
    else if (winx64::instruction_number(reg) != frame_.pointer)
      code_.clobber(winx64::instruction_number(reg), false);
  }

  void part(std::size_t trunk) {
    const Frame around = frame_;
    const auto integers = integers_;
    const auto xmms = xmms_;
    prologue::Part part;
    part.begin = code_.at();
    const std::size_t known = frame_.saved.size();
    if (choose_(2) == 0) code_.nop();
    bool moved = false;
    if (!frame_.alloca && (wild_ || frame_.pointer)) {
      const std::int64_t before = frame_.depth;
      if (choose_(3) == 0) push_one(part.ops);
      if (choose_(4) == 0) allocate(part.ops);
      if (!frame_.pointer && choose_(4) == 0) set_pointer(part.ops);
      moved = before != frame_.depth || frame_.pointer != around.pointer;
    }
    for (unsigned i = 1 + choose_(3); i > 0; --i) save_one(part.ops, false);
    code_.nop();
    for (std::size_t i = known; i < frame_.saved.size(); ++i) clobber(frame_.saved[i].reg);
    code_.nop();
    const std::size_t inside = stretch(part.begin, trunk);
    for (unsigned i = choose_(2); i > 0; --i) {
      const std::uint32_t begin = code_.at();
      part.epilogues.push_back(epilogue());
      stretch(begin, inside);
    }
    if (!moved) {
      prologue::Epilogue rest{code_.at(), 0, {}};
      for (std::size_t i = frame_.saved.size(); i > known; --i) restore(rest, frame_.saved[i - 1]);
      if (rest.begin != code_.at()) {
        rest.end = code_.at();
        stretch(rest.begin, inside);
        part.epilogues.push_back(rest);
      }
    }
    part.end = code_.at();
    made_.prologue.parts.push_back(part);
    frame_ = around;
    integers_ = integers;
    xmms_ = xmms;
  }

  void restore(prologue::Epilogue& epilogue, const Place& place) {
    const bool xmm = winx64::is_xmm(place.reg);
    const unsigned reg = xmm ? place.reg - winx64::kXmm0 : winx64::instruction_number(place.reg);
    address(place.depth, [&](unsigned base, std::int32_t disp) { code_.load(reg, xmm, base, disp); });
    epilogue.undone.push_back(
        {code_.at(), prologue::Save{place.reg, static_cast<std::uint32_t>(frame_.depth - place.depth)}});
  }

  // Restores, what frees the frame, pops, and the exit.
  prologue::Epilogue epilogue() {
    const Frame around = frame_;
    prologue::Epilogue result{code_.at(), 0, {}};
    std::size_t pops = poppable(), pointer_at = SIZE_MAX;
    for (std::size_t i = 0; i < pops; ++i) {
      if (winx64::instruction_number(frame_.saved[i].reg) == frame_.pointer) pointer_at = i;
    }
    if (pointer_at != SIZE_MAX && choose_(2) == 0) pops = pointer_at + 1;
    for (std::size_t i = frame_.saved.size(); i > pops; --i) restore(result, frame_.saved[i - 1]);
    release(result, 8 + 8 * static_cast<std::int64_t>(pops), pops);
    for (std::size_t i = left_to_pop_; i > 0; --i) {
      const RegisterNumber reg = frame_.saved[i - 1].reg;
      code_.pop(winx64::instruction_number(reg));
      result.undone.push_back({code_.at(), prologue::push(reg)});
    }
    code_.exit(choose_(unknown_exits_ ? 20 : 3));
    result.end = code_.at();
    frame_ = around;
    return result;
  }

  // Up to where `depth` bytes are left, of which the first pop may be done too.
  void release(prologue::Epilogue& epilogue, std::int64_t depth, std::size_t pops) {
    left_to_pop_ = pops;
    const auto undid = [&](const prologue::Action& action) { epilogue.undone.push_back({code_.at(), action}); };
    if (frame_.pointer && (frame_.alloca || (frame_.depth != depth && choose_(2) == 0))) {
      const auto distance = static_cast<std::int32_t>(frame_.pointer_depth - depth);
      const RegisterNumber reg = winx64::dwarf_number(*frame_.pointer);
      const prologue::SetFramePointer set{reg, static_cast<std::uint32_t>(frame_.set_depth - frame_.pointer_depth)};
      const bool past = depth <= frame_.set_depth;
      const bool leaves = distance == 0 && *frame_.pointer == winx64::kRbp && pops == 1 && choose_(2) == 0;
      if (leaves)
        code_.leave();
      else if (distance == 0 && choose_(2) == 0)
        code_.move(winx64::kRsp, *frame_.pointer);
      else
        code_.lea(winx64::kRsp, *frame_.pointer, distance);
      if (past) undid(set);
      const std::int64_t rest = (past ? frame_.set_depth : frame_.depth) - depth;
      if (rest != 0) undid(prologue::Allocate{static_cast<std::uint64_t>(rest)});
      if (leaves) {
        undid(prologue::push(reg));
        left_to_pop_ = 0;
      }
    } else if (frame_.depth != depth) {
      std::int64_t rest = frame_.depth - depth;
      if (wild_ && rest > 8 && choose_(4) == 0) {
        code_.add_rsp(8);
        undid(prologue::Allocate{8});
        rest -= 8;
      }
      code_.add_rsp(static_cast<std::int32_t>(rest));
      undid(prologue::Allocate{static_cast<std::uint64_t>(rest)});
    }
    frame_.depth = depth;
  }

  Choose choose_;
  bool unknown_exits_;
  bool wild_ = false;
  std::vector<unsigned> integers_, xmms_;  // not used yet
  X64Code code_;
  Frame frame_;
  std::size_t left_to_pop_ = 0;
  MadeFunction made_;
};

// ---- running it ---------------------------------------------------------------------------------------------------

// Memory that holds what was written to it, above rsp: below it anything may be.
class MadeStack {
 public:
  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const {
    for (std::size_t done = 0; done < size; done += 8) {
      const auto found = words_.find(address + done);
      if (found == words_.end()) return false;
      std::memcpy(static_cast<std::byte*>(to) + done, &found->second, std::min<std::size_t>(8, size - done));
    }
    return true;
  }
  void write(std::uint64_t address, std::uint64_t value) { words_[address] = value; }
  template <typename Callback>
  void each(Callback&& callback) const {
    for (const auto& [address, value] : words_) callback(address, value);
  }
  void drop_below(std::uint64_t rsp) { words_.erase(words_.begin(), words_.lower_bound(rsp)); }

 private:
  std::map<std::uint64_t, std::uint64_t> words_;
};

struct MadeRun {
  X64State state;
  MadeStack stack;

  void step(const X64Instruction& instruction) {
    using Kind = X64Instruction::Kind;
    auto& integer = state.integer;
    std::uint64_t& rsp = integer[winx64::kRsp];
    const std::uint64_t at = integer[instruction.base] + static_cast<std::uint64_t>(std::int64_t{instruction.disp});
    std::uint64_t* const value = instruction.xmm ? state.xmm[instruction.reg].data() : &integer[instruction.reg];
    const unsigned halves = instruction.xmm ? 2 : 1;
    switch (instruction.kind) {
      case Kind::kPush: stack.write(rsp -= 8, *value); break;
      case Kind::kLeave: rsp = integer[winx64::kRbp]; [[fallthrough]];
      case Kind::kPop:
        (void)stack.read(rsp, instruction.kind == Kind::kLeave ? &integer[winx64::kRbp] : value, 8);
        rsp += 8;
        break;
      case Kind::kAddRsp: rsp += static_cast<std::uint64_t>(std::int64_t{instruction.disp}); break;
      case Kind::kStore:
        for (unsigned i = 0; i < halves; ++i) stack.write(at + 8 * i, value[i]);
        break;
      case Kind::kLoad: (void)stack.read(at, value, 8 * halves); break;
      case Kind::kLea: *value = at; break;
      case Kind::kClobber: std::fill_n(value, halves, ~std::uint64_t{0}); break;
      case Kind::kNop:
      case Kind::kExit: break;
    }
    stack.drop_below(rsp);
  }
};

// Calls visit(offset, run) before every instruction of every stretch.
template <typename Visit>
void run_made(const MadeFunction& made, const MadeRun& call, Visit&& visit) {
  std::vector<MadeRun> ends;
  for (const MadeFunction::Stretch& stretch : made.stretches) {
    MadeRun run = stretch.after ? ends[*stretch.after] : call;
    for (const X64Instruction& instruction : made.code.instructions()) {
      if (instruction.begin < stretch.begin || instruction.end > stretch.end) continue;
      visit(instruction.begin, run);
      run.step(instruction);
    }
    ends.push_back(std::move(run));
  }
}

}  // namespace windlass::test
