#!/usr/bin/env bash
# site/doc_comments.py on a made-up header: what doxygen gets of it, line by line.
set -euo pipefail
filter=$(cd "$(dirname "$0")/.." && pwd)/site/doc_comments.py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat > walk.h <<'H'
// Walks of stacks, "all" of <them>.
//
//   walk(a);  // so
//
//   walk(b);
//
// Tables:
//   [any]  any thread
//   - an item
//     that goes on
#pragma once
namespace n {
struct S {
  int a = 0;  // the first, as in memcpy@plt
              // and more
  char quote = '"';  // ::path, `<as is>`
  int f() const { return a; }  // of a body on its line
  int g() const {
    // within a body
    return 1'000;  // there, too
  }
  // behind a body
  virtual int h(int /*unused*/) const;
  // without clang-tidy's line
  // NOLINTNEXTLINE(a-check): a reason
  int k(int a,  // NOLINT(a-check)
        int b);
};
}  // namespace n
/* C's. Long,
 * of two lines. @param a is passed on */
int i(int a); /* behind */
#define I 1 /* of a macro */
/* ---- a section ---- */
enum { A, /* the first */ B };
H
cat > expected <<'H'
/// @file walk.h \ilinebr Walks of stacks, \"all\" of \<them\>.
/// @code{.cpp}
///   walk(a);  // so
///
///   walk(b); @endcode
///
/// Tables: @code{.unparsed}
///   [any]  any thread @endcode
///   - an item
///     that goes on
#pragma once
namespace n {
struct S {
  int a = 0;  ///< the first, as in memcpy\@plt
              ///< and more
  char quote = '"';  ///< \::path, `<as is>`
  int f() const { return a; }  ///< of a body on its line
  int g() const {
    // within a body
    return 1'000;  // there, too
  }
  /// behind a body
  virtual int h(int /*unused*/) const;
  /// without clang-tidy's line
  ///
  int k(int a,  // NOLINT(a-check)
        int b);
};
}  // namespace n
/** C's. Long,
 * of two lines. @param a is passed on */
int i(int a); /**< behind */
#define I 1 /**< of a macro */
/* ---- a section ---- */
enum { A, /* the first */ B };
H
"$filter" walk.h | diff expected -
echo "all as expected"
