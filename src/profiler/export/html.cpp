#include "profiler/export/html.h"

#include <algorithm>
#include <future>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "base/shown.h"
#include "profiler/export/diff.h"
#include "profiler/export/frames.h"
#include "profiler/export/gzip.h"
#include "profiler/export/numbers.h"
#include "profiler/export/page_assets.h"
#include "profiler/export/page_diff.h"
#include "profiler/export/page_table.h"
#include "profiler/export/page_times.h"
#include "profiler/export/processes.h"
#include "profiler/export/shorten_name.h"
#include "profiler/export/values.h"

namespace windlass::exporter {

namespace {

using profile::ValueType;

// Everything that the numbers of the table stand for, as the page's script reads it (page_table.js).
class PageNames {
 public:
  PageNames(const profile::Profile& profile, const Frames& frames, const PageTable& table, const PageTimes& times,
            const std::vector<Process>& processes, const std::vector<std::uint32_t>& modules, JsonWriter& json)
      : profile_(profile),
        frames_(frames),
        table_(table),
        times_(times),
        processes_(processes),
        modules_(modules),
        json_(json) {}

  // `more`: writes further members.
  template <typename More>
  void write(ValueType first, More more) {
    json_.begin_object();
    more(frames_, table_, json_);
    json_.member("grouped", !profile_.roots.empty());
    json_.member("ends_known", profile_.ends_known);
    json_.member("lost", profile_.lost);
    json_.member("seconds", static_cast<double>(profile_.duration_ns) / 1e9, 3);
    json_.member("start_unix_ms", profile_.start_unix_ns / 1'000'000);
    write_texts("comments", profile_.comments);
    write_values(first);
    write_ends();
    write_labels();
    json_.key("processes");
    json_.begin_array();
    for (const Process& process : processes_) json_.value(shown(process.name));
    json_.end_array();
    write_threads();
    write_modules();
    write_frames();
    json_.end_object();
  }

 private:
  template <typename Texts>
  void write_texts(std::string_view name, const Texts& texts) {
    json_.key(name);
    json_.begin_array();
    for (const auto& text : texts) json_.value(shown(text));
    json_.end_array();
  }

  // The first value; then one of each event, all time, and counts of events that have values of their own.
  [[nodiscard]] std::vector<NamedValue> values(ValueType first) const {
    std::vector<NamedValue> all = named_values(profile_);
    const auto is = [](ValueType a, ValueType b) { return a.event == b.event && a.counts == b.counts; };
    const auto rank = [&](const NamedValue& one) {
      if (is(one.type, first)) return 0;
      if (is_wall_time(one.type)) return 2;
      return is(one.type, shown_of(profile_, one.type.event)) ? 1 : 3;
    };
    // A value that is the count times a period has the same shares.
    std::erase_if(all, [&](const NamedValue& one) {
      return rank(one) == 3 && !one.type.counts && profile_.events[one.type.event].period != 0;
    });
    std::ranges::stable_sort(all, {}, rank);
    return all;
  }
  void write_values(ValueType first) {
    json_.key("values");
    json_.begin_array();
    for (const auto& [name, type] : values(first)) {
      const profile::Event& event = event_of(profile_, type);
      json_.begin_object();
      json_.member("name", shown(name));
      json_.member("event", shown(event.name));
      json_.member("value", shown(name_of(profile_, type)));
      json_.member("counted", shown(event.counted));
      json_.member("unit", shown(unit_of(profile_, type)));
      json_.member("hz", type.counts ? frequency_of(event) : 0, 6);
      json_.key("factors");  // of each event: [of the count, of the value]
      json_.begin_array();
      for (std::uint32_t i = 0; i < profile_.events.size(); ++i) {
        const auto weight = [&](std::uint64_t count, std::uint64_t value) {
          return weight_of(profile_, {.count = count, .value = value, .event = i}, type);
        };
        json_.begin_array();
        json_.value(weight(1, 0));
        json_.value(weight(0, 1));
        json_.end_array();
      }
      json_.end_array();
      json_.end_object();
    }
    json_.end_array();
  }

