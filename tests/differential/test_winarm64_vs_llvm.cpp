// Every record of ARM64 unwind information equal to what llvm-readobj --unwind says of it: in real binaries, and for
// every combination of a packed entry's fields.
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "differential/readobj.h"
#include "formats/winarm64/read.h"
#include "support/pe_builder.h"
#include "support/pe_corpora.h"

namespace windlass {
namespace {

using winarm64::Operation;
using winarm64::UnwindCode;
using winarm64::UnwindRecord;

using peer::kReadobj;

// ---- ours, in the peer's words ------------------------------------------------------------------------------------

std::string save_text(const UnwindCode& code, bool prologue, bool packed) {
  constexpr char kLetters[] = {'?', 'x', 'd', 'q', 'z', 'p'};
  const char letter = kLetters[static_cast<unsigned>(code.file)];
  std::string text = prologue ? (code.pair ? "stp " : "str ") : (code.pair ? "ldp " : "ldr ");
  const auto name = [&](unsigned reg) {
    const bool lr = letter == 'x' && reg == 30 && (packed || code.operation == Operation::kSaveLrpair);
    return lr ? std::string("lr") : fmt::format("{}{}", letter, reg);
  };
  text += name(code.reg);
  if (code.pair) text += ", " + name(code.second);
  if (letter == 'z' || letter == 'p') return text + fmt::format(", [sp, #{}, mul vl]", code.value);
  if (packed && code.operation == Operation::kSaveLrpair && code.value == 0) return text + ", [sp]";
  if (!code.writeback) return text + fmt::format(", [sp, #{}]", code.value);
  return text + (prologue ? fmt::format(", [sp, #-{}]!", code.value) : fmt::format(", [sp], #{}", code.value));
}

std::string code_text(const UnwindCode& code, bool prologue, bool packed) {
  if (code.operation == Operation::kSaveAnyReg) {
    const unsigned limit = code.file == winarm64::RegisterFile::kX ? 30 : 31;
    if ((code.pair ? code.second : code.reg) > limit) return "invalid save_any_reg encoding";
  }
  if (code.saves()) return save_text(code, prologue, packed);
  switch (code.operation) {
    case Operation::kAllocS:
    case Operation::kAllocM:
    case Operation::kAllocL:
      return fmt::format("{} sp, {}#{}", prologue ? "sub" : "add", packed ? "sp, " : "", code.value);
    case Operation::kSetFp: return packed ? "mov x29, sp" : prologue ? "mov fp, sp" : "mov sp, fp";
    case Operation::kAddFp:
      return fmt::format(fmt::runtime(prologue ? "add fp, sp, #{}" : "sub sp, fp, #{}"), code.value);
    case Operation::kNop: return "nop";
    case Operation::kEnd: return "end";
    case Operation::kEndC: return "end_c";
    case Operation::kSaveNext: return prologue ? "save next" : "restore next";
    case Operation::kPacSignLr: return prologue ? "pacibsp" : "autibsp";
    case Operation::kClearUnwoundToCall: return "clear unwound to call";
    case Operation::kTrapFrame: return "trap frame";
    case Operation::kMachineFrame: return "machine frame";
    case Operation::kContext: return "context";
    case Operation::kEcContext: return "EC context";
    case Operation::kAllocZ: return fmt::format("addvl sp, #{}{}", prologue && code.value != 0 ? "-" : "", code.value);
    default: return "not reported by the peer";
  }
}

void append_sequence(std::string& text, const UnwindRecord& record, std::uint64_t index, bool prologue, bool packed) {
  while (index < record.codes.size()) {
    const auto code = winarm64::code_at(record.codes, index);
    if (!code) {
      text += "\n" + code.error().text();
      return;
    }
    text += "\n";
    if (!packed) {
      text += "0x";
      for (unsigned i = 0; i < code->size; ++i) text += fmt::format("{:02x}", record.codes.u8()[index + i]);
      text += " ; ";
    }
    text += code_text(*code, prologue, packed);
    if (code->operation == Operation::kEnd) return;
    index += code->size;
  }
}

std::string record_text(const image::PeImage& image, const winarm64::RuntimeFunction& function) {
  const auto address = [&](std::uint32_t rva) { return fmt::format("0x{:X}", image.image_base() + rva); };
  std::string text = address(function.begin);
  winarm64::Expansion storage;
  const auto record = read_record(image, function, storage);
  if (!record) return text + " " + record.error().text();
  if (function.packed()) {
    const winarm64::PackedFields fields = winarm64::packed_fields(function);
    text += fmt::format("\nfragment {} length {} RegF {} RegI {} H {} CR {} frame {}",
                        function.kind() == winarm64::EntryKind::kPackedFragment ? "Yes" : "No", fields.length,
                        fields.reg_f, fields.reg_i, fields.h ? "Yes" : "No", fields.cr, fields.frame_size);
    // The peer prints the fragment's prologue without the end_c that says that it is elsewhere.
    const bool fragment = function.kind() == winarm64::EntryKind::kPackedFragment;
    append_sequence(text, *record, fragment ? 1 : 0, true, true);
    return text;
  }
  text += " " + address(function.target());
  text += fmt::format("\nlength {} version {} X {} E {} epilogues {} bytes {}", record->length, record->version,
                      record->has_handler ? "Yes" : "No", record->single_epilogue ? "Yes" : "No",
                      record->single_epilogue ? record->epilogue_index : record->scope_count(), record->codes.size());
  append_sequence(text, *record, 0, true, false);
  if (record->single_epilogue && record->epilogue_index != 0) {
    text += "\nepilogue";
    append_sequence(text, *record, record->epilogue_index, false, false);
  }
  for (std::uint32_t i = 0; i < record->scope_count(); ++i) {
    const winarm64::EpilogueScope scope = record->scope(i);
    text += fmt::format("\nscope {} index {}", scope.start / 4, scope.index);
    append_sequence(text, *record, scope.index, false, false);
  }
  if (record->has_handler) {
    std::uint32_t parameter = 0;
    if (const auto data = image.value_at_rva<std::uint32_t>(record->handler_data)) parameter = *data;
    text += "\nhandler " + address(record->handler) + fmt::format(" parameter 0x{:X}", parameter);
  }
  return text;
}

// ---- the peer's ---------------------------------------------------------------------------------------------------

const auto address_of = peer::ReadobjRecords::address;

// "0xe1                ; mov fp, sp" -> "0xe1 ; mov fp, sp"
std::string without_padding(std::string_view line) {
  const auto semicolon = line.find(';');
  if (semicolon == std::string_view::npos) return std::string(line);
  return std::string(line.substr(0, line.find(' '))) + " " + std::string(line.substr(semicolon));
}

void append_field(std::string& text, std::string_view key, std::string_view value) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"Fragment", "\nfragment "},
                                                                             {"RegF", " RegF "},
                                                                             {"RegI", " RegI "},
                                                                             {"HomedParameters", " H "},
                                                                             {"CR", " CR "},
                                                                             {"FrameSize", " frame "},
                                                                             {"Version", " version "},
                                                                             {"ExceptionData", " X "},
                                                                             {"EpiloguePacked", " E "},
                                                                             {"EpilogueOffset", " epilogues "},
                                                                             {"EpilogueScopes", " epilogues "},
                                                                             {"ByteCodeLength", " bytes "},
                                                                             {"StartOffset", "\nscope "},
                                                                             {"EpilogueStartIndex", " index "},
                                                                             {"Parameter", " parameter "}};
  if (key == "Function") text += address_of(value);
  if (key == "ExceptionRecord") text += " " + address_of(value);
  if (key == "Routine") text += "\nhandler " + address_of(value);
  if (key == "FunctionLength") {
    text += (text.find("\nfragment") != std::string::npos ? " length " : "\nlength ") + std::string(value);
  }
  for (const auto& [name, word] : kNames)
    if (key == name) text += std::string(word) + std::string(value);
}

