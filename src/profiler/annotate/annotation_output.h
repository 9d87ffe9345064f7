// An annotation for people and for programs.
#pragma once

#include <string>

#include "base/text_writer.h"
#include "profiler/annotate/annotation.h"
#include "profiler/annotate/source_text.h"

namespace windlass::annotate {

struct TextOptions {
  unsigned width = 100;  // columns
  bool colour = false;   // ANSI colours
  std::size_t near = 6;  // lines without samples shown on each side of one with samples
};

// Source lines with their shares, then each part of the code with its lines beside it.
[[nodiscard]] Expected<void> write_annotation(const profile::Profile& profile, profile::ValueType type,
                                              const Annotation& annotation, SourceText& source, TextWriter& out,
                                              const TextOptions& options);

// One JSON object a line:
//   {"type":"annotation","function":"...","value":"...","unit":"...","all":N,"self":N,"total":N,"more_parts":N,
//    "without_code":N}
//   {"type":"source_line","file":"..."|null,"line":N|null,"text":"..."|null,"self":N,"total":N,
//    "inlined":[{"function":"...","total":N}]}
//   {"type":"code","module":"...","function":"..."|null,"architecture":"...","self":N,"total":N}
//   {"type":"instruction","address":N,"bytes":"...","text":"...","target":N|null,"self":N,"total":N,
//    "file":"..."|null,"line":N|null,"inlined":["..."]}    of the code before it
[[nodiscard]] Expected<void> write_annotation_json(const profile::Profile& profile, profile::ValueType type,
                                                   const Annotation& annotation, SourceText& source, TextWriter& out);

}  // namespace windlass::annotate