  void write_ends() {
    json_.key("ends");  // [text, are callers missing, by frame pointers alone]
    json_.begin_array();
    for (std::uint8_t end = 0; end < WL_END_COUNT; ++end) {
      json_.begin_array();
      json_.value(profile::end_text(end));
      json_.value(profile::is_truncated(end));
      json_.value(profile::is_chained(end));
      json_.end_array();
    }
    json_.end_array();
    json_.key("certainties");
    json_.begin_array();
    for (std::uint8_t certainty = 0; certainty < WL_CERTAINTY_COUNT; ++certainty)
      json_.value(profile::certainty_text(certainty));
    json_.end_array();
  }

  void write_labels() {
    json_.key("labels");  // of each set: [key, value]...
    json_.begin_array();
    for (const auto& set : profile_.label_sets) {
      json_.begin_array();
      for (const profile::Label& label : set) {
        json_.begin_array();
        json_.value(shown(profile_.strings[label.key]));
        json_.value(shown(profile_.strings[label.value]));
        json_.end_array();
      }
      json_.end_array();
    }
    json_.end_array();
  }

  void write_threads() {
    json_.key("per_time");  // of each event: how much of a count a time stands for, and the ns that this lasts
    json_.begin_array();
    for (const profile::Event& event : profile_.events) {
      json_.begin_array();
      json_.value(event.per_time);
      json_.value(event.unit == "nanoseconds" ? event.per_time * event.period : 0);
      json_.end_array();
    }
    json_.end_array();
    json_.key("threads");  // [process, id, name], of profiles with times
    json_.begin_array();
    for (const PageThread& thread : times_.threads) {
      json_.begin_array();
      json_.value(thread.process);
      json_.value(thread.tid);
      json_.value(thread.name == profile::kNone ? std::string() : shown(profile_.strings[thread.name]));
      json_.end_array();
    }
    json_.end_array();
  }

  void write_modules() {
    std::uint32_t next = 0;
    json_.key("modules");
    json_.begin_array();
    for (std::uint32_t i = 0; i < modules_.size(); ++i) {
      if (modules_[i] != next) continue;
      ++next;
      const profile::Module& module = profile_.modules[i];
      json_.begin_object();
      json_.member("name", shown(module_name(module)));
      json_.member("path", shown(module.path));
      json_.member("kernel", module.is_kernel);
      json_.end_object();
    }
    json_.end_array();
  }

  void write_frames() {
    std::vector<bool> interpreted(frames_.size());
    for (std::uint32_t i = 0; i < profile_.locations.size(); ++i)
      if (profile_.locations[i].interpreted) interpreted[frames_.of_location(i).front()] = true;
    json_.key("frames");
    json_.begin_array();
    for (const std::uint32_t id : table_.frames) {
      const Frame& frame = frames_[id];
      json_.next_line();
      json_.begin_object();
      const std::string name = shown(frame.name);
      json_.member("name", name);
      // What a search goes by, where that is less than the name.
      if (const std::size_t plain = length_without_parameters(name); plain != name.size())
        json_.member("plain", std::string_view(name).substr(0, plain));
      if (frame.module < profile_.modules.size()) json_.member("module", modules_[frame.module]);
      if (frame.modules().size() > 1) {
        json_.key("modules");
        json_.begin_array();
        for (const std::uint32_t module : frame.modules()) json_.value(modules_[module]);
        json_.end_array();
      }
      json_.member("kind", static_cast<unsigned>(frame.kind));
      if (interpreted[id]) json_.member("interpreted", true);
      if (!frame.file.empty()) {
        json_.member("file", shown(frame.file));
        json_.member("line", frame.line);
      }
      json_.end_object();
    }
    json_.end_array();
  }

