// windlass emit: unwind information for code that has none, as a source text.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "base/text_writer.h"
#include "cli/commands.h"
#include "cli/emit_input.h"
#include "cli/errors.h"
#include "cli/file_kind.h"
#include "cli/say.h"

namespace windlass::cli {
namespace {

struct EmitArguments {
  EmitInput input;
  emit::Mode mode = emit::Mode::kExact;
  bool as_v8 = false;
  emit::TextOptions text;
  std::string output;
};

int refused(const std::string& what, const Error& error) {
  say_error(what, error);
  return error.code == ErrorCode::kSystem ? kRefused : kFoundWrong;
}

int write(const std::string& output, const std::string& text) {
  std::FILE* const file = output.empty() ? stdout : std::fopen(output.c_str(), "w");
  const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = file != nullptr && (output.empty() ? std::fflush(file) : std::fclose(file)) == 0;
  if (written && closed) return kDone;
  say_unwritten(output.empty() ? "standard output" : output, errno);
  return kRefused;
}

int run_emit(const EmitArguments& options) {
  const auto input = read_emit_input(options.input);
  const bool is_blob = !options.input.list.empty();  // of any bytes
  if (!input && !is_blob && say_other_kind(options.input.file, "emit")) return kFoundWrong;
  if (!input) return refused(input.error().subject, input.error().error);
  if (input->functions.empty()) {
    say("windlass: {}: no function without unwind information{}. Way out: symbols in the file, or other --functions\n",
        options.input.file, input->covered != 0 ? fmt::format(" ({} have it already)", input->covered) : "");
    return kFoundWrong;
  }
  if (options.mode == emit::Mode::kWhole && input->several_sections)
    return refused(options.input.file,
                   {ErrorCode::kUnsupported,
                    "--mode whole describes functions of one section only: choose them with --functions"});
  const auto spans = emit::spans_of(
      input->functions,
      {.architecture = input->architecture, .mode = options.mode, .as_v8 = options.as_v8, .read = input->read});
  if (!spans) return refused(options.input.file, spans.error());
  const auto text = emit::text_of(*spans, input->functions, options.text);
  if (!text) return refused(options.input.file, text.error());
  if (const int status = write(options.output, *text); status != kDone) return status;
  const auto other = options.text.syntax == emit::Syntax::kElf ? emit::Span::kWindows : emit::Span::kElf;
  const auto written =
      std::count_if(spans->begin(), spans->end(), [&](const auto& span) { return span.only != other; });
  say("windlass: {} functions, {} descriptions; {} functions were described already\n", input->functions.size(),
      written, input->covered);
  return kDone;
}

// An option that is one of some words.
template <typename Value>
void choice(CLI::App& command, const std::string& name, Value& to, const std::map<std::string, Value>& words,
            const std::string& about) {
  const auto set = [&to, words](const std::string& word) { to = words.at(word); };
  command.add_option_function<std::string>(name, set, about)->check(CLI::IsMember(words));
}

}  // namespace

void register_emit(CLI::App& app, int& status) {
  auto options = std::make_shared<EmitArguments>();
  CLI::App* command = app.add_subcommand(
      "emit", "Unwind information for code that has none, as assembly text: .pdata and .xdata, or .eh_frame");
  choice<emit::Mode>(*command, "--mode", options->mode,
                     {{"whole", emit::Mode::kWhole},
                      {"function", emit::Mode::kFunctions},
                      {"n+1", emit::Mode::kFrames},
                      {"exact", emit::Mode::kExact}},
                     "What is described: all of it as one frame, each function, each function's frames, or (the "
                     "default) what the code does at each instruction");
  choice<emit::Syntax>(*command, "--syntax", options->text.syntax,
                       {{"gas", emit::Syntax::kGas}, {"masm", emit::Syntax::kMasm}, {"elf", emit::Syntax::kElf}},
                       "For Windows in that of binutils and LLVM (the default) or of Microsoft; for ELF");
  choice<Architecture>(*command, "--machine", options->input.architecture,
                       {{"x86-64", Architecture::kX86_64}, {"aarch64", Architecture::kAArch64}}, "Of a blob");
  command->add_option("--functions", options->input.functions, "A pattern of names: 'Builtins_*'")
      ->type_name("PATTERN");
  command->add_option("--base", options->input.base, "The symbol that places count from, instead of each function's")
      ->type_name("SYMBOL");
  command->add_flag("--addresses", options->input.addresses,
                    "Places as numbers: for a program that is linked already and loaded where it was linked");
  command->add_flag("--as-v8", options->as_v8,
                    "n+1 to the byte as V8 has it: leaves too, and from 4 bytes in front of functions on");
  command
      ->add_option("--handler", options->text.handler, "Windows: the symbol of a handler that every description names")
      ->type_name("SYMBOL");
  command->add_option("-o,--output", options->output, "A file instead of standard output")->type_name("FILE");
  command->add_option("FILE", options->input.file, "An ELF object or program, or a blob of code")
      ->required()
      ->type_name("FILE");
  command->add_option("LIST", options->input.list, "Of a blob's functions: lines 'START SIZE NAME', hexadecimal")
      ->type_name("FILE");
  command->callback([options, &status] { status = run_emit(*options); });
}

}  // namespace windlass::cli
