// Windlass's virtual unwind compared with the system's RtlVirtualUnwind. Real functions, made-up registers and stacks,
// at every byte of prologues and around ways out of the functions. Where they differ, a model of Wine's deviations must
// predict Wine's answer, and give the cause. On Windows itself only Windlass's own choices need an explanation.
#include <gtest/gtest.h>

#include <map>

#include "base/mapped_file.h"
#include "mapped_image.h"
#include "outcome.h"
#include "support/pe_corpora.h"
#include "wine_model.h"

namespace windlass {
namespace {

using test::MadeUpStack;
using test::MappedImage;
using test::Outcome;
using winx64::Position;
using winx64::RuntimeFunction;
using winx64::UnwindInfo;

std::uint32_t prologue_offset(const RuntimeFunction& entry, std::uint32_t rva) { return rva - entry.begin; }

// Why Windlass (as Windows) takes the address for one in an epilogue and Wine does not.
const char* why_ours(const winx64::Functions& functions, const RuntimeFunction& entry, const UnwindInfo& info,
                     std::uint32_t rva) {
  using Exit = winx64::EpilogueMatch::Exit;
  if (prologue_offset(entry, rva) < info.prolog_size) return "epilogue within SizeOfProlog: Wine does not look there";
  if (info.slot_count == 0) return "no unwind codes: Wine does not look at the code (\"since Windows 10 1809\")";
  if (info.version == 2) return "version 2: Wine does not heed EPILOG codes";
  winx64::EpilogueMatch match;
  const ByteView code = functions.bytes(rva, winx64::kEpilogueWindow);
  if (!winx64::match_epilogue(code, info.frame_register, entry.end - rva, match)) return nullptr;
  if (match.exit == Exit::kJump) return "tail call: Wine knows none";
  if (match.exit == Exit::kIndirectJump) return "tail call through a pointer: Wine knows none";
  for (std::size_t i = 0; i + 2 < code.size() && code.u8()[i] != 0xc3; ++i) {
    const std::uint8_t* at = code.u8() + i;
    if (at[0] == 0xf2 && (at[1] == 0xc3 || at[1] == 0xc2)) return "bnd ret: Wine does not know it";
    if (at[0] == 0x90 && at[1] == 0xc3) return "nop before ret: Wine does not know it";
    if (at[0] == 0xc5 && at[1] == 0xf8 && at[2] == 0x77) return "vzeroupper before ret: Wine does not know it";
  }
  return nullptr;
}

// Why Wine does and Windlass does not.
const char* why_wines(const RuntimeFunction& entry, const UnwindInfo& info, const test::WineModel& model) {
  const test::WineScan& scan = *model.epilogue();
  if (scan.follows_jumps()) return "jump within the function: Wine follows it to a ret";
  constexpr unsigned kMostArguments = 1024;
  if (scan.return_pops() % 8 != 0 || scan.return_pops() > kMostArguments)
    return "ret n as nothing has it, inside an instruction: Wine takes it";
  if (scan.base() >= 0 && scan.base() != info.frame_register)
    return "lea rsp from another register than the frame's: Wine takes it";
  if (scan.pops_rsp()) return "pop rsp: Wine takes it";
  if (scan.prefixed()) return "REX prefix before ret: Wine overlooks it";
  if (info.version == 2) return "version 2, no EPILOG code describes it: Wine reads the code";
  if (scan.end() >= entry.end) return "ret behind the function's end: Wine takes it";
  if (model.links() != 0) return "chain: Wine looks again for each link";
  return nullptr;
}

class Comparison {
 public:
  void file(const std::string& name, const MappedImage& mapped, std::size_t stride) {
    file_ = &name;
    const winx64::Functions& functions = mapped.functions();
    for (std::size_t i = 0; i < functions.size(); i += stride) {
      const auto entry = winx64::direct(functions, functions.stored(i));
      if (!entry || entry->begin >= entry->end) continue;
      const auto info = winx64::info_of(functions, *entry);
      if (!info || info->version > 2) continue;
      ++functions_;
      each_address(functions, *entry, *info, [&](std::uint32_t rva) { state(mapped, *entry, *info, rva); });
    }
  }

  void report(const std::string& corpus) {
    std::printf("%s: %zu functions, %zu states, %zu of them explained differences, %zu not comparable\n",
                corpus.c_str(), functions_, states_, explained_, not_comparable_);
    for (const auto& [name, count] : classes_) std::printf("%10zu  %s\n", count, name.c_str());
    std::fflush(stdout);
  }
  [[nodiscard]] std::size_t functions() const { return functions_; }
  [[nodiscard]] std::size_t states() const { return states_; }
  [[nodiscard]] std::size_t unexplained() const { return unexplained_; }

