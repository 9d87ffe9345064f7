// The compiler of one function: its method and its funclets, one after the other. Everything lives in slots of the
// method's frame, which funclets reach by kBase; sp moves in prologues and epilogues alone, and there is no frame
// pointer. At tier 1 the locals used most are in registers that calls preserve.
//
//   CFA - 8                    return address
//   then                       saved registers (tier 1)
//   sp + 8 * slot              [what is returned][reference locals][reference temporaries]
//                              [what is returned][depth of the shadow stack][thread][locals][temporaries]
#pragma once

#include <optional>

#include "helpers.h"
#include "machine.h"

namespace lilt {

class Generator {
 public:
  // Without a frame's size it is a first pass, which finds how large the frame is.
  struct Sizes {
    int reference_temps = 0, temps = 0;
  };
  Generator(Runtime& runtime, Cell& cell, int tier, const Sizes& sizes, asmjit::CodeHolder& code);
  void run();
  [[nodiscard]] const Sizes& needed() const { return needed_; }
  // Of code and Windows unwind information behind it.
  [[nodiscard]] std::size_t size() const;
  // With all offsets made addresses.
  std::unique_ptr<Code> finish(Word address);

 private:
  // A try around the statement at hand.
  struct Region {
    Label finally_code;
    bool has_finally = false;
    int piece = 0;
  };
  struct Pending {
    int piece;
    const Statement* statement;
    const Catch* clause;
    Label normal, returns;  // where a catch goes on
  };
  struct ClauseAt {
    windlass::managed::Clause clause;
    Label handler, filter;
  };
  struct Part {
    std::string name;
    windlass::managed::Funclet funclet = windlass::managed::Funclet::kNone;
    Label begin;
    std::uint32_t at = 0, end = 0, body = 0, epilogue = 0;
    std::vector<ClauseAt> clauses;
    windlass::managed::StackMap map;
    windlass::Prologue prologue;
    Label normal, returns;
  };

  // ---- frame
  void choose_registers();
  int slot_of_local(int local) const { return slots_[static_cast<std::size_t>(local)]; }
  At slot(int n) const { return {in_funclet() ? kBase.reg : kStack, n * 8}; }
  bool in_funclet() const { return part().funclet != windlass::managed::Funclet::kNone; }
  const Part& part() const { return parts_[static_cast<std::size_t>(current_)]; }
  Part& part() { return parts_[static_cast<std::size_t>(current_)]; }
  int push_temp(bool reference);
  void pop_temp(bool reference) { --(reference ? live_references_ : live_); }
  int depth_slot() const { return first_word_ + 1; }
  int thread_slot() const { return first_word_ + 2; }
  int return_slot() const { return function_.result->is_reference() ? 0 : first_word_; }
  const Preserved* register_of(int local) const;
  std::vector<Preserved> saved() const;
  int words() const { return in_funclet() ? 3 : frame_slots_; }
  void prologue_of_method();
  void prologue_of_funclet();
  void epilogue();
  void describe_to_windows(const Part& from, Piece& to, Word address, Word& info) const;
  void push_shadow();
  void pop_shadow();

  // ---- calls
  void site();
  template <typename F>
  void call_helper(F* helper) {
    m_.move(kArguments[0], kThread.reg);
    m_.call(reinterpret_cast<const void*>(helper));
    site();
  }
  void call_finally(const Region& region);
  Label trap(helpers::Trap which);
  void begin_traps() { traps_.emplace_back(); }
  void end_traps();

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
  void try_body(const Statement& s, const Label& normal, const Label& returns);
  void return_statement(const Statement& s);
  void leave();
  void funclet(const Pending& pending);
  int new_part(windlass::managed::Funclet kind);

  // ---- expressions: the value in kValue
  void value(const Expression& e);
  void operand(const Expression& left, const Expression& right);  // left in kValue, right in kOther
  using Values = std::vector<const Expression*>;
  std::vector<int> keep(const Values& values);
  void drop(const Values& values);
  void name(const Expression& e);
  void binary(const Expression& e);
  void arithmetic(const Expression& e);
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
  Machine m_;
  std::vector<int> slots_;
  std::map<int, Preserved> registers_;
  int first_word_ = 0, frame_slots_ = 0, reference_locals_ = 0;
  int first_reference_temp_ = 0, first_temp_ = 0;
  int live_references_ = 0, live_ = 0;
  int environment_ = -1;  // slot of a lambda's own closure
  int current_ = 0;
  std::deque<Part> parts_;
  std::deque<Pending> pending_;
  std::vector<Region> regions_;
  std::vector<std::array<std::optional<Label>, helpers::kTraps>> traps_;
  Label epilogue_;
};

}  // namespace lilt
