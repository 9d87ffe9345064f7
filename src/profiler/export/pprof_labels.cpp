#include "profiler/export/pprof_labels.h"

#include <functional>
#include <new>
#include <utility>

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

std::uint64_t hash_of_list(protozero::data_view list) {
  return std::hash<std::string_view>()({list.data(), list.size()});
}

}  // namespace

protozero::data_view PprofLabelLists::bytes_of(const Entry& entry) const {
  return {reinterpret_cast<const char*>(bytes_.data()) + entry.begin, entry.size};
}

const PprofLabelLists::Entry* PprofLabelLists::find(std::uint64_t hash, protozero::data_view list) const {
  return known_.find(hash, [&](const Entry& other) {
    return other.hash == hash && other.size == list.size() &&
           (list.empty() || std::memcmp(bytes_of(other).data(), list.data(), list.size()) == 0);
  });
}

bool PprofLabelLists::add_known(protozero::data_view labels) {
  if (!list_.empty()) return false;
  const Entry* const known = find(hash_of_list(labels), labels);
  if (known != nullptr) number_ = known->number;
  return known != nullptr;
}

void PprofLabelLists::add(protozero::data_view label) {
  if (list_.empty()) {
    list_ = label;
  } else if (scattered_.empty() && list_.data() + list_.size() == label.data()) {
    list_ = {list_.data(), list_.size() + label.size()};
  } else {
    if (scattered_.empty()) scattered_.assign(list_.data(), list_.size());
    scattered_.append(label.data(), label.size());
    list_ = {scattered_.data(), scattered_.size()};
  }
}

std::uint32_t PprofLabelLists::take(std::uint64_t at) {
  if (number_) return *std::exchange(number_, std::nullopt);
  const protozero::data_view list = std::exchange(list_, {});
  Entry entry{.hash = hash_of_list(list), .size = list.size(), .number = size_};
  if (const Entry* const known = find(entry.hash, list)) {
    entry = *known;
  } else {
    const Head head{.at = at, .size = list.size()};
    if (!bytes_.append(&head, sizeof head)) throw std::bad_alloc();
    entry.begin = bytes_.size();
    if (!bytes_.append(list.data(), list.size())) throw std::bad_alloc();
    ++size_;
    known_.add(entry);
  }
  scattered_.clear();
  return entry.number;
}

SampleLabels PprofLabels::read(protozero::data_view list) {
  SampleLabels labels;
  set_.clear();
  wrong_string_.reset();
  for (protozero::pbf_reader fields(list); !wrong_string_ && fields.next();) read_label(view_of(fields), labels);
  labels.set = intern_set();
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
  const auto name = string_at(key);
  if (name == pprof::kPidLabel)
    to.pid = static_cast<std::uint32_t>(value);
  else if (name == pprof::kTidLabel)
    to.tid = static_cast<std::uint32_t>(value);
  else if (name == pprof::kCommLabel)
    to.comm = intern(string_at(text));
  else if (name == pprof::kTruncatedLabel || name == pprof::kEndLabel)
    to.end = end_of(string_at(text));
  else if (name == pprof::kCertaintyLabel)
    to.certainty = certainty_of(string_at(text));
  else if (text != 0)
    set_.push_back({intern(name), intern(string_at(text))});
}

std::string_view PprofLabels::string_at(std::int64_t index) {
  if (index >= 0 && static_cast<std::uint64_t>(index) < strings_.size())
    return strings_[static_cast<std::size_t>(index)];
  if (!wrong_string_) wrong_string_ = index;
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
