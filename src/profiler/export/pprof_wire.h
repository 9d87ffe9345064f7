// Fields of protocol buffers of unknown origin. A field of another wire type throws a protozero::exception.
#pragma once

#include <cstdint>
#include <protozero/pbf_reader.hpp>

namespace windlass::exporter {

// protozero takes the field's wire type for granted (it asserts); a hostile file may give any.
inline void must_be(const protozero::pbf_reader& field, protozero::pbf_wire_type type) {
  if (field.wire_type() != type) throw protozero::unknown_pbf_wire_type_exception();
}
inline std::uint64_t varint_of(protozero::pbf_reader& field) {
  must_be(field, protozero::pbf_wire_type::varint);
  return field.get_uint64();
}
inline std::int64_t signed_of(protozero::pbf_reader& field) { return static_cast<std::int64_t>(varint_of(field)); }
inline protozero::data_view view_of(protozero::pbf_reader& field) {
  must_be(field, protozero::pbf_wire_type::length_delimited);
  return field.get_view();
}
inline protozero::pbf_reader message_of(protozero::pbf_reader& field) { return protozero::pbf_reader(view_of(field)); }

}  // namespace windlass::exporter
