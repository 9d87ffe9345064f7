#include "base/json_writer.h"
#include "profiler/annotate/annotation_output.h"
#include "profiler/annotate/jump_lanes.h"

namespace windlass::annotate {

namespace {

class JsonForm {
 public:
  JsonForm(SourceText& source, TextWriter& out) : source_(source), json_(out) {}

  void head(const profile::Profile& profile, profile::ValueType type, const Annotation& annotation) {
    begin("annotation");
    json_.member("function", annotation.function);
    json_.member("value", name_of(profile, type));
    json_.member("unit", unit_of(profile, type));
    json_.member("all", annotation.all);
    weight(annotation.weight);
    json_.member("more_parts", std::uint64_t{annotation.more_parts});
    json_.member("without_code", annotation.without_code.total);
    end();
  }

  void source_line(const std::string& file, const SourceLine& line) {
    begin("source_line");
    place(file, line.line);
    const bool is_known = line.line != 0 && source_.has(file);
    json_.member_or_null("text", is_known, source_.line(file, line.line));
    weight(line.weight);
    json_.key("inlined");
    json_.begin_array();
    for (const auto& [function, total] : line.inlined) {
      json_.begin_object();
      json_.member("function", function);
      json_.member("total", total);
      json_.end_object();
    }
    json_.end_array();
    end();
  }

  void code(const std::string& module, const CodePart& part) {
    begin("code");
    json_.member("module", module);
    json_.member_or_null("function", part.function);
    json_.member("architecture", machine_text(part.architecture));
    weight(part.weight);
    end();
    const std::vector<std::string> lanes = jump_lanes(part.lines);
    for (std::size_t i = 0; i < part.lines.size(); ++i) instruction(part.lines[i], lanes[i]);
  }

 private:
  void instruction(const CodeLine& line, const std::string& jumps) {
    begin("instruction");
    json_.member("address", line.instruction.address);
    json_.member("bytes", line.bytes);
    json_.member("text", line.instruction.text);
    json_.member_or_null("target", line.instruction.target.has_value(), line.instruction.target.value_or(0));
    json_.member("jumps", jumps);
    weight(line.weight);
    place(line.file, line.line);
    json_.key("inlined");
    json_.begin_array();
    for (const std::string& function : line.inlined) json_.value(function);
    json_.end_array();
    end();
  }

  void begin(const char* type) {
    json_.begin_object();
    json_.member("type", type);
  }
  void end() {
    json_.end_object();
    json_.end_text();
  }
  void weight(const Weight& weight) {
    json_.member("self", weight.self);
    json_.member("total", weight.total);
  }
  void place(const std::string& file, std::uint32_t line) {
    json_.member_or_null("file", file);
    json_.member_or_null("line", line != 0, line);
  }

  SourceText& source_;
  JsonWriter json_;
};

}  // namespace

Expected<void> write_annotation_json(const profile::Profile& profile, profile::ValueType type,
                                     const Annotation& annotation, SourceText& source, TextWriter& out) {
  JsonForm writer(source, out);
  writer.head(profile, type, annotation);
  for (const SourceFile& file : annotation.files)
    for (const SourceLine& line : file.lines) writer.source_line(file.path, line);
  for (const CodePart& part : annotation.parts) writer.code(profile.modules[part.module].path, part);
  return out.finish();
}

}  // namespace windlass::annotate
