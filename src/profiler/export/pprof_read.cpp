#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <new>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "profiler/export/frames.h"
#include "profiler/export/gzip.h"
#include "profiler/export/gzip_ahead.h"
#include "profiler/export/id_map.h"
#include "profiler/export/pprof.h"
#include "profiler/export/pprof_fields.h"
#include "profiler/export/pprof_labels.h"
#include "profiler/export/pprof_split.h"
#include "profiler/export/pprof_stacks.h"
#include "profiler/export/pprof_wire.h"

namespace windlass::exporter {

namespace {

using profile::kNone;
using protozero::pbf_reader;

class PprofReader {
 public:
  explicit PprofReader(const PprofLimits& limits) : limits_(limits), split_(stacks_, limits.max_items) {}

  // `next`: the next bytes of the message, none at its end.
  template <typename Next>
  Expected<profile::Profile> read(Next next) {
    try {
      for (;;) {
        const Expected<ByteView> piece = next();
        if (!piece) return Failure(piece.error());
        if (piece->empty() || split_.is_full()) break;
        split_.add(*piece);
      }
      split_.finish();
      is_split_ = true;
      read_split();
    } catch (const protozero::exception& problem) {
      set_error(ErrorCode::kMalformed, "not a pprof message (damaged protocol buffer)");
    } catch (const std::bad_alloc&) {
      set_error(ErrorCode::kLimit, "out of memory");
    }
    if (error_) return Failure(*error_);
    if (strings_.empty() || types_.empty())
      return fail(ErrorCode::kMalformed, "not a pprof profile: it has no string table or no sample types", 0);
    settle_periods();
    return std::move(profile_);
  }

 private:
  // Locations refer to functions and mappings, all to strings, in any order in the file.
  void read_split() {
    bytes_ = split_.others();
    if (!count_items(split_.items())) return;
    Fields all{.begin = 0, .end = bytes_.size()};
    for_each(all, &PprofReader::read_string_or_count);
    for_each(rest_, &PprofReader::read_mapping_function_or_type);
    make_events();
    profile_.locations.reserve(std::min(location_fields_.number, kMostReserved));
    frames_in_.reserve(std::min(location_fields_.number, kMostReserved));
    for_each(location_fields_, &PprofReader::read_location_field);
    if (error_) return;
    stacks_.settle(locations_, frames_in_);
    profile_.samples.reserve(std::min(split_.samples(), kMostReserved));
    in_samples_ = true;
    split_.take_samples([this](const SplitSample& sample, protozero::data_view fields) {
      at_ = sample.at;
      read_sample(sample.stack, pbf_reader(fields));
      return !error_;
    });
  }

  // Which values of a sample are an event's; kNoValue: none.
  struct EventValues {
    std::size_t count = kNoValue, value = kNoValue;
  };
  static constexpr std::size_t kNoValue = ~std::size_t{0};
  static constexpr std::size_t kMostReserved = 1 << 22;
  static constexpr std::size_t kMostEvents = 64;  // each is looked for in each sample
  struct Sums {
    std::uint64_t count = 0, value = 0;
  };
  struct Type {
    std::string_view name, unit;
  };
  // Of a function, whether the writer made it for unnamed addresses of a module that begin at `begin`. Without a begin,
  // each address has another answer.
  struct StandIn {
    std::uint32_t module = kNone;
    bool is_one = false;
    std::uint64_t begin = 0;
  };
  // Fields of a kind, from the first to the last. Other fields may stand between.
  struct Fields {
    std::size_t begin = ~std::size_t{0}, end = 0;  // offsets in bytes_
    std::size_t number = 0;
  };
  void for_each(Fields& fields, void (PprofReader::*handle)(pbf_reader&)) {
    if (fields.begin >= fields.end) return;
    pbf_reader top(reinterpret_cast<const char*>(bytes_.data()) + fields.begin, fields.end - fields.begin);
    at_ = fields.begin;
    while (!error_ && top.next()) {
      found_ = nullptr;
      (this->*handle)(top);
      if (!handled_) top.skip();
      handled_ = false;
      const std::uint64_t behind = fields.end - static_cast<std::uint64_t>(top.length());
      if (found_ != nullptr) {
        found_->begin = std::min<std::size_t>(found_->begin, at_);
        found_->end = behind;
        ++found_->number;
      }
      at_ = behind;
    }
  }

