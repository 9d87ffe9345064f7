#include "profiler/transport/otlp_request.h"

#include <sys/utsname.h>

#include <algorithm>
#include <map>
#include <optional>
#include <protozero/pbf_writer.hpp>
#include <span>
#include <string_view>
#include <unordered_map>

#include "base/ascii_case.h"
#include "base/utf8.h"
#include "profiler/transport/otlp_fields.h"

namespace windlass::transport {
namespace {

using protozero::pbf_writer;
using Ids = std::vector<std::int32_t>;

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

std::string valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    valid.append(length != 0 ? text.substr(0, length) : kReplacement);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return valid;
}

void put_number(pbf_writer& to, std::uint32_t tag, std::uint64_t number) {
  if (number != 0) to.add_uint64(tag, number);  // as a varint also of int32 and int64
}
void put_ids(pbf_writer& to, std::uint32_t tag, const Ids& ids) { to.add_packed_int32(tag, ids.begin(), ids.end()); }

// Entries of a table, each once. Entry 0 is the zero value.
class Dictionary {
 public:
  explicit Dictionary(std::uint32_t tag, std::string_view zero = {}) : tag_(tag) { (void)id(zero); }

  std::int32_t id(std::string_view entry) {
    const auto [at, is_new] = ids_.try_emplace(std::string(entry), static_cast<std::int32_t>(entries_.size()));
    if (is_new) entries_.push_back(&at->first);
    return at->second;
  }
  void write(pbf_writer& to) const {
    for (const std::string* entry : entries_) to.add_bytes(tag_, *entry);
  }

 private:
  std::uint32_t tag_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<const std::string*> entries_;
};

std::string any_text(std::string_view text) {
  std::string bytes;
  pbf_writer(bytes).add_string(otlp::kStringValue, valid_utf8(text));
  return bytes;
}
std::string any_number(std::uint64_t number) {
  std::string bytes;
  pbf_writer(bytes).add_int64(otlp::kIntValue, static_cast<std::int64_t>(number));
  return bytes;
}
std::string any_bool(bool value) {
  std::string bytes;
  pbf_writer(bytes).add_bool(otlp::kBoolValue, value);
  return bytes;
}
std::string any_texts(std::span<const std::string_view> texts) {
  std::string array, bytes;
  pbf_writer values(array);
  for (const std::string_view text : texts) values.add_message(otlp::kArrayValues, any_text(text));
  pbf_writer(bytes).add_message(otlp::kArrayValue, array);
  return bytes;
}

// Of 2 * `size` hexadecimal digits.
std::optional<std::string> bytes_of(std::string_view digits, std::size_t size) {
  const auto value = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  if (digits.size() != 2 * size) return std::nullopt;
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    const int high = value(digits[i]), low = value(digits[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(high << 4 | low));
  }
  return bytes;
}

std::string link_of(std::string_view trace, std::string_view span) {
  std::string bytes;
  pbf_writer link(bytes);
  link.add_bytes(otlp::kTraceId, trace.data(), trace.size());
  link.add_bytes(otlp::kSpanId, span.data(), span.size());
  return bytes;
}

// A type of a frame by the name of the source file (attribute profile.frame.type). Empty: not known.
std::string_view type_of_source(std::string_view file) {
  static constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
      {".py", "cpython"}, {".rb", "ruby"},   {".go", "go"},    {".java", "jvm"}, {".kt", "jvm"}, {".scala", "jvm"},
      {".js", "v8js"},    {".cs", "dotnet"}, {".erl", "beam"}, {".ex", "beam"},  {".rs", "rust"}};
  for (const auto& [end, type] : kTypes)
    if (ends_with_without_case(file, end)) return type;
  return {};
}

// What is of a container, a pod or a service, not of one process of it.
bool is_of_resource(std::string_view key) {
  return key.starts_with("container.") || key.starts_with("k8s.") || key.starts_with("service.");
}

struct OtlpLabel {
  std::string_view key, value;
  auto operator<=>(const OtlpLabel&) const = default;
};

class OtlpWriter {
 public:
  OtlpWriter(const profile::Profile& profile, const OtlpSource& source, SampleRange range)
      : profile_(profile), source_(source), first_(std::min(range.first, profile.samples.size())) {
    samples_ = std::span(profile.samples).subspan(first_);
    samples_ = samples_.first(std::min(range.count, samples_.size()));
    locations_.resize(profile.locations.size(), -1);
  }

