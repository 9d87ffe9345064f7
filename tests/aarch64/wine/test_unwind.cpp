// Windows ARM64 unwinding compared with arm64 Wine's RtlVirtualUnwind, which runs under qemu-user. Where Wine 8 is
// known to be wrong (the emulator of test_winarm64_truth decides) a difference is counted by its cause; anywhere else
// it fails.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "aarch64/wine/oracle.h"
#include "base/mapped_file.h"
#include "formats/winarm64/exec.h"
#include "support/pe_corpora.h"
#include "support/pe_layout.h"
#include "support/run_command.h"
#include "support/seh_assembly.h"

namespace windlass {
namespace {

struct OracleStack {
  static constexpr std::uint64_t kBase = 0x7000'0000'0000;
  bool read(std::uint64_t address, void* to, std::size_t size) const {
    const std::uint64_t offset = address - kBase;
    if (offset % 8 != 0 || offset >= ORACLE_STACK || size > ORACLE_STACK - offset) return false;
    for (std::size_t i = 0; i < size; i += 8) {
      const std::uint64_t value = ORACLE_WORD(offset + i);
      std::memcpy(static_cast<std::uint8_t*>(to) + i, &value, std::min<std::size_t>(8, size - i));
    }
    return true;
  }
};

// Wine, its prefix and its server, for as long as this lives.
class Wine {
 public:
  Wine() {
    const char* const temporary = std::getenv("TMPDIR");
    folder_ = std::string(temporary != nullptr ? temporary : "/tmp") + "/windlass-wine-arm64-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) return;
    // Wine would make a prefix with all its programs; three libraries and the tables of the locale will do. It would
    // also start this machine's own server, so one of its kind has to be there before.
    const std::string libraries = std::string(kRoot) + "/usr/lib/aarch64-linux-gnu/wine/aarch64-windows/";
    std::string copied;
    for (const char* name : {"ntdll.dll", "kernel32.dll", "kernelbase.dll"}) copied += libraries + name + " ";
    ok_ = test::run(fmt::format("cd {} && mkdir -p drive_c/windows/system32 && cp {} drive_c/windows/system32/ && "
                                "find {}/usr/share/wine -name '*.nls' -exec cp {{}} drive_c/windows/system32/ ';' && "
                                "{} -p60 >/dev/null 2>&1",
                                folder_, copied, kRoot, program("wineserver64")))
              .status == 0;
  }
  ~Wine() { test::run(fmt::format("{} -k; sleep 0.2; rm -rf {}", program("wineserver64"), folder_)); }
  Wine(const Wine&) = delete;
  Wine& operator=(const Wine&) = delete;

  [[nodiscard]] static std::string missing() {
    if (access((std::string(kRoot) + "/complete").c_str(), R_OK) != 0)
      return std::string("no arm64 Wine in ") + kRoot + ": run `ctest -R fetch_arm64_wine`";
    return test::run("command -v qemu-aarch64").status != 0 ? "no qemu-aarch64" : "";
  }
  [[nodiscard]] bool ok() const { return ok_; }

  std::vector<std::uint64_t> ask(const std::vector<std::uint8_t>& image, const std::vector<std::uint32_t>& questions) {
    const std::uint64_t head[2] = {image.size(), questions.size() / 2};
    std::ofstream in(folder_ + "/in", std::ios::binary);
    in.write(reinterpret_cast<const char*>(head), sizeof head);
    in.write(reinterpret_cast<const char*>(image.data()), static_cast<std::streamsize>(image.size()));
    in.write(reinterpret_cast<const char*>(questions.data()), static_cast<std::streamsize>(questions.size() * 4));
    in.close();
    const auto ran = test::run(fmt::format("timeout 300 {} {} < {}/in 2>{}/err > {}/out; cat {}/err", program("wine64"),
                                           WINDLASS_ORACLE, folder_, folder_, folder_, folder_));
    EXPECT_TRUE(ran.output.empty()) << ran.output;
    std::vector<std::uint64_t> answers(questions.size() / 2 * ORACLE_ANSWER);
    std::ifstream out(folder_ + "/out", std::ios::binary);
    out.read(reinterpret_cast<char*>(answers.data()), static_cast<std::streamsize>(answers.size() * 8));
    answers.resize(static_cast<std::size_t>(out.gcount()) / 8);
    return answers;
  }

