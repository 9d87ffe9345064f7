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
#include "formats/winarm64/read.h"
#include "formats/winx64/read.h"

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

class ImageFinder final : public sources::FormatVisitor {
 public:
  void winx64(const sources::UnwindSource&, const winx64::Functions& functions) override {
    image_ = &functions.image();
  }
  void winarm64(const sources::UnwindSource&, const winarm64::Functions& functions) override {
    image_ = &functions.image();
  }
  void rows(const sources::UnwindSource&) override {}

  [[nodiscard]] const image::PeImage* image() const { return image_; }

 private:
  const image::PeImage* image_ = nullptr;
};

void print_ranges(TextWriter& out, std::span<const image::CodeRange> ranges, bool json) {
  if (!ranges.empty() && !json) out.text("Code ranges:\n");
  for (const image::CodeRange& range : ranges) {
    const std::uint64_t end = std::uint64_t{range.begin} + range.size;
    const std::string_view machine = image::machine_name(range.machine);
    if (json)
      put(out, "{\"begin\":", range.begin, ",\"end\":", end, ",\"machine\":", JsonString{machine}, "}\n");
    else
      put(out, "  ", Hex{range.begin}, "..", Hex{end}, "  ", machine, '\n');
  }
}

// All function tables of a file: ARM64EC and ARM64X images have two.
bool list_all(const sources::UnwindSource& source, const ListingOptions& options, TextWriter& out,
              sources::ErrorSink report, Lister list) {
  ImageFinder finder;
  source.accept(finder);
  if (finder.image() != nullptr && options.ranges) print_ranges(out, finder.image()->code_ranges(), options.json);
  bool listed = list(source, out, report, options.json);
  const auto extra = finder.image() != nullptr ? sources::make_extra_source(*finder.image()) : nullptr;
  if (extra != nullptr) listed = list(*extra, out, report, options.json) || listed;
  return listed;
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
      if (status != kRefused)
        status = error.code == ErrorCode::kUnsupported && options.errors_apart ? kRefused : kFoundWrong;
      if (options.errors_apart)
        say_error(options.file, error);
      else
        print_error(out, error, options.json);
    };
    const auto source = sources::open_source(file->bytes(), image::PeLayout::kFile);
    if (source) {
      for (const Error& problem : (*source)->problems()) report(problem);
      if (!list_all(**source, options, out, report, list) && status == kDone)
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
