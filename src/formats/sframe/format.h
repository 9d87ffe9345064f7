// How SFrame is stored. Sources: "The SFrame format", version 3, whose section numbers are cited here; version 2 with
// errata 1; for version 1, the output of binutils 2.40.
#pragma once

#include <cstdint>

#include "windlass/registers.h"

namespace windlass::sframe {

inline constexpr std::uint16_t kMagic = 0xdee2;
inline constexpr std::uint16_t kForeignMagic = 0xe2de;  // of the other byte order

// Section 2.1.3.
enum Flags : std::uint8_t {
  kSorted = 1,
  kFramePointer = 2,    // until version 2: every function keeps one
  kStartsRelative = 4,  // functions' starts count from where they are stored, not from the section
};

// Section 2.2.1; what is little-endian.
inline constexpr std::uint8_t kAbiAArch64 = 2, kAbiAmd64 = 3;

// Section 2.2, packed.
struct [[gnu::packed]] Header {
  std::uint16_t magic;
  std::uint8_t version;
  std::uint8_t flags;
  std::uint8_t abi;
  std::int8_t fixed_fp_offset;  // from the CFA; 0: rows say it
  std::int8_t fixed_ra_offset;
  std::uint8_t more;  // bytes of header behind this one
  std::uint32_t functions;
  std::uint32_t rows;
  std::uint32_t row_bytes;
  std::uint32_t functions_offset;  // these two from the end of the header
  std::uint32_t rows_offset;
};
static_assert(sizeof(Header) == 28);

// A function of version 1, and the first 17 bytes of one of version 2.
struct [[gnu::packed]] Function1 {
  std::int32_t start;
  std::uint32_t size;
  std::uint32_t rows_offset;  // of its first one, among the rows
  std::uint32_t rows;
  std::uint8_t info;
};
struct [[gnu::packed]] Function2 {
  Function1 common;
  std::uint8_t block;  // bytes of code that repeat
  std::uint16_t padding;
};
// Version 3 has an index to search, and the rest in front of the rows: sections 2.3 and 2.4.
struct [[gnu::packed]] Function3 {
  std::int64_t start;
  std::uint32_t size;
  std::uint32_t attributes_offset;  // among the rows
};
struct [[gnu::packed]] Attributes3 {
  std::uint16_t rows;
  std::uint8_t info;
  std::uint8_t type;
  std::uint8_t block;
};
static_assert(sizeof(Function1) == 17 && sizeof(Function2) == 20 && sizeof(Function3) == 16 &&
              sizeof(Attributes3) == 5);

// Of a function's info byte: bits 0-3 have log2 of the bytes that a row's start takes.
inline constexpr std::uint8_t kStartSizeMask = 15, kMaxStartSize = 2, kRepeats = 0x10, kBKey = 0x20, kSignal = 0x80;
// Of the type byte.
inline constexpr std::uint8_t kTypeMask = 31, kDefaultType = 0, kFlexibleType = 1;

// A row's info byte: bit 0 is the base register of the CFA, bits 1-4 the number of data words, bits 5-6 log2 of the
// size of these words. On AArch64 bit 7 tells whether the return address is signed.
inline constexpr std::uint8_t kFromSp = 1, kSigned = 0x80;

// Of a control word of the flexible type: the register from bit 3 on, bit 2 unused. 0 stands alone, without an offset:
// nothing is said of the value.
inline constexpr std::uint32_t kFromRegister = 1, kLoaded = 2, kReservedControl = 4, kRegisterShift = 3;

// Where calls leave the return address, from the CFA; 0: in the link register.
[[nodiscard]] constexpr std::int8_t fixed_return_address(Architecture architecture) {
  return architecture == Architecture::kX86_64 ? -8 : 0;
}

}  // namespace windlass::sframe
