#include "exactness/verdicts.h"

#include <algorithm>

namespace windlass::exactness {
namespace {

bool known(const uj_frame& frame, unsigned reg) { return (frame.known >> reg & 1) != 0; }

double percent(std::uint64_t part, std::uint64_t of) {
  return of == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(of);
}

std::string register_list(std::uint8_t bits) {
  std::string text;
  for (std::size_t i = 0; i < kPreserved.size(); ++i)
    if ((bits >> i & 1) != 0) text += (text.empty() ? "" : ",") + std::string(kPreservedNames[i]);
  return text.empty() ? "-" : text;
}

}  // namespace

PendingVerdict verdict_on(const ShadowFrame& truth, std::uint64_t pc, const uj_frame& claim, int result) {
  PendingVerdict found;
  found.pc = pc;
  const auto give = [&](Verdict verdict) {
    found.verdict = static_cast<std::uint8_t>(verdict);
    return found;
  };
  if (truth.kind == ShadowFrame::Kind::kBottom)
    return give(result == 0 ? Verdict::kExact : result < 0 ? Verdict::kRefused : Verdict::kEnds);
  if (result < 0) return give(Verdict::kRefused);
  if (result == 0) return give(Verdict::kEnds);
  found.claimed_pc = claim.reg[UJ_PC];
  found.claimed_sp = claim.reg[UJ_SP];
  if (!known(claim, UJ_PC) || !known(claim, UJ_SP) || found.claimed_pc != truth.caller_pc ||
      found.claimed_sp != truth.caller_sp)
    return give(Verdict::kWrong);
  for (std::size_t i = 0; i < kPreserved.size(); ++i)
    if (!known(claim, kPreserved[i]) || claim.reg[kPreserved[i]] != truth.caller_preserved[i])
      found.wrong_registers |= static_cast<std::uint8_t>(1u << i);
  return give(found.wrong_registers == 0 ? Verdict::kExact : Verdict::kPcSp);
}

void judge_whole(const std::vector<ShadowFrame*>& truth, bool open, const uj_frame* claims, int result,
                 std::uint16_t peer, WholeStacks& to) {
  ++to.judged;
  const bool gave_up = result < 0;
  const auto claimed = static_cast<std::size_t>(gave_up ? -result - 1 : result);
  SkippedCallers skipped{peer, 0};
  ShadowFrame* skipping = nullptr;
  std::size_t claim = 0, frame = 0;
  for (; claim < claimed && frame < truth.size(); ++claim, ++frame) {
    const std::uint64_t pc = claims[claim].reg[UJ_PC], sp = claims[claim].reg[UJ_SP];
    if (pc == truth[frame]->caller_pc && sp == truth[frame]->caller_sp) continue;
    ShadowFrame* const from = truth[frame];
    while (frame < truth.size() && sp != truth[frame]->caller_sp) ++frame;
    if (frame == truth.size() || skipping != nullptr) {
      ++to.bad;
      return;
    }
    skipping = from;
    if (pc != truth[frame]->caller_pc) skipped.pc = pc;
  }
  if (claim < claimed && !open)
    ++to.bad;
  else if (frame < truth.size())
    ++to.incomplete;
  else if (gave_up && !open)
    ++to.ended_by_error;
  else if (skipping != nullptr)
    skipping->skipped_by.push_back(skipped);
  else
    ++to.right;
}

void Tally::commit(const PendingVerdict& pending, std::uint8_t lost, std::uint64_t entry) {
  auto verdict = static_cast<Verdict>(pending.verdict);
  const auto wrong = static_cast<std::uint8_t>(pending.wrong_registers & ~lost);
  if (verdict == Verdict::kPcSp && wrong == 0) verdict = Verdict::kExact;
  ++counts_[static_cast<std::size_t>(verdict)];
  Site& site = sites_[pending.pc];
  ++site.counts[static_cast<std::size_t>(verdict)];
  if (verdict == Verdict::kExact) return;
  site.wrong_registers |= wrong;
  site.entry = entry;
  site.claimed_pc = pending.claimed_pc;
  site.claimed_sp = pending.claimed_sp;
}

std::uint64_t Tally::total() const {
  std::uint64_t sum = 0;
  for (const std::uint64_t count : counts_) sum += count;
  return sum;
}
double Tally::exact_share() const { return percent(count(Verdict::kExact), total()); }
double Tally::pc_sp_share() const { return percent(count(Verdict::kExact) + count(Verdict::kPcSp), total()); }

std::string Tally::summary() const {
  char text[512];
  std::snprintf(text, sizeof text, "%-18s pc+sp %.4f%%, all registers %.4f%%;", name_.c_str(), pc_sp_share(),
                exact_share());
  std::string line = text;
  for (std::size_t i = 0; i < kVerdicts; ++i)
    line += " " + std::string(kVerdictNames[i]) + " " + std::to_string(counts_[i]);
  std::size_t failing = 0;
  for (const auto& [pc, site] : sites_) failing += site.entry != 0;
  std::snprintf(text, sizeof text, "; %zu of %zu addresses; %.0f ns a call", failing, sites_.size(),
                calls == 0 ? 0.0 : nanoseconds / static_cast<double>(calls));
  line += text;
  if (whole.judged == 0) return line;
  std::snprintf(text, sizeof text, "; whole stacks %llu: right %llu, ended by an error %llu, bad %llu, incomplete %llu",
                static_cast<unsigned long long>(whole.judged), static_cast<unsigned long long>(whole.right),
                static_cast<unsigned long long>(whole.ended_by_error), static_cast<unsigned long long>(whole.bad),
                static_cast<unsigned long long>(whole.incomplete));
  return line + text;
}

void Tally::print_sites(std::FILE* to, const Describe& describe) const {
  const std::map<std::uint64_t, Site> sorted(sites_.begin(), sites_.end());
  for (const auto& [pc, site] : sorted) {
    if (site.entry == 0) continue;
    std::fprintf(to, "%s\t%s", name_.c_str(), describe(pc).c_str());
    for (std::size_t i = 0; i < kVerdicts; ++i)
      if (site.counts[i] != 0)
        std::fprintf(to, "\t%s %llu", kVerdictNames[i], static_cast<unsigned long long>(site.counts[i]));
    std::fprintf(to, "\t%s\tcalled at %s\tclaimed %#llx sp %#llx\n", register_list(site.wrong_registers).c_str(),
                 describe(site.entry).c_str(), static_cast<unsigned long long>(site.claimed_pc),
                 static_cast<unsigned long long>(site.claimed_sp));
  }
}

}  // namespace windlass::exactness
