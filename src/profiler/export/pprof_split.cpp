#include "profiler/export/pprof_split.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <protozero/pbf_reader.hpp>

#include "profiler/export/pprof_fields.h"
#include "profiler/export/pprof_wire.h"

namespace windlass::exporter {

namespace {

constexpr std::size_t kLongestVarint = 10;

// Returns how many bytes it takes; 0: it may go on behind them.
std::size_t varint_at(const char* bytes, std::size_t size, std::uint64_t& value) {
  value = 0;
  for (std::size_t i = 0; i < std::min(size, kLongestVarint); ++i) {
    value |= static_cast<std::uint64_t>(bytes[i] & 0x7f) << (7 * i);
    if ((bytes[i] & 0x80) == 0) return i + 1;
  }
  if (size >= kLongestVarint) throw protozero::varint_too_long_exception();
  return 0;
}

void append(PageBuffer& to, const void* bytes, std::size_t size) {
  if (!to.append(bytes, size)) throw std::bad_alloc();
}

}  // namespace

std::size_t PprofSplit::field_size(const char* bytes, std::size_t size) {
  std::uint64_t tag = 0, value = 0;
  const std::size_t head = varint_at(bytes, size, tag);
  if (head == 0) return 0;
  switch (static_cast<protozero::pbf_wire_type>(tag & 7)) {
    case protozero::pbf_wire_type::fixed64: return head + 8;
    case protozero::pbf_wire_type::fixed32: return head + 4;
    case protozero::pbf_wire_type::varint: {
      const std::size_t length = varint_at(bytes + head, size - head, value);
      return length == 0 ? 0 : head + length;
    }
    case protozero::pbf_wire_type::length_delimited: {
      const std::size_t length = varint_at(bytes + head, size - head, value);
      if (value > UINT32_MAX) throw protozero::end_of_buffer_exception();  // no message of protocol buffers is so long
      return length == 0 ? 0 : head + length + static_cast<std::size_t>(value);
    }
    default: throw protozero::unknown_pbf_wire_type_exception();
  }
}

// Completes the field that a piece before has begun. Returns how many bytes that took; all, if it is not complete yet.
std::size_t PprofSplit::take_begun(protozero::data_view bytes) {
  std::size_t used = 0;
  while (used < bytes.size()) {
    const std::size_t size = field_size(begun_.data(), begun_.size());
    const std::size_t wanted = size == 0 ? 1 : size - begun_.size();
    const std::size_t got = std::min(wanted, bytes.size() - used);
    begun_.append(bytes.data() + used, got);
    used += got;
    if (field_size(begun_.data(), begun_.size()) != begun_.size()) continue;
    take_field({begun_.data(), begun_.size()});
    begun_.clear();
    break;
  }
  return used;
}

void PprofSplit::add(ByteView piece) {
  const char* at = reinterpret_cast<const char*>(piece.data());
  const char* const end = at + piece.size();
  if (!begun_.empty()) at += take_begun({at, piece.size()});
  while (at != end && !is_full()) {
    const auto left = static_cast<std::size_t>(end - at);
    const std::size_t size = field_size(at, left);
    if (size == 0 || size > left) {
      begun_.assign(at, left);
      return;
    }
    take_field({at, size});
    at += size;
  }
}

void PprofSplit::finish() { stacks_.finish(); }

void PprofSplit::check_end() const {
  if (!begun_.empty()) throw protozero::end_of_buffer_exception();
}

std::optional<Error> PprofSplit::error() const {
  if (stacks_.error()) return stacks_.error();
  if (items() <= most_items_) return std::nullopt;
  return Error{ErrorCode::kLimit, kTooManyItems, at_, most_items_};
}

void PprofSplit::take_field(protozero::data_view field) {
  protozero::pbf_reader top(field);
  if (!top.next()) return;
  if (top.tag() == pprof::kSample) {
    take_sample(view_of(top));
  } else {
    const auto run = places_.empty() ? std::pair<std::size_t, std::uint64_t>{} : places_.back();
    if (at_ - run.second != others_.size() - run.first) {
      places_.emplace_back(others_.size(), at_);
      items_ += sizeof places_.front() / kItemBytes;
    }
    append(others_, field.data(), field.size());
  }
  at_ += field.size();
}

void PprofSplit::take_sample(protozero::data_view fields) {
  const std::size_t place = records_.size();
  Record sample;
  append(records_, &sample, sizeof sample);
  const char *begin = fields.data(), *const end = begin + fields.size();
  for (protozero::pbf_reader reader(fields); reader.next(); begin = reader.data().data()) {
    if (reader.tag() == pprof::kSampleLocationId) {
      stacks_.add(ids_of(reader));
    } else if (reader.tag() == pprof::kSampleLabel) {
      if (labels_.add_known({begin, static_cast<std::size_t>(end - begin)})) break;
      (void)view_of(reader);
      labels_.add({begin, static_cast<std::size_t>(reader.data().data() - begin)});
    } else {
      reader.skip();
      append(records_, begin, static_cast<std::size_t>(reader.data().data() - begin));
    }
  }
  sample.labels = labels_.take(at_);
  sample.rest = static_cast<std::uint32_t>(records_.size() - place - sizeof sample);
  std::memcpy(records_.data() + place, &sample, sizeof sample);
  items_ += sizeof(profile::Sample) / kItemBytes;
  stacks_.end_sample(at_, items_);
  ++samples_;
}

std::uint64_t PprofSplit::place_of(std::size_t other) const {
  const auto behind = std::ranges::upper_bound(places_, other, {}, &std::pair<std::size_t, std::uint64_t>::first);
  if (behind == places_.begin()) return 0;
  return std::prev(behind)->second + (other - std::prev(behind)->first);
}

}  // namespace windlass::exporter
