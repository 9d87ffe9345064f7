#include "exactness/judge.h"

#include <algorithm>
#include <chrono>
#include <unordered_map>

namespace windlass::exactness {
namespace {

enum SystemCall : std::uint64_t { kMmap = 9, kMprotect = 10, kMunmap = 11, kMremap = 25, kExecve = 59 };

bool changes_mappings(std::uint64_t number) {
  return number == kMmap || number == kMprotect || number == kMunmap || number == kMremap || number == kExecve;
}

constexpr int kMaxFrames = 2048;

class Judge {
 public:
  Judge(const JudgeOptions& options, std::deque<JudgedPeer>& peers) : options_(options), peers_(peers) {}

  JudgeReport run(char* const argv[]) {
    report_.error = tracee_.start(argv);
    if (!report_.error.empty()) return report_;
    const std::uint64_t entry = tracee_.entry();
    shadow_.start(tracee_);
    started_ = !options_.begin_at_entry && options_.begin_at_system_call < 0;
    if (options_.run_system_calls != 0 || (options_.run_to_system_call && options_.begin_at_system_call >= 0)) {
      const std::uint64_t number = options_.run_system_calls != 0
                                       ? Tracee::kAnySystemCall
                                       : static_cast<std::uint64_t>(options_.begin_at_system_call);
      if (!tracee_.run_past_system_call(number, std::max<std::uint64_t>(1, options_.run_system_calls))) return report_;
      shadow_.start(tracee_, ShadowFrame::Kind::kUnknown);
      started_ = true;
    }
    std::uint64_t previous = 0;
    const std::uint64_t most_steps = options_.most_steps != 0 ? options_.most_steps : 100'000'000;
    while (report_.judged < options_.instructions && report_.steps < most_steps) {
      const MachineState before = tracee_.state();
      const Instruction instruction = instructions_.at(tracee_, before.pc());
      mnemonics_[before.pc()] = instruction.mnemonic;
      started_ |= options_.begin_at_system_call < 0 && before.pc() == entry;
      const bool again = instruction.repeats && previous == before.pc();
      if (started_ && report_.steps >= options_.skip && !again && report_.steps % options_.every == 0 &&
          !tracee_.signal_pending())
        look();
      previous = before.pc();
      const Tracee::Event event = tracee_.step();
      if (event == Tracee::Event::kGone) break;
      if (event == Tracee::Event::kSignal) continue;
      ++report_.steps;
      if (instruction.kind == Instruction::Kind::kSystemCall) after_system_call(before.rax());
      shadow_.stepped(tracee_, instruction, before);
    }
    shadow_.finish();
    report_.signals = shadow_.signals();
    return report_;
  }

  // "libc.so.6+0x1234 (mov)"
  [[nodiscard]] std::string describe(std::uint64_t pc) const {
    const Mapping* at = tracee_.mapping(pc);
    std::string text = at == nullptr || at->path.empty() ? "?" : at->path.substr(at->path.rfind('/') + 1);
    std::uint64_t base = 0;
    for (const Mapping& mapping : tracee_.mappings())
      if (at != nullptr && mapping.path == at->path) {
        base = mapping.begin - mapping.offset;
        break;
      }
    char number[32];
    std::snprintf(number, sizeof number, "+%#llx", static_cast<unsigned long long>(pc - base));
    const auto mnemonic = mnemonics_.find(pc);
    return text + number + (mnemonic != mnemonics_.end() ? " (" + std::string(mnemonic->second) + ")" : "");
  }

 private:
  void after_system_call(std::uint64_t number) {
    if (static_cast<long>(number) == options_.begin_at_system_call) started_ = true;
    if (!changes_mappings(number)) return;
    const bool executed = number == kExecve && tracee_.state().rax() == 0;
    tracee_.mappings_changed(executed);
    instructions_.forget();
    if (executed) shadow_.start(tracee_);
  }

  void look() {
    using Judgeable = ShadowStack::Judgeable;
    switch (shadow_.judgeable(tracee_)) {
      case Judgeable::kLimbo: ++report_.limbo; return;
      case Judgeable::kUnknown: ++report_.unknown; return;
      case Judgeable::kRewritten:
        ++report_.rewritten;
        if (options_.whole_stacks != 0) look_at_whole(request());
        return;
      case Judgeable::kYes: break;
    }
    ++report_.judged;
    const uj_request request = this->request();
    ShadowFrame& truth = shadow_.top();
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      uj_frame claim{};
      const int result = ask(peers_[i], request, &claim, 1);
      truth.pending.push_back(verdict_on(truth, request.reg[UJ_PC], claim, result));
      truth.pending.back().peer = static_cast<std::uint16_t>(i);
    }
    if (options_.whole_stacks != 0 && report_.judged % options_.whole_stacks == 0) look_at_whole(request);
  }

  [[nodiscard]] uj_request request() {
    uj_request request{};
    request.abi = UJ_ABI;
    request.pid = tracee_.pid();
    request.generation = tracee_.generation();
    std::copy(tracee_.state().reg.begin(), tracee_.state().reg.end(), request.reg);
    request.read = [](void* context, std::uint64_t address, void* to, std::size_t size) {
      return static_cast<const Tracee*>(context)->read(address, to, size) ? 0 : -1;
    };
    request.context = &tracee_;
    return request;
  }

  void look_at_whole(const uj_request& request) {
    bool open = false;
    const auto truth = shadow_.callers(tracee_, open);
    report_.deepest = std::max<std::uint64_t>(report_.deepest, truth.size());
    claims_.resize(kMaxFrames);
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      const int result = peers_[i].unwind(&request, claims_.data(), kMaxFrames);
      judge_whole(truth, open, claims_.data(), result, static_cast<std::uint16_t>(i), peers_[i].tally.whole);
    }
  }

  static int ask(JudgedPeer& peer, const uj_request& request, uj_frame* claims, int max) {
    const auto begin = std::chrono::steady_clock::now();
    const int result = peer.unwind(&request, claims, max);
    peer.tally.nanoseconds +=
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
    ++peer.tally.calls;
    return result;
  }

  void committed(const ShadowFrame& frame, std::uint8_t lost) {
    for (const PendingVerdict& pending : frame.pending) peers_[pending.peer].tally.commit(pending, lost, frame.entry);
    for (const SkippedCallers& skipped : frame.skipped_by) {
      WholeStacks& whole = peers_[skipped.peer].tally.whole;
      const bool went_there = frame.left_to != 0 && (skipped.pc == 0 || skipped.pc == frame.left_to);
      ++(went_there ? whole.right : whole.bad);
    }
  }

  const JudgeOptions& options_;
  std::deque<JudgedPeer>& peers_;
  JudgeReport report_;
  Tracee tracee_;
  InstructionCache instructions_;
  std::unordered_map<std::uint64_t, const char*> mnemonics_;
  ShadowStack shadow_{[this](const ShadowFrame& frame, std::uint8_t lost) { committed(frame, lost); }};
  std::vector<uj_frame> claims_;
  bool started_ = false;
};

}  // namespace

JudgeReport judge(const JudgeOptions& options, char* const argv[], std::deque<JudgedPeer>& peers, std::FILE* sites) {
  Judge run(options, peers);
  const JudgeReport report = run.run(argv);
  if (sites != nullptr)
    for (const JudgedPeer& peer : peers)
      peer.tally.print_sites(sites, [&](std::uint64_t pc) { return run.describe(pc); });
  return report;
}

}  // namespace windlass::exactness