 private:
  // The prologue and the code behind it, the code before a few ways out, and the function's end.
  template <typename Visit>
  static void each_address(const winx64::Functions& functions, const RuntimeFunction& entry, const UnwindInfo& info,
                           Visit&& visit) {
    constexpr std::uint32_t kBehindPrologue = 4, kBeforeExit = 20;
    const ByteView code = functions.bytes(entry.begin, entry.end - entry.begin);
    const auto size = static_cast<std::uint32_t>(code.size());
    std::uint32_t visited = std::min<std::uint32_t>(info.prolog_size + kBehindPrologue, size);
    for (std::uint32_t offset = 0; offset < visited; ++offset) visit(entry.begin + offset);
    unsigned exits = test::whole() ? 64 : 3;
    for (std::uint32_t offset = visited; offset < size; ++offset) {
      const std::uint8_t byte = code.u8()[offset];
      const bool exit = byte == 0xc3 || byte == 0xc2 || byte == 0xe9 || byte == 0xeb || byte == 0xff;
      if (offset + 1 != size && (!exit || exits == 0)) continue;
      exits -= exits != 0 ? 1 : 0;
      const std::uint32_t from = offset > kBeforeExit ? offset - kBeforeExit : 0;
      for (std::uint32_t before = std::max(from, visited); before <= offset; ++before) visit(entry.begin + before);
      visited = offset + 1;
    }
  }

  void state(const MappedImage& mapped, const RuntimeFunction& entry, const UnwindInfo& info, std::uint32_t rva) {
    CONTEXT context = test::made_up_context(stack_, ++seed_);
    context.Rip = mapped.base() + rva;
    winx64::Unwound unwound;
    winx64::SavedAddresses saved;
    test::WineModel model(mapped.functions(), mapped.base(), stack_);
    if (!model.run(entry, context) || !winx64::virtual_unwind(mapped.functions(), mapped.base(), stack_,
                                                              test::registers_of(context), unwound, &saved)) {
      ++not_comparable_;
      return;
    }
    ++states_;
    const Outcome ours = test::outcome_of(unwound, saved, mapped.base(), context, stack_);
    const Outcome system = test::system_unwind(mapped.base(), entry, context);
    const std::string differ = test::differences(ours, system);
    if (differ.empty()) return;
    const bool epilogue = unwound.position == Position::kEpilogue;
    const char* why = nullptr;
    if (epilogue && model.epilogue() == nullptr) why = why_ours(mapped.functions(), entry, info, rva);
    if (!epilogue && model.epilogue() != nullptr) why = why_wines(entry, info, model);
    if (epilogue && model.epilogue() != nullptr && model.links() != 0)
      why = "chain: Wine undoes the fragment's codes before it looks";
    const std::string beside_model = test::differences(model.outcome(), system);
    if (why != nullptr && beside_model.empty()) {
      ++explained_;
      ++classes_[why];
      return;
    }
    if (unexplained_++ < 20)
      ADD_FAILURE() << *file_ << " RVA " << std::hex << rva << " in " << entry.begin << "-" << entry.end << ", info "
                    << info.rva << ": Windlass and the system differ in " << differ << "; "
                    << (why != nullptr ? why : "no reason") << "; the model differs in " << beside_model;
  }

  MadeUpStack stack_;
  std::uint64_t seed_ = 0;
  const std::string* file_ = nullptr;
  std::size_t functions_ = 0, states_ = 0, explained_ = 0, unexplained_ = 0, not_comparable_ = 0;
  std::map<std::string, std::size_t> classes_;
};

TEST(Oracle, EveryDifferenceIsExplained) {
  const auto corpora = test::pe_corpora(WINDLASS_PE_CORPORA, 8);
  if (corpora.empty()) GTEST_SKIP() << test::missing_corpora(WINDLASS_PE_CORPORA);
  std::size_t functions = 0, states = 0, unexplained = 0;
  for (const test::PeCorpus& corpus : corpora) {
    Comparison comparison;
    for (const std::string& path : corpus.files) {
      const auto file = MappedFile::open(path);
      ASSERT_TRUE(file) << path << ": " << file.error().text();
      const auto image = image::PeImage::parse(file->bytes());
      ASSERT_TRUE(image) << path << ": " << image.error().text();
      const MappedImage mapped(*image);
      ASSERT_TRUE(mapped.ok()) << path;
      comparison.file(path, mapped, test::whole() ? 1 : mapped.functions().size() / 6000 + 1);
    }
    comparison.report(corpus.name);
    functions += comparison.functions();
    states += comparison.states();
    unexplained += comparison.unexplained();
  }
  std::printf("in all %zu functions, %zu states, %zu differences unexplained\n", functions, states, unexplained);
  EXPECT_EQ(unexplained, 0U);
  EXPECT_GT(functions, 1000U);
}

}  // namespace
}  // namespace windlass
