#include "cli/serve_api.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <ctime>
#include <map>
#include <new>
#include <utility>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/json_writer.h"
#include "base/shown.h"
#include "base/text_writer.h"
#include "cli/http_server.h"
#include "cli/symbol_places.h"
#include "profiler/export/diff.h"
#include "profiler/export/html.h"
#include "profiler/export/report.h"
#include "profiler/export/values.h"
#include "profiler/store/open_store.h"
#include "profiler/store/read_profile.h"

namespace windlass::cli {
namespace {

constexpr std::string_view kJson = "application/json", kLines = "application/x-ndjson", kText = "text/plain";
constexpr std::uint64_t kMsNs = 1'000'000, kMostMs = 10'000'000'000'000;  // the year 2286
constexpr std::uint64_t kMostBars = 5000;
constexpr std::uint64_t kStacks = 50'000, kMostStacks = 10'000'000;  // of a profile
constexpr std::uint64_t kLongMs = 3'600'000;                         // from here on a profile may have no threads

// In ms of Unix time; `to` is behind the range.
struct Span {
  std::uint64_t from = 0, to = 0;
};
// Samples of a range; with `value`, those that have the label.
struct Choice {
  std::string label;
  std::optional<std::string> value;
  Span span;
};
struct Asked {
  Choice choice;
  std::optional<Choice> before;  // what is compared with it
  std::string event;
  std::uint64_t step = 0;
  std::uint64_t stacks = kStacks;  // more are left out

  [[nodiscard]] store::Filter filter(const Choice& of) const {
    store::Filter filter{.event = event, .labels = {}};
    if (of.value) filter.labels.push_back({of.label, *of.value});
    filter.process_is_enough = of.span.to - std::min(of.span.from, of.span.to) >= kLongMs;
    return filter;
  }
};

// Empty: `asked` has been read.
std::string read_parameters(std::string_view query, Asked& asked) {
  std::string problem;
  std::optional<std::string> before_label;
  Choice before;
  const std::map<std::string_view, std::uint64_t*> numbers = {
      {"from", &asked.choice.span.from}, {"to", &asked.choice.span.to},      {"step", &asked.step},
      {"stacks", &asked.stacks},         {"before_from", &before.span.from}, {"before_to", &before.span.to}};
  each_parameter(query, [&](std::string_view name, std::string_view text) {
    const auto value = form_decoded(text);
    const auto number = numbers.find(name);
    if (!value) {
      problem = fmt::format("{}: a % without two hexadecimal digits", shown(name));
    } else if (number != numbers.end()) {
      const auto read = std::from_chars(value->data(), value->data() + value->size(), *number->second);
      if (read.ec != std::errc() || read.ptr != value->data() + value->size() || *number->second > kMostMs)
        problem = name == "stacks" ? fmt::format("{}: {} is no number of stacks", name, shown(*value))
                                   : fmt::format("{}: {} is no time in milliseconds", name, shown(*value));
    } else if (name == "label") {
      asked.choice.label = *value;
    } else if (name == "value") {
      asked.choice.value = *value;
    } else if (name == "before_label") {
      before_label = *value;
    } else if (name == "before_value") {
      before.value = *value;
    } else if (name == "event") {
      asked.event = *value;
    } else {
      problem = fmt::format("there is no parameter {}", shown(name));
    }
  });
  if (before.span.to == 0) {
    if (problem.empty() && (before_label || before.value))
      problem = "before_label=KEY and before_value=VALUE need before_from=MS&before_to=MS";
    return problem;
  }
  // Without a label of its own, the same samples at another time.
  if (!before_label && before.value) before_label = asked.choice.label;
  asked.before = before_label ? Choice{*before_label, before.value, before.span}
                              : Choice{asked.choice.label, asked.choice.value, before.span};
  return problem;
}

std::string problem_of(const Asked& asked, std::string_view kind) {
  if (kind == "labels") return {};
  const Choice& choice = asked.choice;
  if (choice.span.from >= choice.span.to) return "from=MS&to=MS: a range ends behind its beginning";
  if (asked.before && asked.before->span.from >= asked.before->span.to)
    return "before_from=MS&before_to=MS: a range ends behind its beginning";
  if (kind == "diff" && !asked.before) return "before_from=MS&before_to=MS: the range to compare with is missing";
  if (kind == "values" && choice.label.empty()) return "label=KEY is missing";
  if (choice.value && choice.label.empty()) return "value=VALUE needs label=KEY";
  if (asked.before && asked.before->value && asked.before->label.empty())
    return "before_value=VALUE needs before_label=KEY";
  if (asked.stacks == 0 || asked.stacks > kMostStacks) return fmt::format("stacks=N: of 1 to {} stacks", kMostStacks);
  if (kind == "series" && (asked.step == 0 || (choice.span.to - choice.span.from) / asked.step >= kMostBars))
    return fmt::format("step=MS: of 1 to {} steps", kMostBars);
  return {};
}

// One answer, from one store that is open.
class Answering {
 public:
  Answering(const ServedStore& served, const OpenedStores& opened, const Asked& asked, std::string& text)
      : served_(served),
        opened_(opened),
        store_(*opened.store),
        asked_(asked),
        choice_(asked.choice),
        out_(&text),
        json_(out_) {}

