#include "cli/input.h"

#include <csignal>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/file_kind.h"
#include "cli/put.h"
#include "cli/say.h"

namespace windlass::cli {
namespace {

void print_error(TextWriter& out, const Error& error, bool json) {
  const std::string what =
      error.detail != 0 ? fmt::format("{} ({:#x})", error.what, error.detail) : std::string(error.what);
  if (json)
    put(out, "{\"error\":", JsonString{what}, ",\"offset\":", error.where, "}\n");
  else
    put(out, "error at ", Hex{error.where}, ": ", what, '\n');
}

}  // namespace

int list_file(const ListingOptions& options, Lister list) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that leaves shows as EPIPE
  const auto file = MappedFile::open(options.file);
  if (!file) {
    say_error(options.file, file.error());
    return kRefused;
  }
  int status = kDone;
  int write_error = 0;
  {
    TextWriter out(STDOUT_FILENO);
    const auto report = [&](const Error& error) {
      status = kFoundWrong;
      print_error(out, error, options.json);
    };
    const auto source = sources::open_source(file->bytes(), image::PeLayout::kFile);
    if (source) {
      for (const Error& problem : (*source)->problems()) report(problem);
      if (!list(**source, out, report, options.json) && status == kDone)
        say("windlass: {}: no unwind information. Way out: windlass emit writes some for an ELF file\n", options.file);
    } else if (options.json) {
      report(source.error());
    } else {
      if (!say_other_kind(options.file, "dump")) say_error(options.file, source.error());
      status = kFoundWrong;
    }
    out.flush();
    write_error = out.failed();
  }
  if (write_error != 0) {
    say_unwritten("standard output", write_error);
    return kRefused;
  }
  return status;
}

}  // namespace windlass::cli
