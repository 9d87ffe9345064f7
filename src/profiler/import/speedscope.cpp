// speedscope's files (https://www.speedscope.app/file-format-schema.json): sampled and evented profiles, several in one
// file. Each profile is a thread of its name. Times become nanoseconds.
//
// A file of write_speedscope() has the thread's name as the first frame of each stack, and all processes together
// before the profile of each process.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "profiler/import/import.h"
#include "profiler/import/json_text.h"
#include "windlass_ends.h"

namespace windlass::importer {
namespace {

using profile::kNone;

struct Unit {
  std::string_view name;
  double scale;            // of a weight
  std::string_view event;  // what is measured, if the file does not say
  std::string_view unit;
};
constexpr Unit kUnits[] = {
    {"nanoseconds", 1, "time", "nanoseconds"},
    {"microseconds", 1e3, "time", "nanoseconds"},
    {"milliseconds", 1e6, "time", "nanoseconds"},
    {"seconds", 1e9, "time", "nanoseconds"},
    {"bytes", 1, "bytes", "bytes"},
};
constexpr Unit kCounts{"none", 1, "samples", "count"};

class SpeedscopeReader {
 public:
  SpeedscopeReader(const JsonValue& root, const Limits& limits) : root_(root), builder_(limits) {}

  Expected<profile::Profile> read() {
    const JsonValue profiles = root_["profiles"], frames = root_["shared"]["frames"];
    if (!profiles.is_array() || !frames.is_array())
      return fail(ErrorCode::kMalformed, "no profiles, or no shared frames, as speedscope's files have", 0);
    is_own_ = root_["exporter"].string().starts_with("windlass");
    builder_.edit().ends_known = is_own_;
    frames.for_each([&](const JsonValue& frame) {
      add_frame(frame);
      return builder_.has_room();
    });
    std::vector<JsonValue> all;
    profiles.for_each([&](const JsonValue& profile) {
      all.push_back(profile);
      return true;
    });
    for (std::size_t i = 0; i < all.size() && !error_; ++i)
      if (!is_sum(all[i])) read_profile(all[i], all.size());
    if (error_) return Failure(*error_);
    return builder_.profile();
  }

 private:
  void add_frame(const JsonValue& frame) {
    std::string name, file;
    std::uint32_t line = 0;
    frame.for_each_member([&](std::string_view key, const JsonValue& value) {
      if (key == "name") name = value.string();
      if (key == "file") file = value.string();
      if (key == "line")
        line = static_cast<std::uint32_t>(std::min<std::uint64_t>(value.index().value_or(0), kNone - 1));
    });
    frame_names_.push_back(builder_.string(name));
    // write_speedscope() gives the module of a function whose file is not known.
    const bool is_module = is_own_ && line == 0 && (file.starts_with('/') || file.starts_with('['));
    const profile::Line named{builder_.function(name, is_module ? std::string_view() : file, line), line};
    frames_.push_back(builder_.location(is_module ? builder_.module(file) : kNone, 0, {&named, 1}));
  }

  // Of write_speedscope(): all processes, which follow one by one, or two events together.
  [[nodiscard]] bool is_sum(const JsonValue& profile) const {
    const std::string name = profile["name"].string();
    return is_own_ && (name.starts_with("wall: ") || name == "all processes" || name.ends_with(": all processes"));
  }

  std::uint32_t event_of(const Unit& unit, std::string_view given) {
    const std::string name(given.empty() ? unit.event : given);
    const auto [known, is_new] = events_.try_emplace({name, std::string(unit.unit)}, 0);
    if (is_new)
      known->second = builder_.event(
          {.name = name, .unit = std::string(unit.unit), .counted = unit.unit == "count" ? name : "samples"});
    return known->second;
  }

  // Of write_speedscope(): "cpu: app (pid 12)".
  void set_process(std::string_view name) {
    constexpr std::string_view kPid = " (pid ";
    const auto at = name.rfind(kPid);
    if (at == std::string_view::npos) return;
    std::from_chars(name.data() + at + kPid.size(), name.data() + name.size(), sample_.pid);
    sample_.tid = sample_.pid;
  }

  void read_profile(const JsonValue& profile, std::size_t profiles) {
    const std::string name = profile["name"].string();
    const std::string unit_name = profile["unit"].string(), type = profile["type"].string();
    const auto* unit = std::ranges::find(kUnits, unit_name, &Unit::name);
    if (unit == std::end(kUnits)) unit = &kCounts;
    scale_ = unit->scale;
    sample_ = {};
    std::string event;
    if (is_own_) {
      if (const auto colon = name.find(": "); colon != std::string::npos) event = name.substr(0, colon);
      set_process(name);
    } else {
      sample_.comm = builder_.string(profiles > 1 && !name.empty() ? name : "all");
    }
    sample_.event = event_of(*unit, event);
    if (type == "sampled") return read_sampled(profile);
    if (type == "evented") return read_evented(profile);
    error_ = Error{ErrorCode::kUnsupported, "a profile that is neither sampled nor evented", profile.where()};
  }

  // In the event's unit; nothing for a difference, which a profile cannot have.
  std::uint64_t scaled(double weight) const {
    const double value = std::round(weight * scale_);
    return value > 0 && value < 9e18 ? static_cast<std::uint64_t>(value) : 0;
  }
  void add(double weight) {
    const std::uint64_t value = scaled(weight);
    if (value == 0) return;
    set_value(value);
    builder_.add(sample_);
  }
  void set_value(std::uint64_t value) {
    sample_.value = value;
    sample_.count = builder_.edit().events[sample_.event].unit == "count" ? value : 1;
  }

