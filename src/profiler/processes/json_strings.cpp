#include "profiler/processes/json_strings.h"

#include <nlohmann/json.hpp>

namespace windlass::profiler {
namespace {

constexpr std::size_t kDeepest = 64;

class StringReader final : public nlohmann::json::json_sax_t {
 public:
  explicit StringReader(const JsonSink& sink) : sink_(sink) {}

  bool string(string_t& value) override {
    sink_.string(path_, value);
    return true;
  }
  bool key(string_t& name) override {
    path_.back() = std::move(name);
    return true;
  }
  bool start_object(std::size_t) override { return begin(""); }
  bool end_object() override {
    path_.pop_back();
    if (sink_.end_of_object) sink_.end_of_object(path_);
    return true;
  }
  bool start_array(std::size_t) override { return begin("[]"); }
  bool end_array() override {
    path_.pop_back();
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool begin(const char* name) {
    path_.emplace_back(name);
    return path_.size() <= kDeepest;
  }

  const JsonSink& sink_;
  JsonPath path_;
};

}  // namespace

bool read_json_strings(std::string_view text, const JsonSink& sink) {
  StringReader reader(sink);
  return nlohmann::json::sax_parse(text, &reader);
}

}  // namespace windlass::profiler
