#include "runtimes/beam/code_flow.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "base/registers.h"
#include "flow/stack_effect.h"
#include "runtimes/beam/layout.h"

namespace windlass::runtimes::beam {
namespace {

using flow::StackEffect;
using Kind = StackEffect::Kind;
using Kept = FrameState::Kept;
using Stack = FrameState::Stack;

constexpr std::int32_t kMostDepth = 1 << 16;
constexpr std::uint32_t kMostFollowed = 1 << 20;  // instructions, from all that one function's code does not reach

// The effect of an instruction on the two stacks, beyond the StackEffect on rsp.
enum class Act : std::uint8_t {
  kNone,
  kKeepInRbp,       // mov rbp, rsp
  kKeepInProcess,   // mov [r13 + stop], rsp; movq xmm1, rsp or vpinsrq xmm0, xmm1, rsp, 1: what is stored there next,
                    // with the heap pointer
  kEnter,           // lea rsp, [rbx - N]
  kLeaveByRbp,      // mov rsp, rbp
  kLeaveByProcess,  // mov rsp, [r13 + stop]
  kNextProcess,     // mov r13, rax
};

template <std::size_t N>
bool begins(std::span<const std::byte> code, const std::uint8_t (&bytes)[N]) {
  return code.size() >= N && std::memcmp(code.data(), bytes, N) == 0;
}

Act act_of(std::span<const std::byte> code) {
  constexpr auto kStop = static_cast<std::uint8_t>(Layout::kProcessStop);
  constexpr std::uint8_t kRbpFromRsp[] = {0x48, 0x89, 0xe5}, kRspFromRbp[] = {0x48, 0x89, 0xec};
  constexpr std::uint8_t kStore[] = {0x49, 0x89, 0x65, kStop}, kLoad[] = {0x49, 0x8b, 0x65, kStop};
  constexpr std::uint8_t kToXmm1[] = {0x66, 0x48, 0x0f, 0x6e, 0xcc};
  constexpr std::uint8_t kToXmm0[] = {0xc4, 0xe3, 0xf1, 0x22, 0xc4, 1}, kEnterRuntime[] = {0x48, 0x8d, 0x63};
  constexpr std::uint8_t kR13FromRax[] = {0x49, 0x89, 0xc5};
  if (begins(code, kRbpFromRsp)) return Act::kKeepInRbp;
  if (begins(code, kStore) || begins(code, kToXmm1) || begins(code, kToXmm0)) return Act::kKeepInProcess;
  if (begins(code, kEnterRuntime)) return Act::kEnter;
  if (begins(code, kRspFromRbp)) return Act::kLeaveByRbp;
  if (begins(code, kLoad)) return Act::kLeaveByProcess;
  if (begins(code, kR13FromRax)) return Act::kNextProcess;
  return Act::kNone;
}

struct Instruction {
  StackEffect effect;
  Act act = Act::kNone;
};

std::optional<Instruction> decode(std::span<const std::byte> code, std::uint64_t address) {
  const auto effect = flow::stack_effect(ByteView(code.data(), code.size()), address);
  if (!effect || effect->length == 0) return std::nullopt;
  return Instruction{*effect, act_of(code)};
}

// The address that an instruction takes, lea REG, [rip + N], whose next one is at `next`; 0: none. Shared code goes on
// at such labels, in the same frame: where a process has waited, or a call is made again.
std::uint64_t label_of(std::span<const std::byte> code, std::uint64_t next) {
  const std::size_t at = code.size() > 2 && (code[0] & std::byte{0xf0}) == std::byte{0x40} ? 1 : 0;
  constexpr std::byte kLea{0x8d}, kModRm{0xc7}, kFromRip{5};
  std::int32_t distance = 0;
  if (code.size() < at + 2 + sizeof distance || code[at] != kLea || (code[at + 1] & kModRm) != kFromRip) return 0;
  std::memcpy(&distance, code.data() + at + 2, sizeof distance);
  return next + static_cast<std::uint64_t>(std::int64_t{distance});
}

bool is_depth(std::int64_t bytes) { return bytes >= 0 && bytes <= kMostDepth && bytes % 8 == 0; }

// Behind the instruction. False: nothing is known there any more.
bool run(const Instruction& instruction, FrameState& state) {
  switch (instruction.act) {
    case Act::kKeepInRbp: state.kept = Kept::kInRbp; return true;
    case Act::kKeepInProcess: state.kept = Kept::kInProcess; return true;
    case Act::kEnter:
      if (state.stack != Stack::kErlang || state.kept == Kept::kNowhere) return false;
      state.stack = state.kept == Kept::kInRbp ? Stack::kInRbp : Stack::kInProcess;
      return true;
    case Act::kLeaveByRbp:
    case Act::kLeaveByProcess:
      // By way of the process also what rbp has kept: a longer way may have stored it meanwhile.
      if (state.stack == Stack::kErlang || state.stack == Stack::kUnknown) return false;
      state.stack = Stack::kErlang;
      state.kept = Kept::kNowhere;
      return true;
    case Act::kNextProcess: return state.stack == Stack::kErlang;
    case Act::kNone: break;
  }
  const StackEffect& effect = instruction.effect;
  if (effect.kind == Kind::kSet || effect.kind == Kind::kUnknown) return false;
  if (effect.kind < Kind::kMove || effect.kind > Kind::kPop) return true;
  if (state.stack != Stack::kErlang) return false;
  const std::int64_t depth = state.depth - effect.delta;
  if (!is_depth(depth)) return false;
  state.depth = static_cast<std::int32_t>(depth);
  state.kept = Kept::kNowhere;
  return true;
}

// The states of one function's instructions. Code behind calls is taken last. A call may never return (an error's), and
// then another path leads to the code behind it.
class Flow {
 public:
  Flow(std::span<const std::byte> code, std::uint64_t address)
      : code_(code),
        address_(address),
        states_(code.size()),
        known_(code.size()),
        lengths_(code.size()),
        is_call_(code.size()) {}

