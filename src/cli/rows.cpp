#include "cli/rows.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/registers.h"
#include "cli/put.h"
#include "formats/dwarf/expression.h"

namespace windlass::cli {
namespace {

// A text that is copied in steps of a size the compiler knows: a step of it can be read behind its end, and written.
constexpr std::size_t kStep = 32;

char* copy(char* to, std::string_view text) {
  std::size_t done = 0;
  do {
    std::memcpy(to + done, text.data() + done, kStep);
    done += kStep;
  } while (done < text.size());
  return to + text.size();
}
template <std::size_t kSize>
char* copy_literal(char* to, const char (&literal)[kSize]) {
  std::memcpy(to, literal, kSize - 1);
  return to + kSize - 1;
}

// Rows repeat each other: of 5.5 million in one image, 99.97% equal one of 256 earlier rows in everything behind the
// CFA. So printed texts are kept, together with the facts that they print.
template <typename Key, std::size_t kLongest>
class Memo {
 public:
  explicit Memo(const Key& key) : key_(key) {}
  [[nodiscard]] bool is_of(const Key& key) const { return size_ != 0 && key_ == key; }
  [[nodiscard]] std::string_view text() const { return {text_, size_}; }
  void keep(const Key& key, std::string_view text) {
    size_ = 0;
    if (text.size() > kLongest) return;
    key_ = key;
    size_ = text.size();
    text.copy(text_, size_);
  }

 private:
  Key key_;
  std::size_t size_ = 0;  // 0: none
  char text_[kLongest + kStep] = {};
};

// All that a row says but its addresses and its CFA, if there is no expression in it.
struct RulesKey {
  static constexpr std::size_t kMost = RegisterRules::kCapacity + 1;
  static constexpr unsigned kHashBits = 10;
  std::size_t count = 0;
  std::uint64_t words[kMost];  // the first `count`

  RulesKey() {}  // NOLINT(modernize-use-equals-default): not initialised
  RulesKey(const RulesKey& other) { *this = other; }
  RulesKey& operator=(const RulesKey& other) {  // NOLINT(bugprone-unhandled-self-assignment): bears it
    count = other.count;
    std::memmove(words, other.words, count * sizeof words[0]);
    return *this;
  }
  bool operator==(const RulesKey& other) const {
    if (count != other.count) return false;
    std::uint64_t differ = 0;
    for (std::size_t i = 0; i < count; ++i) differ |= words[i] ^ other.words[i];
    return differ == 0;
  }

  // Returns a hash of kHashBits. The size of an expression, of which rules with a key have none, leaves room for a
  // number. Rules are read as the words that they were stored as: the processor waits for a word that was put together
  // from parts just before.
  std::uint32_t assign(const FrameRow& row) {
    const std::span<const RegisterRule> rules = row.registers.rules();
    const std::span<const std::uint8_t> numbers = row.registers.numbers();
    const auto word_of = [](const RegisterRule& rule, std::uint64_t number) {
      std::uint64_t word;
      std::memcpy(&word, &rule, sizeof word);
      return word ^ number << 32;
    };
    words[0] = word_of(row.return_address, (row.signal_frame ? 1U : 0U) | (row.return_signed ? 2U : 0U));
    std::uint64_t hash = words[0];
    for (std::size_t i = 0; i < rules.size(); ++i) {
      const std::uint64_t word = word_of(rules[i], numbers[i]);
      words[i + 1] = word;
      hash = hash * 9 + word;
    }
    count = rules.size() + 1;
    return static_cast<std::uint32_t>(hash * 0x9e3779b97f4a7c15 >> (64 - kHashBits));  // of which all bits count
  }
};

bool has_expression(const FrameRow& row) {
  bool found = row.return_address.is_expression();
  for (const RegisterEntry entry : row.registers) found = found || entry.rule.is_expression();
  return found;
}

// A line consists of the row's range, its CFA and its rules. Each kind of line has its own separators between these.
class RowPrinter {
 public:
  RowPrinter(TextWriter& out, Architecture architecture, bool json)
      : line_(out), architecture_(architecture), json_(json) {}

