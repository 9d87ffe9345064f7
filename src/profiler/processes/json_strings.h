// The strings of a JSON text, without a tree of it in memory: whoever wrote the text cannot make the reader use more
// memory than the text has.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace windlass::profiler {

// The keys that lead to a value from the outermost object; "[]" for each array.
using JsonPath = std::vector<std::string>;

struct JsonSink {
  std::function<void(const JsonPath&, std::string& value)> string;
  std::function<void(const JsonPath&)> end_of_object = {};
};

// False if it is no JSON, or is nested deeper than 64: what the sink was given is of no use then.
[[nodiscard]] bool read_json_strings(std::string_view text, const JsonSink& sink);

}  // namespace windlass::profiler