  std::vector<FrameStretch> find(std::vector<std::uint32_t>& returns) {
    add(0, FrameState::at_entry(), Certain::kYes);
    add(Layout::kInfoSize, FrameState::at_entry(), Certain::kYes);
    take_all();
    take_unreached();
    std::vector<FrameStretch> found;
    FrameState before;
    for (std::uint32_t at = 0; at < code_.size(); at += std::max<std::uint32_t>(lengths_[at], 1)) {
      FrameState state = states_[at];  // unknown where none was found
      state.kept = Kept::kNowhere;
      if (is_call_[at]) returns.push_back(at + lengths_[at]);
      if (!found.empty() && state == before) continue;
      found.push_back({at, state});
      before = state;
    }
    return found;
  }

 private:
  enum class Known : std::uint8_t { kNo, kLikely, kYes };
  enum class Certain : bool { kNo, kYes };
  using Places = std::set<std::uint32_t>;

  void add(std::uint64_t at, const FrameState& state, Certain certain) {
    if (at >= code_.size() || known_[at] == Known::kYes) return;
    if (known_[at] == Known::kLikely && (certain == Certain::kNo || states_[at] == state)) return;
    states_[at] = state;
    known_[at] = certain == Certain::kYes ? Known::kYes : Known::kLikely;
    (certain == Certain::kYes ? jumps_ : calls_).insert(static_cast<std::uint32_t>(at));
  }

  void take_all() {
    while (!jumps_.empty() || !calls_.empty()) {
      if (!jumps_.empty())
        take(jumps_, Certain::kYes);
      else
        take(calls_, Certain::kNo);
    }
  }

  // What is entered by an exception, or where a process goes on that has waited: by where it leads.
  void take_unreached() {
    std::uint32_t left = kMostFollowed;
    const auto read = [&](std::uint64_t from, void* to, std::size_t size) {
      if (left == 0 || from < address_ || from - address_ >= code_.size()) return false;
      --left;
      const std::size_t there = std::min<std::size_t>(size, code_.size() - (from - address_));
      std::memset(to, 0, size);
      std::memcpy(to, code_.data() + (from - address_), there);
      return true;
    };
    // Elsewhere is another function, or code that all share and that need not be left with this frame's return address
    // on top, as where a process waits.
    const auto leads = [&](std::uint64_t target) {
      if (target == 0) return Leads::kToFunction;
      const bool is_own = target > address_ + Layout::kInfoSize && target - address_ < code_.size();
      return is_own ? Leads::kOn : Leads::kUnknown;
    };
    const auto known = [&](std::uint64_t place) {
      const std::uint64_t offset = place - address_;
      return offset < code_.size() ? states_[offset] : FrameState();
    };
    for (std::uint32_t at = Layout::kInfoSize; at < code_.size();) {
      if (known_[at] == Known::kNo) {
        const FrameState state = follow(address_ + at, read, leads, known);
        if (state.stack != Stack::kUnknown && state.stack != Stack::kScheduler) {
          add(at, state, Certain::kNo);
          take_all();
        }
      }
      std::uint32_t length = lengths_[at];
      if (length == 0) {  // code all the same
        const auto instruction = decode(code_.subspan(at), address_ + at);
        length = instruction ? instruction->effect.length : 1;
        is_call_[at] = instruction && instruction->effect.kind == Kind::kCall;
        if (is_call_[at]) lengths_[at] = instruction->effect.length;
      }
      at += length;
    }
  }

