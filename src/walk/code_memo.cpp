#include "walk/code_memo.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace windlass::walk {
namespace {

constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e37'79b9'7f4a'7c15;
  return hash ^ hash >> 29;
}

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

std::uint64_t digest_of_bytes(std::uint64_t hash, std::uint64_t address, const void* bytes, std::size_t size) {
  hash = mix(hash, address);
  for (std::size_t at = 0; at < size; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(bytes) + at, std::min<std::size_t>(8, size - at));
    hash = mix(hash, word);
  }
  return hash;
}
constexpr std::size_t kPiece = 64;
constexpr std::uint64_t kUnreadable = 0x6e6f;

}  // namespace

std::uint64_t CodeMemo::digest_of(const FrameRow& row) { return mix(digest_of_rules(row), row.expressions.size()); }

std::size_t CodeMemo::KeyHash::operator()(const Key& key) const {
  std::uint64_t hash = mix(static_cast<std::uint64_t>(key.question), key.detail);
  for (const CodePlace& place : {key.at, key.caller}) hash = mix(mix(hash, place.code), place.address);
  return hash;
}

// Adds the bytes that were read to a digest, or that they cannot be read, which gives false.
bool CodeMemo::add_read(const Read& read, const flow::CodeSource& source, std::uint64_t& digest) {
  std::byte bytes[kPiece];
  const bool is_read = read.size <= sizeof bytes && source.read(read.address, bytes, read.size);
  digest = is_read ? digest_of_bytes(digest, read.address, bytes, read.size) : mix(digest, read.address ^ kUnreadable);
  return is_read;
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
        note_read(address, size, is_read);
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
    return follow(recorded);
  }

  [[nodiscard]] const std::vector<Tried>& tried() const { return tried_; }
  [[nodiscard]] bool is_tentative() const { return is_tentative_; }
  [[nodiscard]] bool is_too_much() const { return reads_.size() > kMaxReads; }
  [[nodiscard]] const std::vector<Read>& reads() const { return reads_; }
  [[nodiscard]] std::uint64_t digest() const { return digest_; }

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
  // Code is compared by pieces that begin at multiples of their size, as far as all of a piece can be read.
  void note_read(std::uint64_t address, std::size_t size, bool is_read) {
    const std::uint64_t first = address & ~std::uint64_t{kPiece - 1};
    bool in_pieces = is_read;
    for (std::uint64_t piece = first; in_pieces && piece - first < address - first + size; piece += kPiece)
      in_pieces = is_noted({piece, kPiece}, true);
    if (!in_pieces) (void)is_noted({address, static_cast<std::uint32_t>(size)}, false);
  }
  bool is_noted(const Read& read, bool must_be_read) {
    // Mostly one of the last.
    if (is_too_much() || std::ranges::find(reads_.rbegin(), reads_.rend(), read) != reads_.rend()) return true;
    std::uint64_t digest = digest_;
    if (!add_read(read, source_, digest) && must_be_read) return false;
    digest_ = digest;
    reads_.push_back(read);
    if (read.size > kPiece) reads_.resize(kMaxReads + 1);
    return true;
  }

  const flow::CodeSource& source_;
  bool changes_;
  bool is_tentative_ = false;
  std::vector<Tried> tried_;
  std::vector<Read> reads_;
  std::uint64_t digest_ = 0;
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
  std::uint64_t digest = 0;
  for (const Read& read : leaf.reads) (void)add_read(read, source, digest);
  if (digest != leaf.digest) return leaf.compared > now_ ? Holds::kThen : Holds::kNo;
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

bool CodeMemo::keep(const Key& key, std::uint64_t pc, bool changes, const Recording& recording,
                    const CodeAnswer& answer) {
  if (recording.is_too_much()) return false;
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
  leaf.digest = recording.digest();
  leaf.compared = present_;
  leaf.reads = recording.reads();
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
