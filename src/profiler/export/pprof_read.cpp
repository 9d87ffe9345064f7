#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <new>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <system_error>
#include <thread>
#include <utility>

#include "profiler/export/frames.h"
#include "profiler/export/gzip.h"
#include "profiler/export/gzip_ahead.h"
#include "profiler/export/id_map.h"
#include "profiler/export/pprof.h"
#include "profiler/export/pprof_fields.h"
#include "profiler/export/pprof_samples.h"
#include "profiler/export/pprof_split.h"
#include "profiler/export/pprof_stacks.h"
#include "profiler/export/pprof_wire.h"

namespace windlass::exporter {

namespace {

using profile::kNone;
using protozero::pbf_reader;

// Of a file that is worth threads.
bool has_several_cpus() { return std::thread::hardware_concurrency() > 1; }

class PprofReader {
 public:
  PprofReader(const PprofLimits& limits, bool by_threads)
      : limits_(limits), by_threads_(by_threads), split_(stacks_, limits.max_items, by_threads) {}

  // `next`: the next bytes of the message, none at its end.
  template <typename Next>
  Expected<profile::Profile> read(Next next) {
    try {
      const auto problem = split_all(next);
      if (problem) return Failure(*problem);
      is_split_ = true;
      read_split();
    } catch (const protozero::exception&) {
      set_error(ErrorCode::kMalformed, kDamagedPprof);
    } catch (const std::bad_alloc&) {
      set_error(ErrorCode::kLimit, kNoMemory);
    }
    if (error_) return Failure(*error_);
    if (strings_.empty() || types_.empty())
      return fail(ErrorCode::kMalformed, "not a pprof profile: it has no string table or no sample types", 0);
    samples_->settle_periods();
    return std::move(profile_);
  }

 private:
  template <typename Next>
  std::optional<Error> split_all(Next& next) {
    std::optional<Error> problem;  // that is behind those of stacks
    try {
      for (;;) {
        const Expected<ByteView> piece = next();
        if (!piece) {
          problem = piece.error();
          break;
        }
        if (piece->empty() || split_.is_full()) break;
        split_.add(*piece);
      }
      if (!problem && !split_.is_full()) split_.check_end();
    } catch (const protozero::exception&) {
      problem = Error{ErrorCode::kMalformed, kDamagedPprof, split_.at()};
    }
    split_.finish();
    const std::optional<Error> of_stacks = split_.error();
    return of_stacks ? of_stacks : problem;
  }

  // Locations refer to functions and mappings, all to strings, in any order in the file.
  void read_split() {
    bytes_ = split_.others();
    if (!count_items(split_.items())) return;
    Fields all{.begin = 0, .end = bytes_.size()};
    for_each(all, &PprofReader::read_string_or_count);
    for_each(rest_, &PprofReader::read_mapping_function_or_type);
    make_events();
    if (error_) return;
    samples_.emplace(profile_, strings_, limits_, std::move(event_values_), types_.size(), items_);
    read_locations_and_samples();
    if (!error_) error_ = samples_->error();
    if (!error_ && !is_checked_) check_stacks();
  }

  // Locations by this thread, samples by one of their own.
  void read_locations_and_samples() {
    const std::jthread beside = start_samples();
    read_locations();
    if (!beside.joinable() && !error_) samples_->read(split_, stacks_);
  }
  std::jthread start_samples() {
    if (!by_threads_) return {};
    try {
      return std::jthread([this] { samples_->read(split_, stacks_); });
    } catch (const std::system_error&) {
      return {};  // no more threads
    }
  }
  void read_locations() {
    profile_.locations.reserve(std::min(location_fields_.number, kMostReserved));
    frames_in_.reserve(std::min(location_fields_.number, kMostReserved));
    for_each(location_fields_, &PprofReader::read_location_field);
    if (error_) return;
    stacks_.settle(locations_, frames_in_);
    std::uint64_t most = 0;  // frames
    const std::uint64_t most_samples = split_.samples() * profile_.events.size();
    is_checked_ = stacks_.most_frames() != PprofStacks::kWrong &&
                  !__builtin_mul_overflow(stacks_.most_frames(), most_samples, &most) && most <= limits_.max_frames;
    if (is_checked_) stacks_.drop_frames();
  }
  // That their locations are there, and that they are not too many. Inlined calls make many frames of a location, in
  // each stack that has it.
  void check_stacks() {
    if (stacks_.most_frames() == PprofStacks::kWrong) {
      std::uint64_t at = 0;
      for (std::size_t sample = 0; sample < split_.samples() && !error_; ++sample) {
        const PprofStackQueue::Found found = split_.stack_of(sample);
        at += found.behind;
        if (stacks_.frames_of(found.stack.node) == PprofStacks::kWrong)
          error_ = Error{ErrorCode::kOutOfRange, "sample names a location that is not there", at,
                         stacks_.wrong_location(stacks_.stack_of(found.stack))};
      }
      return;
    }
    std::uint64_t frames = 0;
    for (const profile::Sample& sample : std::as_const(profile_.samples)) {
      frames += stacks_.frames_of(sample.locations.node());
      if (frames > limits_.max_frames) {
        error_ = Error{ErrorCode::kLimit, "stacks of the profile have more frames than the limit", split_.at(),
                       limits_.max_frames};
        return;
      }
    }
  }

