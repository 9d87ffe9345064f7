#include "export/speedscope.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "export/frames.h"
#include "export/json_text.h"
#include "export/stacks.h"

namespace windlass::exporter {

namespace {

class SpeedscopeWriter {
 public:
  SpeedscopeWriter(const profile::Profile& profile, Output& out) : profile_(profile), out_(out), frames_(profile) {}

  Expected<void> write() {
    std::map<std::uint32_t, DistinctStacks> by_process;
    DistinctStacks all;
    all.add_all(profile_.samples);
    for (const auto& sample : profile_.samples) by_process[sample.pid].add(sample);
    // Every frame of comms and ends must be known before the frame list is written.
    for (const auto& stack : all.stacks()) {
      frames_.of_comm(stack.sample->comm);
      if (profile::is_truncated(stack.sample->end)) frames_.of_end(stack.sample->end);
    }
    out_.write(
        fmt::format(R"({{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"windlass {}",)",
                    WINDLASS_VERSION));
    out_.write(R"("name":"windlass","activeProfileIndex":0,"shared":{"frames":[)");
    write_frames();
    out_.write("]},\"profiles\":[\n");
    write_profile(by_process.size() > 1 ? "all processes" : process_name(all), all);
    if (by_process.size() > 1) {
      for (const auto* process : by_weight(by_process)) {
        out_.write(",\n");
        write_profile(process_name(*process), *process);
      }
    }
    out_.write("]}\n");
    return out_.finish();
  }

 private:
  static std::uint64_t weight(const DistinctStacks& stacks) {
    std::uint64_t sum = 0;
    for (const auto& stack : stacks.stacks()) sum += stack.count;
    return sum;
  }
  static std::vector<const DistinctStacks*> by_weight(const std::map<std::uint32_t, DistinctStacks>& processes) {
    std::vector<std::pair<std::uint64_t, const DistinctStacks*>> order;
    for (const auto& [pid, stacks] : processes) order.emplace_back(weight(stacks), &stacks);
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<const DistinctStacks*> result;
    for (const auto& [count, stacks] : order) result.push_back(stacks);
    return result;
  }
  // Threads name themselves; the process goes by its main thread's name if that was seen.
  std::string process_name(const DistinctStacks& stacks) {
    if (stacks.stacks().empty()) return "empty";
    const profile::Sample* best = stacks.stacks().front().sample;
    for (const auto& stack : stacks.stacks())
      if (stack.sample->tid == stack.sample->pid) best = stack.sample;
    return fmt::format("{} (pid {})", frames_[frames_.of_comm(best->comm)].name, best->pid);
  }

  void write_frames() {
    for (std::uint32_t id = 0; id < frames_.size(); ++id) {
      const Frame& frame = frames_[id];
      line_.assign(id == 0 ? "\n{\"name\":" : ",\n{\"name\":");
      append_json(line_, frame.name);
      if (!frame.file.empty()) {
        line_ += ",\"file\":";
        append_json(line_, frame.file);
        if (frame.line != 0) fmt::format_to(std::back_inserter(line_), ",\"line\":{}", frame.line);
      } else if (frame.module < profile_.modules.size()) {
        line_ += ",\"file\":";
        append_json(line_, profile_.modules[frame.module].path);
      }
      line_ += '}';
      out_.write(line_);
    }
  }

  void write_profile(const std::string& name, const DistinctStacks& stacks) {
    const std::uint64_t unit = profile_.period_ns != 0 ? profile_.period_ns : 1;
    line_ = "{\"type\":\"sampled\",\"name\":";
    append_json(line_, name);
    out_.write(line_);
    out_.write(fmt::format(",\"unit\":\"{}\",\"startValue\":0,\"endValue\":{},\"samples\":[",
                           profile_.period_ns != 0 ? "nanoseconds" : "none", weight(stacks) * unit));
    bool is_first = true;
    for (const auto& stack : stacks.stacks()) {
      write_stack(*stack.sample, is_first);
      is_first = false;
    }
    out_.write("],\"weights\":[");
    is_first = true;
    for (const auto& stack : stacks.stacks()) {
      out_.write(fmt::format("{}{}", is_first ? "" : ",", stack.count * unit));
      is_first = false;
    }
    out_.write("]}");
  }

  void write_stack(const profile::Sample& sample, bool is_first) {
    line_.assign(is_first ? "[" : ",\n[");
    auto end = std::back_inserter(line_);
    fmt::format_to(end, "{}", frames_.of_comm(sample.comm));
    if (profile::is_truncated(sample.end)) fmt::format_to(end, ",{}", frames_.of_end(sample.end));
    for (auto location = sample.locations.rbegin(); location != sample.locations.rend(); ++location) {
      const auto ids = frames_.of_location(*location);
      for (auto id = ids.rbegin(); id != ids.rend(); ++id) fmt::format_to(end, ",{}", *id);
    }
    line_ += ']';
    out_.write(line_);
  }

  const profile::Profile& profile_;
  Output& out_;
  Frames frames_;
  std::string line_;
};

}  // namespace

Expected<void> write_speedscope(const profile::Profile& profile, Output& out) {
  return SpeedscopeWriter(profile, out).write();
}

}  // namespace windlass::exporter
