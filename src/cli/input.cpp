#include "cli/input.h"

#include <csignal>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/commands.h"
#include "image/elf.h"
#include "image/unwind_sections.h"

namespace windlass::cli {
namespace {

void print_error(TextWriter& out, const Error& error, bool json) {
  const std::string what =
      error.detail != 0 ? fmt::format("{} ({:#x})", error.what, error.detail) : std::string(error.what);
  if (json) {
    out.text("{\"error\":");
    out.json_string(what);
    out.text(",\"offset\":");
    out.decimal(error.where);
    out.text("}\n");
  } else {
    out.text("error at ");
    out.hex(error.where);
    out.text(": ");
    out.text(what);
    out.character('\n');
  }
}

int refused(const std::string& file, const Error& error) {
  std::fprintf(stderr, "windlass: %s: %s\n", file.c_str(), error.text().c_str());
  return kRefused;
}

}  // namespace

int list_sections(const ListingOptions& options,
                  FunctionRef<void(const dwarf::CfiSection&, TextWriter&, dwarf::ErrorSink)> list) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that leaves shows as EPIPE
  const auto file = image::MappedFile::open(options.file);
  if (!file) return refused(options.file, file.error());
  int status = kDone;
  int write_error = 0;
  {
    TextWriter out(STDOUT_FILENO);
    const auto report = [&](const Error& error) {
      status = kFoundWrong;
      print_error(out, error, options.json);
    };
    const auto image = image::ElfImage::parse(file->bytes());
    if (!image) {
      report(image.error());
    } else {
      for (const Error& problem : image->problems()) report(problem);
      const auto found = image::find_unwind_sections(*image, report);
      for (const dwarf::CfiSection& section : found.sections) {
        if (!out.closed()) list(section, out, report);
      }
      if (found.sections.empty() && status == kDone)
        std::fprintf(stderr, "windlass: %s: no unwind information\n", options.file.c_str());
    }
    out.flush();
    write_error = out.failed();
  }
  if (write_error != 0) {
    std::fprintf(stderr, "windlass: cannot write the output: %s\n", std::strerror(write_error));
    return kRefused;
  }
  return status;
}

}  // namespace windlass::cli
