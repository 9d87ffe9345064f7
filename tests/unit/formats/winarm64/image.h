// An image with one .xdata section at 0x2000 and a function table over it.
#pragma once

#include <span>
#include <vector>

#include "formats/winarm64/read.h"
#include "support/pe_builder.h"

namespace windlass::winarm64 {

inline constexpr std::uint32_t kCode = 0x1000, kXdata = 0x2000, kTable = 0x3000;

class TestImage {
 public:
  TestImage(const std::vector<std::uint8_t>& xdata, const std::vector<RuntimeFunction>& functions)
      : bytes_(make(xdata, functions)),
        image_(image::PeImage::parse(ByteView(std::span<const std::uint8_t>(bytes_)))) {}
  TestImage(const TestImage&) = delete;
  TestImage& operator=(const TestImage&) = delete;

  [[nodiscard]] const image::PeImage& image() const { return *image_; }
  [[nodiscard]] Functions functions() const { return Functions(*image_); }

 private:
  static std::vector<std::uint8_t> make(const std::vector<std::uint8_t>& xdata,
                                        const std::vector<RuntimeFunction>& functions) {
    test::PeBuilder builder(image::PeMachine::kArm64);
    builder.add(".text", std::vector<std::uint8_t>(0x1000 - 1), true);
    builder.add(".xdata", xdata);
    test::ByteWriter table;
    for (const RuntimeFunction& function : functions) table.u32(function.begin), table.u32(function.data);
    builder.add_function_table(table.data());
    return builder.build();
  }
  std::vector<std::uint8_t> bytes_;
  Expected<image::PeImage> image_;
};

// The header word of a record, then epilogue scopes, then codes.
inline std::vector<std::uint8_t> xdata(std::uint32_t length, const std::vector<std::uint8_t>& codes,
                                       const std::vector<EpilogueScope>& scopes = {}, int single = -1,
                                       bool handler = false) {
  test::ByteWriter out;
  const auto words = static_cast<std::uint32_t>((codes.size() + 3) / 4);
  const auto count = single >= 0 ? static_cast<std::uint32_t>(single) : static_cast<std::uint32_t>(scopes.size());
  out.u32(length / 4 | (handler ? 1U << 20 : 0) | (single >= 0 ? 1U << 21 : 0) | count << 22 | words << 27);
  for (const EpilogueScope& scope : scopes) out.u32(scope.start / 4 | scope.index << 22);
  out.append(codes);
  out.align(4);
  if (handler) out.u32(0x1234), out.u32(0x5678);
  return out.data();
}

}  // namespace windlass::winarm64