  void print(const FrameRow& row) {
    const std::string_view cfa = text_of_cfa(row.cfa, [&]() -> const FrameRow& { return row; });
    print(row.begin, row.end, cfa, text_of_rules(row));
  }
  void print(const NumberedRow& numbered, KnownRows& known) {
    const auto row = [&]() -> const FrameRow& { return known.row_of(numbered); };
    const std::string_view cfa = text_of_cfa(rule_of(numbered.cfa), row);
    print(numbered.begin, numbered.end, cfa, text_of_rules(numbered.number, row));
  }

 private:
  static constexpr std::size_t kLongestAddresses = 4 * kStep;  // two of them, and what stands before them
  static constexpr std::size_t kLongestCfa = 64, kLongestRules = 512, kCfas = 256;
  static constexpr std::size_t kNumbers = 4096, kLongestNumbered = 256;

  void print(std::uint64_t begin, std::uint64_t end, std::string_view cfa, std::string_view rules) {
    const std::size_t room = kLongestAddresses + cfa.size() + rules.size() + 2 * kStep;
    const bool fits = room <= TextWriter::kLongestRoom;
    char* at = line_.room(fits ? room : kLongestAddresses);
    if (end_.size == 0 || end_.address != begin) keep_end(begin);
    at = json_ ? copy_literal(at, "{\"begin\":") : copy_literal(at, "  ");
    at = copy_end(at);
    at = json_ ? copy_literal(at, ",\"end\":") : copy_literal(at, "..");
    keep_end(end);
    at = copy_end(at);
    if (fits) at = copy(copy(at, cfa), rules);
    line_.wrote(at);
    if (fits) return;
    line_.text(cfa);
    line_.text(rules);
  }

  void keep_end(std::uint64_t address) {
    end_.address = address;
    if (json_) {
      end_.size =
          static_cast<unsigned>(std::to_chars(end_.text, end_.text + sizeof end_.text, address).ptr - end_.text);
    } else {
      end_.size = hex_count(address);
      if (end_.size <= 8) end_.digits = hex_characters(static_cast<std::uint32_t>(address)) >> (8 - end_.size) * 8;
    }
  }

  char* copy_end(char* to) const {
    if (!json_ && end_.size > 8) return write_hex(to, end_.address);
    if (json_) {
      std::memcpy(to, end_.text, kStep);
    } else {
      to = copy_literal(to, "0x");
      std::memcpy(to, &end_.digits, sizeof end_.digits);
    }
    return to + end_.size;
  }

  // `row()`: the row, for what is not kept.
  template <typename Row>
  std::string_view text_of_cfa(const CfaRule& cfa, const Row& row) {
    auto& memo = cfas_[(static_cast<std::uint32_t>(cfa.offset()) / 8 + cfa.reg()) % kCfas];
    if (memo.is_of(cfa)) return memo.text();
    put(out_, json_ ? ",\"cfa\":" : "  cfa=");
    json_ ? json_cfa(row()) : text_cfa(row());
    const std::string_view text = made(cfa_text_);
    if (!cfa.is(CfaRule::kExpression)) memo.keep(cfa, text);  // an expression is somewhere else in each row
    return text;
  }

  template <typename Row>
  std::string_view text_of_rules(std::uint32_t number, const Row& row) {
    const std::size_t place = number % kNumbers;
    if (place >= numbered_.size()) numbered_.resize(place + 1, Memo<std::uint32_t, kLongestNumbered>(0));
    auto& memo = numbered_[place];
    if (!memo.is_of(number)) {
      const std::string_view text = text_of_rules(row());
      if (text.size() > kLongestNumbered) return text;
      memo.keep(number, text);
    }
    return memo.text();
  }
  std::string_view text_of_rules(const FrameRow& row) {
    if (rules_.empty()) rules_.assign(std::size_t{1} << RulesKey::kHashBits, Memo<RulesKey, kLongestRules>(RulesKey()));
    auto& memo = rules_[key_.assign(row)];
    if (memo.is_of(key_)) return memo.text();
    json_ ? json_rules(row) : text_rules(row);
    const std::string_view text = made(rules_text_);
    if (!has_expression(row)) memo.keep(key_, text);
    return text;
  }