  void set_error(ErrorCode code, const char* what, std::uint64_t detail = 0) {
    if (error_) return;
    error_ = Error{code, what, !is_split_ ? split_.at() : in_samples_ ? at_ : split_.place_of(at_), detail};
  }
  // Counts against the limit on items; memory stays proportional to it.
  bool count_item() { return count_items(1); }
  bool count_items(std::uint64_t number) {
    items_ += number;
    if (items_ <= limits_.max_items) return true;
    set_error(ErrorCode::kLimit, "profile has more items than the limit", limits_.max_items);
    return false;
  }
  // Inlined calls make many frames of a location, in each stack that has it.
  void count_frames(std::uint64_t number) {
    frames_ += number;
    if (frames_ > limits_.max_frames)
      set_error(ErrorCode::kLimit, "stacks of the profile have more frames than the limit", limits_.max_frames);
  }
  std::string_view string_at(std::int64_t index) {
    if (index >= 0 && static_cast<std::uint64_t>(index) < strings_.size())
      return strings_[static_cast<std::size_t>(index)];
    set_error(ErrorCode::kOutOfRange, "string index past the string table", static_cast<std::uint64_t>(index));
    return {};
  }
  pbf_reader message(pbf_reader& top) {
    handled_ = true;
    return message_of(top);
  }

  void read_string_or_count(pbf_reader& top) {
    found_ = top.tag() == pprof::kLocation      ? &location_fields_
             : top.tag() == pprof::kStringTable ? &string_fields_
                                                : &rest_;
    if (found_ != &string_fields_ || !count_item()) return;
    handled_ = true;
    const auto view = view_of(top);
    strings_.emplace_back(view.data(), view.size());
  }

  void read_mapping_function_or_type(pbf_reader& top) {
    switch (top.tag()) {
      case pprof::kMapping: return read_mapping(message(top));
      case pprof::kFunction: return read_function(message(top));
      case pprof::kSampleType: return read_sample_type(read_type(message(top)));
      case pprof::kComment: return read_comment(top);
      case pprof::kCountsOfTimes: return read_numbers(top, counts_of_times_);
      case pprof::kTimeNanos: profile_.start_unix_ns = number(top); return;
      case pprof::kDurationNanos: profile_.duration_ns = number(top); return;
      case pprof::kPeriod: period_ = number(top); return;
      case pprof::kPeriodType: period_type_ = read_type(message(top)); return;
      case pprof::kDefaultSampleType: default_type_ = string_at(static_cast<std::int64_t>(number(top))); return;
      default: return;
    }
  }
  std::uint64_t number(pbf_reader& top) {
    handled_ = true;
    return static_cast<std::uint64_t>(signed_of(top));
  }

  Type read_type(pbf_reader fields) {
    Type type;
    while (fields.next()) {
      switch (fields.tag()) {
        case pprof::kType: type.name = string_at(signed_of(fields)); break;
        case pprof::kUnit: type.unit = string_at(signed_of(fields)); break;
        default: fields.skip();
      }
    }
    return type;
  }
  void read_sample_type(const Type& type) {
    if (types_.size() == 2 * kMostEvents)
      return set_error(ErrorCode::kLimit, "profile has more sample types than the limit", kMostEvents);
    if (count_item()) types_.push_back(type);
  }

  // "samples/count, cpu/nanoseconds" is one event, "alloc_objects/count, alloc_space/bytes" another.
  void make_events() {
    profile_.events.clear();
    for (std::size_t i = 0; i < types_.size(); ++i) {
      const Type& type = types_[i];
      const bool counts = type.unit == "count";
      if (!counts && !event_values_.empty() && event_values_.back().value == kNoValue) {
        event_values_.back().value = i;
        profile_.events.back().name = type.name;
        profile_.events.back().unit = type.unit;
      } else {
        profile_.events.push_back({.name = std::string(type.name),
                                   .unit = std::string(type.unit),
                                   .counted = counts ? std::string(type.name) : "samples"});
        event_values_.push_back(counts ? EventValues{i, kNoValue} : EventValues{kNoValue, i});
      }
    }
    if (profile_.events.size() > kMostEvents)
      return set_error(ErrorCode::kLimit, "profile has more sample types than the limit", kMostEvents);
    for (profile::Event& event : profile_.events) {
      const bool timed = event.name == period_type_.name || (period_type_.name.empty() && profile_.events.size() == 1);
      // The period of a heap profile is the mean distance of its samples. It is not what a sample stands for.
      if (event.unit != "count" && event.unit != "bytes" && timed) event.period = period_;
    }
    for (std::size_t i = 0; i < std::min(profile_.events.size(), counts_of_times_.size()); ++i)
      profile_.events[i].per_time = counts_of_times_[i];
    const auto by_default = std::ranges::find_if(profile_.events, [&](const profile::Event& event) {
      return event.name == default_type_ || event.counted == default_type_;
    });
    const auto shown = by_default != profile_.events.end() ? by_default - profile_.events.begin()
                                                           : std::ssize(profile_.events) - 1;  // profile.proto says so
    profile_.shown_event = static_cast<std::uint32_t>(std::max<std::ptrdiff_t>(shown, 0));
    varies_.assign(profile_.events.size(), false);
    sums_.assign(profile_.events.size(), {});
  }
  // Where values are not a multiple of the period, each counts as it is.
  void settle_periods() {
    if (negative_ != 0) profile_.comments.push_back(fmt::format("{} values below 0 were read as 0", negative_));
    for (std::size_t i = 0; i < varies_.size(); ++i)
      if (varies_[i]) profile_.events[i].period = 0;
  }

