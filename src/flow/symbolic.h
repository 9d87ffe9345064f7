// What registers and stack slots hold while code is followed without running it: values in terms of the registers at
// the pc where the following began. Architecture-neutral.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace windlass::flow {

// One value, 16 bytes. "Initial" registers and memory are those at the start of the path.
struct Value {
  enum Kind : std::uint8_t {
    kUnknown,
    kConstant,     // addend
    kRegister,     // initial reg + addend
    kMemory,       // [initial reg + slot] + addend
    kMemory2,      // [[initial reg + slot] + slot2] + addend
    kTableEntry,   // an entry of a table of `slot2` bytes each at the address `addend` (negative: sign-extended)
    kTableTarget,  // one of the code addresses  addend + slot + (entry << reg), or the entry itself if slot2 = 8
  };
  Kind kind = kUnknown;
  std::uint8_t reg = 0;
  std::int16_t slot2 = 0;
  std::int32_t slot = 0;
  std::int64_t addend = 0;

  // Numbers of "registers" that stand for values nobody knows but that are the same wherever they occur: sp aligned
  // down, say. They cannot become part of a row, but what is stored relative to them is found again.
  static constexpr std::uint8_t kFirstSymbol = 128;

  [[nodiscard]] static constexpr Value constant(std::uint64_t value) {
    return {kConstant, 0, 0, 0, static_cast<std::int64_t>(value)};
  }
  [[nodiscard]] static constexpr Value initial(unsigned reg, std::int64_t addend = 0) {
    return {kRegister, static_cast<std::uint8_t>(reg), 0, 0, addend};
  }
  [[nodiscard]] constexpr bool known() const { return kind != kUnknown; }
  [[nodiscard]] constexpr bool is_constant() const { return kind == kConstant; }
  [[nodiscard]] constexpr bool is_address() const { return kind >= kRegister && kind <= kMemory2; }
  [[nodiscard]] constexpr bool is_symbol() const { return is_address() && reg >= kFirstSymbol; }
  [[nodiscard]] constexpr bool is_initial(unsigned number) const {
    return kind == kRegister && reg == number && addend == 0;
  }
  // Do both differ by a constant only?
  [[nodiscard]] constexpr bool same_base(const Value& other) const {
    return is_address() && kind == other.kind && reg == other.reg && slot == other.slot && slot2 == other.slot2;
  }
  [[nodiscard]] constexpr Value plus(std::int64_t n) const {
    if (kind != kConstant && !is_address()) return {};
    Value sum = *this;
    sum.addend = static_cast<std::int64_t>(static_cast<std::uint64_t>(addend) + static_cast<std::uint64_t>(n));
    return sum;
  }
  // The difference of the addends, which may be any numbers of 64 bits: it wraps around.
  [[nodiscard]] constexpr std::int64_t minus(const Value& other) const {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(addend) - static_cast<std::uint64_t>(other.addend));
  }
  // The eight bytes that initial memory held at this address; unknown where that cannot be written down.
  [[nodiscard]] constexpr Value loaded() const {
    if (kind == kRegister && addend == static_cast<std::int32_t>(addend))
      return {kMemory, reg, 0, static_cast<std::int32_t>(addend), 0};
    if (kind == kMemory && addend == static_cast<std::int16_t>(addend))
      return {kMemory2, reg, static_cast<std::int16_t>(addend), slot, 0};
    return {};
  }
  bool operator==(const Value&) const = default;
};
static_assert(sizeof(Value) == 16);

// Registers by DWARF number (dense), and what the path has stored. Copied at every branch.
template <unsigned kRegisterCount>
class SymbolicState {
 public:
  static constexpr unsigned kMaxStores = 24;

  SymbolicState() = default;
  SymbolicState(const SymbolicState&) = default;
  // Of the stores, those that there are.
  SymbolicState& operator=(const SymbolicState& other) {
    if (this == &other) return *this;
    registers_ = other.registers_;
    std::copy_n(other.stores_.begin(), other.store_count_, stores_.begin());
    store_count_ = other.store_count_;
    next_symbol_ = other.next_symbol_;
    forgotten_ = other.forgotten_;
    return *this;
  }
  ~SymbolicState() = default;

  void start() {
    for (unsigned i = 0; i < kRegisterCount; ++i) registers_[i] = Value::initial(i);
    store_count_ = 0;
    forgotten_ = 0;
    next_symbol_ = Value::kFirstSymbol;
  }

  [[nodiscard]] const Value& operator[](unsigned reg) const { return registers_[reg]; }
  [[nodiscard]] Value& operator[](unsigned reg) { return registers_[reg]; }

  // A value that is known by name only.
  [[nodiscard]] Value fresh() {
    const std::uint8_t number = next_symbol_;
    next_symbol_ = number == 255 ? Value::kFirstSymbol : static_cast<std::uint8_t>(number + 1);
    return Value::initial(number);
  }

  // The number of the next symbol. A user that follows several paths gives each place in the code that makes a symbol
  // one number.
  [[nodiscard]] std::uint8_t next_symbol() const { return next_symbol_; }
  void set_next_symbol(std::uint8_t number) { next_symbol_ = number; }

