// Input: a PDB file. Its seeds are small files of LLVM's linker.
#include "check.h"
#include "formats/pdb/pdb.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  const ByteView bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto identity = pdb::PdbFile::identity_of(bytes);
  auto file = pdb::PdbFile::parse(bytes);
  if (!file) return 0;
  FUZZ_CHECK(identity && identity->size() > 32);
  // Code begins at 0x1000. The rest is asked at places far apart.
  for (std::uint32_t i = 0; i < 96; ++i) {
    const std::uint32_t rva = i < 64 ? 0x1000 + 5 * i : (i - 64) << 27;
    const auto procedure = file->procedure_at(rva, true);
    if (procedure) {
      FUZZ_CHECK(!procedure->frames.empty());
      for (const pdb::NamedCode& frame : procedure->frames) FUZZ_CHECK(frame.file.size() <= size);
      const auto plain = file->procedure_at(rva, false);
      FUZZ_CHECK(plain && plain->frames.size() == 1 && plain->begin == procedure->begin);
      FUZZ_CHECK(plain->frames[0].function == procedure->frames.back().function);
    }
    if (const auto symbol = file->public_before(rva, false)) FUZZ_CHECK(symbol->rva <= rva);
  }
  return 0;
}
