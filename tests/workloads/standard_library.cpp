// C++ as people write it: deep stacks through the standard library's templates and libstdc++.so. Every stack in one of
// the work_ functions goes on with main.
//
// usage: standard_library SECONDS
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

std::vector<std::string> words() {
  std::vector<std::string> result;
  for (unsigned i = 0, x = 7; i < 60; ++i, x = x * 1103515245 + 12345)
    result.push_back("word " + std::to_string(x >> 16));
  return result;
}

// As deep as its argument says, a std::function between any two levels.
int descend(int depth, const std::function<int(int)>& next) {
  if (depth == 0) throw std::runtime_error("the bottom");
  const std::function<int(int)> again = [&](int d) { return descend(d, next) + 1; };
  return again(depth - 1) + next(depth);
}

}  // namespace

// Calls of these are no tail calls, and none is inlined.
#define WORK extern "C" [[gnu::noinline]] std::size_t

WORK work_sort() {
  std::vector<std::string> all = words();
  const std::function<bool(const std::string&, const std::string&)> less = [](const auto& a, const auto& b) {
    return a < b;
  };
  std::stable_sort(all.begin(), all.end(), less);
  return all.front().size();
}

WORK work_regex() {
  static const std::regex pattern("(a|b)*c+[d-f]{2,3}");
  return std::regex_match("abababababababababababababababababababcccdef", pattern) ? 1 : 0;
}

WORK work_stream() {
  std::ostringstream out;
  for (int i = 0; i < 40; ++i) out << i << ' ' << i * 0.37 << ' ';
  std::istringstream in(out.str());
  std::size_t count = 0;
  for (double value; in >> value;) ++count;
  return count;
}

WORK work_map() {
  std::map<std::string, std::vector<std::size_t>> index;
  for (const std::string& word : words()) index[word].push_back(word.size());
  return index.size();
}

WORK work_throw() {
  try {
    return static_cast<std::size_t>(descend(8, [](int d) { return d; }));
  } catch (const std::runtime_error& error) {
    return std::string(error.what()).size();
  }
}

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1.0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::size_t sum = 0;
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 20; ++i) sum += work_sort();
    for (int i = 0; i < 20; ++i) sum += work_regex();
    for (int i = 0; i < 20; ++i) sum += work_stream();
    for (int i = 0; i < 20; ++i) sum += work_map();
    for (int i = 0; i < 20; ++i) sum += work_throw();
  }
  std::printf("%zu\n", sum);
  return 0;
}