  const profile::Profile& profile_;
  const Frames& frames_;
  const PageTable& table_;
  const PageTimes& times_;
  const std::vector<Process>& processes_;
  const std::vector<std::uint32_t>& modules_;  // page_modules()
  JsonWriter& json_;
};

// The names, a 0 byte, and the table. `more`: as of PageNames::write().
template <typename More>
std::string packed_data(const profile::Profile& profile, ValueType first, More more) {
  Frames frames(profile);
  const std::vector<Process> processes = processes_of(profile);
  std::vector<std::uint32_t> pids;
  for (const Process& process : processes) pids.push_back(process.pid);
  const std::vector<std::uint32_t> modules = page_modules(profile);
  const PageTable table = page_table(profile, frames, pids, modules);
  const PageTimes times = page_times(profile, table.entry_of, pids);
  // Both halves take as long.
  std::future<GzipPart> numbers = std::async(std::launch::async | std::launch::deferred,
                                             [&] { return gzip_part(table.bytes + times.bytes, true); });
  std::string names;
  TextWriter text(&names);
  JsonWriter json(text);
  PageNames(profile, frames, table, times, processes, modules, json).write(first, more);
  text.character('\0');
  text.flush();
  const GzipPart parts[] = {gzip_part(names, false), numbers.get()};
  return gzip_of(parts);
}

void write_base64(TextWriter& out, std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto at = [&](std::size_t i) { return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0u; };
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::uint32_t bits = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
    char* to = out.room(4);
    *to++ = kDigits[bits >> 18];
    *to++ = kDigits[bits >> 12 & 63];
    *to++ = i + 1 < bytes.size() ? kDigits[bits >> 6 & 63] : '=';
    *to++ = i + 2 < bytes.size() ? kDigits[bits & 63] : '=';
    out.wrote(to);
  }
}

// The template up to `mark`, which is taken off with it.
std::string_view part_before(std::string_view& page, std::string_view mark) {
  const std::size_t at = page.find(mark);
  const std::string_view part = page.substr(0, at);
  page.remove_prefix(at + mark.size());
  return part;
}

Expected<void> write_data(const std::string& packed, TextWriter& out) {
  if (packed.empty()) return fail(ErrorCode::kSystem, "cannot start compression (out of memory)", 0, ENOMEM);
  write_base64(out, packed);
  return {};
}

Expected<void> write_page(const std::string& packed, bool served, TextWriter& out) {
  const std::string page = page_template();
  std::string_view rest = page;
  out.text(part_before(rest, "@CONNECT@"));
  if (served) out.text("; connect-src 'self'");
  out.text(part_before(rest, "@PROFILE@"));
  if (const auto written = write_data(packed, out); !written) return written;
  out.text(rest);
  return out.finish();
}

std::string packed_profile(const profile::Profile& profile, const HtmlOptions& options) {
  const auto more = [&](const Frames&, const PageTable&, JsonWriter& json) {
    json.member("file", shown(options.file));
    json.member("served", options.served);
    if (!options.live) return;
    json.key("live");
    json.begin_object();
    json.member("version", options.live->version);
    json.member("running", options.live->running);
    json.member("file", options.live->file);
    json.end_object();
  };
  return packed_data(profile, options.first.value_or(shown_by_default(profile)), more);
}

std::string packed_difference(const ProfileDifference& difference, const profile::Profile& a, const profile::Profile& b,
                              const DiffOptions& options) {
  const profile::Profile both = both_sides(difference, a, b);
  const auto more = [&](const Frames& frames, const PageTable& table, JsonWriter& json) {
    write_page_difference(difference, a, b, options, both, frames, table, json);
  };
  return packed_data(both, shown_by_default(both), more);
}

}  // namespace

Expected<void> write_html(const profile::Profile& profile, TextWriter& out, const HtmlOptions& options) {
  return write_page(packed_profile(profile, options), options.served || options.live, out);
}

Expected<void> write_page_data(const profile::Profile& profile, TextWriter& out, const HtmlOptions& options) {
  return write_data(packed_profile(profile, options), out);
}

Expected<void> write_diff_html(const ProfileDifference& difference, const profile::Profile& a,
                               const profile::Profile& b, TextWriter& out, const DiffOptions& options) {
  return write_page(packed_difference(difference, a, b, options), false, out);
}

Expected<void> write_diff_page_data(const ProfileDifference& difference, const profile::Profile& a,
                                    const profile::Profile& b, TextWriter& out, const DiffOptions& options) {
  return write_data(packed_difference(difference, a, b, options), out);
}

}  // namespace windlass::exporter
