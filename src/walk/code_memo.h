// Keeps results of following code: rows, guesses and refusals, so that no address is followed twice. For users that
// walk many stacks of other processes.
//
// A result depends on the code and on the stack at hand, through two questions. CodeSource::plausible tells rows that
// can be right from others. CodeSource::has_caller tells rows that lead on. So an entry is a tree. A node holds a row
// about which one of the questions was asked, and has a branch for each of the two answers. A leaf holds a result. A
// later walk goes down by the answers of its own stack. It gets the result that following the code would give, as the
// code and the answers are the same. Where the tree ends, the code is followed and the new path added.
//
// Bounds: kMaxEntries entries (those not used for the longest time go), kMaxNodes nodes of each, kMaxRows rows.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "flow/synthesis.h"
#include "walk/code_reads.h"
#include "walk/function_memo.h"
#include "walk/vain_tries.h"

namespace windlass::walk {

struct SteadyStep;

// What a call of flow/synthesis.h came to: `row` and more where it is found, else why not.
struct CodeAnswer {
  bool found = false;
  flow::CallSite site = flow::CallSite::kNone;
  flow::Synthesis synthesis;
  Error error;
};

// One thread only.
class CodeMemo {
 public:
  static constexpr std::size_t kMaxEntries = std::size_t{64} << 10;
  static constexpr std::size_t kMaxNodes = 64;
  static constexpr std::size_t kMaxRows = std::size_t{16} << 10;
  // Pieces of code that changes, as CodeReads has them.
  static constexpr std::size_t kMaxReadsInAll = std::size_t{1} << 20;

  enum class Question : std::uint8_t { kRow, kWayIn, kContradiction, kReturnRow, kCallSite };
  struct Key {
    Question question = Question::kRow;
    CodePlace at = {}, caller = {};  // caller: of kCallSite
    std::uint64_t detail = 0;        // of kContradiction: digest_of() the row that the code may contradict
    bool operator==(const Key&) const = default;
  };
  [[nodiscard]] static std::uint64_t digest_of(const FrameRow& row);

  using Follow = FunctionRef<CodeAnswer(const flow::CodeSource& source)>;
  // What follow(source) would come to. `pc`: what the rows begin at. `changes`: the code may; then it is read again and
  // compared. Where the limit
  // says no, nothing is found, and was_refused() is true.
  [[nodiscard]] CodeAnswer ask(const Key& key, std::uint64_t pc, bool changes, const flow::CodeSource& source,
                               Follow follow);

  // Says before code is followed whether it may be; hears when that is done.
  class Limit {
   public:
    virtual ~Limit() = default;
    virtual bool begin() = 0;
    virtual void end() = 0;
  };
  // It must outlive this. Without one code is always followed.
  void set_limit(Limit& limit) { limit_ = &limit; }

  // Hears of steps that are the same on other stacks (steady_step.h).
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void take(const SteadyStep& step) = 0;
  };
  // It must outlive this. Without one nothing is noted for such steps.
  void set_listener(Listener& listener) { listener_ = &listener; }
  [[nodiscard]] Listener* listener() const { return listener_; }
  // From now on it is noted what the stack at hand is asked, and if the answers hold for good.
  void begin_step() {
    asked_.clear();
    holds_ = listener_ != nullptr;
    follows_changing_ = false;
  }
  // The code or what is known of it may change, so the step may be another one later.
  void expect_change() { holds_ = false; }
  [[nodiscard]] bool step_holds() const { return holds_; }
  // Was code followed that may change?
  [[nodiscard]] bool follows_changing() const { return follows_changing_; }
  // Is use(row, answer) true for all rows that the stack was asked about?
  [[nodiscard]] bool all_asked(FunctionRef<bool(const FrameRow& row, bool answer)> use) const;
  // A stack of `now` is walked at `present`, maybe later. Code that has changed in between is not lost: what it came to
  // is known, if it was compared behind `now`.
  void start_walk(std::uint64_t now, std::uint64_t present) {
    now_ = now;
    present_ = present;
    refused_ = false;
  }
  void start_walk(std::uint64_t now) { start_walk(now, now); }
  // Since then, was any code not followed?
  [[nodiscard]] bool was_refused() const { return refused_; }
  // The whole functions that are kept beside.
  [[nodiscard]] FunctionMemo& functions() { return functions_; }
  // Where code is followed by the registers of the moment, which cannot be kept.
  [[nodiscard]] VainTries& vain_tries() { return vain_tries_; }
  // What follow() gives, within the limit's time.
  [[nodiscard]] Expected<flow::Synthesis> follow_unkept(FunctionRef<Expected<flow::Synthesis>()> follow) {
    if (limit_ != nullptr && !limit_->begin()) return fail(ErrorCode::kLimit, kNoTime, 0);
    ++followed_;
    auto found = follow();
    if (limit_ != nullptr) limit_->end();
    return found;
  }
  // How often code was followed, and how often it need not be.
  [[nodiscard]] std::uint64_t followed() const { return followed_; }
  [[nodiscard]] std::uint64_t kept() const { return kept_; }
  // Rows refer to files' bytes: to be called before such a file goes.
  void clear();

