// What the command says of its own command line. The option parser has words of its own, which name the parser's types:
// here they become sentences with a way out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace windlass::cli {

// Accepts whole numbers from `least` to `most`, and says so where a value is none.
[[nodiscard]] CLI::Validator number_between(std::uint64_t least, std::uint64_t most);

// Accepts numbers from `least` to `most`, fractions too.
[[nodiscard]] CLI::Validator amount_between(double least, double most);

// Accepts a file that can be read, or a folder.
[[nodiscard]] CLI::Validator readable_file();
[[nodiscard]] CLI::Validator folder();

// The name that `word` was meant to be: the nearest of `names`, if it is near. Empty: none is. The cost of a letter
// left out, added, changed, or swapped with the next is 1; a third of the word's letters may be wrong. A word has four
// letters at least.
[[nodiscard]] std::string_view nearest(std::string_view word, std::span<const std::string> names);

// "there is no option --verison; did you mean --version?", where the command or application has no such option; else
// empty. `word` begins with a dash.
[[nodiscard]] std::string missing_option(const CLI::App& command, const std::string& word);

// Names of the subcommands, in the order in which they are listed.
[[nodiscard]] std::vector<std::string> subcommand_names(const CLI::App& app);

// Help and messages of this application and of its subcommands: to be called when all of them are registered.
void use_own_words(CLI::App& app);

}  // namespace windlass::cli
