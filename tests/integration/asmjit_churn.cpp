// A code heap in which a compiler on top of AsmJit makes functions, runs them and takes them away. Arguments: the
// seconds of CPU time to run, the functions a second, the way of publishing, a folder for files. Ways of publishing are
// a code manager ("manager"), a perf map ("perfmap") and a jitdump ("jitdump"). Three functions at a time are on the
// stack, each with a frame of another shape, one calling the next. Below them is one of 64 functions, whose number is
// also in their names. For example, "f123_2_17" is number 2 of generation 123, below leaf<17>. So a stack shows by
// itself whether its names belong together.
//
// Nothing can be withdrawn from a perf map, and its lines have no times. So for a perf map the heap is so large that no
// address has two functions in a run of seconds.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <asmjit/asmjit.h>

#include "windlass/backtrace.h"
#include "windlass/jit/code_manager.h"
#include "windlass/jit/describe.h"
#include "windlass/jit/registration.h"

namespace {

using namespace windlass;

constexpr unsigned kLeaves = 64, kAtOnce = 3, kShapes = 6;
constexpr std::size_t kSlot = 1024;  // bytes of code

volatile unsigned long sum = 0;

template <unsigned number>
[[gnu::noinline]] long leaf(long x) {
  for (unsigned i = 0; i < 20'000; ++i) sum = sum + i + number;
  return x;
}
template <unsigned... numbers>
constexpr std::array<long (*)(long), sizeof...(numbers)> leaves_of(std::integer_sequence<unsigned, numbers...>) {
  return {leaf<numbers>...};
}
constexpr auto kLeaf = leaves_of(std::make_integer_sequence<unsigned, kLeaves>());

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// ---- the compiler ---------------------------------------------------------------------------------------------------

struct Made {
  long (*function)(long) = nullptr;
  std::string name;
  std::vector<std::byte> code;
  Description description;
};

// long f(long x): calls `next`, and adds up values that are live across the call. The first of these are in registers
// that calls preserve, the others on the stack. Shapes: none, some and many such values, with a frame pointer and
// without one, with a block of its own on the stack.
bool compile(Made& made, std::byte* at, const void* next, unsigned shape) {
  asmjit::CodeHolder code;
  code.init(asmjit::Environment::host());
  asmjit::x86::Compiler compiler(&code);
  const auto signature = asmjit::FuncSignatureT<long, long>(asmjit::CallConvId::kHost);
  asmjit::FuncNode* const function = compiler.addFunc(signature);
  if (shape >= kShapes / 2) function->frame().setPreservedFP();
  const asmjit::x86::Gp x = compiler.newInt64(), target = compiler.newInt64(), result = compiler.newInt64();
  function->setArg(0, x);
  std::vector<asmjit::x86::Gp> values;
  for (unsigned i = 0; i < shape % 3 * 8; ++i) {
    values.push_back(compiler.newInt64());
    compiler.lea(values.back(), asmjit::x86::ptr(x, static_cast<std::int32_t>(i)));
  }
  asmjit::x86::Mem block;
  if (shape % 2 != 0) {
    block = compiler.newStack(64u << shape, 8);
    compiler.mov(block, x);
  }
  compiler.mov(target, asmjit::imm(next));
  asmjit::InvokeNode* call = nullptr;
  compiler.invoke(&call, target, signature);
  call->setArg(0, x);
  call->setRet(0, result);
  for (const asmjit::x86::Gp& value : values) compiler.add(result, value);
  if (shape % 2 != 0) compiler.add(result, block);
  compiler.ret(result);
  compiler.endFunc();
  const auto address = reinterpret_cast<std::uint64_t>(at);
  if (compiler.finalize() != asmjit::kErrorOk || code.flatten() != asmjit::kErrorOk ||
      code.resolveUnresolvedLinks() != asmjit::kErrorOk || code.relocateToBase(address) != asmjit::kErrorOk ||
      code.codeSize() > kSlot || code.copyFlattenedData(at, kSlot) != asmjit::kErrorOk)
    return false;
  made.function = reinterpret_cast<long (*)(long)>(at);
  made.code.assign(at, at + code.codeSize());
  auto described = describe(made.code, address, Architecture::kX86_64);
  if (!described || !described->whole()) return false;
  made.description = std::move(*described);
  return true;
}

// ---- who is told ----------------------------------------------------------------------------------------------------

class Publisher {
 public:
  virtual ~Publisher() = default;
  virtual bool add(const std::vector<Made>& functions) = 0;
  virtual bool remove() = 0;  // what was added last
};

class ByManager final : public Publisher {
 public:
  explicit ByManager(CodeManager manager) : manager_(std::move(manager)) {}
  bool add(const std::vector<Made>& functions) override {
    std::vector<GeneratedFunction> added;
    begins_.clear();
    for (const Made& made : functions) {
      begins_.push_back(reinterpret_cast<std::uint64_t>(made.function));
      added.push_back({begins_.back(), made.code.size(), made.name, 0, made.description.rows});
    }
    return manager_.add(added).has_value();
  }
  bool remove() override { return manager_.update(begins_, {}).has_value(); }

 private:
  CodeManager manager_;
  std::vector<std::uint64_t> begins_;
};

class ByRegistrar final : public Publisher {
 public:
  explicit ByRegistrar(std::unique_ptr<Registrar> registrar) : registrar_(std::move(registrar)) {}
  bool add(const std::vector<Made>& functions) override {
    std::vector<GeneratedFunction> added;
    for (const Made& made : functions)
      added.push_back({.address = reinterpret_cast<std::uint64_t>(made.function),
                       .size = static_cast<std::uint32_t>(made.code.size()),
                       .name = made.name,
                       .rows = made.description.rows});
    const auto id = registrar_->add(added);
    if (id) id_ = *id;
    return id.has_value();
  }
  bool remove() override { return registrar_->remove(id_).has_value(); }

 private:
  std::unique_ptr<Registrar> registrar_;
  RegistrationId id_ = RegistrationId::kNone;
};

std::unique_ptr<Publisher> open(std::string_view how, const std::string& folder, const std::byte* room,
                                std::size_t size) {
  if (how == "manager") {
    const auto begin = reinterpret_cast<std::uint64_t>(room);
    auto manager = CodeManager::create(begin, begin + size);
    return manager ? std::make_unique<ByManager>(std::move(*manager)) : nullptr;
  }
  auto registrar = open_registrar(how == "perfmap" ? Registry::kPerfMap : Registry::kJitdump, {.folder = folder});
  return registrar ? std::make_unique<ByRegistrar>(std::move(*registrar)) : nullptr;
}

// ---- the heap -------------------------------------------------------------------------------------------------------

[[gnu::noinline]] int churn(Publisher& publisher, std::byte* room, std::size_t slots, double seconds, double rate) {
  std::minstd_rand random(7);
  std::size_t functions = 0;
  for (unsigned generation = 0; cpu_seconds() < seconds; ++generation) {
    const unsigned number = random() % kLeaves;
    std::vector<Made> made(kAtOnce);
    const void* next = reinterpret_cast<const void*>(kLeaf[number]);
    for (unsigned i = kAtOnce; i-- > 0;) {  // the innermost first
      made[i].name = "f" + std::to_string(generation) + "_" + std::to_string(i) + "_" + std::to_string(number);
      if (!compile(made[i], room + (functions + i) % slots * kSlot, next, random() % kShapes)) return 4;
      next = reinterpret_cast<const void*>(made[i].function);
    }
    if (!publisher.add(made)) return 5;
    functions += kAtOnce;
    do sum = sum + static_cast<unsigned long>(made[0].function(1));
    while (static_cast<double>(functions) > cpu_seconds() * rate && cpu_seconds() < seconds);
    if (!publisher.remove()) return 6;
  }
  std::printf("%zu functions\n", functions);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string_view how = argv[3];
  const std::size_t slots = how == "perfmap" ? 65536 - 1 : 96;
  void* room = ::mmap(nullptr, slots * kSlot, PROT_READ | PROT_WRITE | PROT_EXEC,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return 3;
  const auto publisher = open(how, argv[4], static_cast<const std::byte*>(room), slots * kSlot);
  if (publisher == nullptr) return 3;
  const int status = churn(*publisher, static_cast<std::byte*>(room), slots, std::atof(argv[1]), std::atof(argv[2]));
  ::usleep(500'000);  // for who has no rows, and reads the code of the last samples here
  return status;
}
