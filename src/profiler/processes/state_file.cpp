#include "profiler/processes/state_file.h"

#include "os/descriptor.h"
#include "os/mapped_files.h"
#include "os/proc_file.h"

namespace windlass::profiler {

std::string read_state_file(const std::string& path, std::size_t most) {
  const os::Descriptor file(os::open_regular(path));
  if (!file) return {};
  std::string text = os::read_proc_file(file.get(), most + 1);
  if (text.size() > most) text.clear();
  return text;
}

}  // namespace windlass::profiler
