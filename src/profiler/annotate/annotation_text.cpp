#include <fmt/format.h>

#include <algorithm>

#include "base/shown.h"
#include "profiler/annotate/annotation_output.h"
#include "profiler/annotate/jump_lanes.h"
#include "profiler/export/frames.h"
#include "profiler/export/numbers.h"
#include "profiler/export/shorten_name.h"

namespace windlass::annotate {

using exporter::columns_of;
using exporter::cut_line;
using exporter::grouped;
using exporter::shorten_name;

namespace {

constexpr const char* kBold = "\x1b[1m";
constexpr const char* kDim = "\x1b[2m";
constexpr const char* kRed = "\x1b[31m";
constexpr const char* kYellow = "\x1b[33m";
constexpr const char* kReset = "\x1b[0m";

constexpr std::size_t kMargin = 18;  // "  SELF    TOTAL  "

// Which of `count` lines to show: those with samples, and `near` on each side.
template <typename HasSamples>
std::vector<bool> lines_to_show(std::size_t count, std::size_t near, HasSamples has_samples) {
  std::vector<bool> shown(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (!has_samples(i)) continue;
    const std::size_t end = std::min(count, i + near + 1);
    for (std::size_t j = i > near ? i - near : 0; j < end; ++j) shown[j] = true;
  }
  return shown;
}

class TextForm {
 public:
  TextForm(const profile::Profile& profile, profile::ValueType type, const Annotation& annotation, SourceText& source,
           TextWriter& out, const TextOptions& options)
      : profile_(profile),
        unit_(unit_of(profile, type)),
        annotation_(annotation),
        source_(source),
        out_(out),
        options_(options) {}

  void write() {
    line(coloured(kBold, shorten_name(annotation_.function, options_.width)));
    line(fmt::format("  self {} ({}), total {} ({}) of {}{}", amount(annotation_.weight.self),
                     share(annotation_.weight.self), amount(annotation_.weight.total), share(annotation_.weight.total),
                     amount(annotation_.all), unit_ == "count" ? " samples" : ""));
    for (const SourceFile& file : annotation_.files) write_file(file);
    for (const CodePart& part : annotation_.parts) write_part(part);
    if (annotation_.more_parts != 0)
      note(fmt::format("… {} more functions have its code, inlined or of another module",
                       grouped(annotation_.more_parts)));
    if (annotation_.without_code.total != 0)
      note(fmt::format(
          "{} of all samples without instructions: the file of the code is missing, is another one, or there is none",
          share(annotation_.without_code.total)));
  }

 private:
  void write_file(const SourceFile& file) {
    const bool has_text = source_.has(file.path);
    line("");
    line(
        coloured(kBold, fmt::format("  SELF    TOTAL   LINE  {}",
                                    file.path.empty() ? "(no source line known)" : shorten_name(file.path, room(25)))));
    if (!has_text && !file.path.empty()) note("the file cannot be read here: --source-map FROM=TO says where it is");
    const std::uint32_t first = file.lines.front().line, last = file.lines.back().line;
    if (!has_text || last - first > kMostLines) {
      for (const SourceLine& of : file.lines) write_source_line(file.path, of.line, &of);
      return;
    }
    // With the lines between and around those that have samples.
    const auto before =
        static_cast<std::uint32_t>(std::min<std::size_t>(options_.near / 2, first == 0 ? 0 : first - 1));
    const std::uint32_t begin = first - before;
    const std::size_t count = last - begin + 1 + options_.near / 2;
    const auto at = [&](std::size_t i) -> const SourceLine* {
      const auto found = std::ranges::lower_bound(file.lines, begin + i, {}, &SourceLine::line);
      return found != file.lines.end() && found->line == begin + i ? &*found : nullptr;
    };
    const auto shown = lines_to_show(count, options_.near / 2, [&](std::size_t i) { return at(i) != nullptr; });
    for (std::size_t i = 0; i < count; ++i) {
      if (shown[i])
        write_source_line(file.path, begin + static_cast<std::uint32_t>(i), at(i));
      else if (i != 0 && shown[i - 1])
        note("⋮");
    }
  }

  void write_source_line(const std::string& path, std::uint32_t number, const SourceLine* of) {
    const std::string text = cut_line(source_.line(path, number), room(25));
    const std::string at = number == 0 ? "    ?" : fmt::format("{:5}", number);
    line(fmt::format("{} {}  {}", margin(of != nullptr ? of->weight : Weight{}), coloured(kDim, at), text));
    if (of == nullptr) return;
    for (std::size_t i = 0; i < std::min(of->inlined.size(), kInlined); ++i)
      note(fmt::format("      ↳ {} inlined {}", shorten_name(of->inlined[i].first, room(kMargin + 26)),
                       share(of->inlined[i].second)));
    if (of->inlined.size() > kInlined) note(fmt::format("      ↳ {} more inlined", of->inlined.size() - kInlined));
  }