 private:
  static constexpr const char* kRoot = WINDLASS_WINE_ARM64;
  [[nodiscard]] std::string program(const char* name) const {
    return fmt::format("env WINEPREFIX={} WINEDEBUG=-all WINELOADERNOEXEC=1 qemu-aarch64 -L {} {}/usr/lib/wine/{}",
                       folder_, kRoot, kRoot, name);
  }
  std::string folder_;
  bool ok_ = false;
};

class Comparison {
 public:
  explicit Comparison(const image::PeImage& image) : image_(image), functions_(image) {}

  // The first and last instructions of every `stride`th function, and every epilogue.
  void choose(std::size_t stride) {
    constexpr std::uint32_t kNear = 64;
    for (std::size_t i = 0; i < functions_.size(); i += stride) {
      const auto function = functions_.stored(i);
      winarm64::Expansion storage;
      const auto record = winarm64::read_record(image_, function, storage);
      if (!record) continue;
      std::set<std::uint32_t> offsets;
      for (std::uint32_t at = 0; at < kNear && at < record->length; at += 4)
        offsets.insert(at), offsets.insert(record->length - 4 - at);
      for (std::uint32_t s = 0; s < record->scope_count(); ++s)
        for (std::uint32_t at = record->scope(s).start; at < record->scope(s).start + kNear && at < record->length;
             at += 4)
          offsets.insert(at);
      for (const std::uint32_t offset : offsets) {
        questions_.push_back(table_rva() + static_cast<std::uint32_t>(i) * 8);
        questions_.push_back(function.begin + offset);
        asked_.push_back(function);
      }
    }
  }

  void hold(Wine& wine, const std::string& name) {
    const auto answers = wine.ask(laid_out(), questions_);
    ASSERT_EQ(answers.size(), asked_.size() * ORACLE_ANSWER);
    std::size_t same = 0;
    std::map<std::string, std::size_t> causes;
    std::string unexplained;
    for (std::size_t i = 0; i < asked_.size(); ++i) {
      const auto mine = answer(questions_[2 * i + 1]);
      if (std::memcmp(mine.data(), &answers[i * ORACLE_ANSWER], sizeof mine) == 0) {
        ++same;
        continue;
      }
      const std::string cause = known_cause(asked_[i]);
      ++causes[cause];
      if (cause.empty() && unexplained.size() < 1000)
        unexplained += fmt::format("{:#x}+{:#x}: pc {:#x} sp {:#x}, Wine {:#x} {:#x}\n", asked_[i].begin,
                                   questions_[2 * i + 1] - asked_[i].begin, mine[0], mine[1],
                                   answers[i * ORACLE_ANSWER], answers[i * ORACLE_ANSWER + 1]);
    }
    std::printf("%-14s %zu states, %zu as Wine\n", name.c_str(), asked_.size(), same);
    for (const auto& [cause, count] : causes) std::printf("    %zu other: %s\n", count, cause.c_str());
    EXPECT_EQ(causes.count(""), 0U) << causes[""] << "\n" << unexplained;
    EXPECT_GT(same, asked_.size() / 2);
  }

