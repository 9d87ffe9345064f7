// A module of Elm, for elm-format: a program in Haskell that has enough to do with it.
#pragma once

#include <fstream>
#include <string>

#include <fmt/format.h>

namespace windlass::test {

inline void write_elm(const std::string& path, int functions) {
  std::ofstream elm(path);
  elm << "module Big exposing (..)\n\n";
  for (int i = 0; i < functions; ++i)
    elm << fmt::format(
        "f{0} : Int -> List String -> Maybe Int\nf{0} x r =\n    let\n        y = x + {0}\n"
        "    in\n    case List.head r of\n        Just q -> if y > 3 then Just (y + 1) else Nothing\n"
        "        Nothing -> Nothing\n\n\n",
        i);
}

}  // namespace windlass::test
