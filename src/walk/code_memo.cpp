#include "walk/code_memo.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace windlass::walk {
namespace {

std::uint64_t rule_bits(const RegisterRule& rule) { return std::bit_cast<std::uint64_t>(rule); }

// Whatever they begin and end at.
bool same_rules(const FrameRow& a, const FrameRow& b) {
  return a.cfa == b.cfa && a.return_address == b.return_address && a.signal_frame == b.signal_frame &&
         a.return_signed == b.return_signed && a.expressions.data() == b.expressions.data() &&
         a.expressions.size() == b.expressions.size() && a.registers.size() == b.registers.size() &&
         std::equal(a.registers.begin(), a.registers.end(), b.registers.begin(),
                    [](const RegisterEntry& x, const RegisterEntry& y) { return x.reg == y.reg && x.rule == y.rule; });
}

bool same_row(const FrameRow& a, const FrameRow& b) { return a.begin == b.begin && a.end == b.end && same_rules(a, b); }

std::uint64_t digest_of_rules(const FrameRow& row) {
  std::uint64_t hash = mix(std::bit_cast<std::uint64_t>(row.cfa), rule_bits(row.return_address));
  hash = mix(hash, std::uint64_t{row.signal_frame} << 1 | std::uint64_t{row.return_signed});
  for (const RegisterEntry entry : row.registers) hash = mix(mix(hash, entry.reg), rule_bits(entry.rule));
  return hash;
}

}  // namespace

std::uint64_t CodeMemo::digest_of(const FrameRow& row) { return mix(digest_of_rules(row), row.expressions.size()); }

std::size_t CodeMemo::KeyHash::operator()(const Key& key) const {
  std::uint64_t hash = mix(static_cast<std::uint64_t>(key.question), key.detail);
  for (const CodePlace& place : {key.at, key.caller}) hash = mix(mix(hash, place.code), place.address);
  return hash;
}

// What following code asks about, and is told.
class CodeMemo::Recording {
 public:
  struct Tried {
    Ask ask;
    FrameRow row;
    bool answer;
  };
  Recording(const flow::CodeSource& source, bool changes) : source_(source), changes_(changes) {}

  CodeAnswer follow(Follow follow) {
    const auto read = [this](std::uint64_t address, void* to, std::size_t size) {
      const bool is_read = source_.read(address, to, size);
      if (changes_)
        reads_.note(source_, address, size, is_read);
      else
        is_tentative_ |= !is_read;  // a process may not answer in time
      return is_read;
    };
    const auto kind = [this](std::uint64_t address) {
      const flow::CodeKind of_address = source_.kind(address);
      is_tentative_ |= of_address == flow::CodeKind::kNoCode;
      return of_address;
    };
    const auto plausible = [this](const FrameRow& row) { return try_row(Ask::kPlausible, row); };
    const auto has_caller = [this](const FrameRow& row) { return try_row(Ask::kHasCaller, row); };
    const flow::CodeSource recorded{source_.architecture,
                                    read,
                                    kind,
                                    plausible,
                                    source_.function_start,
                                    source_.entry_point,
                                    has_caller,
                                    source_.inside_function,
                                    source_.by_whole_function};
    const CodeAnswer answer = follow(recorded);
    // What else is mapped later takes nothing away from a way that was found.
    is_tentative_ &= !answer.found || answer.synthesis.start != flow::Start::kNone ||
                     answer.synthesis.certainty == flow::Certainty::kGuess;
    return answer;
  }

  [[nodiscard]] const std::vector<Tried>& tried() const { return tried_; }
  [[nodiscard]] bool is_tentative() const { return is_tentative_; }
  [[nodiscard]] CodeReads& reads() { return reads_; }