 private:
  [[nodiscard]] std::uint32_t table_rva() const {
    const ByteView table = image_.exception_directory();
    for (const image::PeSection& section : image_.sections()) {
      const auto bytes = image_.from_rva(section.rva);
      if (bytes && table.data() >= bytes->data() && table.data() < bytes->data() + bytes->size())
        return section.rva + static_cast<std::uint32_t>(table.data() - bytes->data());
    }
    return 0;
  }
  [[nodiscard]] std::vector<std::uint8_t> laid_out() const {
    std::vector<std::uint8_t> bytes(image_.image_size());
    test::lay_out(image_, bytes.data(), bytes.size());
    return bytes;
  }
  [[nodiscard]] std::array<std::uint64_t, ORACLE_ANSWER> answer(std::uint32_t rva) const {
    Registers state(Architecture::kAArch64), caller(Architecture::kAArch64);
    for (RegisterNumber i = 0; i < 31; ++i) state.set(i, ORACLE_X(i));
    state.set(29, OracleStack::kBase + ORACLE_FP);
    state.set(30, ORACLE_LR);
    state.set_sp(OracleStack::kBase + ORACLE_SP);
    for (RegisterNumber i = 8; i < 16; ++i) state.set(static_cast<RegisterNumber>(64 + i), ORACLE_D(i));
    state.set_pc(CodeAddress::instruction(image_.image_base() + rva));
    winarm64::ExecContext context;
    context.image_base = image_.image_base();
    std::array<std::uint64_t, ORACLE_ANSWER> words{};
    const auto unwound = winarm64::virtual_unwind(functions_, context, OracleStack(), state, caller);
    if (!unwound) return words;
    words[0] = caller.pc().value();
    words[1] = caller.sp();
    for (RegisterNumber i = 0; i < 11; ++i) words[2U + i] = caller.get(static_cast<RegisterNumber>(19 + i));
    for (RegisterNumber i = 0; i < 8; ++i) words[13U + i] = caller.get(static_cast<RegisterNumber>(72 + i));
    for (std::uint64_t& word : words)
      if (word - OracleStack::kBase < ORACLE_STACK) word = ORACLE_RELATIVE + (word - OracleStack::kBase);
    return words;
  }
  // Where Wine 8 unwinds otherwise than the processor runs.
  [[nodiscard]] std::string known_cause(const winarm64::RuntimeFunction& function) const {
    if (function.packed()) {
      const winarm64::PackedFields fields = winarm64::packed_fields(function);
      if (fields.cr == 2) return "packed, CR = 2: not chained";
      if (fields.cr == 1 && fields.reg_i == 1) return "packed, x19 and lr alone: one instruction";
    }
    winarm64::Expansion storage;
    const auto record = winarm64::read_record(image_, function, storage);
    std::uint32_t index = 0;
    for (auto code = winarm64::code_at(record->codes, index); code; code = winarm64::code_at(record->codes, index)) {
      if (code->operation == winarm64::Operation::kEnd) break;
      if (code->operation == winarm64::Operation::kEndC) return "end_c: ends there";
      if (function.packed() && code->operation == winarm64::Operation::kAllocM && code->value == 4080)
        return "packed, two allocations: the first is taken for 4,088 bytes";
      index += code->size;
    }
    return "";
  }

  const image::PeImage& image_;
  winarm64::Functions functions_;
  std::vector<std::uint32_t> questions_;
  std::vector<winarm64::RuntimeFunction> asked_;
};

TEST(Arm64Wine, Corpora) {
  if (const std::string missing = Wine::missing(); !missing.empty()) GTEST_SKIP() << missing;
  const auto corpora = test::pe_corpora(WINDLASS_PE_CORPORA, 1, image::PeMachine::kArm64);
  if (corpora.empty()) GTEST_SKIP() << test::missing_corpora(WINDLASS_PE_CORPORA);
  Wine wine;
  ASSERT_TRUE(wine.ok());
  for (const test::PeCorpus& corpus : corpora)
    for (const std::string& path : corpus.files) {
      const auto opened = test::open_pe(path);
      ASSERT_TRUE(opened) << path;
      Comparison comparison(opened->image);
      comparison.choose(test::whole() || winarm64::Functions(opened->image).size() < 10000 ? 1 : 4);
      comparison.hold(wine, corpus.name);
    }
}

TEST(Arm64Wine, AssembledFunctions) {
  if (const std::string missing = Wine::missing(); !missing.empty()) GTEST_SKIP() << missing;
  if (const std::string missing = test::SehAssembly::missing(); !missing.empty()) GTEST_SKIP() << missing;
  test::SehAssembly source;
  for (unsigned cr = 0; cr < 4; ++cr)
    for (unsigned reg_i = 0; reg_i <= 10; ++reg_i)
      for (unsigned reg_f = 0; reg_f < 8; reg_f += 1 + reg_f / 3)
        for (const unsigned locals : {16U, 496U, 528U, 4080U, 4096U, 6144U})
          source.add(test::seh_canonical(reg_f, reg_i, false, cr, locals));
  const std::vector<test::SehStep> steps = {test::seh_pair("x19", "x20", 32, ".seh_save_regp_x x19,", true),
                                            test::seh_pair("x29", "x30", 16, ".seh_save_fplr", false)};
  source.add(steps, {1500, 4, 2, 5});
  std::string problem;
  const auto bytes = source.build(problem);
  ASSERT_TRUE(problem.empty()) << problem;
  const auto image = image::PeImage::parse(ByteView(bytes));
  ASSERT_TRUE(image);
  Wine wine;
  ASSERT_TRUE(wine.ok());
  Comparison comparison(*image);
  comparison.choose(1);
  comparison.hold(wine, "assembled");
}

}  // namespace
}  // namespace windlass
