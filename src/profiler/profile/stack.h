// The locations of a sample, innermost first. A stack that is made by hand has a list of its own. The samples of a file
// share their outer locations in a StackPool: a stack is then the number of a node.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace windlass::profile {

// Stacks as a tree: a node is a location and the stack of its caller. Node 0 is the empty stack. A pool lives as long
// as a Stack of it does. Many threads may read it; the one that adds nodes is alone.
class StackPool {
 public:
  static constexpr std::uint32_t kMostNodes = (1U << 31) - 1;
  struct Node {
    std::uint32_t caller = 0, location = 0;
  };

  // The new node. At most kMostNodes.
  std::uint32_t push(std::uint32_t caller, std::uint32_t location) {
    nodes_.push_back({caller, location});
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }
  void set_location(std::uint32_t node, std::uint32_t location) { nodes_[node].location = location; }
  // A caller stands before what it called.
  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }

 private:
  friend class Stack;
  std::vector<Node> nodes_{Node{}};
  std::atomic<std::uint64_t> users_{0};
};

// Has what a vector has. Reading it in order is cheap in both forms. A change gives it a list of its own, and so does
// any access to one that is not const.
class Stack {
 public:
  using value_type = std::uint32_t;
  using size_type = std::size_t;
  using iterator = std::uint32_t*;

  class const_iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::uint32_t;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::uint32_t*;
    using reference = const std::uint32_t&;

    const_iterator() = default;
    reference operator*() const { return nodes_ != nullptr ? nodes_[node_].location : *own_; }
    const_iterator& operator++() {
      if (nodes_ != nullptr)
        node_ = nodes_[node_].caller;
      else
        ++own_;
      return *this;
    }
    const_iterator operator++(int) {
      const const_iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const const_iterator&) const = default;

   private:
    friend class Stack;
    explicit const_iterator(const std::uint32_t* own) : own_(own) {}
    const_iterator(const StackPool::Node* nodes, std::uint32_t node) : nodes_(nodes), node_(node) {}

