// Fields of protocol buffers of unknown origin. A field of another wire type throws a protozero::exception.
#pragma once

#include <cstddef>
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
// A list of varints, or one by itself.
inline protozero::data_view ids_of(protozero::pbf_reader& field) {
  if (field.wire_type() == protozero::pbf_wire_type::length_delimited) return field.get_view();
  const char* const begin = field.data().data();
  (void)varint_of(field);
  return {begin, static_cast<std::size_t>(field.data().data() - begin)};
}
inline protozero::pbf_reader message_of(protozero::pbf_reader& field) { return protozero::pbf_reader(view_of(field)); }

}  // namespace windlass::exporter
