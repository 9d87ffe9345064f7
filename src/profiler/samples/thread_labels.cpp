#include "profiler/samples/thread_labels.h"

#include <algorithm>
#include <cstring>
#include <map>

#include <fmt/format.h>

namespace windlass::profiler {
namespace {

std::string text_at(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string hex(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::vector<Label> sorted(std::map<std::string, std::string>&& from) {
  std::vector<Label> labels;
  for (auto& [key, value] : from) labels.push_back({key, std::move(value)});
  return labels;
}

}  // namespace

DecodedLabels decode_context(std::span<const std::byte> text, const std::vector<std::string>& keys) {
  constexpr std::size_t kHead = offsetof(wl_thread_context, attributes);
  wl_thread_context head{};
  if (text.size() < kHead) return {};
  std::memcpy(&head, text.data(), kHead);
  DecodedLabels decoded;
  std::map<std::string, std::string> found;
  const auto is_set = [](std::uint8_t byte) { return byte != 0; };
  if (std::ranges::any_of(head.trace_id, is_set)) found[std::string(label_keys::kTrace)] = hex(head.trace_id);
  if (std::ranges::any_of(head.span_id, is_set)) found[std::string(label_keys::kSpan)] = hex(head.span_id);
  std::span rest = text.subspan(kHead);
  rest = rest.first(std::min<std::size_t>(rest.size(), head.size));
  while (rest.size() >= 2) {
    const auto key = std::to_integer<std::size_t>(rest[0]), size = std::to_integer<std::size_t>(rest[1]);
    if (size > rest.size() - 2) break;  // cut off
    if (key >= keys.size())
      decoded.unknown = true;
    else if (!keys[key].empty())
      found[keys[key]] = text_at(rest.subspan(2, size));
    rest = rest.subspan(2 + size);
  }
  std::erase_if(found, [](const auto& one) { return one.second.empty(); });
  decoded.labels = sorted(std::move(found));
  return decoded;
}

std::vector<Label> decode_goroutine(std::span<const std::byte> text) {
  std::map<std::string, std::string> found;
  for (; text.size() >= sizeof(wl_go_label); text = text.subspan(sizeof(wl_go_label))) {
    wl_go_label label;
    std::memcpy(&label, text.data(), sizeof label);
    if (label.key_size == 0 || label.key_size > WL_GO_KEY || label.value_size == 0 || label.value_size > WL_GO_VALUE)
      continue;
    found[text_at(text.subspan(offsetof(wl_go_label, key), label.key_size))] =
        text_at(text.subspan(offsetof(wl_go_label, value), label.value_size));
  }
  return sorted(std::move(found));
}

DecodedLabels ThreadLabels::decode(std::uint32_t tgid, std::span<const std::byte> text, std::uint64_t now) {
  if (keys_.size() >= kMostProcesses && !keys_.contains(tgid)) keys_.clear();
  Keys& keys = keys_[tgid];
  DecodedLabels decoded = decode_context(text, keys.names);
  if (!decoded.unknown || now < keys.next_read || !read_) return decoded;
  if (auto names = read_(tgid)) keys.names = std::move(*names);
  decoded = decode_context(text, keys.names);
  if (decoded.unknown) keys.next_read = now + kReadInterval;
  return decoded;
}

bool ThreadLabels::take(const wl_event_head& head, std::size_t size, std::uint64_t now) {
  const auto& event = reinterpret_cast<const wl_label_event&>(head);
  if (size < sizeof event || event.size > size - sizeof event) return false;
  const std::span text(reinterpret_cast<const std::byte*>(&event + 1), event.size);
  const bool of_goroutine = event.kind == WL_LABELS_GO_MAP || event.kind == WL_LABELS_GO_SLICE;
  if (known_.size() >= ProcessLabelSets::kMostSets && !known_.contains(head.labels)) return true;
  Known& known = known_[head.labels];
  known = {.tgid = head.tgid, .labels = {}};
  if (of_goroutine) {
    known.labels = decode_goroutine(text);
    return true;
  }
  DecodedLabels decoded = decode(head.tgid, text, now);
  known.labels = std::move(decoded.labels);
  if (decoded.unknown) known.text.assign(text.begin(), text.end());
  return true;
}

std::uint32_t ThreadLabels::of(std::uint32_t of_process, std::uint64_t labels, ProcessLabelSets& sets,
                               std::uint64_t now) {
  const auto found = known_.find(labels);
  if (labels == 0) return of_process;
  if (found == known_.end()) {
    ++unknown_;
    return of_process;
  }
  Known& known = found->second;
  if (!known.text.empty()) {  // the process may have published the names since
    DecodedLabels decoded = decode(known.tgid, known.text, now);
    if (decoded.labels != known.labels) known.sets.clear();
    known.labels = std::move(decoded.labels);
    if (!decoded.unknown) known.text.clear();
  }
  const auto [set, is_new] = known.sets.try_emplace(of_process, of_process);
  if (is_new) set->second = sets.with(of_process, known.labels);
  return set->second;
}

void ThreadLabels::keep_only(const std::function<bool(std::uint32_t tgid)>& known) {
  std::erase_if(keys_, [&](const auto& one) { return !known(one.first); });
  std::erase_if(known_, [&](const auto& one) { return !known(one.second.tgid); });
}

}  // namespace windlass::profiler
