// Writes JSON (RFC 8259) in order, with commas where they belong. The caller ends each object and array that was begun,
// and writes a value behind each key of an object.
#pragma once

#include <concepts>
#include <string_view>

#include "base/text_writer.h"

namespace windlass {

class JsonWriter {
 public:
  explicit JsonWriter(TextWriter& out) : out_(out) {}

  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_array() { open('['); }
  void end_array() { close(']'); }
  // `name` is written as it is: nothing in it needs escaping.
  void key(std::string_view name) {
    separate();
    out_.character('"');
    out_.text(name);
    out_.text("\":");
    comma_ = false;
  }

  // Any name.
  void escaped_key(std::string_view name) {
    separate();
    out_.json_string(name);
    out_.character(':');
    comma_ = false;
  }

  void value(std::string_view text) {
    separate();
    out_.json_string(text);
  }
  void value(const char* text) { value(std::string_view(text)); }
  void value(bool truth) { literal(truth ? "true" : "false"); }
  void value(std::unsigned_integral auto number) {
    separate();
    out_.decimal(std::uint64_t{number});
  }
  void value(std::signed_integral auto number) {
    separate();
    out_.decimal(std::int64_t{number});
  }
  // With that many digits behind the point.
  void value(double number, int digits) {
    separate();
    out_.fixed(number, digits);
  }
  void null() { literal("null"); }

  template <typename Value>
  void member(std::string_view name, const Value& value) {
    key(name);
    this->value(value);
  }
  void member(std::string_view name, double number, int digits) {
    key(name);
    value(number, digits);
  }
  // null where it is not known.
  template <typename Value>
  void member_or_null(std::string_view name, bool known, const Value& value) {
    key(name);
    known ? this->value(value) : null();
  }
  void member_or_null(std::string_view name, std::string_view text) { member_or_null(name, !text.empty(), text); }

  // The next value of an array on a line of its own.
  void next_line() {
    separate();
    out_.character('\n');
    comma_ = false;
  }
  // Ends a line that is a JSON text by itself; another one may follow.
  void end_text() {
    out_.character('\n');
    comma_ = false;
  }

 private:
  void separate() {
    if (comma_) out_.character(',');
    comma_ = true;
  }
  void open(char bracket) {
    separate();
    out_.character(bracket);
    comma_ = false;
  }
  void close(char bracket) {
    out_.character(bracket);
    comma_ = true;
  }
  void literal(std::string_view text) {
    separate();
    out_.text(text);
  }

  TextWriter& out_;
  bool comma_ = false;  // what was written last is a value that another one may follow
};

}  // namespace windlass