class PeerRecords {
 public:
  explicit PeerRecords(const std::string& file) : records_(file) {}
  std::optional<std::string> next() {
    bool codes = false;  // inside of a list of them
    return records_.next([&](std::string& text, const peer::ReadobjLine& line) {
      if (line.closes()) {
        codes = false;
      } else if (line.opens()) {
        codes = line.text == "Prologue [" || line.text == "Epilogue [" || line.text == "Opcodes [";
        if (line.text == "Epilogue [") text += "\nepilogue";
      } else if (codes) {
        text += "\n" + without_padding(line.text);
      } else if (!line.value.empty()) {
        append_field(text, line.key, line.value);
      }
    });
  }

 private:
  peer::ReadobjRecords records_;
};

TEST(WinArm64VsLlvm, EveryRecordOfTheCorpora) {
  if (!peer::have(kReadobj)) GTEST_SKIP() << kReadobj << " is not installed";
  const auto corpora = test::pe_corpora(WINDLASS_PE_CORPORA, 1, image::PeMachine::kArm64);
  if (corpora.empty()) GTEST_SKIP() << test::missing_corpora(WINDLASS_PE_CORPORA);
  for (const test::PeCorpus& corpus : corpora) {
    for (const std::string& path : corpus.files) {
      const auto opened = test::open_pe(path);
      ASSERT_TRUE(opened) << path;
      const image::PeImage& image = opened->image;
      EXPECT_TRUE(image.problems().empty()) << path << ": " << image.problems().front().text();
      const winarm64::Functions functions(image);
      PeerRecords peer(path);
      std::size_t packed = 0, different = 0;
      for (std::size_t i = 0; i < functions.size(); ++i) {
        const std::string ours = record_text(image, functions.stored(i));
        packed += functions.stored(i).packed() ? 1 : 0;
        const auto theirs = peer.next();
        if (theirs && *theirs == ours) continue;
        if (++different <= 3) ADD_FAILURE() << path << "\nours:\n" << ours << "\npeer:\n" << theirs.value_or("(none)");
        if (!theirs) break;
      }
      EXPECT_FALSE(peer.next()) << path << ": the peer has more records";
      std::printf("%-14s %zu records, %zu packed, %zu different\n", corpus.name.c_str(), functions.size(), packed,
                  different);
      EXPECT_EQ(different, 0U);
      EXPECT_GT(functions.size(), 0U);
    }
  }
}