  Expected<void> labels() {
    const auto extent = store_.extent();
    if (!extent) return Failure(extent.error());
    const store::Extent times = extent->value_or(store::Extent{});
    const auto labels = store_.labels();
    if (!labels) return Failure(labels.error());
    begin();
    json_.member("store", shown(served_.name));
    json_.member("begin", times.begin_ns / kMsNs);
    json_.member("end", (times.end_ns + kMsNs - 1) / kMsNs);
    json_.member("interval", times.interval_ns / kMsNs);
    json_.key("labels");
    json_.begin_array();
    for (const std::string& label : *labels) json_.value(label);
    json_.end_array();
    json_.key("left_out");
    json_.begin_array();
    for (const std::string& text : opened_.left_out) json_.value(text);
    json_.end_array();
    return end();
  }

  Expected<void> values() {
    auto totals =
        store_.totals(choice_.label, {.event = asked_.event, .labels = {}}, ns(choice_.span.from), ns(choice_.span.to));
    if (!totals) return Failure(totals.error());
    std::map<std::string, store::Sums> sums;  // of events that differ in their periods
    for (const store::Total& total : *totals)
      if (!add(sums[total.value], total.sums)) return too_large();
    std::vector<std::pair<std::string, store::Sums>> list(sums.begin(), sums.end());
    std::ranges::stable_sort(list, std::greater(), [](const auto& one) { return one.second.value; });
    begin();
    json_.key("values");
    json_.begin_array();
    for (const auto& [value, sum] : list) {
      json_.begin_object();
      json_.member("value", value);
      json_.member("count", sum.count);
      json_.member("amount", sum.value);
      json_.end_object();
    }
    json_.end_array();
    return end();
  }

  Expected<void> series() {
    const auto series =
        store_.series(asked_.filter(choice_), ns(choice_.span.from), ns(choice_.span.to), asked_.step * kMsNs);
    if (!series) return Failure(series.error());
    std::vector<store::Series> list;  // of events that differ in more than their periods
    for (const store::Series& one : *series) {
      const auto known = std::ranges::find_if(list, [&](const store::Series& other) {
        return other.event.name == one.event.name && other.event.unit == one.event.unit;
      });
      if (known == list.end()) {
        list.push_back(one);
        continue;
      }
      for (std::size_t i = 0; i < one.steps.size(); ++i)
        if (!add(known->steps[i], one.steps[i])) return too_large();
    }
    begin();
    json_.key("series");
    json_.begin_array();
    for (const store::Series& one : list) write(one);
    json_.end_array();
    return end();
  }

  Expected<void> profile() {
    const auto profile = read(choice_);
    if (!profile) return Failure(profile.error());
    return exporter::write_json(*profile, out_);
  }
  Expected<void> page() {
    if (asked_.before) return difference(exporter::write_diff_page_data);
    // The process ends with its answer. To take 100,000 texts apart before would only take time.
    const auto& profile = *new Expected<profile::Profile>(read(choice_));
    if (!profile) return Failure(profile.error());
    exporter::HtmlOptions options;
    if (served_.is_own && !choice_.value)
      options.file = fmt::format("{}@{}", store::shown_place(served_.paths.front()), text_of(choice_.span));
    const auto written = exporter::write_page_data(*profile, out_, options);
    return written ? out_.finish() : written;
  }
  Expected<void> diff() {
    return difference([](const auto& difference, const auto& a, const auto& b, TextWriter& out, const auto&) {
      return exporter::write_diff_json(difference, a, b, out);
    });
  }

 private:
  static std::uint64_t ns(std::uint64_t ms) { return ms * kMsNs; }
  static bool add(store::Sums& to, const store::Sums& more) {
    return !__builtin_add_overflow(to.count, more.count, &to.count) &&
           !__builtin_add_overflow(to.value, more.value, &to.value);
  }
  static Failure too_large() { return fail(ErrorCode::kLimit, "sums of samples do not fit into 64 bits", 0); }
  // As FILE@RANGE takes it: whole seconds.
  static std::string text_of(const Span& span) {
    const auto moment = [](std::uint64_t ms) {
      return fmt::format("{:%Y-%m-%dT%H:%M:%S}Z", fmt::gmtime(static_cast<std::time_t>(ms / 1000)));
    };
    return moment(span.from) + ".." + moment(span.to);
  }

