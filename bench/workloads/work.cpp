// What a C++ compiler is given to chew on: templates, the regex machinery, containers, sorting.
#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <regex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

bool matches(const std::string& text) { return std::regex_match(text, std::regex("(a|b)*c+[d-f]{2,3}")); }

std::map<std::string, std::vector<int>> index_words(const std::vector<std::string>& words) {
  std::map<std::string, std::vector<int>> result;
  for (int i = 0; i < static_cast<int>(words.size()); ++i) result[words[i]].push_back(i);
  return result;
}

template <int N>
std::vector<std::variant<int, std::string>> mixed() {
  std::vector<std::variant<int, std::string>> values;
  for (int i = 0; i < N; ++i) i % 2 ? values.emplace_back(i) : values.emplace_back(std::to_string(i));
  std::stable_sort(values.begin(), values.end());
  if constexpr (N > 0) {
    auto rest = mixed<N - 1>();
    values.insert(values.end(), rest.begin(), rest.end());
  }
  return values;
}
template std::vector<std::variant<int, std::string>> mixed<100>();