// The four stores that home parameters are nops to unwinders, and the peer writes the stores.
std::string without_homing(const std::string& text) {
  std::string out;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const bool homes = line.starts_with("stp x0, x1,") || line.starts_with("stp x2, x3,") ||
                       line.starts_with("stp x4, x5,") || line.starts_with("stp x6, x7,");
    out += (homes ? "nop" : line) + "\n";
    at = end + 1;
  }
  return out;
}

void compare_made(const char* what, const test::PeBuilder& builder) {
  const std::vector<std::uint8_t> bytes = builder.build();
  const auto image = image::PeImage::parse(ByteView(bytes));
  ASSERT_TRUE(image) << image.error().text();
  const std::string path = testing::TempDir() + "windlass-made-" + std::to_string(::getpid()) + ".dll";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  const winarm64::Functions functions(*image);
  PeerRecords peer(path);
  std::size_t different = 0;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const std::string ours = record_text(*image, functions.stored(i)) + "\n";
    const auto theirs = peer.next();
    ASSERT_TRUE(theirs) << i << " of " << functions.size();
    const std::string normal = without_homing(*theirs);
    if (normal != ours && ++different <= 5) ADD_FAILURE() << "ours:\n" << ours << "peer:\n" << normal;
  }
  EXPECT_FALSE(peer.next());
  std::printf("%zu %s, %zu different\n", functions.size(), what, different);
  EXPECT_EQ(different, 0U);
  ::unlink(path.c_str());
}