    const StackPool::Node* nodes_ = nullptr;  // null: a list
    const std::uint32_t* own_ = nullptr;
    std::uint32_t node_ = 0;
  };

  Stack() = default;
  Stack(std::initializer_list<std::uint32_t> locations) { assign(locations.begin(), locations.end()); }
  Stack(const std::vector<std::uint32_t>& locations) { assign(locations.begin(), locations.end()); }
  template <std::input_iterator It>
  Stack(It first, It last) {
    assign(first, last);
  }
  // The empty stack of a new pool.
  static Stack in_new_pool() { return {new StackPool, 0, 0}; }
  // Of this one's pool. `size`: how many nodes it has up to node 0.
  [[nodiscard]] Stack at_node(std::uint32_t node, std::uint32_t size) const { return {at_.pool, node, size}; }

  Stack(const Stack& other) { copy(other); }
  Stack(Stack&& other) noexcept { swap(other); }
  Stack& operator=(const Stack& other) {
    if (this != &other) {
      release();
      copy(other);
    }
    return *this;
  }
  Stack& operator=(Stack&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Stack() { release(); }

  // Null: it has a list.
  [[nodiscard]] StackPool* pool() const { return is_own() ? nullptr : at_.pool; }
  // Of pool().
  [[nodiscard]] std::uint32_t node() const { return node_; }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] const_iterator begin() const {
    return is_own() ? const_iterator(at_.own) : const_iterator(at_.pool->nodes_.data(), node_);
  }
  [[nodiscard]] const_iterator end() const {
    return is_own() ? const_iterator(at_.own + size_) : const_iterator(at_.pool->nodes_.data(), 0);
  }
  // O(index).
  const std::uint32_t& operator[](std::size_t index) const {
    return is_own() ? at_.own[index] : *std::next(begin(), static_cast<std::ptrdiff_t>(index));
  }
  [[nodiscard]] const std::uint32_t& front() const { return *begin(); }
  [[nodiscard]] const std::uint32_t& back() const { return (*this)[size_ - 1]; }
  operator std::vector<std::uint32_t>() const { return {begin(), end()}; }
  friend bool operator==(const Stack& a, const Stack& b) {
    const bool same_pool = a.pool() != nullptr && a.pool() == b.pool() && a.node_ == b.node_;
    return a.size_ == b.size_ && (same_pool || std::equal(a.begin(), a.end(), b.begin()));
  }

  [[nodiscard]] iterator begin() { return own(); }
  [[nodiscard]] iterator end() { return own() + size_; }
  [[nodiscard]] std::reverse_iterator<iterator> rbegin() { return std::make_reverse_iterator(end()); }
  [[nodiscard]] std::reverse_iterator<iterator> rend() { return std::make_reverse_iterator(begin()); }
  std::uint32_t& operator[](std::size_t index) { return own()[index]; }
  std::uint32_t& front() { return *own(); }
  std::uint32_t& back() { return own()[size_ - 1]; }

  void push_back(std::uint32_t location) {
    if (own(); size_ == capacity()) grow(std::max<std::uint32_t>(4, 2 * size_));
    at_.own[size_++] = location;
  }
  void pop_back() { resize(size_ - 1); }
  void clear() { erase(begin(), end()); }
  void resize(std::size_t size) {
    while (size_ < size) push_back(0);
    erase(begin() + size, end());
  }
  iterator erase(iterator first, iterator last) {
    std::copy(last, end(), first);
    size_ -= static_cast<std::uint32_t>(last - first);
    return first;
  }
  iterator erase(iterator at) { return erase(at, at + 1); }
  template <std::input_iterator It>
  void assign(It first, It last) {
    clear();
    if constexpr (std::forward_iterator<It>) grow(static_cast<std::uint32_t>(std::distance(first, last)));
    for (; first != last; ++first) push_back(static_cast<std::uint32_t>(*first));
  }
  void assign(std::size_t size, std::uint32_t location) {
    clear();
    while (size_ < size) push_back(location);
  }

 private:
  static constexpr std::uint32_t kOwn = 1U << 31;  // node_ is then the capacity of the list

  Stack(StackPool* pool, std::uint32_t node, std::uint32_t size) : node_(node), size_(size) {
    at_.pool = pool;
    pool->users_.fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_own() const { return (node_ & kOwn) != 0; }
  [[nodiscard]] std::uint32_t capacity() const { return node_ & ~kOwn; }
  void swap(Stack& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(node_, other.node_);
    std::swap(size_, other.size_);
  }
  // Of one without memory.
  void copy(const Stack& other) {
    if (!other.is_own()) {
      Stack(other.at_.pool, other.node_, other.size_).swap(*this);
    } else if (other.size_ != 0) {
      at_.own = new std::uint32_t[other.size_];
      std::copy(other.at_.own, other.at_.own + other.size_, at_.own);
      node_ = kOwn | other.size_;
      size_ = other.size_;
    }
  }
  void release() noexcept {
    if (is_own())
      delete[] at_.own;
    else if (at_.pool->users_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      delete at_.pool;
    at_.own = nullptr;
    node_ = kOwn;
    size_ = 0;
  }
  std::uint32_t* own() {
    if (!is_own()) Stack(std::as_const(*this).begin(), std::as_const(*this).end()).swap(*this);
    return at_.own;
  }
  // Of a list.
  void grow(std::uint32_t to) {
    if (to <= capacity()) return;
    auto* const more = new std::uint32_t[to];
    std::copy(at_.own, at_.own + size_, more);
    delete[] at_.own;
    at_.own = more;
    node_ = kOwn | to;
  }

  union {
    std::uint32_t* own = nullptr;
    StackPool* pool;
  } at_;
  std::uint32_t node_ = kOwn;
  std::uint32_t size_ = 0;
};

}  // namespace windlass::profile
