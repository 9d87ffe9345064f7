/* What a file's unwind information says: how many functions and rows, and the row of its entry point. */
#include <windlass/c/unwind_info.h>

#include <stdio.h>

struct counts {
  const windlass_unwind_info* info;
  size_t functions, rows, with_handler, problems;
};

static int count_row(const windlass_unwind_row* row, void* user) {
  (void)row;
  ++((struct counts*)user)->rows;
  return 0; /* anything else stops */
}

static void count_problem(const windlass_error* problem, void* user) {
  ++((struct counts*)user)->problems;
  printf("problem: %s\n", problem->text);
}

static int count_function(const windlass_unwind_function* function, void* user) {
  struct counts* counts = user;
  ++counts->functions;
  counts->with_handler += function->personality != 0;
  return windlass_each_row(counts->info, function, count_row, count_problem, counts) != WINDLASS_OK;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  windlass_unwind_info* info;
  windlass_error error = {.size = sizeof error};
  if (windlass_open_unwind_info(argv[1], &info, &error) != WINDLASS_OK) {
    fprintf(stderr, "%s: %s\n", argv[1], error.text);
    return 1;
  }
  windlass_unwind_file file = {.size = sizeof file};
  windlass_describe_unwind_info(info, &file);
  struct counts counts = {.info = info};
  windlass_each_function(info, count_function, count_problem, &counts);
  printf("build id %s: %zu functions, %zu rows, %zu functions with a handler\n", file.build_id, counts.functions,
         counts.rows, counts.with_handler);

  windlass_unwind_row row = {.size = sizeof row};
  if (windlass_row_at(info, file.entry_point, &row, &error) != WINDLASS_OK)
    printf("entry point: %s\n", error.text);
  else if (row.cfa.kind == WINDLASS_RULE_REGISTER_VALUE)
    printf("entry point: row %#llx..%#llx, CFA = r%u%+d, %u registers\n", (unsigned long long)row.begin,
           (unsigned long long)row.end, row.cfa.base, (int)row.cfa.offset, row.rule_count);
  windlass_close_unwind_info(info);
  return 0;
}
