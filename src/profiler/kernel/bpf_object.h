// The object with the BPF programs, which is packed in this program.
#pragma once

#include <cstddef>

namespace windlass::profiler {

// Frees what windlass_bpf_object() has given.
void forget_bpf_object();

}  // namespace windlass::profiler

// For the skeleton. Unpacked at the first call; empty: there is no memory. Not thread-safe.
const void* windlass_bpf_object(std::size_t* size);
