// What a file's unwind information says: how many functions and rows, and the function and row of its entry point.
#include <windlass/unwind_info.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto reader = windlass::open_unwind_info(argv[1]);
  if (!reader) {
    std::fprintf(stderr, "%s: %s\n", argv[1], reader.error().text().c_str());
    return 1;
  }
  std::vector<windlass::Error> problems;
  std::size_t rows = 0, with_handler = 0;
  const auto functions = (*reader)->functions(&problems);
  for (const windlass::UnwindFunction& function : functions) {
    rows += (*reader)->rows(function, &problems).size();
    with_handler += function.personality.address != 0;
  }
  std::printf("%s, build id %s\n", windlass::format_name((*reader)->format()).data(), (*reader)->build_id().c_str());
  std::printf("%zu functions, %zu rows, %zu functions with a handler\n", functions.size(), rows, with_handler);
  for (const windlass::Error& problem : problems) std::printf("problem at %s\n", problem.text().c_str());

  const auto function = (*reader)->function_at((*reader)->entry_point());
  const auto row = (*reader)->row_at((*reader)->entry_point());
  if (!function || !row) return std::printf("entry point: %s\n", row.error().text().c_str()), 0;
  std::printf("entry point: function %#lx..%#lx, row %#lx..%#lx, %zu registers%s\n", function->begin, function->end,
              row->begin, row->end, row->registers.size(), row->signal_frame ? ", a signal frame" : "");
}
