// report --annotate: one function, line by line and instruction by instruction.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text_writer.h"
#include "cli/page_server.h"
#include "cli/pdb_options.h"
#include "profiler/profile/profile.h"

namespace windlass::cli {

struct AnnotateArguments {
  std::string function;                  // as people name it
  std::vector<std::string> source_maps;  // FROM=TO

  [[nodiscard]] bool wanted() const { return !function.empty(); }
};

void add_annotate_options(CLI::App& command, AnnotateArguments& to);
void add_source_map_option(CLI::App& command, std::vector<std::string>& to);

// Makes `function` the full name of the one function that it means. False: says on stderr why there is none, or which
// it could be; `subject` is the profile's name.
[[nodiscard]] bool find_function(const profile::Profile& profile, std::string_view subject, profile::ValueType value,
                                 std::string& function);

struct AnnotateForm {
  bool json = false;
  unsigned width = 100;
  bool colour = false;
};
[[nodiscard]] Expected<void> write_annotated(const profile::Profile& profile, profile::ValueType value,
                                             const AnnotateArguments& arguments, const PdbSearch& pdb,
                                             const AnnotateForm& form, TextWriter& out);

// What the page asks for, as JSON. The page knows names as shown() has them.
[[nodiscard]] WorkedOut annotated_for_page(const profile::Profile& profile, const PageServer::Question& question,
                                           const std::vector<std::string>& source_maps);

}  // namespace windlass::cli