  // What was written, put into `to`.
  std::string_view made(std::string& to) {
    out_.flush();
    to.swap(made_);
    made_.clear();
    const std::size_t size = to.size();
    to.append(kStep, '\0');
    return {to.data(), size};
  }

  void json_rules(const FrameRow& row) {
    out_.text(",\"ra\":");
    json_rule(row, row.return_address);
    out_.text(",\"regs\":{");
    bool first = true;
    for (const RegisterEntry entry : row.registers) {
      put(out_, first ? "\"" : ",\"", name(entry.reg), "\":");
      first = false;
      json_rule(row, entry.rule);
    }
    out_.text("}}\n");
  }
  void text_rules(const FrameRow& row) {
    out_.text("  ra=");
    text_rule(row, row.return_address);
    for (const RegisterEntry entry : row.registers) {
      put(out_, "  ", name(entry.reg), '=');
      text_rule(row, entry.rule);
    }
    if (row.signal_frame) out_.text("  signal frame");
    if (row.return_signed) out_.text("  return address signed");
    out_.character('\n');
  }

  [[nodiscard]] std::string name(RegisterNumber reg) const { return register_text(architecture_, reg); }

  // Valid until the next call.
  std::string_view expression(ByteView bytes) {
    scratch_.clear();
    dwarf::append_expression_text(scratch_, bytes, architecture_);
    return scratch_;
  }

  // `value`: the expression is the value itself, not the address it is saved at.
  void json_expression(ByteView bytes, bool value) {
    // An expression's text is made of nothing that wants escaping.
    put(out_, "{\"expr\":\"", expression(bytes), value ? "\",\"value\":true}" : "\"}");
  }

  void json_cfa(const FrameRow& row) {
    const CfaRule& cfa = row.cfa;
    switch (cfa.kind()) {
      case CfaRule::kRegister: return json_sum(cfa.reg(), cfa.offset());
      case CfaRule::kLoaded:
        out_.text("{\"at\":");
        json_sum(cfa.reg(), cfa.offset());
        return put(out_, ",\"offset\":", cfa.addend(), '}');
      case CfaRule::kExpression: return json_expression(row.expression(cfa), false);
    }
  }

  void json_rule(const FrameRow& row, const RegisterRule& rule) {
    switch (rule.kind()) {
      case RegisterRule::kUndefined: return out_.text("\"undefined\"");
      case RegisterRule::kSameValue: return out_.text("\"same\"");
      case RegisterRule::kAtCfa: return put(out_, "{\"cfa\":", rule.offset(), '}');
      case RegisterRule::kCfaValue: return put(out_, "{\"cfa_value\":", rule.offset(), '}');
      case RegisterRule::kInRegister: return put(out_, "{\"reg\":\"", name(rule.reg()), "\"}");
      case RegisterRule::kAtRegister:
        out_.text("{\"at\":");
        json_sum(rule.reg(), rule.offset());
        return out_.character('}');
      case RegisterRule::kRegisterValue: return json_sum(rule.reg(), rule.offset());
      case RegisterRule::kAtExpression: return json_expression(row.expression(rule), false);
      case RegisterRule::kExpressionValue: return json_expression(row.expression(rule), true);
    }
  }

  void json_sum(RegisterNumber reg, std::int64_t offset) {
    put(out_, "{\"reg\":\"", name(reg), "\",\"offset\":", offset, '}');
  }

  void text_cfa(const FrameRow& row) {
    const CfaRule& cfa = row.cfa;
    switch (cfa.kind()) {
      case CfaRule::kRegister: return text_sum(cfa.reg(), cfa.offset());
      case CfaRule::kLoaded:
        text_load(cfa.reg(), cfa.offset());
        if (cfa.addend() != 0) out_.signed_decimal(cfa.addend());
        return;
      case CfaRule::kExpression: return put(out_, expression(row.expression(cfa)));
    }
  }