  // Repeated int64: one a field in our files, packed in Go's.
  void read_comment(pbf_reader& top) {
    handled_ = true;
    if (top.wire_type() == protozero::pbf_wire_type::length_delimited) {
      for (const auto index : top.get_packed_int64()) add_comment(string_at(index));
    } else {
      add_comment(string_at(signed_of(top)));
    }
  }
  void add_comment(std::string_view text) {
    if (!count_item()) return;
    if (!text.starts_with(pprof::kLostComment)) {
      profile_.comments.emplace_back(text);
      return;
    }
    text.remove_prefix(pprof::kLostComment.size());
    std::from_chars(text.data(), text.data() + text.size(), profile_.lost);
  }

  void read_mapping(pbf_reader fields) {
    if (!count_item()) return;
    profile::Module module;
    std::uint64_t id = 0;
    while (fields.next()) {
      switch (fields.tag()) {
        case pprof::kMappingId: id = varint_of(fields); break;
        case pprof::kMemoryStart: module.begin = varint_of(fields); break;
        case pprof::kMemoryLimit: module.end = varint_of(fields); break;
        case pprof::kFileOffset: module.file_offset = varint_of(fields); break;
        case pprof::kFilename: module.path = string_at(signed_of(fields)); break;
        case pprof::kBuildId: module.build_id = string_at(signed_of(fields)); break;
        default: fields.skip();
      }
    }
    module.is_kernel = module.path.starts_with("[kernel");
    if (!mappings_.add(id, static_cast<std::uint32_t>(profile_.modules.size())))
      return set_error(ErrorCode::kMalformed, "mapping id is zero or used twice", id);
    profile_.modules.push_back(std::move(module));
  }

  void read_function(pbf_reader fields) {
    if (!count_item()) return;
    profile::Function function;
    std::uint64_t id = 0;
    while (fields.next()) {
      switch (fields.tag()) {
        case pprof::kFunctionId: id = varint_of(fields); break;
        case pprof::kName: function.name = string_at(signed_of(fields)); break;
        case pprof::kSystemName: function.system_name = string_at(signed_of(fields)); break;
        case pprof::kSourceFile: function.file = string_at(signed_of(fields)); break;
        case pprof::kStartLine: function.start_line = static_cast<std::uint32_t>(signed_of(fields)); break;
        default: fields.skip();
      }
    }
    if (!functions_.add(id, static_cast<std::uint32_t>(profile_.functions.size())))
      return set_error(ErrorCode::kMalformed, "function id is zero or used twice", id);
    profile_.functions.push_back(std::move(function));
  }

