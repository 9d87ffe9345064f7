#include "profiler/export/pattern.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace windlass::exporter {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Behind the `]` of the list that begins at `at`. POSIX.1-2017, section 9.3.5.
std::size_t behind_list(std::string_view text, std::size_t at) {
  ++at;
  if (at < text.size() && text[at] == '^') ++at;
  if (at < text.size() && text[at] == ']') ++at;
  while (at < text.size() && text[at] != ']') {
    const bool named = text[at] == '[' && at + 1 < text.size() && std::string_view(".=:").contains(text[at + 1]);
    const char closing[] = {named ? text[at + 1] : '\0', ']'};
    const std::size_t end = named ? text.find(std::string_view(closing, 2), at + 2) : at;
    if (end == text.npos) return text.size();
    at = named ? end + 2 : at + 1;
  }
  return std::min(at + 1, text.size());
}

// Adds up how many characters regcomp() makes of an expression. Empty: not more than are allowed.
class PatternSize {
 public:
  explicit PatternSize(std::string_view text) : text_(text) {}

  std::string problem() {
    while (at_ < text_.size()) {
      if (const char* wrong = take()) return wrong;
      if (levels_.size() > Pattern::kMostNested + 1)
        return fmt::format("more than {} brackets within brackets", Pattern::kMostNested);
      if (levels_.back().sum > Pattern::kMostCopied)
        return fmt::format("more than {} characters with all repetitions", Pattern::kMostCopied);
    }
    return {};
  }

 private:
  struct Level {
    std::size_t sum = 0, last = 0;  // `last`: what a repetition repeats
    int repetitions = 0;            // of the last, one behind the other
  };

  void add(std::size_t size) {
    levels_.back().last = size;
    levels_.back().repetitions = 0;
    levels_.back().sum += size;
  }
  // Both are at most kMostCopied, and 32768: there is no overflow.
  void repeat(std::size_t times) {
    Level& level = levels_.back();
    if (level.last == 0) add(1);  // an operator that may be taken as a character
    ++level.repetitions;
    level.sum += level.last * (times - 1);
    level.last *= times;
  }
  // One character or operator. What is wrong, or null.
  const char* take() {
    const char c = text_[at_++];
    if (c == '[') {
      at_ = behind_list(text_, at_ - 1);
      add(1);
    } else if (c == '\\') {
      if (at_ < text_.size() && is_digit(text_[at_]) && text_[at_] != '0') return "there are no back references";
      ++at_;
      add(1);
    } else if (c == '(') {
      add(1);
      levels_.emplace_back();
    } else if (c == ')' && levels_.size() > 1) {
      const std::size_t size = levels_.back().sum + 1;
      levels_.pop_back();
      levels_.back().sum -= 1;
      add(size);
    } else if (c == '+') {
      repeat(2);  // as one and any number
    } else if (c == '{') {
      interval();
    } else if (c == '*' || c == '?') {
      repeat(1);
    } else {
      add(1);
    }
    return levels_.back().repetitions > Pattern::kMostRepeated ? "a repetition of repetitions of a repetition"
                                                               : nullptr;
  }
  // {m}, {m,} or {m,n}: the last of m copies is repeated, too.
  void interval() {
    std::size_t most = 0;
    while (at_ < text_.size() && text_[at_] != '}') {
      std::size_t number = 0;
      const std::size_t begin = at_;
      for (; at_ < text_.size() && is_digit(text_[at_]); ++at_)
        number = std::min<std::size_t>(10 * number + static_cast<std::size_t>(text_[at_] - '0'), 32767);  // RE_DUP_MAX
      most = std::max(most, number);
      if (at_ == begin) ++at_;
    }
    ++at_;
    repeat(most + 1);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<Level> levels_{1};
};

}  // namespace

Pattern::Pattern(const std::string& text) : error_(PatternSize(text).problem()) {
  if (!error_.empty()) return;
  const int status = ::regcomp(&compiled_, text.c_str(), REG_EXTENDED | REG_NOSUB);
  if (status == 0) return;
  char reason[128];
  ::regerror(status, &compiled_, reason, sizeof reason);
  error_ = reason;
}

Pattern::~Pattern() {
  if (error_.empty()) ::regfree(&compiled_);
}

bool Pattern::fits(const std::string& name) const {
  if (!error_.empty()) return false;
  for (std::size_t begin = 0;; begin += kPiece - kOverlap) {
    const std::size_t end = std::min(name.size(), begin + kPiece);
    // A name may have zeroes in it.
    regmatch_t piece{.rm_so = static_cast<regoff_t>(begin), .rm_eo = static_cast<regoff_t>(end)};
    const int flags = REG_STARTEND | (end < name.size() ? REG_NOTEOL : 0);
    if (::regexec(&compiled_, name.c_str(), 0, &piece, flags) == 0) return true;
    if (end == name.size()) return false;
  }
}

}  // namespace windlass::exporter
