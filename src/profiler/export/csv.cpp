#include "profiler/export/csv.h"

#include <fmt/format.h>

#include "base/shown.h"
#include "profiler/export/call_tree.h"
#include "profiler/export/values.h"

namespace windlass::exporter {

std::string csv_cell(std::string_view text) {
  std::string safe = shown(text);
  const std::size_t first = safe.find_first_not_of(' ');
  if (first != std::string::npos && std::string_view("=+-@").find(safe[first]) != std::string_view::npos)
    safe.insert(0, 1, '\'');
  if (safe.find_first_of(",;\"") == std::string::npos) return safe;
  std::string cell = "\"";
  for (const char c : safe) cell.append(c == '"' ? 2 : 1, c);
  return cell + '"';
}

Expected<void> write_csv(const profile::Profile& profile, TextWriter& out, profile::ValueType type) {
  Frames frames(profile);
  const CallTree tree(profile, frames, type);
  const std::string unit = csv_cell(unit_of(profile, type));
  const std::string value = csv_cell(value_name(profile, type));
  out.text("self,total,unit,function,module,modules,file,line,value\n");
  for (const std::uint32_t id : functions_by_self(frames, tree)) {
    const Frame& frame = frames[id];
    const auto& count = tree.functions()[id];
    out.text(fmt::format("{},{},{},{},{},{},{},{},{}\n", count.self, count.total, unit, csv_cell(frame.name),
                         frame.modules().empty() ? "" : csv_cell(profile.modules[frame.module].path),
                         frame.modules().size(), csv_cell(frame.file),
                         frame.line != 0 ? std::to_string(frame.line) : "", value));
  }
  return out.finish();
}

}  // namespace windlass::exporter
