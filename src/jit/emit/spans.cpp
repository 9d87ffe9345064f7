// Which stretches of code are described as having a frame. Source: V8's description of its builtins on Windows
// (unwinding-info-win64.cc and platform-embedded-file-writer-win.cc of V8).
#include <algorithm>
#include <cstring>
#include <optional>

#include "flow/stack_effect.h"
#include "windlass/format/winarm64.h"
#include "windlass/format/winx64.h"
#include "windlass/jit/describe.h"
#include "windlass/jit/emit.h"

namespace windlass::emit {
namespace {

constexpr RegisterNumber kRbp = 6, kX29 = 29, kX30 = 30;

// The instructions that set up a frame, where they stand in a function.
struct Frame {
  std::uint32_t at = 0;
  std::vector<prologue::Op> ops = {};

  [[nodiscard]] std::uint32_t length() const { return ops.back().end; }
};

Frame plain_frame(Architecture architecture) {
  if (architecture == Architecture::kAArch64)
    return {.ops = {{4, prologue::Save{kX29, 0, 16, kX30}}, {8, prologue::SetFramePointer{kX29}}}};
  return {.ops = {{1, prologue::push(kRbp)}, {4, prologue::SetFramePointer{kRbp}}}};
}

// push rbp; mov rbp, rsp, in either encoding.
std::optional<Frame> frame_at_x86_64(std::span<const std::byte> code, std::size_t at) {
  constexpr unsigned char kForms[2][4] = {{0x55, 0x48, 0x89, 0xe5}, {0x55, 0x48, 0x8b, 0xec}};
  if (code.size() - at < sizeof kForms[0]) return std::nullopt;
  for (const auto& form : kForms) {
    if (std::memcmp(code.data() + at, form, sizeof form) != 0) continue;
    Frame frame = plain_frame(Architecture::kX86_64);
    frame.at = static_cast<std::uint32_t>(at);
    return frame;
  }
  return std::nullopt;
}

// stp x29, x30, [sp, #-n]!; add x29, sp, #m (C6.2 of the Arm Architecture Reference Manual: STP, ADD (immediate)).
std::optional<Frame> frame_at_aarch64(std::span<const std::byte> code, std::size_t at) {
  std::uint32_t words[2];
  if (code.size() - at < sizeof words) return std::nullopt;
  std::memcpy(words, code.data() + at, sizeof words);
  if ((words[0] & 0xffc0'7fff) != 0xa980'7bfd || (words[1] & 0xffc0'03ff) != 0x9100'03fd) return std::nullopt;
  const std::uint32_t size = (0x80 - (words[0] >> 15 & 0x7f)) % 0x80 * 8;
  if (size == 0 || size > 512) return std::nullopt;
  return Frame{
      .at = static_cast<std::uint32_t>(at),
      .ops = {{4, prologue::Save{kX29, 0, size, kX30}}, {8, prologue::SetFramePointer{kX29, words[1] >> 10 & 0xfff}}}};
}

std::vector<Frame> frames_in(std::span<const std::byte> code, Architecture architecture) {
  std::vector<Frame> frames;
  const bool arm = architecture == Architecture::kAArch64;
  for (std::size_t at = 0; at < code.size(); at += arm ? 4 : 1) {
    auto frame = arm ? frame_at_aarch64(code, at) : frame_at_x86_64(code, at);
    if (frame) frames.push_back(std::move(*frame));
  }
  return frames;
}

// Neither moves rsp nor calls, as far as the code can be read.
bool is_leaf(const Function& function) {
  using Kind = flow::StackEffect::Kind;
  flow::StraightCode line(ByteView(function.code.data(), function.code.size()), function.address, function.code.size());
  while (const auto effect = line.next())
    if (effect->kind >= Kind::kMove && effect->kind <= Kind::kCall) return false;
  return true;
}

// Version 1 of x64 unwind information, for one, knows epilogues by their instructions.
bool windows_can_say(const Prologue& prologue, std::span<const std::byte> code) {
  return prologue.architecture == Architecture::kAArch64 ? winarm64::write(prologue).has_value()
                                                         : winx64::write(prologue, {}, code).has_value();
}

class Spans {
 public:
  Spans(std::span<const Function> functions, const Options& options) : functions_(functions), options_(options) {}

  Expected<std::vector<Span>> run() {
    if (const auto ok = check(); !ok) return Failure(ok.error());
    if (options_.mode == Mode::kWhole && !functions_.empty()) {
      behind_prologue(0, static_cast<std::int64_t>(end_of(functions_.back()) - functions_.front().address));
      return std::move(spans_);
    }
    for (function_ = 0; function_ < functions_.size() && !without_room_; ++function_)
      options_.mode == Mode::kExact ? add_exact() : add_function();
    if (without_room_) return Failure(*without_room_);
    return std::move(spans_);
  }

 private:
  static std::uint64_t end_of(const Function& function) { return function.address + function.code.size(); }

  [[nodiscard]] Expected<void> check() const {
    if (options_.architecture != Architecture::kX86_64 && options_.architecture != Architecture::kAArch64)
      return fail(ErrorCode::kUnsupported, "no frames are written for this architecture", 0);
    const Function* before = nullptr;
    for (const Function& function : functions_) {
      if (function.code.empty()) return fail(ErrorCode::kMalformed, "a function without code", function.address);
      if (before != nullptr && function.address < end_of(*before))
        return fail(ErrorCode::kMalformed, "a function begins before the end of the one before it", function.address);
      const Function& first = options_.mode == Mode::kWhole ? functions_.front() : function;
      if (end_of(function) - first.address >= std::uint64_t{1} << 31)
        return fail(ErrorCode::kLimit, "2 GiB and more are too much for one description", function.address);
      before = &function;
    }
    return {};
  }

  void add(std::int64_t begin, std::int64_t end, std::vector<prologue::Op> ops) {
    Span span;
    span.function = function_;
    span.offset = begin;
    span.prologue.architecture = options_.architecture;
    span.prologue.code_size = static_cast<std::uint32_t>(end - begin);
    span.prologue.ops = std::move(ops);
    spans_.push_back(std::move(span));
  }

  // From `begin` on to `end` the frame stands without a prologue: set up in no time, or in front. Of AArch64's, whose
  // codes count instructions, the first two are claimed.
  void behind_prologue(std::int64_t begin, std::int64_t end) {
    Frame frame = plain_frame(options_.architecture);
    if (options_.as_v8) {
      begin -= static_cast<std::int64_t>(room_in_front(frame.length()));
      if (const std::int64_t missing = frame.length() - (end - begin); missing > 0) {
        const char* what = "so short a function needs padding in front of it, as many bytes";
        without_room_ = {ErrorCode::kUnsupported, what, functions_[function_].address,
                         static_cast<std::uint64_t>(missing)};
        return;
      }
    } else if (options_.architecture == Architecture::kX86_64)
      for (prologue::Op& op : frame.ops) op.end = 0;
    else if (end - begin < frame.length())
      return;
    add(begin, end, std::move(frame.ops));
  }
  [[nodiscard]] std::uint64_t room_in_front(std::uint64_t wanted) const {
    if (function_ == 0) return wanted;
    return std::min(wanted, functions_[function_].address - end_of(functions_[function_ - 1]));
  }

  // Where nothing is proved, the frames that are seen.
  void add_exact() {
    const Function& function = functions_[function_];
    const DescribeOptions known{.keeps_frame_pointer_only = function.keeps_frame_pointer_only, .read = options_.read};
    const auto found = describe(function.code, function.address, options_.architecture, known);
    if (!found || found->rows.empty()) return add_function();
    const std::size_t before = spans_.size();
    for (std::size_t at = 0; at < found->rows.size();) at = add_rows(found->rows, at);
    if (found->prologue && windows_can_say(*found->prologue, function.code)) {
      add(0, static_cast<std::int64_t>(function.code.size()), {});
      spans_.back().prologue = *found->prologue;
      spans_.back().only = Span::kWindows;
    } else {
      const std::size_t own = spans_.size();
      add_function();
      for (std::size_t i = own; i < spans_.size(); ++i) spans_[i].only = Span::kWindows;
    }
    for (std::size_t i = before; i < spans_.size(); ++i)
      if (spans_[i].only == Span::kBoth) spans_[i].only = Span::kElf;
  }
  // A span of the rows that adjoin the one at `at`; the index of the next one.
  std::size_t add_rows(const std::vector<FrameRow>& rows, std::size_t at) {
    const std::uint64_t begin = rows[at].begin;
    std::vector<FrameRow> run;
    std::uint64_t end = begin;
    for (; at < rows.size() && rows[at].begin == end; ++at) {
      end = rows[at].end;
      run.push_back(rows[at]);
      run.back().begin -= begin;
      run.back().end -= begin;
    }
    add(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end), {});
    spans_.back().rows = std::move(run);
    return at;
  }

  void add_function() {
    const Function& function = functions_[function_];
    const auto size = static_cast<std::int64_t>(function.code.size());
    std::vector<Frame> frames = frames_in(function.code, options_.architecture);
    const bool arm = options_.architecture == Architecture::kAArch64;
    if (options_.mode == Mode::kFunctions) {
      if (!frames.empty() && frames.front().at == 0)
        add(0, size, std::move(frames.front().ops));
      else
        behind_prologue(0, size);
      return;
    }
    if (frames.empty() && (arm || (!options_.as_v8 && is_leaf(function)))) return;
    const std::int64_t first = frames.empty() ? size : frames.front().at;
    if (first > 0 && !arm) behind_prologue(0, first);
    for (std::size_t i = 0; i < frames.size(); ++i)
      add(frames[i].at, i + 1 < frames.size() ? frames[i + 1].at : size, std::move(frames[i].ops));
  }

  const std::span<const Function> functions_;
  const Options& options_;
  std::size_t function_ = 0;
  std::vector<Span> spans_;
  std::optional<Error> without_room_;  // --as-v8
};

}  // namespace

Expected<std::vector<Span>> spans_of(std::span<const Function> functions, const Options& options) {
  return Spans(functions, options).run();
}

}  // namespace windlass::emit