 private:
  // The same stack has the same answer.
  bool try_row(Ask ask, const FrameRow& row) {
    const auto known =
        std::ranges::find_if(tried_, [&](const Tried& it) { return it.ask == ask && same_row(it.row, row); });
    if (known != tried_.end()) return known->answer;
    const bool answer = answer_to(ask, source_, row);
    tried_.push_back({ask, row, answer});
    return answer;
  }
  const flow::CodeSource& source_;
  bool changes_;
  bool is_tentative_ = false;
  std::vector<Tried> tried_;
  CodeReads reads_;
};

void CodeMemo::clear() {
  functions_.clear();
  young_.clear();
  old_.clear();
  rows_.clear();
  row_numbers_.clear();
  young_reads_ = 0;
  asked_.clear();
  holds_ = false;
}

bool CodeMemo::all_asked(FunctionRef<bool(const FrameRow& row, bool answer)> use) const {
  FrameRow row;
  return std::ranges::all_of(asked_, [&](const Asked& asked) {
    row_of(asked.row, asked.pc, row);
    return use(row, asked.answer);
  });
}

CodeMemo::Entry* CodeMemo::find(const Key& key) {
  if (const auto known = young_.find(key); known != young_.end()) return &known->second;
  const auto known = old_.find(key);
  if (known == old_.end()) return nullptr;
  return &young_.insert(old_.extract(known)).position->second;
}

std::uint32_t CodeMemo::number_of(const FrameRow& row, std::uint64_t pc) {
  FrameRow moved = row;
  moved.begin -= pc;
  moved.end -= pc;
  const std::uint64_t digest = digest_of_rules(row);
  const auto [first, last] = row_numbers_.equal_range(digest);
  for (auto known = first; known != last; ++known)
    if (same_row(rows_[known->second], moved)) return known->second;
  const auto number = static_cast<std::uint32_t>(rows_.size());
  rows_.push_back(moved);
  row_numbers_.emplace(digest, number);
  return number;
}

void CodeMemo::row_of(std::uint32_t number, std::uint64_t pc, FrameRow& row) const {
  row = rows_[number];
  row.begin += pc;
  row.end += pc;
}

// The leaf that the stack at hand leads to; null where nobody has been.
CodeMemo::Leaf* CodeMemo::descend(Entry& entry, std::uint64_t pc, const flow::CodeSource& source) {
  FrameRow row;
  const std::size_t asked = asked_.size();
  for (std::uint32_t at = 0; at < entry.nodes.size();) {
    const Node& node = entry.nodes[at];
    if (node.row == kNone) return &entry.leaves[node.next[0]];
    row_of(node.row, pc, row);
    const bool answer = answer_to(node.ask, source, row);
    if (holds_) asked_.push_back({node.row, answer, pc});
    at = node.next[answer ? 1 : 0];
  }
  asked_.resize(asked);
  return nullptr;
}

CodeMemo::Holds CodeMemo::holds(Leaf& leaf, const flow::CodeSource& source) const {
  if (now_ > leaf.until) return Holds::kNo;
  // A recursive function has many frames in one stack.
  if (present_ != 0 && leaf.compared == present_) return Holds::kStill;
  if (!leaf.reads.are_same(source)) return leaf.compared > now_ ? Holds::kThen : Holds::kNo;
  leaf.compared = present_;
  return Holds::kStill;
}

CodeAnswer CodeMemo::answer_of(const Leaf& leaf, std::uint64_t pc) const {
  CodeAnswer answer;
  answer.found = leaf.found;
  answer.site = leaf.site;
  answer.error = leaf.error;
  answer.error.where = pc;
  if (leaf.row != kNone) row_of(leaf.row, pc, answer.synthesis.row);
  answer.synthesis.certainty = leaf.certainty;
  answer.synthesis.start = leaf.start;
  answer.synthesis.by_jump = leaf.by_jump;
  answer.synthesis.addresses_frame = leaf.addresses_frame;
  answer.synthesis.behind_padding = leaf.behind_padding;
  answer.synthesis.keeps_frame_record = leaf.keeps_frame_record;
  return answer;
}

