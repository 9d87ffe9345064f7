#include "profiler/export/firefox_tables.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "profiler/export/frames.h"

namespace windlass::exporter {
namespace {

struct Category {
  CodeKind kind;
  const char* name;
  const char* colour;
};
// The grey one is what Firefox falls back to.
constexpr Category kCategories[] = {{CodeKind::kOther, "Other", "grey"},
                                    {CodeKind::kUser, "User", "yellow"},
                                    {CodeKind::kKernel, "Kernel", "orange"},
                                    {CodeKind::kGenerated, "Generated code", "green"}};

constexpr int kLibraryResource = 1;
constexpr std::uint64_t kNoAddress = ~std::uint64_t{0};

std::uint64_t pair_key(std::uint32_t a, std::uint32_t b) { return std::uint64_t{a} << 32 | b; }

// The build id as Breakpad has it: 16 bytes as a GUID, of which the first three fields are little-endian, and an age.
std::string breakpad_id(std::string id) {
  if (!std::ranges::all_of(id, [](unsigned char digit) { return std::isxdigit(digit) != 0; })) id.clear();
  id.resize(32, '0');
  constexpr std::size_t kOrder[] = {3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15};
  std::string text;
  for (const std::size_t byte : kOrder) text += id.substr(2 * byte, 2);
  std::ranges::transform(text, text.begin(), [](unsigned char letter) { return std::toupper(letter); });
  return text + "0";
}

// An array of one member of each item.
template <typename Items, typename Write>
void column(JsonWriter& json, std::string_view name, const Items& items, Write write) {
  json.key(name);
  json.begin_array();
  for (const auto& item : items) write(item);
  json.end_array();
}

void number_or_null(JsonWriter& json, std::uint32_t number) {
  if (number == profile::kNone)
    json.null();
  else
    json.value(number);
}

void line_or_null(JsonWriter& json, std::uint32_t line) { number_or_null(json, line == 0 ? profile::kNone : line); }

}  // namespace

std::uint32_t category_of(CodeKind kind) {
  return static_cast<std::uint32_t>(std::ranges::find(kCategories, kind, &Category::kind) - std::begin(kCategories));
}

void write_categories(JsonWriter& json) {
  json.key("categories");
  json.begin_array();
  for (const Category& category : kCategories) {
    json.begin_object();
    json.member("name", category.name);
    json.member("color", category.colour);
    json.key("subcategories");
    json.begin_array();
    json.value("Other");
    json.end_array();
    json.end_object();
  }
  json.end_array();
}

FirefoxTables::FirefoxTables(const profile::Profile& profile)
    : profile_(profile),
      library_of_(profile.modules.size(), profile::kNone),
      location_frames_(profile.locations.size()) {
  for (std::uint32_t i = 0; i < profile.modules.size(); ++i) {
    const std::string& path = profile.modules[i].path;
    if (path == "[anon]" || path == "[unmapped]") continue;
    library_of_[i] = static_cast<std::uint32_t>(libraries_.size());
    libraries_.push_back(i);
    string_of(module_name(profile.modules[i]));
  }
}

std::uint32_t FirefoxTables::string_of(std::string_view text) {
  if (const auto known = string_numbers_.find(text); known != string_numbers_.end()) return known->second;
  const auto number = static_cast<std::uint32_t>(strings_.size());
  string_numbers_.emplace(strings_.emplace_back(text), number);
  return number;
}

std::uint32_t FirefoxTables::source_of(std::string_view file) {
  if (file.empty()) return profile::kNone;
  const std::uint32_t name = string_of(file);
  const auto [known, is_new] = source_numbers_.try_emplace(name, static_cast<std::uint32_t>(sources_.size()));
  if (is_new) sources_.push_back(name);
  return known->second;
}

// Functions of one name in one library are one, as in every other view.
std::uint32_t FirefoxTables::function_of(std::string_view name, std::string_view file, std::uint32_t line,
                                         std::uint32_t module) {
  const std::uint32_t resource = module < library_of_.size() ? library_of_[module] : profile::kNone;
  const std::uint32_t text = string_of(name);
  const auto [known, is_new] =
      function_numbers_.try_emplace(pair_key(text, resource), static_cast<std::uint32_t>(functions_.size()));
  if (is_new) functions_.push_back({text, resource, source_of(file), line});
  return known->second;
}

std::uint32_t FirefoxTables::symbol_of(const profile::Location& location, std::string_view name) {
  const std::uint32_t library = location.module < library_of_.size() ? library_of_[location.module] : profile::kNone;
  if (library == profile::kNone || location.function_begin == 0) return profile::kNone;
  const Symbol symbol{library, string_of(name), location.function_begin};
  const auto [known, is_new] =
      symbol_numbers_.try_emplace(pair_key(symbol.library, symbol.name), static_cast<std::uint32_t>(symbols_.size()));
  if (is_new) symbols_.push_back(symbol);
  return known->second;
}

void FirefoxTables::make_frames(std::uint32_t number) {
  const profile::Location& location = profile_.locations[number];
  std::vector<std::uint32_t>& made = location_frames_[number];
  const CodeKind kind = code_kind(profile_, location);
  const auto add = [&](std::uint32_t function, std::uint32_t symbol, std::uint32_t line) {
    const auto depth = static_cast<std::uint32_t>(made.size());
    made.push_back(static_cast<std::uint32_t>(frames_.size()));
    frames_.push_back({function, symbol, line, depth, location.address, kind});
  };
  std::uint32_t symbol = profile::kNone;
  for (auto line = location.lines.rbegin(); line != location.lines.rend(); ++line) {
    if (line->function >= profile_.functions.size()) continue;
    const profile::Function& function = profile_.functions[line->function];
    if (made.empty()) symbol = symbol_of(location, function.name);
    add(function_of(function.name, function.file, function.start_line, location.module), symbol, line->line);
  }
  if (made.empty()) add(function_of(unnamed_frame(profile_, location), {}, 0, location.module), symbol, 0);
}

// What is no code: that callers are missing, the value of a label.
std::uint32_t FirefoxTables::label_frame(std::string_view text) {
  const auto [known, is_new] = label_frames_.try_emplace(string_of(text), static_cast<std::uint32_t>(frames_.size()));
  if (is_new)
    frames_.push_back({function_of(text, {}, 0, profile::kNone), profile::kNone, 0, 0, kNoAddress, CodeKind::kOther});
  return known->second;
}

// Root first.
std::vector<std::uint32_t> FirefoxTables::frames_of(const profile::Sample& sample) {
  std::vector<std::uint32_t> frames;
  if (const std::uint32_t root = root_of(profile_, sample); root != profile::kNone)
    frames.push_back(label_frame(profile_.strings[root]));
  if (profile::is_truncated(sample.end))
    frames.push_back(label_frame(fmt::format("[truncated: {}]", profile::end_text(sample.end))));
  const std::vector<std::uint32_t> stack = sample.locations;
  for (auto location = stack.rbegin(); location != stack.rend(); ++location) {
    if (location_frames_[*location].empty()) make_frames(*location);
    frames.insert(frames.end(), location_frames_[*location].begin(), location_frames_[*location].end());
  }
  return frames;
}

std::uint32_t FirefoxTables::stack_of(std::uint32_t sample) {
  std::uint32_t stack = profile::kNone;
  for (const std::uint32_t frame : frames_of(profile_.samples[sample])) {
    const auto [known, is_new] =
        stack_numbers_.try_emplace(pair_key(stack, frame), static_cast<std::uint32_t>(stacks_.size()));
    if (is_new) stacks_.push_back({stack, frame});
    stack = known->second;
  }
  return stack;
}

void FirefoxTables::write_libraries(JsonWriter& json) const {
  json.key("libs");
  json.begin_array();
  for (const std::uint32_t number : libraries_) {
    const profile::Module& module = profile_.modules[number];
    const std::string_view name = module_name(module);
    json.next_line();
    json.begin_object();
    json.member("arch", "");
    json.member("name", name);
    json.member("path", module.path);
    json.member("debugName", name);
    json.member("debugPath", module.path);
    json.member("breakpadId", breakpad_id(module.build_id));
    json.member_or_null("codeId", module.build_id);
    json.end_object();
  }
  json.end_array();
}

void FirefoxTables::write_shared(JsonWriter& json) const {
  const auto table = [&](std::string_view name, std::size_t length) {
    json.key(name);
    json.begin_object();
    json.member("length", length);
  };
  const auto fill = [&](std::string_view name, const auto& items, std::string_view text) {
    column(json, name, items, [&](const auto&) { text == "null" ? json.null() : json.value(text == "true"); });
  };
  json.key("shared");
  json.begin_object();

  table("stackTable", stacks_.size());
  column(json, "frame", stacks_, [&](const Stack& one) { json.value(one.frame); });
  column(json, "prefix", stacks_, [&](const Stack& one) { number_or_null(json, one.prefix); });
  json.end_object();

  table("frameTable", frames_.size());
  column(json, "address", frames_, [&](const CodeFrame& one) {
    if (one.address == kNoAddress)
      json.value(-1);
    else
      json.value(one.address);
  });
  column(json, "inlineDepth", frames_, [&](const CodeFrame& one) { json.value(one.depth); });
  column(json, "category", frames_, [&](const CodeFrame& one) { json.value(category_of(one.kind)); });
  column(json, "subcategory", frames_, [&](const CodeFrame&) { json.value(0); });
  column(json, "func", frames_, [&](const CodeFrame& one) { json.value(one.function); });
  column(json, "nativeSymbol", frames_, [&](const CodeFrame& one) { number_or_null(json, one.symbol); });
  fill("innerWindowID", frames_, "null");
  column(json, "line", frames_, [&](const CodeFrame& one) { line_or_null(json, one.line); });
  fill("column", frames_, "null");
  json.end_object();

  table("funcTable", functions_.size());
  column(json, "name", functions_, [&](const Function& one) { json.value(one.name); });
  fill("isJS", functions_, "false");
  fill("relevantForJS", functions_, "false");
  column(json, "resource", functions_, [&](const Function& one) {
    json.value(one.resource == profile::kNone ? -1 : static_cast<std::int64_t>(one.resource));
  });
  column(json, "source", functions_, [&](const Function& one) { number_or_null(json, one.source); });
  column(json, "lineNumber", functions_, [&](const Function& one) { line_or_null(json, one.line); });
  fill("columnNumber", functions_, "null");
  json.end_object();

  // One for each library.
  const auto name_of_library = [&](std::uint32_t module) {
    return string_numbers_.at(module_name(profile_.modules[module]));
  };
  table("resourceTable", libraries_.size());
  column(json, "lib", libraries_, [&](std::uint32_t module) { json.value(library_of_[module]); });
  column(json, "name", libraries_, [&](std::uint32_t module) { json.value(name_of_library(module)); });
  fill("host", libraries_, "null");
  column(json, "type", libraries_, [&](std::uint32_t) { json.value(kLibraryResource); });
  json.end_object();

  table("nativeSymbols", symbols_.size());
  column(json, "libIndex", symbols_, [&](const Symbol& one) { json.value(one.library); });
  column(json, "address", symbols_, [&](const Symbol& one) { json.value(one.address); });
  column(json, "name", symbols_, [&](const Symbol& one) { json.value(one.name); });
  fill("functionSize", symbols_, "null");
  json.end_object();

  table("sources", sources_.size());
  fill("id", sources_, "null");
  column(json, "filename", sources_, [&](std::uint32_t name) { json.value(name); });
  column(json, "startLine", sources_, [&](std::uint32_t) { json.value(1); });
  column(json, "startColumn", sources_, [&](std::uint32_t) { json.value(1); });
  fill("sourceMapURL", sources_, "null");
  json.end_object();

  json.key("stringArray");
  json.begin_array();
  for (const std::string& text : strings_) {
    json.next_line();
    json.value(text);
  }
  json.end_array();
  json.end_object();
}

}  // namespace windlass::exporter