  // `size` bytes at `address`; anything but eight bytes stored or initially there is unknown.
  [[nodiscard]] Value load(const Value& address, unsigned size) const {
    if (!address.is_address()) return {};
    for (unsigned i = store_count_; i-- > 0;) {
      const Store& store = stores_[i];
      if (!overlap(store, address, size)) continue;
      return store.size == 8 && size == 8 && store.address.addend == address.addend ? store.value : Value();
    }
    return size == 8 && !address.is_symbol() ? address.loaded() : Value();
  }

  // A store to an unknown address is taken not to hit what the frame saves.
  void store(const Value& address, unsigned size, const Value& value) {
    if (!address.is_address() || size == 0) return;
    unsigned kept = 0;  // the order is that of time
    for (unsigned i = 0; i < store_count_; ++i) {
      const Store& old = stores_[i];
      const auto behind = static_cast<std::uint64_t>(old.address.minus(address));
      const bool covered = old.address.same_base(address) && old.size <= size && behind <= size - old.size;
      if (!covered) stores_[kept++] = old;
    }
    store_count_ = static_cast<std::uint8_t>(kept);
    if (store_count_ == kMaxStores && !make_room()) {
      forgotten_ |= base_bit(address);
      return;
    }
    stores_[store_count_++] = {address, size == 8 ? value : Value(),
                               static_cast<std::uint16_t>(size < 4096 ? size : 4096)};
  }

  // Was there no room for a store? What is loaded afterwards from the same base may then be taken for initial memory.
  [[nodiscard]] bool forgot() const { return forgotten_ != 0; }
  // May `value`, taken for initial memory, be what such a store has left there?
  [[nodiscard]] bool forgot(const Value& value) const {
    return (value.kind == Value::kMemory || value.kind == Value::kMemory2) && (forgotten_ & base_bit(value)) != 0;
  }

  [[nodiscard]] unsigned store_count() const { return store_count_; }
  [[nodiscard]] bool same_stores(const SymbolicState& other) const {
    return store_count_ == other.store_count_ &&
           std::equal(stores_.begin(), stores_.begin() + store_count_, other.stores_.begin());
  }
  // Forgets the stores for which keep(address, size, value) is false, and earlier stores that share a byte with one of
  // these. A load from there then reads initial memory.
  template <typename Keep>
  void forget_stores(Keep&& keep) {
    unsigned kept = 0;
    for (unsigned i = 0; i < store_count_; ++i) {
      const Store store = stores_[i];
      if (keep(store.address, unsigned{store.size}, store.value)) {
        stores_[kept++] = store;
        continue;
      }
      unsigned older = 0;
      for (unsigned j = 0; j < kept; ++j)
        if (!overlap(stores_[j], store.address, store.size)) stores_[older++] = stores_[j];
      kept = older;
    }
    store_count_ = static_cast<std::uint8_t>(kept);
  }

  // Another way arrives here, too: what is not the same by both becomes unknown. Did anything?
  bool meet(const SymbolicState& other) {
    bool changed = false;
    for (unsigned i = 0; i < kRegisterCount; ++i) {
      if (!registers_[i].known() || registers_[i] == other.registers_[i]) continue;
      registers_[i] = {};
      changed = true;
    }
    const unsigned count = store_count_;
    forget_stores([&](const Value& address, unsigned size, const Value& value) {
      for (unsigned i = 0; i < other.store_count_; ++i) {
        const Store& theirs = other.stores_[i];
        if (theirs.address == address && theirs.size == size && theirs.value == value) return true;
      }
      return false;
    });
    return changed || store_count_ != count;
  }

  // Calls callback(address, value) for the eight-byte stores that are remembered, in the order of time.
  template <typename Callback>
  void for_each_store(Callback&& callback) const {
    for (unsigned i = 0; i < store_count_; ++i)
      if (stores_[i].size == 8) callback(stores_[i].address, stores_[i].value);
  }

 private:
  struct Store {
    Value address;
    Value value;
    std::uint16_t size;
    bool operator==(const Store&) const = default;
  };
  static bool overlap(const Store& store, const Value& address, unsigned size) {
    return store.address.same_base(address) && (static_cast<std::uint64_t>(address.minus(store.address)) < store.size ||
                                                static_cast<std::uint64_t>(store.address.minus(address)) < size);
  }
  // All symbols have one bit.
  static std::uint64_t base_bit(const Value& value) { return std::uint64_t{1} << std::min<unsigned>(value.reg, 63); }
  // Drops the oldest store of something unknown.
  bool make_room() {
    for (unsigned i = 0; i < store_count_; ++i) {
      if (stores_[i].value.known()) continue;
      forgotten_ |= base_bit(stores_[i].address);
      for (unsigned j = i + 1; j < store_count_; ++j) stores_[j - 1] = stores_[j];
      --store_count_;
      return true;
    }
    return false;
  }

  std::array<Value, kRegisterCount> registers_;
  std::array<Store, kMaxStores> stores_;
  std::uint8_t store_count_ = 0;
  std::uint8_t next_symbol_ = Value::kFirstSymbol;
  std::uint64_t forgotten_ = 0;  // the bases of stores without room, a bit for each register
};

}  // namespace windlass::flow
