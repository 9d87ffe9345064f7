// lilt's types and syntax trees. Trees are made anew for each instance of a generic function, and the checker writes
// into them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace lilt {

struct SourceError : std::runtime_error {
  SourceError(int line, const std::string& text) : std::runtime_error("line " + std::to_string(line) + ": " + text) {}
};

// ---- types --------------------------------------------------------------------------------------------------------

enum class Kind : std::uint8_t { kVoid, kInt, kDouble, kBool, kString, kNull, kStruct, kArray, kFunction, kVariable };

// Interned: equal types are the same object.
struct Type {
  Kind kind = Kind::kVoid;
  std::string name;
  std::vector<const Type*> parts;  // an array's element; a function's result and parameters
  [[nodiscard]] bool is_reference() const { return kind >= Kind::kString; }
  [[nodiscard]] const Type* element() const { return parts[0]; }
};
using TypeRef = const Type*;

class Types {
  std::map<std::string, std::unique_ptr<Type>> types_;  // first: the basic ones below are made in it
  TypeRef intern(Type type);

 public:
  TypeRef basic(Kind kind, const std::string& name) { return intern({kind, name, {}}); }
  TypeRef array(TypeRef element) { return intern({Kind::kArray, "[" + element->name + "]", {element}}); }
  TypeRef function(TypeRef result, const std::vector<TypeRef>& parameters);

  const TypeRef void_ = basic(Kind::kVoid, "void"), int_ = basic(Kind::kInt, "int"),
                double_ = basic(Kind::kDouble, "double"), bool_ = basic(Kind::kBool, "bool"),
                string_ = basic(Kind::kString, "string"), null_ = basic(Kind::kNull, "null");
};

// ---- trees --------------------------------------------------------------------------------------------------------

struct Token {
  enum Kind : std::uint8_t { kEnd, kName, kInt, kDouble, kString, kSign } kind = kEnd;
  std::string text;
  int line = 1;
};
std::vector<Token> lex(const std::string& source);

struct Function;
struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

enum class Op : std::uint8_t {
  kInt,
  kDouble,
  kBool,
  kString,
  kNull,  // literals
  kName,
  kUnary,
  kBinary,  // text: the name, the operator
  kCall,
  kField,
  kIndex,  // kids: what is called, and arguments; the object; array and index
  kNew,
  kNewArray,
  kArrayOf,
  kLambda,  // type(fields...), new [T](n), [a, b, ...], fn(...) {...}
};

struct Expression {
  Op op = Op::kInt;
  int line = 0;
  std::string text;
  std::int64_t value = 0;  // or a double's bits
  TypeRef type = nullptr;
  std::vector<std::unique_ptr<Expression>> kids;
  std::unique_ptr<Function> lambda;
  // ---- the checker's ----
  enum Place : std::uint8_t { kNowhere, kLocal, kCaptured, kFunction, kBuiltin } place = kNowhere;
  int index = 0;               // of the local, the capture, the field, the builtin
  Function* target = nullptr;  // kFunction
};

enum class Do : std::uint8_t { kLet, kAssign, kExpression, kIf, kWhile, kReturn, kThrow, kTry, kBlock };

struct Catch {
  std::string name;
  TypeRef type = nullptr;
  std::unique_ptr<Expression> when;  // none: all of the type
  Block body;
  int local = 0;
};

struct Statement {
  Do what = Do::kBlock;
  int line = 0;
  std::string name;        // kLet
  TypeRef type = nullptr;  // kLet, if it says one
  int local = 0;
  std::unique_ptr<Expression> to, value;  // kAssign has both
  Block body, other;                      // other: else, finally
  std::vector<Catch> catches;
  bool has_finally = false;
};

struct Parameter {
  std::string name;
  TypeRef type;
};

struct Cell;  // runtime.h: what calls go through

// One instance: a function, a generic one with its types, or a lambda.
struct Function {
  std::string name;
  int line = 0;
  std::vector<Parameter> parameters;
  TypeRef result = nullptr;
  Block body;
  // ---- the checker's ----
  std::vector<TypeRef> locals;  // parameters first
  std::vector<int> uses;        // of each local, counted
  struct Captured {
    std::unique_ptr<Expression> from;  // in the function around it
    TypeRef type;
    std::string name;
  };
  std::vector<Captured> captures;
  bool is_lambda = false, has_try = false;
  Cell* cell = nullptr;
};

struct Struct {
  std::string name;
  TypeRef type = nullptr;
  std::vector<Parameter> fields;
};

// A function as it is declared: parsed again for each instance.
struct Declaration {
  std::string name;
  std::vector<std::string> type_parameters;
  std::vector<Parameter> parameters;
  TypeRef result = nullptr;
  std::shared_ptr<const std::vector<Token>> tokens;
  std::size_t at = 0;  // behind `fn name`
};

using Bindings = std::map<std::string, TypeRef>;

struct Program {
  Types types;
  std::map<std::string, Struct> structs;
  std::map<std::string, Declaration> functions;
  std::map<std::string, std::unique_ptr<Function>> instances;
  std::vector<std::unique_ptr<Function>> mains;  // statements at top level, one for each piece of source
};

// Adds the declarations of `source`; what stands outside of functions becomes a function of its own.
Function* parse(Program& program, const std::string& source);
std::unique_ptr<Function> parse_instance(Program& program, const Declaration& declaration, const Bindings& bindings);

// Resolves names and types; instances that it needs are made, checked and given to made(). Throws SourceError.
class Host {
 public:
  virtual ~Host() = default;
  virtual void made(Function& function) = 0;
};
void check(Program& program, Host& host, Function& function);

// Builtin functions, by their place in this list.
enum class Builtin : std::uint8_t {
  kPrint,
  kLength,
  kToDouble,
  kToInt,
  kSqrt,
  kText,
  kSubstring,
  kCharacter,
  kSort,
  kParallel,
  kCollect,
  kDepth,
  kClock,
  kCount
};

}  // namespace lilt
