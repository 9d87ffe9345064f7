#include "cli/annotate.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "base/shown.h"
#include "cli/say.h"
#include "profiler/annotate/annotation.h"
#include "profiler/annotate/annotation_output.h"
#include "profiler/export/values.h"
#include "symbols/debuginfod_program.h"

namespace windlass::cli {

void add_annotate_options(CLI::App& command, AnnotateArguments& to) {
  command
      .add_option("--annotate", to.function,
                  "shares of this function's source lines and instructions; a name, or a part of one; with --json, too")
      ->check([](const std::string& text) -> std::string { return text.empty() ? "no function is named" : ""; })
      ->type_name("FUNCTION");
  add_source_map_option(command, to.source_maps);
  command.get_option("--source-map")->needs("--annotate");
}

void add_source_map_option(CLI::App& command, std::vector<std::string>& to) {
  command
      .add_option("--source-map", to, "source files whose path begins with FROM are below TO here; again for several")
      ->check(CLI::Validator(
          [](const std::string& text) {
            const std::size_t mark = text.find('=');
            return mark == text.npos || mark == 0 ? "no FROM=TO: " + text : std::string();
          },
          "", ""))
      ->type_name("FROM=TO");
}

bool find_function(const profile::Profile& profile, std::string_view subject, profile::ValueType value,
                   std::string& function) {
  constexpr std::size_t kMost = 10;
  const auto found = annotate::functions_named(profile, value, function);
  if (found.size() == 1) {
    function = found.front().first;
    return true;
  }
  if (found.empty()) {
    say("windlass: {}: no sample has a function {}. Way out: --functions 100 lists the functions that samples have\n",
        subject, function);
    return false;
  }
  say("windlass: {}: {} functions fit {}. Way out: name one of them in full\n", subject, found.size(), function);
  for (std::size_t i = 0; i < std::min(found.size(), kMost); ++i) say("  {}\n", found[i].first);
  if (found.size() > kMost) say("  and {} more\n", found.size() - kMost);
  return false;
}

Expected<void> write_annotated(const profile::Profile& profile, profile::ValueType value,
                               const AnnotateArguments& arguments, const PdbSearch& pdb, const AnnotateForm& form,
                               TextWriter& out) {
  annotate::SourceText::Moves moves;
  for (const std::string& map : arguments.source_maps) {
    const std::size_t mark = map.find('=');
    moves.emplace_back(map.substr(0, mark), map.substr(mark + 1));
  }
  annotate::AnnotateOptions options;
  options.symbols.pdb_files = pdb.files;
  options.symbols.symbol_path = pdb.symbol_path;
  const annotate::Annotation annotation = annotate::annotate(profile, value, arguments.function, options);
  annotate::SourceText source(std::move(moves), [&](const std::string& path) {
    for (const annotate::CodePart& part : annotation.parts) {
      const int found = symbols::find_source_by_debuginfod(profile.modules[part.module].build_id, path);
      if (found >= 0) return found;
    }
    return -1;
  });
  if (form.json) return annotate::write_annotation_json(profile, value, annotation, source, out);
  return annotate::write_annotation(profile, value, annotation, source, out,
                                    {.width = form.width, .colour = form.colour});
}

WorkedOut annotated_for_page(const profile::Profile& profile, const PageServer::Question& question,
                             const std::vector<std::string>& source_maps) {
  const auto values = exporter::named_values(profile);
  const auto value = std::ranges::find(values, question.value, [](const auto& one) { return shown(one.name); });
  if (value == values.end()) return {.text = "The profile has no such value."};
  const auto functions = annotate::functions_named(profile, value->type, "");  // all of them
  const auto function =
      std::ranges::find(functions, question.function, [](const auto& one) { return shown(one.first); });
  if (function == functions.end()) return {.text = "No sample has such a function."};
  WorkedOut answer;
  TextWriter out(&answer.text);
  auto written = write_annotated(profile, value->type, {.function = function->first, .source_maps = source_maps}, {},
                                 {.json = true}, out);
  if (written) written = out.finish();
  answer.good = written.has_value();
  return answer;
}

}  // namespace windlass::cli