// Flag x CR x H x RegI x RegF x frames of each way to allocate what is left: 0, 16 more, 512, 528, 4080, 4096 and the
// largest. What does not fit is refused by ours and printed as nonsense by the peer.
TEST(WinArm64VsLlvm, EveryPackedEntry) {
  if (!peer::have(kReadobj)) GTEST_SKIP() << kReadobj << " is not installed";
  test::PeBuilder builder(image::PeMachine::kArm64);
  test::ByteWriter table;
  std::uint32_t begin = builder.add(".text", std::vector<std::uint8_t>(0x100000), true);
  for (std::uint32_t flag = 1; flag <= 2; ++flag)
    for (std::uint32_t cr = 0; cr < 4; ++cr)
      for (std::uint32_t h = 0; h < 2; ++h)
        for (std::uint32_t reg_i = 0; reg_i <= 10; ++reg_i)
          for (std::uint32_t reg_f = 0; reg_f < 8; ++reg_f) {
            const bool saves = reg_i > 0 || reg_f > 0 || cr == 1;
            const std::uint32_t integers = reg_i + (cr == 1 ? 1 : 0), vectors = reg_f > 0 ? reg_f + 1 : 0;
            const std::uint32_t saved = (integers + vectors + (saves && h != 0 ? 8 : 0) + 1) / 2;  // of 16 bytes
            for (const std::uint32_t more : {0U, 1U, 32U, 33U, 255U, 256U, 511U - saved}) {
              if (cr >= 2 && more == 0) continue;
              if (saved + more > 511) continue;
              table.u32(begin);
              table.u32(flag | 16U << 2 | reg_f << 13 | reg_i << 16 | h << 20 | cr << 21 | (saved + more) << 23);
              begin += 64;
            }
          }
  builder.add_function_table(table.data());
  compare_made("packed entries", builder);
}

// Each code in a record of its own, as a prologue's and as an epilogue's: all second bytes, and for E7 all forms with
// some offsets. Not the reserved ones, which the peer calls bad opcodes of one byte.
TEST(WinArm64VsLlvm, EveryCode) {
  if (!peer::have(kReadobj)) GTEST_SKIP() << kReadobj << " is not installed";
  test::PeBuilder builder(image::PeMachine::kArm64);
  test::ByteWriter table, xdata;
  std::uint32_t begin = builder.add(".text", std::vector<std::uint8_t>(0x200000), true);
  const std::uint32_t at = begin + 0x201000;  // where the next section will be
  const auto add = [&](std::initializer_list<std::uint32_t> bytes) {
    table.u32(begin);
    table.u32(at + static_cast<std::uint32_t>(xdata.size()));
    begin += 64;
    xdata.u32(16 | 1U << 22 | 2U << 27);
    xdata.u32(4);  // an epilogue at the fifth instruction, code 0
    for (const std::uint32_t byte : bytes) xdata.u8(byte);
    for (std::size_t i = bytes.size(); i < 8; ++i) xdata.u8(0xe4);
  };
  for (std::uint32_t first = 0; first < 256; ++first) {
    const std::uint8_t size = winarm64::code_size(static_cast<std::uint8_t>(first));
    if (first >= 0xed && first != 0xfc) continue;
    if (size == 1) add({first});
    for (std::uint32_t second = 0; size == 2 && second < 256; ++second) add({first, second});
    for (std::uint32_t second = 0; size == 4 && second < 256; second += 5)
      add({first, second, second ^ 0x5a, 255 - second});
  }
  for (std::uint32_t second = 0; second < 128; ++second)
    for (std::uint32_t file = 0; file < 4; ++file)
      for (const std::uint32_t offset : {0U, 1U, 31U, 63U}) add({0xe7, second, file << 6 | offset});
  ASSERT_EQ(builder.add(".xdata", xdata.data()), at);
  builder.add_function_table(table.data());
  compare_made("codes", builder);
}

}  // namespace
}  // namespace windlass