  std::string write() {
    sort_samples();
    std::string bytes;
    pbf_writer request(bytes);
    for (const auto& [labels, samples] : resources_) {
      pbf_writer resource_profiles(request, otlp::kResourceProfiles);
      write_resource(resource_profiles, labels);
      pbf_writer scope_profiles(resource_profiles, otlp::kScopeProfiles);
      {
        pbf_writer scope(scope_profiles, otlp::kScope);
        scope.add_string(otlp::kScopeName, "windlass");
        scope.add_string(otlp::kScopeVersion, WINDLASS_VERSION);
      }
      for (const profile::ValueType type : types()) write_profile(scope_profiles, type, samples);
    }
    pbf_writer dictionary(request, otlp::kDictionary);
    for (const Dictionary* table : {&mapping_table_, &location_table_, &function_table_, &link_table_, &string_table_,
                                    &attribute_table_, &stack_table_})
      table->write(dictionary);
    return bytes;
  }

 private:
  using Labels = std::vector<OtlpLabel>;

  [[nodiscard]] Labels labels_of(std::uint32_t set) const {
    Labels labels;
    for (const profile::Label& label : profile_.label_sets[set])
      labels.push_back({profile_.strings[label.key], profile_.strings[label.value]});
    std::ranges::sort(labels);
    return labels;
  }

  // By resources: that without labels first, which is there always.
  void sort_samples() {
    std::vector<std::vector<const profile::Sample*>*> of_set(profile_.label_sets.size());
    resources_[{}];
    for (const profile::Sample& sample : samples_) {
      auto& to = of_set[sample.labels];
      if (to == nullptr) {
        Labels labels = labels_of(sample.labels);
        std::erase_if(labels, [](const OtlpLabel& label) { return !is_of_resource(label.key); });
        to = &resources_[std::move(labels)];
      }
      to->push_back(&sample);
    }
  }

  void write_resource(pbf_writer& to, const Labels& labels) {
    pbf_writer resource(to, otlp::kResource);
    const auto attribute = [&](std::string_view key, std::string_view value) {
      pbf_writer one(resource, otlp::kResourceAttributes);
      one.add_string(otlp::kKey, valid_utf8(key));
      one.add_message(otlp::kValue, any_text(value));
    };
    const auto value_of = [&](std::string_view key) {
      const auto at = std::ranges::find(labels, key, &OtlpLabel::key);
      return at != labels.end() ? at->value : std::string_view();
    };
    std::string_view service;
    for (const char* key : {"service.name", "k8s.container.name", "container.name"})
      if (service.empty()) service = value_of(key);
    attribute("service.name", service.empty() ? "unknown_service" : service);
    std::string_view before = "service.name";
    for (const auto& [key, value] : source_.resource)
      if (value_of(key).empty() && key != before) attribute(key, value);
    for (const OtlpLabel& label : labels) {
      if (label.key != "service.name" && label.key != before) attribute(label.key, label.value);
      before = label.key;
    }
  }

  // The event that a view shows comes first, and of an event its value.
  [[nodiscard]] std::vector<profile::ValueType> types() const {
    std::vector<profile::ValueType> types;
    for (std::uint32_t i = 0; i < profile_.events.size(); ++i) {
      const profile::Event& event = profile_.events[i];
      const bool has_unit = event.unit != "count";
      if (has_unit) types.push_back({i, false});
      if (!has_unit || event.period == 0) types.push_back({i, true});
    }
    std::ranges::stable_partition(types, [&](const auto& type) { return type.event == profile_.shown_event; });
    return types;
  }

  void write_value_type(pbf_writer& to, std::uint32_t tag, std::string_view name, std::string_view unit) {
    pbf_writer type(to, tag);
    put_number(type, otlp::kType, string_id(name));
    put_number(type, otlp::kUnit, string_id(unit));
  }

