// What stands in static storage and no walk at exit may find destroyed.
#pragma once

namespace windlass {

template <typename T>
union StaticStorage {
  template <typename... Arguments>
  explicit constexpr StaticStorage(const Arguments&... arguments) : value(arguments...) {}
  constexpr ~StaticStorage() {}
  T value;
};

}  // namespace windlass
