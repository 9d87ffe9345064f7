#include "profiler/store/batch_hashes.h"

namespace windlass::store {

std::vector<Label> all_labels(const LabelSet& set) {
  std::vector<Label> all{{std::string(kHostLabel), set.host},
                         {std::string(kProcessLabel), set.process},
                         {std::string(kPidLabel), std::to_string(set.pid)},
                         {std::string(kTidLabel), std::to_string(set.tid)}};
  if (set.thread) all.push_back({std::string(kThreadLabel), *set.thread});
  all.insert(all.end(), set.labels.begin(), set.labels.end());
  return all;
}

HashBytes hash_of(const LabelSet& set, const std::vector<Label>& all) {
  ContentHash hash;
  hash.add(std::uint64_t{set.thread.has_value()});
  for (const Label& label : all) hash.add(label.key).add(label.value);
  return hash.bytes();
}

BatchHashes::BatchHashes(const profile::Profile& profile)
    : profile_(profile),
      modules_(profile.modules.size()),
      functions_(profile.functions.size()),
      frames_(profile.locations.size()) {}

HashBytes BatchHashes::module(std::uint32_t index) {
  if (index >= modules_.size()) return {};
  auto& known = modules_[index];
  if (known) return *known;
  const profile::Module& it = profile_.modules[index];
  known = ContentHash()
              .add(it.path)
              .add(it.build_id)
              .add(it.begin)
              .add(it.end)
              .add(it.file_offset)
              .add(std::uint64_t{it.pid})
              .add(std::uint64_t{it.is_kernel})
              .bytes();
  return *known;
}

HashBytes BatchHashes::function(std::uint32_t index) {
  if (index >= functions_.size()) return {};
  auto& known = functions_[index];
  if (known) return *known;
  const profile::Function& it = profile_.functions[index];
  known = ContentHash().add(it.name).add(it.system_name).add(it.file).add(std::uint64_t{it.start_line}).bytes();
  return *known;
}

HashBytes BatchHashes::frame(std::uint32_t index) {
  auto& known = frames_[index];
  if (known) return *known;
  const profile::Location& it = profile_.locations[index];
  ContentHash hash;
  hash.add(std::uint64_t{it.module < modules_.size()})
      .add(module(it.module))
      .add(it.address)
      .add(it.function_begin)
      .add(std::uint64_t{it.interpreted});
  for (const profile::Line& line : it.lines)
    hash.add(std::uint64_t{line.function < functions_.size()})
        .add(function(line.function))
        .add(std::uint64_t{line.line});
  known = hash.bytes();
  return *known;
}

HashBytes BatchHashes::stack(const std::vector<std::uint32_t>& locations) {
  ContentHash hash;
  for (const std::uint32_t location : locations) hash.add(frame(location));
  return hash.add(std::uint64_t{locations.size()}).bytes();
}

}  // namespace windlass::store