  void write_profile(pbf_writer& to, profile::ValueType type, std::span<const profile::Sample* const> samples) {
    const bool is_first = profiles_ == 0;
    const auto is_here = [&](const profile::Sample* sample) { return sample->event == type.event; };
    if (!is_first && std::ranges::none_of(samples, is_here)) return;
    const profile::Event& event = profile_.events[type.event];
    const bool timed = std::ranges::all_of(
        samples, [&](const profile::Sample* sample) { return !is_here(sample) || is_timed(*sample, type); });
    pbf_writer profile(to, otlp::kProfiles);
    write_value_type(profile, otlp::kSampleType, name_of(profile_, type), unit_of(profile_, type));
    for (const profile::Sample* sample : samples)
      if (is_here(sample)) write_sample(profile, *sample, type, timed);
    profile.add_fixed64(otlp::kTimeUnixNano, profile_.start_unix_ns);
    put_number(profile, otlp::kDurationNano, profile_.duration_ns);
    if (event.period != 0) {
      write_value_type(profile, otlp::kPeriodType, event.name, event.unit);
      put_number(profile, otlp::kPeriod, event.period);
    }
    write_profile_id(profile);
    Ids attributes;
    if (!profile_.comments.empty()) {
      const std::vector<std::string_view> comments(profile_.comments.begin(), profile_.comments.end());
      attributes.push_back(attribute_id("pprof.profile.comment", any_texts(comments)));
    }
    if (is_first && first_ == 0 && profile_.lost != 0)
      attributes.push_back(attribute_id("windlass.lost_samples", any_number(profile_.lost)));
    put_ids(profile, otlp::kProfileAttributes, attributes);
  }

  // No two Profiles of all requests that are made of one profile have the same.
  void write_profile_id(pbf_writer& to) {
    const std::uint64_t ordinal = (std::uint64_t{first_} << 16) + profiles_++;
    if (source_.id == decltype(source_.id){}) return;
    std::string id;
    for (const std::byte byte : source_.id) id.push_back(static_cast<char>(byte));
    for (std::size_t i = 0; i < 8; ++i) id[8 + i] = static_cast<char>(id[8 + i] ^ static_cast<char>(ordinal >> 8 * i));
    to.add_bytes(otlp::kProfileId, id);
  }

  // True: its times add up to all of its value.
  [[nodiscard]] bool is_timed(const profile::Sample& sample, profile::ValueType type) const {
    const profile::Event& event = profile_.events[type.event];
    if (sample.times == 0 || sample.times * event.per_time != sample.count) return false;
    if (type.counts || event.period != 0) return true;
    std::uint64_t lasted = 0;
    for (const profile::SampleTime& time : times_of(profile_, sample)) lasted += time.lasted;
    return lasted == sample.value;
  }

  void write_sample(pbf_writer& to, const profile::Sample& sample, profile::ValueType type, bool timed) {
    const profile::Event& event = profile_.events[type.event];
    std::int32_t link = 0;
    const Ids attributes = attributes_of(sample, link);
    numbers_.clear();
    times_.clear();
    if (timed) {
      for (const profile::SampleTime& time : times_of(profile_, sample)) {
        const std::uint64_t value = type.counts ? 1 : event.period != 0 ? event.period : time.lasted;
        numbers_.push_back(
            static_cast<std::int64_t>(type.counts || event.period != 0 ? value * event.per_time : value));
        times_.push_back(profile_.start_unix_ns + time.begin);
      }
    } else {
      numbers_.push_back(static_cast<std::int64_t>(weight_of(profile_, sample, type)));
    }
    pbf_writer message(to, otlp::kSamples);
    put_number(message, otlp::kStackIndex, stack_id(sample));
    put_ids(message, otlp::kSampleAttributes, attributes);
    put_number(message, otlp::kLinkIndex, static_cast<std::uint64_t>(link));
    message.add_packed_int64(otlp::kValues, numbers_.begin(), numbers_.end());
    message.add_packed_fixed64(otlp::kTimestamps, times_.begin(), times_.end());
  }

