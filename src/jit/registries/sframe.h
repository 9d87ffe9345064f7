// Linux's sframe_register() and sframe_unregister(), with the kernel as something that a test can stand in for.
#pragma once

#include <cstdint>
#include <memory>

#include "jit/registries/batch.h"

namespace windlass::registries {

// struct sframe_setup, addresses and bytes.
struct SFrameSetup {
  std::uint64_t sframe_start = 0;
  std::uint64_t sframe_size = 0;
  std::uint64_t text_start = 0;
  std::uint64_t text_size = 0;
};

class SFrameKernel {
 public:
  virtual ~SFrameKernel() = default;
  // Each gives 0 or errno.
  virtual int add(const SFrameSetup& setup) = 0;
  // Of a section that was added: by sframe_start, all else 0.
  virtual int remove(const SFrameSetup& setup) = 0;
};

// kUnsupported: the kernel, or its headers, have no such system calls.
[[nodiscard]] Expected<std::unique_ptr<SFrameKernel>> find_sframe_kernel();
[[nodiscard]] std::unique_ptr<Registrar> make_sframe_registrar(std::unique_ptr<SFrameKernel> kernel);

}  // namespace windlass::registries