  using EventValues = PprofEventValues;
  static constexpr std::size_t kNoValue = EventValues::kNoValue;
  static constexpr std::size_t kMostReserved = 1 << 22;
  static constexpr std::size_t kMostEvents = 64;  // each is looked for in each sample
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
    error_ = Error{code, what, is_split_ ? split_.place_of(at_) : split_.at(), detail};
  }
  // Counts against the limit on items; memory stays proportional to it.
  bool count_item() { return count_items(1); }
  bool count_items(std::uint64_t number) {
    items_ += number;
    if (items_ <= limits_.max_items) return true;
    set_error(ErrorCode::kLimit, kTooManyItems, limits_.max_items);
    return false;
  }
  std::string_view string_at(std::int64_t index) {
    if (index >= 0 && static_cast<std::uint64_t>(index) < strings_.size())
      return strings_[static_cast<std::size_t>(index)];
    set_error(ErrorCode::kOutOfRange, kNoSuchString, static_cast<std::uint64_t>(index));
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
    give_back_locations(top.tag() == pprof::kLocation);
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
  // The bytes of a run of locations, which are not read again. Strings, which stay, are between the runs.
  void give_back_locations(bool is_location) {
    constexpr std::size_t kPiece = std::size_t{4} << 20;
    if (run_begin_ && (!is_location || at_ - *run_begin_ > kPiece)) {
      split_.give_back_others(*run_begin_, at_);
      run_begin_.reset();
    }
    if (is_location && !run_begin_) run_begin_ = at_;
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

  void read_numbers(pbf_reader& fields, std::vector<std::uint64_t>& to) {
    handled_ = true;
    must_be(fields, protozero::pbf_wire_type::length_delimited);
    for (const std::uint64_t number : fields.get_packed_uint64())
      if (count_item()) to.push_back(number);
  }
  PprofLimits limits_;
  const bool by_threads_;
  PprofStacks stacks_;
  PprofSplit split_;
  bool is_split_ = false;
  bool is_checked_ = false;  // no stack is wrong, and they are not too many
  ByteView bytes_;           // split_.others()
  std::uint64_t items_ = 0;
  Fields string_fields_, location_fields_, rest_;
  std::optional<std::uint64_t> run_begin_;  // of the locations before the field being read
  Fields* found_ = nullptr;                 // the kind of the field being read
  std::vector<std::uint32_t> frames_in_;    // of each location: how many it makes
  std::uint64_t at_ = 0;                    // of the field being read: its offset in bytes_
  bool handled_ = false;
  std::optional<Error> error_;
  std::vector<std::string_view> strings_;
  std::vector<StandIn> stand_ins_;         // of functions; empty before the first location
  std::vector<Type> types_;                // of the values, in their order
  std::vector<EventValues> event_values_;  // of each event
  Type period_type_;
  std::string_view default_type_;
  std::uint64_t period_ = 0;
  IdMap mappings_, functions_, locations_;
  std::vector<profile::Line> lines_;            // of the location at hand
  std::vector<std::uint64_t> counts_of_times_;  // of each event
  profile::Profile profile_;
  std::optional<PprofSamples> samples_;
};

}  // namespace

Expected<profile::Profile> read_pprof(ByteView bytes, const PprofLimits& limits, std::vector<std::byte>* owned) {
  const bool by_threads = bytes.size() >= limits.worth_threads && has_several_cpus();
  if (is_gzip(bytes)) {
    std::optional<GzipAhead> pieces(std::in_place, bytes, limits.max_bytes);
    return PprofReader(limits, by_threads).read([&]() -> Expected<ByteView> {
      Expected<ByteView> piece = pieces->next();
      if (piece && piece->empty()) {
        pieces.reset();
        if (owned != nullptr) *owned = std::vector<std::byte>();
        return ByteView();
      }
      return piece;
    });
  }
  return PprofReader(limits, by_threads).read([&]() -> Expected<ByteView> { return std::exchange(bytes, ByteView()); });
}

Expected<profile::Profile> read_pprof_file(const std::string& path, const PprofLimits& limits) {
  const auto bytes = read_bytes(path, limits.max_bytes);
  if (!bytes) return Failure(bytes.error());
  return read_pprof(ByteView(bytes->data(), bytes->size()), limits);
}

}  // namespace windlass::exporter