  // Of a label set, made once: those of the thread are not in it.
  struct SetAttributes {
    Ids ids{};
    std::int32_t link = 0;
  };
  const SetAttributes& attributes_of_set(std::uint32_t set) {
    const auto [at, is_new] = sets_.try_emplace(set);
    if (!is_new) return at->second;
    const Labels labels = labels_of(set);
    std::optional<std::string> trace, span;
    for (const OtlpLabel& label : labels) {
      if (label.key == "trace_id") trace = bytes_of(label.value, 16);
      if (label.key == "span_id") span = bytes_of(label.value, 8);
    }
    const bool is_link = trace && span;
    if (is_link) at->second.link = link_table_.id(link_of(*trace, *span));
    for (auto from = labels.begin(); from != labels.end();) {
      const auto end = std::find_if(from, labels.end(), [&](const OtlpLabel& label) { return label.key != from->key; });
      std::vector<std::string_view> values;  // a key stands once
      for (auto one = from; one != end; ++one) values.push_back(one->value);
      const std::string_view key = from->key;
      const bool is_said = key == "process.pid" || key == "thread.id" || key == "thread.name" || is_of_resource(key) ||
                           (is_link && (key == "trace_id" || key == "span_id"));
      if (!is_said)
        at->second.ids.push_back(attribute_id(key, values.size() == 1 ? any_text(values[0]) : any_texts(values)));
      from = end;
    }
    return at->second;
  }

  Ids attributes_of(const profile::Sample& sample, std::int32_t& link) {
    const SetAttributes& set = attributes_of_set(sample.labels);
    link = set.link;
    Ids ids = {attribute_id("process.pid", any_number(sample.pid)), attribute_id("thread.id", any_number(sample.tid))};
    if (sample.comm < profile_.strings.size())
      ids.push_back(attribute_id("thread.name", any_text(profile_.strings[sample.comm])));
    if (profile::is_truncated(sample.end))
      ids.push_back(attribute_id("windlass.stack.truncated", any_text(profile::end_text(sample.end))));
    else if (sample.end != WL_END_COMPLETE)
      ids.push_back(attribute_id("windlass.stack.end", any_text(profile::end_text(sample.end))));
    if (sample.certainty != WL_DESCRIBED)
      ids.push_back(attribute_id("windlass.stack.certainty", any_text(profile::certainty_text(sample.certainty))));
    ids.insert(ids.end(), set.ids.begin(), set.ids.end());
    return ids;
  }

  std::uint64_t string_id(std::string_view text) {
    return static_cast<std::uint64_t>(string_table_.id(valid_utf8(text)));
  }

  std::int32_t attribute_id(std::string_view key, const std::string& value) {
    std::string bytes;
    pbf_writer attribute(bytes);
    put_number(attribute, otlp::kAttributeKey, string_id(key));
    attribute.add_message(otlp::kAttributeValue, value);
    return attribute_table_.id(bytes);
  }

  std::uint64_t stack_id(const profile::Sample& sample) {
    Ids ids;
    for (const std::uint32_t location : sample.locations) ids.push_back(location_id(location));
    std::string bytes;
    pbf_writer stack(bytes);
    put_ids(stack, otlp::kLocationIndices, ids);
    return static_cast<std::uint64_t>(stack_table_.id(bytes));
  }

  std::int32_t location_id(std::uint32_t index) {
    if (locations_[index] >= 0) return locations_[index];
    const profile::Location& location = profile_.locations[index];
    std::string bytes;
    pbf_writer message(bytes);
    if (location.module < profile_.modules.size())
      put_number(message, otlp::kMappingIndex, mapping_id(location.module));
    put_number(message, otlp::kAddress, location.address);
    for (const profile::Line& line : location.lines) {
      const std::uint64_t function = function_id(line.function);
      pbf_writer child(message, otlp::kLines);
      put_number(child, otlp::kFunctionIndex, function);
      put_number(child, otlp::kLine, line.line);
    }
    if (const std::string_view type = frame_type(location); !type.empty())
      put_ids(message, otlp::kLocationAttributes, {attribute_id("profile.frame.type", any_text(type))});
    return locations_[index] = location_table_.id(bytes);
  }

  [[nodiscard]] std::string_view frame_type(const profile::Location& location) const {
    const bool has_module = location.module < profile_.modules.size();
    if (has_module && profile_.modules[location.module].is_kernel) return "kernel";
    if (!location.lines.empty()) {
      const std::string_view type = type_of_source(profile_.functions[location.lines.front().function].file);
      if (!type.empty()) return type;
    }
    // Code in no file is that of a compiler at run time, which may be any.
    return has_module && !location.interpreted && !profile_.modules[location.module].path.starts_with("[anon")
               ? "native"
               : "";
  }

