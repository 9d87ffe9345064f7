// Every record of x64 unwind information, as stored, equal to what llvm-readobj --unwind says of it.
#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "differential/readobj.h"
#include "formats/winx64/read.h"
#include "support/pe_corpora.h"

namespace windlass {
namespace {

using peer::kReadobj;

// As the peer writes them.
constexpr const char* kRegisters[32] = {"RAX", "RCX", "RDX", "RBX", "RSP", "RBP", "RSI", "RDI",
                                        "R8",  "R9",  "R10", "R11", "R12", "R13", "R14", "R15"};

// ---- ours, in the peer's words ------------------------------------------------------------------------------------

std::string code_text(const winx64::UnwindInfo& info, const winx64::UnwindCode& code, bool first) {
  using winx64::Operation;
  const char* reg = kRegisters[code.info];
  const std::string_view name(operation_name(code.operation));
  switch (code.operation) {
    case Operation::kPushNonvol: return fmt::format("0x{:02X}: {} reg={}", code.offset, name, reg);
    case Operation::kAllocLarge:
    case Operation::kAllocSmall: return fmt::format("0x{:02X}: {} size={}", code.offset, name, code.value);
    case Operation::kSetFpreg:
      return fmt::format("0x{:02X}: {} reg={}, offset=0x{:X}", code.offset, name, kRegisters[info.frame_register],
                         code.value);
    case Operation::kSaveNonvol:
    case Operation::kSaveNonvolFar:
      return fmt::format("0x{:02X}: {} reg={}, offset=0x{:X}", code.offset, name, reg, code.value);
    case Operation::kSaveXmm128:
    case Operation::kSaveXmm128Far:
      return fmt::format("0x{:02X}: {} reg=XMM{}, offset=0x{:X}", code.offset, name, code.info, code.value);
    case Operation::kPushMachframe:
      return fmt::format("0x{:02X}: {} errcode={}", code.offset, name, code.info != 0 ? "yes" : "no");
    case Operation::kEpilog: {
      if (first)
        return fmt::format("0x{:02X}: {} atend={}, length=0x{:X}", code.offset, name,
                           (code.info & 1) != 0 ? "yes" : "no", code.offset);
      const unsigned back = code.info << 8U | code.offset;
      return back == 0 ? fmt::format("0x{:02X}: {} padding", code.offset, name)
                       : fmt::format("0x{:02X}: {} offset=0x{:X}", code.offset, name, back);
    }
    default: return "not in the corpora";
  }
}

std::string record_text(const image::PeImage& image, const winx64::RuntimeFunction& function) {
  const auto address = [&](std::uint32_t rva) { return fmt::format("0x{:X}", image.image_base() + rva); };
  std::string text = address(function.begin) + " " + address(function.end) + " " + address(function.info);
  const auto info = winx64::read_unwind_info(image, function.info);
  if (!info) return text + " " + info.error().text();
  const bool framed = info->frame_register != 0;
  text += fmt::format("\nversion {} flags {:#x} prolog {} frame {} {} slots {}", info->version, info->flags,
                      info->prolog_size, framed ? kRegisters[info->frame_register] : "-",
                      framed ? fmt::format("0x{:X}", info->frame_offset) : "-", info->slot_count);
  bool first = true;
  const auto ok = winx64::each_code(*info, [&](const winx64::UnwindCode& code) {
    text += "\n" + code_text(*info, code, first);
    first = false;
  });
  if (!ok) text += "\n" + ok.error().text();
  if (info->handler != 0) text += "\nhandler " + address(info->handler);
  if (info->chained)
    text += "\nchained " + address(info->chained->begin) + " " + address(info->chained->end) + " " +
            address(info->chained->info);
  return text;
}

// ---- the peer's ---------------------------------------------------------------------------------------------------

void append_line(std::string& text, const peer::ReadobjLine& line) {
  const auto [whole, key, value] = line;
  const auto address = peer::ReadobjRecords::address;
  if (key == "Chained {") text += "\nchained";
  if (key == "StartAddress") text += (text.empty() ? "" : " ") + address(value);
  if (key == "EndAddress" || key == "UnwindInfoAddress") text += " " + address(value);
  if (key == "Version") text += "\nversion " + std::string(value);
  if (key.starts_with("Flags [")) text += " flags " + address(key);
  if (key == "PrologSize") text += " prolog " + std::string(value);
  if (key == "FrameRegister") text += " frame " + std::string(value.substr(0, value.find(' ')));
  if (key == "FrameOffset") text += " " + std::string(value);
  if (key == "UnwindCodeCount") text += " slots " + std::string(value);
  if (key == "Handler") text += "\nhandler " + address(value);
  if (key.starts_with("0x")) text += "\n" + std::string(whole);
}

// The peer looks every function up in the COFF symbol table from its start, which takes it half a minute for MinGW's
// libraries. Names are no part of the comparison, so it is given a copy whose header says that there is no such table.
class WithoutSymbols {
 public:
  WithoutSymbols(const std::string& path, const image::PeImage& image) : path_(path) {
    if (image.coff_symbols().empty()) return;
    path_ = testing::TempDir() + "windlass-no-symbols-" + std::to_string(::getpid());
    copied_ = true;
    std::vector<char> bytes(reinterpret_cast<const char*>(image.bytes().data()),
                            reinterpret_cast<const char*>(image.bytes().data()) + image.bytes().size());
    constexpr std::size_t kSymbolsInHeader = 4 + 8;  // behind the signature, machine, section count and time
    std::fill_n(bytes.begin() + *image.bytes().at<std::uint32_t>(0x3c) + kSymbolsInHeader, 8, 0);
    std::ofstream(path_, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  ~WithoutSymbols() {
    if (copied_) ::unlink(path_.c_str());
  }
  WithoutSymbols(const WithoutSymbols&) = delete;
  WithoutSymbols& operator=(const WithoutSymbols&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool copied_ = false;
};

TEST(WinX64VsLlvm, EveryRecordOfTheCorpora) {
  if (!peer::have(kReadobj)) GTEST_SKIP() << kReadobj << " is not installed";
  const auto corpora = test::pe_corpora(WINDLASS_PE_CORPORA, 12);
  if (corpora.empty()) GTEST_SKIP() << test::missing_corpora(WINDLASS_PE_CORPORA);
  for (const test::PeCorpus& corpus : corpora) {
    std::size_t records = 0;
    std::size_t different = 0;
    for (const std::string& path : corpus.files) {
      const auto opened = test::open_pe(path);
      ASSERT_TRUE(opened) << path;
      const image::PeImage& image = opened->image;
      EXPECT_TRUE(image.problems().empty()) << path << ": " << image.problems().front().text();
      const winx64::Functions functions(image);
      const WithoutSymbols given(path, image);
      peer::ReadobjRecords peer(given.path());
      for (std::size_t i = 0; i < functions.size(); ++i) {
        const std::string ours = record_text(image, functions.stored(i));
        const auto theirs = peer.next(append_line);
        ++records;
        if (theirs && *theirs == ours) continue;
        if (++different <= 3) ADD_FAILURE() << path << "\nours:\n" << ours << "\npeer:\n" << theirs.value_or("(none)");
        if (!theirs) break;
      }
      EXPECT_FALSE(peer.next(append_line)) << path << ": the peer has more records";
    }
    std::printf("%-8s %zu files, %zu records, %zu different\n", corpus.name.c_str(), corpus.files.size(), records,
                different);
    EXPECT_EQ(different, 0U);
    EXPECT_GT(records, 0U);
  }
}

}  // namespace
}  // namespace windlass