  bool take_frame(const JsonValue& value, std::uint32_t& frame) {
    const auto index = value.index();
    if (index && *index < frames_.size()) {
      frame = static_cast<std::uint32_t>(*index);
      return true;
    }
    error_ = Error{ErrorCode::kOutOfRange, "a frame that the list of frames does not have", value.where()};
    return false;
  }

  void read_sampled(const JsonValue& profile) {
    std::vector<double> weights;
    profile["weights"].for_each([&](const JsonValue& weight) {
      weights.push_back(weight.number().value_or(0));
      return true;
    });
    const JsonValue samples = profile["samples"];
    std::size_t number = 0;
    const std::uint32_t thread = sample_.comm;
    samples.for_each([&](const JsonValue& stack) {
      sample_.comm = thread;
      sample_.end = 0;
      stack_.clear();
      stack.for_each([&](const JsonValue& value) {
        std::uint32_t frame = 0;
        if (!take_frame(value, frame)) return false;
        stack_.push_back(frame);
        return true;
      });
      if (error_) return false;
      set_stack();
      add(number < weights.size() ? weights[number] : weights.empty() ? 1 : 0);
      ++number;
      return builder_.has_room();
    });
  }

  // `stack_`, the root first, as the sample's.
  void set_stack() {
    std::size_t first = 0;
    if (is_own_ && !stack_.empty()) {
      sample_.comm = frame_names_[stack_[0]];
      first = 1;
      for (std::uint8_t end = 0; end < WL_END_COUNT && stack_.size() > 1; ++end)
        if (profile::is_truncated(end) && builder_.edit().strings[frame_names_[stack_[1]]] ==
                                              std::string("[truncated: ") + profile::end_text(end) + "]") {
          sample_.end = end;
          first = 2;
        }
    }
    sample_.locations.clear();
    for (std::size_t i = stack_.size(); i-- > first;) sample_.locations.push_back(frames_[stack_[i]]);
  }

  // A stack of open frames: the one of its callers, and its innermost frame.
  struct OpenStack {
    std::uint32_t callers = 0, frame = 0, sample = kNone;  // `sample`: none before time was spent in it
  };
  std::uint32_t open(std::uint32_t callers, std::uint32_t frame) {
    const auto [entry, is_new] =
        stack_numbers_.try_emplace(std::uint64_t{callers} << 32 | frame, static_cast<std::uint32_t>(stacks_.size()));
    if (is_new) stacks_.push_back({callers, frame});
    return entry->second;
  }
  void spend(std::uint32_t number, double weight) {
    const std::uint64_t value = scaled(weight);
    if (value == 0) return;
    OpenStack& stack = stacks_[number];
    if (stack.sample == kNone) {
      stack_.clear();
      for (std::uint32_t at = number; at != 0; at = stacks_[at].callers) stack_.push_back(stacks_[at].frame);
      std::ranges::reverse(stack_);
      set_stack();
      stack.sample = builder_.sample_of_reference(sample_);
    }
    set_value(value);
    builder_.add_to(stack.sample, sample_);
  }

  // { "type": "O" or "C", "frame", "at" }: what is open between two events is a sample of that time.
  void read_evented(const JsonValue& profile) {
    double last = 0;
    stacks_ = {{}};  // the first one has no frame
    stack_numbers_.clear();
    std::uint32_t now = 0;
    profile["events"].for_each([&](const JsonValue& event) {
      JsonValue type, frame_value, at;
      event.for_each_member([&](std::string_view key, const JsonValue& value) {
        if (key == "type") type = value;
        if (key == "frame") frame_value = value;
        if (key == "at") at = value;
      });
      std::uint32_t frame = 0;
      if (!take_frame(frame_value, frame)) return false;
      const double time = at.number().value_or(last);
      if (now != 0 && time > last) spend(now, time - last);
      last = time;
      const std::string kind = type.string();
      if (kind == "O") {
        now = open(now, frame);
      } else if (kind == "C" && now != 0 && stacks_[now].frame == frame) {
        now = stacks_[now].callers;
      } else {
        error_ = Error{ErrorCode::kMalformed, "an event neither opens a frame nor closes the one opened last",
                       event.where()};
        return false;
      }
      return builder_.has_room();
    });
  }

  JsonValue root_;
  ProfileBuilder builder_;
  bool is_own_ = false;                                                  // write_speedscope() made it
  std::vector<std::uint32_t> frames_;                                    // their locations
  std::vector<std::uint32_t> frame_names_;                               // in the profile's strings
  std::map<std::pair<std::string, std::string>, std::uint32_t> events_;  // by name and unit
  std::optional<Error> error_;
  double scale_ = 1;
  profile::Sample sample_;            // at hand
  std::vector<std::uint32_t> stack_;  // at hand: frames, the root first
  std::vector<OpenStack> stacks_;     // of an evented profile
  std::unordered_map<std::uint64_t, std::uint32_t> stack_numbers_;
};

}  // namespace

Expected<profile::Profile> read_speedscope(std::string_view text, const Limits& limits) {
  const auto root = JsonValue::parse(text);
  if (!root) return Failure(root.error());
  return SpeedscopeReader(*root, limits).read();
}

}  // namespace windlass::importer