  void write_part(const CodePart& part) {
    const std::string_view module = exporter::module_name(profile_.modules[part.module]);
    line("");
    line(coloured(kBold,
                  fmt::format("  SELF    TOTAL   {} code in {}: {}", machine_text(part.architecture), shown(module),
                              shorten_name(part.function.empty() ? "(no name)" : part.function,
                                           room(kMargin + 20 + module.size())))));
    if (part.architecture == Architecture::kAArch64 && !has_aarch64_disassembler())
      note("words stand in place of instructions: there is no disassembler for AArch64 here");
    const std::vector<std::string> lanes = jump_lanes(part.lines);
    const auto shown_lines =
        lines_to_show(part.lines.size(), options_.near, [&](std::size_t i) { return part.lines[i].weight.total != 0; });
    const CodeLine* last = nullptr;
    std::size_t hidden = 0;
    for (std::size_t i = 0; i < part.lines.size(); ++i) {
      if (!shown_lines[i]) {
        ++hidden;
        continue;
      }
      if (hidden != 0) write_hidden(hidden);
      hidden = 0;
      write_instruction(part.lines[i], lanes[i], last);
      last = &part.lines[i];
    }
    if (hidden != 0) write_hidden(hidden);
  }

  void write_hidden(std::size_t count) { note(fmt::format("⋮ {} instructions without samples", grouped(count))); }

  // The source line stands beside the first of its instructions.
  void write_instruction(const CodeLine& at, const std::string& lanes, const CodeLine* before) {
    const std::size_t beside = options_.width >= 80 ? options_.width / 2 : options_.width;
    std::string text = fmt::format("{}{:>8} {} {}", margin(at.weight), fmt::format("{:x}", at.instruction.address),
                                   lanes, at.instruction.text);
    const bool goes_on =
        before != nullptr && before->line == at.line && before->file == at.file && before->inlined == at.inlined;
    if (!goes_on && at.line != 0 && beside < options_.width) {
      const std::size_t used = kMargin + 8 + 1 + columns_of(lanes) + 1 + columns_of(at.instruction.text);
      text += used < beside ? std::string(beside - used, ' ') : " ";
      text += coloured(kDim, cut_line(source_of(at), options_.width - std::max(used + 1, beside)));
    }
    line(text);
  }

  // "12  sum += values[i];", or what is inlined there.
  [[nodiscard]] std::string source_of(const CodeLine& at) {
    if (!at.inlined.empty()) return fmt::format("{:5}  ↳ {}", at.line, shown(at.inlined.back()));
    return fmt::format("{:5}  {}", at.line, source_.line(at.file, at.line));
  }

  // ---- pieces ----
  [[nodiscard]] std::string amount(std::uint64_t weight) const { return exporter::amount(weight, unit_); }
  [[nodiscard]] std::string share(std::uint64_t weight) const {
    return annotation_.all == 0 ? "0%" : fmt::format("{:.2f}%", percent(weight));
  }
  [[nodiscard]] double percent(std::uint64_t weight) const {
    return 100 * static_cast<double>(weight) / static_cast<double>(annotation_.all);
  }
  [[nodiscard]] std::string margin(const Weight& weight) const {
    const auto one = [&](std::uint64_t part) {
      if (part == 0) return std::string(7, ' ');
      const double of = percent(part);
      return coloured(of >= 10 ? kRed : of >= 2 ? kYellow : "", fmt::format("{:6.2f}%", of));
    };
    return one(weight.self) + "  " + one(weight.total) + "  ";
  }
  [[nodiscard]] std::string coloured(const char* colour, const std::string& text) const {
    return options_.colour && *colour != '\0' ? colour + text + kReset : text;
  }
  [[nodiscard]] std::size_t room(std::size_t used) const {
    return options_.width > used + 10 ? options_.width - used : 10;
  }
  void line(const std::string& text) { out_.text(text + "\n"); }
  void note(const std::string& text) { line(coloured(kDim, std::string(kMargin, ' ') + text)); }

  static constexpr std::uint32_t kMostLines = 100'000;
  static constexpr std::size_t kInlined = 4;

  const profile::Profile& profile_;
  const std::string& unit_;
  const Annotation& annotation_;
  SourceText& source_;
  TextWriter& out_;
  const TextOptions& options_;
};

}  // namespace

Expected<void> write_annotation(const profile::Profile& profile, profile::ValueType type, const Annotation& annotation,
                                SourceText& source, TextWriter& out, const TextOptions& options) {
  TextForm(profile, type, annotation, source, out, options).write();
  return out.finish();
}

}  // namespace windlass::annotate