  void text_rule(const FrameRow& row, const RegisterRule& rule) {
    switch (rule.kind()) {
      case RegisterRule::kUndefined: return out_.text("undefined");
      case RegisterRule::kSameValue: return out_.text("same");
      case RegisterRule::kAtCfa: return put(out_, "[cfa", Signed{rule.offset()}, ']');
      case RegisterRule::kCfaValue: return put(out_, "cfa", Signed{rule.offset()});
      case RegisterRule::kInRegister: return put(out_, name(rule.reg()));
      case RegisterRule::kAtRegister: return text_load(rule.reg(), rule.offset());
      case RegisterRule::kRegisterValue: return text_sum(rule.reg(), rule.offset());
      case RegisterRule::kAtExpression: return put(out_, '[', expression(row.expression(rule)), ']');
      case RegisterRule::kExpressionValue: return put(out_, '(', expression(row.expression(rule)), ')');
    }
  }

  void text_sum(RegisterNumber reg, std::int64_t offset) { put(out_, name(reg), Signed{offset}); }
  void text_load(RegisterNumber reg, std::int64_t offset) { put(out_, '[', name(reg), Signed{offset}, ']'); }

  TextWriter& line_;
  Architecture architecture_;
  bool json_;
  std::string made_, cfa_text_, rules_text_, scratch_;
  TextWriter out_{&made_};
  struct {  // of the row before
    std::uint64_t address = 0;
    unsigned size = 0;         // characters; 0: there is no such row
    std::uint64_t digits = 0;  // of a short hexadecimal number: what is written by parts and read at once takes time
    char text[kStep];          // of a decimal one
  } end_;
  RulesKey key_;
  std::vector<Memo<CfaRule, kLongestCfa>> cfas_{kCfas, Memo<CfaRule, kLongestCfa>(CfaRule::at(0, 0))};
  std::vector<Memo<std::uint32_t, kLongestNumbered>> numbered_;  // by number
  std::vector<Memo<RulesKey, kLongestRules>> rules_;             // by hash, once there is a row without a number
};

class RowCounter final : public sources::RowVisitor {
 public:
  explicit RowCounter(TextWriter& out) : out_(out) {}

  void begin_section(std::string_view name) override {
    finish();
    section_ = name;
    listed_ = true;
  }
  void row(const FrameRow&) override { ++count_; }
  void numbered_rows(std::span<const NumberedRow> rows, KnownRows&) override { count_ += rows.size(); }
  // Prints the count of the last section.
  bool finish() {
    if (listed_) put(out_, section_, ": ", count_, " rows\n");
    count_ = 0;
    return listed_;
  }

 private:
  TextWriter& out_;
  std::string section_;
  std::uint64_t count_ = 0;
  bool listed_ = false;
};

class RowLister final : public sources::RowVisitor {
 public:
  RowLister(TextWriter& out, Architecture architecture, bool json)
      : out_(out), printer_(out, architecture, json), json_(json) {}

  void begin_section(std::string_view name) override {
    listed_ = true;
    if (!json_) put(out_, name, ":\n");
  }
  void row(const FrameRow& row) override { printer_.print(row); }
  void numbered_rows(std::span<const NumberedRow> rows, KnownRows& known) override {
    for (const NumberedRow& each : rows) printer_.print(each, known);
  }
  [[nodiscard]] bool wants_more() const override { return !out_.closed(); }
  [[nodiscard]] bool listed() const { return listed_; }

 private:
  TextWriter& out_;
  RowPrinter printer_;
  bool json_;
  bool listed_ = false;
};

}  // namespace

bool list_rows(const sources::UnwindSource& source, TextWriter& out, sources::ErrorSink report, bool json) {
  if (!source.architecture()) return false;
  RowLister lister(out, *source.architecture(), json);
  source.for_each_row(lister, report);
  return lister.listed();
}

bool count_rows(const sources::UnwindSource& source, TextWriter& out, sources::ErrorSink report, bool) {
  if (!source.architecture()) return false;
  RowCounter counter(out);
  source.for_each_row(counter, report);
  return counter.finish();
}

}  // namespace windlass::cli