  void read_location_field(pbf_reader& top) {
    if (top.tag() != pprof::kLocation || !count_item()) return;
    auto fields = message(top);
    profile::Location location;
    lines_.clear();
    std::uint64_t id = 0;
    while (fields.next()) {
      switch (fields.tag()) {
        case pprof::kLocationId: id = varint_of(fields); break;
        case pprof::kLocationMappingId: location.module = mapping(varint_of(fields)); break;
        case pprof::kAddress: location.address = varint_of(fields); break;
        case pprof::kLine: lines_.push_back(read_line(message_of(fields))); break;
        default: fields.skip();
      }
    }
    drop_placeholder(location);
    if (!lines_.empty()) location.lines.assign(lines_.begin(), lines_.end());
    if (!locations_.add(id, static_cast<std::uint32_t>(profile_.locations.size())))
      return set_error(ErrorCode::kMalformed, "location id is zero or used twice", id);
    frames_in_.push_back(std::max<std::uint32_t>(1, static_cast<std::uint32_t>(location.lines.size())));
    profile_.locations.push_back(std::move(location));
  }
  std::uint32_t mapping(std::uint64_t id) {
    const std::uint32_t index = mappings_.find(id);
    if (id != 0 && index == kNone) set_error(ErrorCode::kOutOfRange, "location names a mapping that is not there", id);
    return index;
  }
  profile::Line read_line(pbf_reader fields) {
    profile::Line line;
    while (fields.next()) {
      switch (fields.tag()) {
        case pprof::kLineFunctionId: {
          const std::uint64_t id = varint_of(fields);
          line.function = functions_.find(id);
          if (line.function == kNone) set_error(ErrorCode::kOutOfRange, "line names a function that is not there", id);
          break;
        }
        case pprof::kLineNumber: line.line = static_cast<std::uint32_t>(signed_of(fields)); break;
        default: fields.skip();
      }
    }
    count_item();
    return line;
  }
  // A line without a function says nothing; neither does the stand-in the writer made for an unnamed address.
  void drop_placeholder(profile::Location& location) {
    std::erase_if(lines_, [](const auto& line) { return line.function == kNone; });
    if (lines_.size() != 1) return;
    auto& function = profile_.functions[lines_[0].function];
    if (!function.system_name.empty()) return;
    if (stand_ins_.empty()) stand_ins_.resize(profile_.functions.size());
    StandIn& known = stand_ins_[lines_[0].function];
    if (known.begin == 0 || known.module != location.module) {
      location.function_begin = hex_after_plus(function.name);
      known = {.module = location.module,
               .is_one = function.name == unnamed_frame(profile_, location),
               .begin = location.function_begin};
    }
    location.function_begin = known.is_one ? known.begin : 0;
    if (known.is_one) lines_.clear();
  }

  // The offset of "module+0xoffset"; 0 if it is not of that form.
  static std::uint64_t hex_after_plus(const std::string& name) {
    const auto mark = name.rfind("+0x");
    return mark == std::string::npos ? 0 : std::strtoull(name.c_str() + mark + 1, nullptr, 16);
  }

  // `fields`: those that are no stack.
  void read_sample(const SampleStack& stack, pbf_reader fields) {
    profile::Sample sample;
    values_.clear();
    times_.clear();
    lasted_.clear();
    while (fields.next()) {
      switch (fields.tag()) {
        case pprof::kSampleValue: read_values(fields); break;
        case pprof::kSampleLabel: labels_.add(view_of(fields)); break;
        case pprof::kSampleTimes: read_numbers(fields, times_); break;
        case pprof::kSampleLasted: read_numbers(fields, lasted_); break;
        default: fields.skip();
      }
    }
    const std::uint64_t frames = stacks_.frames_of(stack);
    if (frames == PprofStacks::kWrong)
      return set_error(ErrorCode::kOutOfRange, "sample names a location that is not there",
                       stacks_.wrong_location(stack));
    count_frames(frames);
    sample.locations = stacks_.stack_of(stack);
    set_labels(sample);
    const bool any = std::ranges::any_of(values_, [](std::int64_t one) { return one > 0; });
    negative_ += static_cast<std::uint64_t>(std::ranges::count_if(values_, [](std::int64_t one) { return one < 0; }));
    bool added = false;
    for (std::uint32_t event = 0; event < event_values_.size() && !error_; ++event) {
      const bool more = add_values(event, sample, any, added);
      if (more && added) count_frames(frames);  // a further sample with the same stack
      added |= more;
    }
    if (added && !times_.empty() && !error_) add_times(profile_.samples.back());
  }
  // Of our files, whose samples have one event each.
  void add_times(profile::Sample& sample) {
    const std::uint64_t per_time = profile_.events[sample.event].per_time;
    if (per_time == 0) return;
    if (times_.size() > sample.count / per_time || (!lasted_.empty() && lasted_.size() != times_.size()))
      return set_error(ErrorCode::kMalformed, "sample has another number of times than of counts", times_.size());
    sample.first_time = profile_.times.size();
    sample.times = static_cast<std::uint32_t>(times_.size());
    std::uint64_t time = 0;
    for (std::size_t i = 0; i < times_.size(); ++i) {
      const std::uint64_t lasted = lasted_.empty() ? 0 : lasted_[i];
      if (__builtin_add_overflow(time, times_[i], &time) || time + lasted < time)
        return set_error(ErrorCode::kLimit, "time of a sample does not fit in 64 bits");
      profile_.times.push_back({time, lasted});
    }
  }
  void read_numbers(pbf_reader& fields, std::vector<std::uint64_t>& to) {
    handled_ = true;
    must_be(fields, protozero::pbf_wire_type::length_delimited);
    for (const std::uint64_t number : fields.get_packed_uint64())
      if (count_item()) to.push_back(number);
  }
  std::uint64_t value_at(std::size_t index) const {
    return index < values_.size() ? static_cast<std::uint64_t>(std::max<std::int64_t>(values_[index], 0)) : 0;
  }
  // True: the sample has something of the event. One without `any` value is kept by the first event. `again`: another
  // event has taken the sample already.
  bool add_values(std::uint32_t event, profile::Sample& sample, bool any, bool again) {
    const EventValues at = event_values_[event];
    const std::uint64_t period = profile_.events[event].period, value = value_at(at.value);
    std::uint64_t count = value_at(at.count);
    if (at.count == kNoValue && value != 0) count = period != 0 ? std::max<std::uint64_t>(1, value / period) : 1;
    if (count == 0 && value == 0 && (any || event != 0)) return false;
    if (at.value != kNoValue && period != 0 && value != count * period) varies_[event] = true;
    Sums& sums = sums_[event];
    if (__builtin_add_overflow(sums.count, count, &sums.count) ||
        __builtin_add_overflow(sums.value, value, &sums.value)) {
      set_error(ErrorCode::kLimit, "values of the samples add up to more than 64 bits");
      return false;
    }
    if (again) sample = profile_.samples.back();
    profile::Sample& added = profile_.samples.emplace_back(std::move(sample));
    added.event = event;
    added.count = count;
    added.value = value;
    return !again || count_items(sizeof(profile::Sample) / kItemBytes);
  }
  void set_labels(profile::Sample& sample) {
    const SampleLabels& labels = labels_.take();
    if (!count_items(labels.items)) return;
    if (labels.wrong_string) string_at(*labels.wrong_string);
    sample.pid = labels.pid;
    sample.tid = labels.tid;
    sample.comm = labels.comm;
    sample.end = labels.end;
    sample.certainty = labels.certainty;
    sample.labels = labels.set;
  }
  void read_values(pbf_reader& fields) {
    if (fields.wire_type() != protozero::pbf_wire_type::length_delimited) {
      if (values_.size() < types_.size())
        values_.push_back(signed_of(fields));
      else
        fields.skip();
      return;
    }
    for (const auto value : fields.get_packed_int64())
      if (values_.size() < types_.size()) values_.push_back(value);
  }