  std::uint64_t mapping_id(std::uint32_t index) {
    const profile::Module& module = profile_.modules[index];
    const auto [at, is_new] = mappings_.try_emplace(index);
    if (!is_new) return static_cast<std::uint64_t>(at->second);
    std::string bytes;
    pbf_writer message(bytes);
    put_number(message, otlp::kMemoryStart, module.begin);
    put_number(message, otlp::kMemoryLimit, module.end);
    put_number(message, otlp::kFileOffset, module.file_offset);
    put_number(message, otlp::kFilename, string_id(module.path));
    Ids attributes;
    const bool is_windows = ends_with_without_case(module.path, ".dll") || ends_with_without_case(module.path, ".exe");
    if (!module.build_id.empty())
      attributes.push_back(attribute_id(is_windows ? "windlass.build_id.pe" : "process.executable.build_id.gnu",
                                        any_text(module.build_id)));
    if (is_named(index))
      for (const char* key : {"pprof.mapping.has_functions", "pprof.mapping.has_filenames",
                              "pprof.mapping.has_line_numbers", "pprof.mapping.has_inline_frames"})
        attributes.push_back(attribute_id(key, any_bool(true)));
    put_ids(message, otlp::kMappingAttributes, attributes);
    return static_cast<std::uint64_t>(at->second = mapping_table_.id(bytes));
  }

  // So that receivers do not look for symbols themselves.
  bool is_named(std::uint32_t module) {
    if (named_.empty()) {
      named_.resize(profile_.modules.size());
      for (const profile::Location& location : profile_.locations)
        if (location.module < named_.size() && !location.lines.empty()) named_[location.module] = true;
    }
    return named_[module];
  }

  std::uint64_t function_id(std::uint32_t index) {
    const profile::Function& function = profile_.functions[index];
    const auto [at, is_new] = functions_.try_emplace(index);
    if (!is_new) return static_cast<std::uint64_t>(at->second);
    std::string bytes;
    pbf_writer message(bytes);
    put_number(message, otlp::kName, string_id(function.name));
    put_number(message, otlp::kSystemName, string_id(function.system_name));
    put_number(message, otlp::kSourceFile, string_id(function.file));
    put_number(message, otlp::kStartLine, function.start_line);
    return static_cast<std::uint64_t>(at->second = function_table_.id(bytes));
  }

  const profile::Profile& profile_;
  const OtlpSource& source_;
  std::size_t first_;
  std::span<const profile::Sample> samples_{};
  std::map<Labels, std::vector<const profile::Sample*>> resources_{};
  std::uint64_t profiles_ = 0;  // written

  Dictionary mapping_table_{otlp::kMappingTable}, location_table_{otlp::kLocationTable},
      function_table_{otlp::kFunctionTable},
      link_table_{otlp::kLinkTable, link_of(std::string(16, '\0'), std::string(8, '\0'))},
      string_table_{otlp::kStringTable}, attribute_table_{otlp::kAttributeTable}, stack_table_{otlp::kStackTable};
  Ids locations_{};  // of the profile's; -1: not asked yet
  std::unordered_map<std::uint32_t, std::int32_t> mappings_{}, functions_{};
  std::unordered_map<std::uint32_t, SetAttributes> sets_{};
  std::vector<bool> named_{};
  std::vector<std::int64_t> numbers_{};
  std::vector<std::uint64_t> times_{};
};

}  // namespace

std::string otlp_request(const profile::Profile& profile, const OtlpSource& source, SampleRange range) {
  return OtlpWriter(profile, source, range).write();
}

std::vector<std::pair<std::string, std::string>> otlp_machine(const std::string& host) {
  utsname names{};
  if (::uname(&names) != 0) return {{"host.name", host}};
  const std::string_view machine = names.machine;
  return {{"host.name", host.empty() ? names.nodename : host},
          {"host.arch", std::string(machine == "x86_64"    ? "amd64"
                                    : machine == "aarch64" ? "arm64"
                                                           : machine)},
          {"os.type", "linux"},
          {"os.version", names.release}};
}

}  // namespace windlass::transport