  void begin() {
    json_.begin_object();
    json_.member("schema", 1);
  }
  Expected<void> end() {
    json_.end_object();
    json_.end_text();
    return out_.finish();
  }
  void write(const store::Series& series) {
    json_.begin_object();
    json_.member("event", series.event.name);
    json_.member("unit", series.event.unit);
    json_.member("counted", series.event.counted);
    json_.member("step", asked_.step);
    json_.key("sums");  // [count, amount] of each step
    json_.begin_array();
    for (const store::Sums& sums : series.steps) {
      json_.begin_array();
      json_.value(sums.count);
      json_.value(sums.value);
      json_.end_array();
    }
    json_.end_array();
    json_.end_object();
  }

  Expected<profile::Profile> read(const Choice& choice) {
    auto profile =
        store::read_profile(store_, asked_.filter(choice), ns(choice.span.from), ns(choice.span.to), asked_.stacks);
    if (profile) name_late(*profile, &store_);
    return profile;
  }
  // "process nginx 2026-11-27T14:05:00Z..2026-11-27T14:10:00Z"
  static std::string text_of(const Choice& choice) {
    const std::string of = choice.value ? choice.label + " " + shown(*choice.value) + " " : std::string();
    return of + text_of(choice.span);
  }
  // The sides of a difference are named by what tells them apart.
  exporter::DiffOptions sides() const {
    const Choice& before = *asked_.before;
    const bool differ = before.label != choice_.label || before.value != choice_.value;
    return {.name_a = differ ? text_of(before) : text_of(before.span),
            .name_b = differ ? text_of(choice_) : text_of(choice_.span)};
  }
  template <typename WriteDifference>
  Expected<void> difference(WriteDifference write_it) {
    const auto before = read(*asked_.before), after = read(choice_);
    for (const auto* one : {&before, &after})
      if (!*one) return Failure(one->error());
    const profile::ValueType value = profile::shown_by_default(*after);
    const auto same = exporter::values_named(*before, profile::name_of(*after, value));
    if (same.size() != 1)
      return fail(ErrorCode::kMalformed, "the ranges have no value in common. Way out: another one", 0);
    const auto difference =
        exporter::difference_of(*before, same[0].type, *after, value, exporter::Normalise::kSamples);
    if (!difference) return Failure(difference.error());
    const auto written = write_it(*difference, *before, *after, out_, sides());
    return written ? out_.finish() : written;
  }

  const ServedStore& served_;
  const OpenedStores& opened_;
  store::ProfileStore& store_;
  const Asked& asked_;
  const Choice& choice_;
  TextWriter out_;
  JsonWriter json_;
};

struct Kind {
  std::string_view name, type;
  Expected<void> (Answering::*answer)();
};
constexpr Kind kKinds[] = {{"labels", kJson, &Answering::labels}, {"values", kJson, &Answering::values},
                           {"series", kJson, &Answering::series}, {"profile", kLines, &Answering::profile},
                           {"diff", kLines, &Answering::diff},    {"page", kText, &Answering::page}};

// In a process of its own: a query of a long time must not take the memory of the machine.
void bound_memory() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose own memory counts, too
  constexpr rlim_t kMostMemory = rlim_t{4} << 30;
  const rlimit bound{kMostMemory, kMostMemory};
  (void)setrlimit(RLIMIT_DATA, &bound);
#endif
}

WorkedOut answer(const ServedStore& served, const Kind& kind, const Asked& asked) {
  bound_memory();
  WorkedOut out;
  try {
    const auto opened = open_served(served);
    const auto written =
        opened ? (Answering(served, *opened, asked, out.text).*kind.answer)() : Failure(opened.error());
    out.good = written.has_value();
    if (!out.good) out.text = written.error().text();
  } catch (const std::bad_alloc&) {
    return {.text = "This takes more than 4 GiB of memory. Way out: a shorter range of time, or one value of a label"};
  }
  return out;
}

}  // namespace

ApiQuestion api_question(const ServedStore& store, std::string_view kind, std::string_view query) {
  const auto known = std::ranges::find(kKinds, kind, &Kind::name);
  if (known == std::end(kKinds))
    return {.status = "404 Not Found", .problem = "there are api/labels, values, series, profile, diff and page"};
  Asked asked;
  std::string problem = read_parameters(query, asked);
  if (problem.empty()) problem = problem_of(asked, kind);
  if (!problem.empty()) return {.status = "400 Bad Request", .problem = std::move(problem)};
  return {.work =
              ApiWork{[store, known, asked = std::move(asked)] { return answer(store, *known, asked); }, known->type}};
}

std::string api_error(std::string_view text) {
  std::string error;
  TextWriter out(&error);
  JsonWriter json(out);
  json.begin_object();
  json.member("error", text);
  json.end_object();
  json.end_text();
  out.flush();
  return error;
}

}  // namespace windlass::cli
