#include "profiler/import/import.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <span>
#include <system_error>

#include "base/mapped_file.h"
#include "os/readers.h"
#include "profiler/export/gzip.h"
#include "profiler/export/pprof.h"
#include "profiler/import/perf_data.h"
#include "profiler/import/perf_file.h"

namespace windlass::importer {
namespace {

constexpr std::size_t kLook = 4096;

std::string_view text_of(ByteView bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

bool is_text(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte >= 0x20 && byte != 0x7f) || byte == '\n' || byte == '\r' || byte == '\t' || byte == 0x1b;
  });
}

// The first line with content, and whether the next one is further in.
struct FirstLine {
  std::string_view line;
  bool is_head = false;
};
FirstLine first_line(std::string_view text) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos || line.starts_with('#')) continue;
    return {line, text.starts_with('\t') || text.starts_with("  ")};
  }
  return {};
}

// "app  1081 38095.476317:  1001001 cpu-clock: ", then "    1d29 spin+0x39 (/usr/bin/app)". Perf's header is comments.
bool is_perf_script(std::string_view text) {
  const FirstLine first = first_line(text);
  const auto colon = first.line.find(": ");
  const bool has_time = colon != std::string_view::npos && colon != 0 &&
                        std::isdigit(static_cast<unsigned char>(first.line[colon - 1])) != 0 &&
                        first.line.substr(0, colon).find('.') != std::string_view::npos;
  return has_time && (first.is_head || first.line.find_last_of(':') > colon);
}

// "main;f;g 12"
bool is_folded(std::string_view text) {
  std::string_view line = first_line(text).line;
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) line.remove_suffix(1);
  if (line.ends_with(']') && line.rfind(" [") != std::string_view::npos) line = line.substr(0, line.rfind(" ["));
  const auto space = line.find_last_of(" \t");
  return space != std::string_view::npos && line.find(';') < space && space + 1 < line.size() &&
         std::ranges::all_of(line.substr(space + 1), [](unsigned char c) { return std::isdigit(c) != 0; });
}

Expected<Imported> of_profile(FileFormat format, Expected<profile::Profile> profile) {
  if (!profile) return Failure(profile.error());
  Imported result;
  result.format = format;
  result.profile = std::move(*profile);
  return result;
}

Expected<Imported> read_plain(ByteView bytes, FileFormat format, const Limits& limits) {
  const std::string_view text = text_of(bytes);
  switch (format) {
    case FileFormat::kPerfData: {
      auto perf = read_perf_data(bytes, limits);
      if (!perf) return Failure(perf.error());
      return Imported{std::move(perf->profile), format, true, perf->running_kernel, std::move(perf->notes)};
    }
    case FileFormat::kPprof: return of_profile(format, exporter::read_pprof(bytes));
    case FileFormat::kPerfScript: return of_profile(format, read_perf_script(text, limits));
    case FileFormat::kFolded: return of_profile(format, read_folded(text, limits));
    case FileFormat::kSpeedscope: return of_profile(format, read_speedscope(text, limits));
    case FileFormat::kFirefox: return of_profile(format, read_firefox(text, limits));
    case FileFormat::kJfr: return of_profile(format, read_jfr(bytes, limits));
  }
  __builtin_unreachable();
}

// pprof is unpacked while it is read, other formats as a whole. `owned`: as read_pprof() has it.
Expected<Imported> read_packed(ByteView bytes, const Limits& limits, std::vector<std::byte>* owned = nullptr) {
  const std::string head = exporter::gunzip_head(bytes, kLook);
  const ByteView begin(std::as_bytes(std::span(head)).data(), head.size());
  const auto first = head.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && head[first] == '{';  // of which the head may not tell the format
  if (!is_json && format_of(begin) == FileFormat::kPprof && !exporter::is_gzip(begin))
    return of_profile(FileFormat::kPprof, exporter::read_pprof(bytes, {}, owned));
  const auto content = exporter::gunzip(bytes, limits.max_bytes);
  if (!content) return Failure(content.error());
  return read_plain(content->bytes(), format_of(content->bytes()), limits);
}

}  // namespace

FileFormat format_of(ByteView bytes) {
  if (is_perf_file(bytes)) return FileFormat::kPerfData;
  const std::string_view text = text_of(bytes).substr(0, kLook);
  if (text.starts_with(std::string_view("FLR\0", 4))) return FileFormat::kJfr;
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') {
    if (text.find("speedscope.app/file-format-schema") != std::string_view::npos) return FileFormat::kSpeedscope;
    // The list of threads may stand far behind.
    if (text.find("\"meta\"") != std::string_view::npos ||
        text_of(bytes).find("\"preprocessedProfileVersion\"") != std::string_view::npos)
      return FileFormat::kFirefox;
    return text_of(bytes).find("speedscope.app/file-format-schema") != std::string_view::npos ? FileFormat::kSpeedscope
                                                                                              : FileFormat::kPprof;
  }
  if (!is_text(text)) return FileFormat::kPprof;
  if (is_perf_script(text)) return FileFormat::kPerfScript;
  return is_folded(text) ? FileFormat::kFolded : FileFormat::kPprof;
}

Expected<Imported> read_any(ByteView bytes, const Limits& limits) {
  if (!exporter::is_gzip(bytes)) return read_plain(bytes, format_of(bytes), limits);
  return read_packed(bytes, limits);
}

Expected<Imported> read_any_file(const std::string& path, const Limits& limits) {
  MappedFile mapped;
  std::error_code unknown;
  if (path != "-" && std::filesystem::is_regular_file(path, unknown))  // who writes a pipe sees that it was closed
    if (auto file = MappedFile::open(path); file && is_perf_file(file->bytes())) mapped = std::move(*file);
  std::vector<std::byte> read;
  ByteView bytes = mapped.bytes();
  if (bytes.empty()) {
    auto all = exporter::read_bytes(path, limits.max_bytes);
    if (!all) return Failure(all.error());
    if (all->empty()) return fail(ErrorCode::kMalformed, "the input is empty", 0);
    read = std::move(*all);
    bytes = ByteView(read.data(), read.size());
  }
  // A recording says which files are opened next.
  if (is_perf_file(bytes) && os::readers() == nullptr) os::use_readers(os::Readers::start());
  return exporter::is_gzip(bytes) ? read_packed(bytes, limits, &read) : read_any(bytes, limits);
}

}  // namespace windlass::importer
