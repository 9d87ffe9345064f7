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

// In ms of Unix time; `to` is behind the range.
struct Span {
  std::uint64_t from = 0, to = 0;
};
struct Asked {
  std::string label, event;
  std::optional<std::string> value;
  std::optional<Span> before;
  Span span;
  std::uint64_t step = 0;

  [[nodiscard]] store::Filter filter() const {
    store::Filter filter{.event = event, .labels = {}};
    if (value) filter.labels.push_back({label, *value});
    return filter;
  }
};

// Empty: `asked` has been read.
std::string read_parameters(std::string_view query, Asked& asked) {
  std::string problem;
  Span before;
  const std::map<std::string_view, std::uint64_t*> numbers = {{"from", &asked.span.from},
                                                              {"to", &asked.span.to},
                                                              {"step", &asked.step},
                                                              {"before_from", &before.from},
                                                              {"before_to", &before.to}};
  each_parameter(query, [&](std::string_view name, std::string_view text) {
    const auto value = form_decoded(text);
    const auto number = numbers.find(name);
    if (!value) {
      problem = fmt::format("{}: a % without two hexadecimal digits", shown(name));
    } else if (number != numbers.end()) {
      const auto read = std::from_chars(value->data(), value->data() + value->size(), *number->second);
      if (read.ec != std::errc() || read.ptr != value->data() + value->size() || *number->second > kMostMs)
        problem = fmt::format("{}: {} is no time in milliseconds", name, shown(*value));
    } else if (name == "label") {
      asked.label = *value;
    } else if (name == "value") {
      asked.value = *value;
    } else if (name == "event") {
      asked.event = *value;
    } else {
      problem = fmt::format("there is no parameter {}", shown(name));
    }
  });
  if (before.to != 0) asked.before = before;
  return problem;
}

std::string problem_of(const Asked& asked, std::string_view kind) {
  if (kind == "labels") return {};
  if (asked.span.from >= asked.span.to) return "from=MS&to=MS: a range ends behind its beginning";
  if (asked.before && asked.before->from >= asked.before->to)
    return "before_from=MS&before_to=MS: a range ends behind its beginning";
  if (kind == "diff" && !asked.before) return "before_from=MS&before_to=MS: the range to compare with is missing";
  if (kind == "values" && asked.label.empty()) return "label=KEY is missing";
  if (asked.value && asked.label.empty()) return "value=VALUE needs label=KEY";
  if (kind == "series" && (asked.step == 0 || (asked.span.to - asked.span.from) / asked.step >= kMostBars))
    return fmt::format("step=MS: of 1 to {} steps", kMostBars);
  return {};
}

// One answer, from one store that is open.
class Answering {
 public:
  Answering(const ServedStore& served, store::ProfileStore& store, const Asked& asked, std::string& text)
      : served_(served), store_(store), asked_(asked), out_(&text), json_(out_) {}

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
    json_.key("labels");
    json_.begin_array();
    for (const std::string& label : *labels) json_.value(label);
    json_.end_array();
    return end();
  }

  Expected<void> values() {
    auto totals =
        store_.totals(asked_.label, {.event = asked_.event, .labels = {}}, ns(asked_.span.from), ns(asked_.span.to));
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
    const auto series = store_.series(asked_.filter(), ns(asked_.span.from), ns(asked_.span.to), asked_.step * kMsNs);
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
    const auto read = read_span(asked_.span);
    if (!read) return Failure(read.error());
    return exporter::write_json(*read, out_);
  }
  Expected<void> page() {
    if (asked_.before) return difference(exporter::write_diff_page_data);
    const auto read = read_span(asked_.span);
    if (!read) return Failure(read.error());
    exporter::HtmlOptions options;
    if (served_.is_own && !asked_.value)
      options.file = fmt::format("{}@{}", store::shown_place(served_.path), text_of(asked_.span));
    const auto written = exporter::write_page_data(*read, out_, options);
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

  Expected<profile::Profile> read_span(const Span& span) {
    return store::read_profile(store_, asked_.filter(), ns(span.from), ns(span.to));
  }
  template <typename WriteDifference>
  Expected<void> difference(WriteDifference write_it) {
    const auto before = read_span(*asked_.before), after = read_span(asked_.span);
    for (const auto* one : {&before, &after})
      if (!*one) return Failure(one->error());
    const profile::ValueType value = profile::shown_by_default(*after);
    const auto same = exporter::values_named(*before, profile::name_of(*after, value));
    if (same.size() != 1)
      return fail(ErrorCode::kMalformed, "the ranges have no value in common. Way out: another one", 0);
    const auto difference =
        exporter::difference_of(*before, same[0].type, *after, value, exporter::Normalise::kSamples);
    if (!difference) return Failure(difference.error());
    const auto written =
        write_it(*difference, *before, *after, out_,
                 exporter::DiffOptions{.name_a = text_of(*asked_.before), .name_b = text_of(asked_.span)});
    return written ? out_.finish() : written;
  }

  const ServedStore& served_;
  store::ProfileStore& store_;
  const Asked& asked_;
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
    const auto store = store::open_store(served.path);
    const auto written = store ? (Answering(served, **store, asked, out.text).*kind.answer)() : Failure(store.error());
    out.good = written.has_value();
    if (!out.good) out.text = written.error().text();
  } catch (const std::bad_alloc&) {
    return {.text = "This takes more than 4 GiB of memory. Way out: a shorter range of time"};
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