  // From the lowest place on to where the way ends or has been.
  void take(Places& places, Certain certain) {
    const std::uint32_t at = *places.begin();
    places.erase(places.begin());
    const auto instruction = decode(code_.subspan(at), address_ + at);
    if (!instruction) return;
    const StackEffect& effect = instruction->effect;
    lengths_[at] = effect.length;
    is_call_[at] = effect.kind == Kind::kCall;
    // The name stands behind the first call, which does not return.
    if (effect.kind == Kind::kReturn || (effect.kind == Kind::kCall && at < Layout::kInfoSize)) return;
    FrameState state = states_[at];
    if (!run(*instruction, state)) return;
    if (const std::uint64_t label = label_of(code_.subspan(at), address_ + at + effect.length);
        label > address_ + Layout::kInfoSize && state.stack == Stack::kErlang)
      add(label - address_, state, Certain::kNo);
    if (effect.kind == Kind::kJump || effect.kind == Kind::kBranch) {
      if (effect.target >= address_) add(effect.target - address_, state, certain);
      if (effect.kind == Kind::kJump) return;
    }
    add(at + effect.length, state, effect.kind == Kind::kCall ? Certain::kNo : certain);
  }

  std::span<const std::byte> code_;
  std::uint64_t address_;
  std::vector<FrameState> states_;
  std::vector<Known> known_;
  std::vector<std::uint8_t> lengths_;  // of the instructions; 0: none
  std::vector<bool> is_call_;
  Places jumps_, calls_;
};

}  // namespace

std::vector<FrameStretch> flow(std::span<const std::byte> code, std::uint64_t address,
                               std::vector<std::uint32_t>& returns) {
  return Flow(code, address).find(returns);
}

FrameState follow(std::uint64_t address, FunctionRef<bool(std::uint64_t address, void* to, std::size_t size)> read,
                  FunctionRef<Leads(std::uint64_t address)> leads,
                  FunctionRef<FrameState(std::uint64_t address)> known) {
  constexpr unsigned kMostInstructions = 512;
  constexpr std::size_t kLongest = 15;
  Stack first = Stack::kUnknown;  // where the way began, once something says so
  std::int64_t moved = 0;
  bool left_by_process = false;
  std::set<std::uint64_t> seen;
  const auto began = [&](Stack stack) {
    if (first == Stack::kUnknown) first = stack;
  };
  for (unsigned i = 0; i < kMostInstructions && seen.insert(address).second; ++i) {
    if (const FrameState there = known(address); there.stack == Stack::kErlang && is_depth(moved + there.depth)) {
      began(Stack::kErlang);
      return {first, Kept::kNowhere, static_cast<std::int32_t>(moved) + there.depth};
    }
    std::array<std::byte, kLongest> code{};
    const auto instruction = read(address, code.data(), code.size()) ? decode(code, address) : std::nullopt;
    if (!instruction) break;
    const StackEffect& effect = instruction->effect;
    switch (instruction->act) {
      case Act::kEnter: began(Stack::kErlang); break;
      case Act::kLeaveByRbp: began(Stack::kInRbp); break;
      case Act::kLeaveByProcess:
        began(Stack::kInProcess);
        left_by_process = true;
        break;
      // The process that ran goes on later, or never.
      case Act::kNextProcess: return first == Stack::kErlang ? FrameState() : FrameState{Stack::kScheduler};
      case Act::kKeepInRbp:
      case Act::kKeepInProcess: began(Stack::kErlang); break;
      case Act::kNone:
        if (effect.kind == Kind::kSet || effect.kind == Kind::kUnknown) return {};
        if (effect.delta != 0) began(Stack::kErlang);
        moved += effect.delta;
        break;
    }
    constexpr std::byte kRet{0xc3};
    if (effect.kind == Kind::kReturn && code[0] != kRet) return {};  // a trap
    const Leads way = effect.kind == Kind::kJump ? leads(effect.target) : Leads::kOn;
    if (way == Leads::kUnknown) return {};
    if (effect.kind == Kind::kReturn || way == Leads::kToFunction) {
      began(Stack::kErlang);
      if (!is_depth(moved)) return {};
      // To a handler of exceptions the stack is as C has cut it: no return address is on top.
      const bool may_handle = effect.kind == Kind::kJump && effect.target == 0 && moved == 0 && !left_by_process;
      if (first == Stack::kErlang && may_handle) first = Stack::kTagged;
      return {first, Kept::kNowhere, static_cast<std::int32_t>(moved)};
    }
    address = effect.kind == Kind::kJump ? effect.target : address + effect.length;
  }
  return {};
}

}  // namespace windlass::runtimes::beam
