// Processes, core files and minidumps.
#include <utility>

#include "capi/handles.h"
#include "capi/structs.h"
#include "walk/inside.h"
#include "windlass/target.h"

using namespace windlass;
using namespace windlass::capi;

namespace {

using OpenDump = Expected<Target> (*)(const std::string&, const DumpOptions&);

windlass_status open_dump(OpenDump open, const char* path, const windlass_files* files, windlass_space** space,
                          windlass_error* error) {
  if (space == nullptr) return invalid("nowhere to put the handle", error);
  *space = nullptr;
  if (path == nullptr) return invalid("there is no path", error);
  DumpOptions options;
  if (!from_c(files, options.files)) return invalid("windlass_files is not set up", error);
  return opened(open(path, options), space, error);
}

}  // namespace

extern "C" {

windlass_status windlass_open_process(int64_t pid, windlass_space** space, windlass_error* error) {
  if (space == nullptr) return invalid("nowhere to put the handle", error);
  *space = nullptr;
  if (pid <= 0) return invalid("no process has this id", error);
  return opened(open_process(static_cast<std::uint64_t>(pid)), space, error);
}

windlass_status windlass_release(windlass_space* space, uint64_t* stopped_ns) {
  if (!usable(space)) return WINDLASS_INVALID;
  const std::uint64_t stood = space->target->release();
  if (stopped_ns != nullptr) *stopped_ns = stood;
  return WINDLASS_OK;
}

windlass_status windlass_refresh(windlass_space* space, windlass_refreshed* changed, windlass_error* error) {
  if (!usable(space)) return invalid("the space is not open", error);
  if (changed != nullptr && !sized(changed)) return invalid("windlass_refreshed is not set up", error);
  if (walk::Inside::live(*space->target) != nullptr) {
    // Cursors hold on to modules that may go: a new number ends them, as closing does.
    space->change();
    space->change();
  }
  const auto refreshed = space->target->refresh();
  if (!refreshed) return report(refreshed.error(), error);
  windlass_refreshed to{};
  to.modules_gone = refreshed->modules_gone;
  to.modules_new = refreshed->modules_new;
  to.executed = refreshed->executed ? 1 : 0;
  if (changed != nullptr) (void)give(to, changed);
  return WINDLASS_OK;
}

windlass_status windlass_open_core(const char* path, const windlass_files* files, windlass_space** space,
                                   windlass_error* error) {
  return open_dump(open_core, path, files, space, error);
}

windlass_status windlass_open_minidump(const char* path, const windlass_files* files, windlass_space** space,
                                       windlass_error* error) {
  return open_dump(open_minidump, path, files, space, error);
}

windlass_status windlass_problem_at(const windlass_space* space, size_t index, windlass_error* problem) {
  if (!usable(space) || !sized(problem)) return WINDLASS_INVALID;
  if (index >= space->target->problems.size()) return WINDLASS_NOT_FOUND;
  report(space->target->problems[index], problem);
  return WINDLASS_OK;
}

windlass_status windlass_note_at(const windlass_space* space, size_t index, const char** text) {
  if (!usable(space) || text == nullptr) return WINDLASS_INVALID;
  if (index >= space->target->notes.size()) return WINDLASS_NOT_FOUND;
  *text = space->target->notes[index].c_str();
  return WINDLASS_OK;
}

}  // extern "C"
