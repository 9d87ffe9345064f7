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

// Returns whether there was anything to list.
bool list_elf(ByteView file, const Listers& listers, TextWriter& out, dwarf::ErrorSink report) {
  const auto image = image::ElfImage::parse(file);
  if (!image) {
    report(image.error());
    return true;
  }
  for (const Error& problem : image->problems()) report(problem);
  const auto found = image::find_unwind_sections(*image, report);
  for (const dwarf::CfiSection& section : found.sections) {
    if (!out.closed()) listers.section(section, out, report);
  }
  return !found.sections.empty();
}

bool list_pe(ByteView file, const Listers& listers, TextWriter& out, dwarf::ErrorSink report) {
  const auto image = image::PeImage::parse(file);
  if (!image) {
    report(image.error());
    return true;
  }
  for (const Error& problem : image->problems()) report(problem);
  if (image->exception_directory().empty()) return false;
  listers.pe(*image, out, report);
  return true;
}

}  // namespace

int list_file(const ListingOptions& options, const Listers& listers) {
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
    const bool is_pe = image::PeImage::sniff(file->bytes());
    const bool listed =
        is_pe ? list_pe(file->bytes(), listers, out, report) : list_elf(file->bytes(), listers, out, report);
    if (!listed && status == kDone) std::fprintf(stderr, "windlass: %s: no unwind information\n", options.file.c_str());
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
