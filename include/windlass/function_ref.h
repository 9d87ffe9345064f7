// A reference to a callable: two words, copied freely, without an allocation. The callable must outlive the reference.
//
// For example, `void each(FunctionRef<bool(int)> visit)` can be called with any lambda that takes an int.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace windlass {

template <typename Signature>
class FunctionRef;

// Calling the reference calls the callable. Thread and signal safety are those of the callable.
template <typename Result, typename... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <typename Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef> &&
           std::is_invocable_r_v<Result, Callable&, Args...>)
      FunctionRef(Callable&& callable)  // NOLINT(google-explicit-constructor): it is a reference
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

}  // namespace windlass