 private:
  static constexpr const char* kNoTime = "no time is left to follow code";
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  // Code that leads to where nothing is known to be mapped may lead on later. So may code that could not be read.
  static constexpr std::uint64_t kTentativeNs = 10'000'000'000;
  static constexpr std::uint64_t kForEver = ~std::uint64_t{0};

  struct Leaf {
    bool found = false;
    flow::CallSite site = flow::CallSite::kNone;
    flow::Certainty certainty = flow::Certainty::kGuess;
    flow::Start start = flow::Start::kNone;
    bool by_jump = false, addresses_frame = false, behind_padding = false, keeps_frame_record = false;
    std::uint32_t row = kNone;
    Error error;
    std::uint64_t until = kForEver;  // it holds
    std::uint64_t compared = 0;      // when the code was the same last
    CodeReads reads;                 // of code that changes
  };
  // What the stack at hand is asked about a row.
  enum class Ask : std::uint8_t { kPlausible, kHasCaller };
  [[nodiscard]] static bool answer_to(Ask ask, const flow::CodeSource& source, const FrameRow& row) {
    return ask == Ask::kPlausible ? source.plausible(row) : source.has_caller(row);
  }
  struct Node {
    Ask ask = Ask::kPlausible;
    std::uint32_t row = kNone;               // asked about; kNone: a leaf
    std::uint32_t next[2] = {kNone, kNone};  // by the answer; of a leaf: its number
  };
  struct Entry {
    std::vector<Node> nodes;  // the first is the root
    std::vector<Leaf> leaves;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  using Entries = std::unordered_map<Key, Entry, KeyHash>;
  class Recording;

  // A row that the stack at hand was asked about, at `pc`.
  struct Asked {
    std::uint32_t row;
    bool answer;
    std::uint64_t pc;
  };

  [[nodiscard]] Entry* find(const Key& key);
  [[nodiscard]] Leaf* descend(Entry& entry, std::uint64_t pc, const flow::CodeSource& source);
  enum class Holds : std::uint8_t { kNo, kThen, kStill };
  [[nodiscard]] Holds holds(Leaf& leaf, const flow::CodeSource& source) const;
  // False: it is not kept.
  bool keep(const Key& key, std::uint64_t pc, bool changes, Recording& recording, const CodeAnswer& answer);
  [[nodiscard]] CodeAnswer answer_of(const Leaf& leaf, std::uint64_t pc) const;
  // Rows are kept once, counted from the pc.
  [[nodiscard]] std::uint32_t number_of(const FrameRow& row, std::uint64_t pc);
  void row_of(std::uint32_t number, std::uint64_t pc, FrameRow& row) const;

  Entries young_, old_;  // used since the last time that there were too many, and not
  std::size_t young_reads_ = 0;
  std::vector<FrameRow> rows_;
  std::unordered_multimap<std::uint64_t, std::uint32_t> row_numbers_;  // by digest
  FunctionMemo functions_;
  VainTries vain_tries_;
  Limit* limit_ = nullptr;
  Listener* listener_ = nullptr;
  std::vector<Asked> asked_;
  bool holds_ = false, follows_changing_ = false;
  std::uint64_t now_ = 0, present_ = 0;
  bool refused_ = false;
  std::uint64_t followed_ = 0, kept_ = 0;
};

}  // namespace windlass::walk
