#include "profiler/export/pprof_labels.h"

#include <cstring>

#include "profiler/export/pprof_fields.h"
#include "profiler/export/pprof_wire.h"

namespace windlass::exporter {

namespace {

std::uint8_t end_of(std::string_view text) {
  for (std::uint8_t end = 0; end < WL_END_COUNT; ++end)
    if (text == profile::end_text(end)) return end;
  return WL_END_INTERNAL;  // a reason of another version: still truncated
}

std::uint8_t certainty_of(std::string_view text) {
  std::uint8_t certainty = 0;
  while (certainty < WL_GUESSED && text != profile::certainty_text(certainty)) ++certainty;
  return certainty;
}

}  // namespace

void PprofLabels::add(protozero::data_view label) {
  const auto size = static_cast<std::uint32_t>(label.size());
  bytes_.append(reinterpret_cast<const char*>(&size), sizeof size).append(label.data(), label.size());
}

const SampleLabels& PprofLabels::take() {
  if (last_ == nullptr || bytes_ != last_->first) {
    auto known = known_.find(bytes_);
    if (known == known_.end()) {
      if (known_.size() == kMostKnown) known_.clear();
      known = known_.emplace(bytes_, read()).first;
    }
    last_ = &*known;
  }
  bytes_.clear();
  return last_->second;
}

SampleLabels PprofLabels::read() {
  SampleLabels labels;
  set_.clear();
  for (std::size_t at = 0; at < bytes_.size() && !labels.wrong_string;) {
    std::uint32_t size = 0;
    std::memcpy(&size, bytes_.data() + at, sizeof size);
    at += sizeof size;
    read_label({bytes_.data() + at, size}, labels);
    at += size;
  }
  labels.set = intern_set();
  labels.items = set_.size();
  return labels;
}

void PprofLabels::read_label(protozero::data_view label, SampleLabels& to) {
  std::int64_t key = 0, text = 0, value = 0;
  for (protozero::pbf_reader fields(label); fields.next();) {
    switch (fields.tag()) {
      case pprof::kLabelKey: key = signed_of(fields); break;
      case pprof::kLabelStr: text = signed_of(fields); break;
      case pprof::kLabelNum: value = signed_of(fields); break;
      default: fields.skip();
    }
  }
  const auto name = string_at(key, to);
  if (name == pprof::kPidLabel)
    to.pid = static_cast<std::uint32_t>(value);
  else if (name == pprof::kTidLabel)
    to.tid = static_cast<std::uint32_t>(value);
  else if (name == pprof::kCommLabel)
    to.comm = intern(string_at(text, to));
  else if (name == pprof::kTruncatedLabel || name == pprof::kEndLabel)
    to.end = end_of(string_at(text, to));
  else if (name == pprof::kCertaintyLabel)
    to.certainty = certainty_of(string_at(text, to));
  else if (text != 0)
    set_.push_back({intern(name), intern(string_at(text, to))});
}

std::string_view PprofLabels::string_at(std::int64_t index, SampleLabels& labels) const {
  if (index >= 0 && static_cast<std::uint64_t>(index) < strings_.size())
    return strings_[static_cast<std::size_t>(index)];
  if (!labels.wrong_string) labels.wrong_string = index;
  return {};
}

std::uint32_t PprofLabels::intern(std::string_view text) {
  const auto [entry, is_new] = interned_.try_emplace(text, static_cast<std::uint32_t>(profile_.strings.size()));
  if (is_new) profile_.strings.emplace_back(text);
  return entry->second;
}

std::uint32_t PprofLabels::intern_set() {
  if (set_.empty()) return 0;
  std::string key(reinterpret_cast<const char*>(set_.data()), set_.size() * sizeof(profile::Label));
  const auto [entry, is_new] =
      known_sets_.try_emplace(std::move(key), static_cast<std::uint32_t>(profile_.label_sets.size()));
  if (is_new) profile_.label_sets.push_back(set_);
  return entry->second;
}

}  // namespace windlass::exporter
