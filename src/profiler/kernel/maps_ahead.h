// Makes maps of an opened object on a thread of its own, while types are read: the kernel clears tens of megabytes.
#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

#include <thread>

struct bpf_map;

namespace windlass::profiler {

class MapsAhead {
 public:
  // Their sizes are set already. The object outlives this.
  explicit MapsAhead(std::initializer_list<bpf_map*> maps);
  ~MapsAhead();
  MapsAhead(const MapsAhead&) = delete;
  MapsAhead& operator=(const MapsAhead&) = delete;

  // Waits for the maps, and gives them to the object. A map that could not be made is left to the object, which says
  // why.
  void give();

 private:
  std::vector<std::pair<bpf_map*, int>> made_;  // with their descriptors
  std::thread thread_;                          // last: it uses the others
};

}  // namespace windlass::profiler