bool CodeMemo::keep(const Key& key, std::uint64_t pc, bool changes, Recording& recording, const CodeAnswer& answer) {
  if (recording.reads().is_too_much()) return false;
  if (rows_.size() >= kMaxRows) clear();
  if (young_.size() >= kMaxEntries / 2 || young_reads_ >= kMaxReadsInAll / 2) {
    old_ = std::move(young_);
    young_ = {};
    young_reads_ = 0;
  }
  Entry& entry = young_[key];
  if (entry.nodes.size() + recording.tried().size() + 1 > kMaxNodes) entry = {};
  // The way of before, as far as it is the same.
  const auto new_node = [&entry] {
    entry.nodes.emplace_back();
    return static_cast<std::uint32_t>(entry.nodes.size() - 1);
  };
  const auto is_fresh = [&entry](std::uint32_t at) {
    return entry.nodes[at].row == kNone && entry.nodes[at].next[0] == kNone;
  };
  std::uint32_t at = entry.nodes.empty() ? new_node() : 0;
  for (const auto& [ask, row, answered] : recording.tried()) {
    const std::uint32_t number = number_of(row, pc);
    if ((entry.nodes[at].row != number || entry.nodes[at].ask != ask) && !is_fresh(at)) {  // other code was there
      entry = {};
      return false;
    }
    if (holds_) asked_.push_back({number, answered, pc});
    entry.nodes[at].ask = ask;
    entry.nodes[at].row = number;
    std::uint32_t next = entry.nodes[at].next[answered ? 1 : 0];
    if (next == kNone) {
      next = new_node();
      entry.nodes[at].next[answered ? 1 : 0] = next;
    }
    at = next;
  }
  if (!is_fresh(at)) {
    entry = {};
    return false;
  }
  entry.nodes[at].next[0] = static_cast<std::uint32_t>(entry.leaves.size());
  Leaf& leaf = entry.leaves.emplace_back();
  leaf.found = answer.found;
  leaf.site = answer.site;
  leaf.error = answer.error;
  leaf.certainty = answer.synthesis.certainty;
  leaf.start = answer.synthesis.start;
  leaf.by_jump = answer.synthesis.by_jump;
  leaf.addresses_frame = answer.synthesis.addresses_frame;
  leaf.behind_padding = answer.synthesis.behind_padding;
  leaf.keeps_frame_record = answer.synthesis.keeps_frame_record;
  if (answer.found) leaf.row = number_of(answer.synthesis.row, pc);
  if (recording.is_tentative()) leaf.until = now_ + std::min(kTentativeNs, ~now_);  // a time may be the last there is
  if (!changes) return true;
  leaf.compared = present_;
  leaf.reads = std::move(recording.reads());
  young_reads_ += leaf.reads.size();
  return true;
}

CodeAnswer CodeMemo::ask(const Key& key, std::uint64_t pc, bool changes, const flow::CodeSource& source,
                         Follow follow) {
  follows_changing_ |= changes;
  if (Entry* entry = find(key); entry != nullptr) {
    if (Leaf* leaf = descend(*entry, pc, source); leaf != nullptr) {
      if (const Holds holds = this->holds(*leaf, source); holds != Holds::kNo) {
        ++kept_;
        if (holds == Holds::kThen || leaf->until != kForEver) holds_ = false;
        return answer_of(*leaf, pc);
      }
      *entry = {};
    }
  }
  if (limit_ != nullptr && !limit_->begin()) {
    refused_ = true;
    holds_ = false;
    CodeAnswer none;
    none.error = {ErrorCode::kLimit, kNoTime, pc, 0};
    return none;
  }
  ++followed_;
  Recording recording(source, changes);
  const CodeAnswer answer = recording.follow(follow);
  if (limit_ != nullptr) limit_->end();
  if (!keep(key, pc, changes, recording, answer) || recording.is_tentative()) holds_ = false;
  return answer;
}

}  // namespace windlass::walk