  PprofLimits limits_;
  PprofStacks stacks_;
  PprofSplit split_;
  bool is_split_ = false;
  bool in_samples_ = false;
  ByteView bytes_;  // split_.others()
  std::uint64_t items_ = 0;
  Fields string_fields_, location_fields_, rest_;
  Fields* found_ = nullptr;               // the kind of the field being read
  std::uint64_t frames_ = 0;              // of all stacks
  std::vector<std::uint32_t> frames_in_;  // of each location: how many it makes
  std::uint64_t at_ = 0;                  // of the field being read: its offset in bytes_; of a sample: in the message
  bool handled_ = false;
  std::optional<Error> error_;
  std::vector<std::string_view> strings_;
  std::vector<StandIn> stand_ins_;         // of functions; empty before the first location
  std::vector<Type> types_;                // of the values, in their order
  std::vector<EventValues> event_values_;  // of each event
  std::uint64_t negative_ = 0;             // values of samples
  std::vector<bool> varies_;               // of each event: a value was no multiple of the period
  std::vector<Sums> sums_;                 // of each event: of all samples
  Type period_type_;
  std::string_view default_type_;
  std::uint64_t period_ = 0;
  IdMap mappings_, functions_, locations_;
  std::vector<profile::Line> lines_;  // of the location at hand
  std::vector<std::int64_t> values_;
  std::vector<std::uint64_t> times_, lasted_;   // of the sample at hand
  std::vector<std::uint64_t> counts_of_times_;  // of each event
  profile::Profile profile_;
  PprofLabels labels_{strings_, profile_};
};

}  // namespace

Expected<profile::Profile> read_pprof(ByteView bytes, const PprofLimits& limits, std::vector<std::byte>* owned) {
  if (is_gzip(bytes)) {
    std::optional<GzipAhead> pieces(std::in_place, bytes, limits.max_bytes);
    return PprofReader(limits).read([&]() -> Expected<ByteView> {
      Expected<ByteView> piece = pieces->next();
      if (piece && piece->empty()) {
        pieces.reset();
        if (owned != nullptr) *owned = std::vector<std::byte>();
        return ByteView();
      }
      return piece;
    });
  }
  return PprofReader(limits).read([&]() -> Expected<ByteView> { return std::exchange(bytes, ByteView()); });
}

Expected<profile::Profile> read_pprof_file(const std::string& path, const PprofLimits& limits) {
  const auto bytes = read_bytes(path, limits.max_bytes);
  if (!bytes) return Failure(bytes.error());
  return read_pprof(ByteView(bytes->data(), bytes->size()), limits);
}

}  // namespace windlass::exporter
