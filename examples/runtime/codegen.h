// The compiler of one function: its method and its funclets, one after the other. Everything lives in slots of the
// method's frame, which funclets reach by rbx; rsp moves in prologues and epilogues alone, and there is no frame
// pointer. At tier 1 the locals used most are in registers that calls preserve.
//
//   CFA - 8                    return address
//   then                       saved registers (tier 1)
//   rsp + 8 * slot             [what is returned][reference locals][reference temporaries]
//                              [what is returned][depth of the shadow stack][thread][locals][temporaries]
#pragma once

#include <asmjit/asmjit.h>
#include <windlass/prologue.h>

#include <optional>

#include "helpers.h"

namespace lilt {

namespace x86 = asmjit::x86;

inline const x86::Gp kArguments[] = {x86::rdi, x86::rsi, x86::rdx, x86::rcx, x86::r8, x86::r9};

class Generator {
 public:
  // Without a frame's size it is a first pass, which finds how large the frame is.
  struct Sizes {
    int reference_temps = 0, temps = 0;
  };
  Generator(Runtime& runtime, Cell& cell, int tier, const Sizes& sizes, asmjit::CodeHolder& code);
  void run();
  [[nodiscard]] const Sizes& needed() const { return needed_; }
  // With all offsets made addresses.
  std::unique_ptr<Code> finish(Word address);

 private:
  // A try around the statement at hand.
  struct Region {
    asmjit::Label finally_code;
    bool has_finally = false;
    int piece = 0;
  };
  struct Pending {
    int piece;
    const Statement* statement;
    const Catch* clause;
    asmjit::Label normal, returns;  // where a catch goes on
  };
  struct ClauseAt {
    windlass::managed::Clause clause;
    asmjit::Label handler, filter;
  };
  struct Part {
    std::string name;
    windlass::managed::Funclet funclet = windlass::managed::Funclet::kNone;
    asmjit::Label begin;
    std::uint32_t at = 0, end = 0, body = 0, epilogue = 0;
    std::vector<ClauseAt> clauses;
    windlass::managed::StackMap map;
    windlass::Prologue prologue;
    asmjit::Label normal, returns;
  };

  // ---- frame
  void choose_registers();
  int slot_of_local(int local) const { return slots_[static_cast<std::size_t>(local)]; }
  x86::Mem slot(int n) const { return x86::qword_ptr(in_funclet() ? x86::rbx : x86::rsp, n * 8); }
  bool in_funclet() const { return part().funclet != windlass::managed::Funclet::kNone; }
  const Part& part() const { return parts_[static_cast<std::size_t>(current_)]; }
  Part& part() { return parts_[static_cast<std::size_t>(current_)]; }
  std::uint32_t here() const { return static_cast<std::uint32_t>(a_.offset()); }
  int push_temp(bool reference);
  void pop_temp(bool reference) { --(reference ? live_references_ : live_); }
  int depth_slot() const { return first_word_ + 1; }
  int thread_slot() const { return first_word_ + 2; }
  int return_slot() const { return function_.result->is_reference() ? 0 : first_word_; }
  std::optional<x86::Gp> register_of(int local) const;
  void prologue_of_method();
  void prologue_of_funclet();
  void epilogue();
  void push_shadow();
  void pop_shadow();

  // ---- calls
  void site();
  template <typename F>
  void call_helper(F* helper) {
    a_.mov(x86::rdi, x86::r15);
    a_.mov(x86::rax, asmjit::imm(reinterpret_cast<Word>(helper)));
    a_.call(x86::rax);
    site();
  }
  void call_finally(const Region& region);
  asmjit::Label trap(helpers::Trap which);
  void begin_traps() { traps_.emplace_back(); }
  void end_traps();
  void load(const x86::Gp& to, Word value) { a_.mov(to, asmjit::imm(value)); }

  // ---- statements
  void statement(const Statement& s);
  void block(const Block& statements) {
    for (const auto& each : statements) statement(*each);
  }
  void assign(const Statement& s);
  void store_local(int local);
  void if_statement(const Statement& s);
  void while_statement(const Statement& s);
  void try_statement(const Statement& s);
  void try_body(const Statement& s, const asmjit::Label& normal, const asmjit::Label& returns);
  void return_statement(const Statement& s);
  void leave();
  void funclet(const Pending& pending);
  int new_part(windlass::managed::Funclet kind);

  // ---- expressions: the value in rax
  void value(const Expression& e);
  void operand(const Expression& left, const Expression& right);  // left in rax, right in rcx
  using Values = std::vector<const Expression*>;
  std::vector<int> keep(const Values& values);
  void drop(const Values& values);
  void name(const Expression& e);
  void binary(const Expression& e);
  void arithmetic(const Expression& e);
  void real(const Expression& e);
  void compare(const Expression& e);
  void logical(const Expression& e);
  void unary(const Expression& e);
  void call(const Expression& e);
  void builtin(const Expression& e);
  void element_at();
  void make(const Expression& e);
  void make_array(const Expression& e);
  void make_closure(const Expression& e);
  void make_filled(const TypeInfo& type, const Values& fields, Word first, int offset);
  bool is_simple(const Expression& e) const;
  bool folded(const Expression& e);

  Runtime& runtime_;
  Cell& cell_;
  const Function& function_;
  const int tier_;
  const Sizes sizes_;
  Sizes needed_;
  asmjit::CodeHolder& code_;
  x86::Assembler a_;
  std::vector<int> slots_;
  std::map<int, x86::Gp> registers_;
  int first_word_ = 0, frame_slots_ = 0, reference_locals_ = 0;
  int first_reference_temp_ = 0, first_temp_ = 0;
  int live_references_ = 0, live_ = 0;
  int environment_ = -1;  // slot of a lambda's own closure
  int current_ = 0;
  std::deque<Part> parts_;
  std::deque<Pending> pending_;
  std::vector<Region> regions_;
  std::vector<std::array<std::optional<asmjit::Label>, helpers::kTraps>> traps_;
  asmjit::Label epilogue_;
};

}  // namespace lilt
