// Names and types. What a name means is written into the tree; instances of generic functions are made here.
#include <algorithm>
#include <optional>

#include "ast.h"

namespace lilt {
namespace {

struct Signature {
  const char* name;
  Builtin builtin;
};
constexpr Signature kBuiltins[] = {
    {"print", Builtin::kPrint},         {"len", Builtin::kLength},        {"double_of", Builtin::kToDouble},
    {"int_of", Builtin::kToInt},        {"sqrt", Builtin::kSqrt},         {"text", Builtin::kText},
    {"substring", Builtin::kSubstring}, {"char_at", Builtin::kCharacter}, {"qsort", Builtin::kSort},
    {"parallel", Builtin::kParallel},   {"collect", Builtin::kCollect},   {"stack_depth", Builtin::kDepth},
    {"clock", Builtin::kClock},
};

class Checker {
 public:
  Checker(Program& program, Host& host, Function& function, Checker* outer)
      : program_(program), types_(program.types), host_(host), function_(function), outer_(outer) {}

  void run() {
    scopes_.emplace_back();
    for (const Parameter& parameter : function_.parameters) declare(parameter.name, parameter.type);
    if (function_.parameters.size() > 5) throw SourceError(function_.line, "more than 5 parameters");
    block(function_.body);
  }

 private:
  using Scope = std::map<std::string, int>;

  int declare(const std::string& name, TypeRef type) {
    const int local = static_cast<int>(function_.locals.size());
    function_.locals.push_back(type);
    function_.uses.push_back(0);
    scopes_.back()[name] = local;
    return local;
  }
  [[noreturn]] static void fail(int line, const std::string& text) { throw SourceError(line, text); }
  static void want(TypeRef have, TypeRef wanted, int line) {
    if (have == wanted || (have->kind == Kind::kNull && wanted->is_reference())) return;
    fail(line, "expected " + wanted->name + ", not " + have->name);
  }

  void block(Block& statements);
  void statement(Statement& made);
  void try_statement(Statement& made);
  TypeRef expression(Expression& e);
  TypeRef of(Expression& e);
  TypeRef name(Expression& e);
  bool find_variable(Expression& e);
  TypeRef binary(Expression& e);
  TypeRef call(Expression& e);
  TypeRef call_builtin(Expression& e, Builtin builtin);
  TypeRef call_declared(Expression& e, const Declaration& declaration);
  TypeRef field(Expression& e);
  TypeRef made_struct(Expression& e);
  TypeRef lambda(Expression& e);
  TypeRef function_value(Expression& e, const Declaration& declaration);
  Function* instance(const Declaration& declaration, const Bindings& bindings);
  void unify(TypeRef pattern, TypeRef type, Bindings& bindings);
  TypeRef kid(Expression& e, std::size_t n) { return expression(*e.kids[n]); }

  Program& program_;
  Types& types_;
  Host& host_;
  Function& function_;
  Checker* outer_;
  std::vector<Scope> scopes_;
  int in_cleanup_ = 0;
};

// ---- statements ---------------------------------------------------------------------------------------------------

void Checker::block(Block& statements) {
  scopes_.emplace_back();
  for (auto& each : statements) statement(*each);
  scopes_.pop_back();
}

void Checker::try_statement(Statement& made) {
  function_.has_try = true;
  block(made.body);
  for (Catch& clause : made.catches) {
    if (clause.type->kind != Kind::kStruct) fail(made.line, "only structs are thrown");
    scopes_.emplace_back();
    clause.local = declare(clause.name, clause.type);
    if (clause.when) want(expression(*clause.when), types_.bool_, made.line);
    block(clause.body);
    scopes_.pop_back();
  }
  ++in_cleanup_;
  block(made.other);
  --in_cleanup_;
}

void Checker::statement(Statement& made) {
  TypeRef value = types_.void_;
  if (made.what == Do::kTry) return try_statement(made);
  if (made.value) value = expression(*made.value);
  switch (made.what) {
    case Do::kLet:
      if (made.type != nullptr) want(value, made.type, made.line);
      if (made.type == nullptr) made.type = value;
      if (made.type->kind == Kind::kVoid || made.type->kind == Kind::kNull) fail(made.line, "variable has no type");
      made.local = declare(made.name, made.type);
      break;
    case Do::kAssign:
      want(value, expression(*made.to), made.line);
      if (made.to->op == Op::kField || made.to->op == Op::kIndex) break;
      if (made.to->op != Op::kName || made.to->place != Expression::kLocal)
        fail(made.line, "this cannot be assigned to (what a closure has captured is a copy)");
      break;
    case Do::kIf:
    case Do::kWhile: want(value, types_.bool_, made.line); break;
    case Do::kReturn:
      if (in_cleanup_ != 0) fail(made.line, "return in finally");
      want(value, function_.result, made.line);
      break;
    case Do::kThrow:
      if (made.value && value->kind != Kind::kStruct) fail(made.line, "only structs are thrown");
      break;
    default: break;
  }
  block(made.body);
  block(made.other);
}

// ---- names --------------------------------------------------------------------------------------------------------

bool Checker::find_variable(Expression& e) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto found = scope->find(e.text); found != scope->end()) {
      e.place = Expression::kLocal;
      e.index = found->second;
      e.type = function_.locals[static_cast<std::size_t>(e.index)];
      ++function_.uses[static_cast<std::size_t>(e.index)];
      return true;
    }
  e.place = Expression::kCaptured;
  for (std::size_t i = 0; i < function_.captures.size(); ++i)
    if (function_.captures[i].name == e.text)
      return e.index = static_cast<int>(i), e.type = function_.captures[i].type, true;
  auto from = std::make_unique<Expression>();
  from->op = Op::kName;
  from->line = e.line;
  from->text = e.text;
  if (outer_ == nullptr || !outer_->find_variable(*from)) return false;
  e.index = static_cast<int>(function_.captures.size());
  e.type = from->type;
  function_.captures.push_back({std::move(from), e.type, e.text});
  return true;
}

TypeRef Checker::name(Expression& e) {
  if (find_variable(e)) return e.type;
  if (const auto known = program_.functions.find(e.text); known != program_.functions.end())
    return function_value(e, known->second);
  fail(e.line, "unknown name " + e.text);
}

// A function as a value: a closure without captures around it.
TypeRef Checker::function_value(Expression& e, const Declaration& declaration) {
  if (!declaration.type_parameters.empty()) fail(e.line, "a generic function is no value");
  auto around = std::make_unique<Function>();
  around->name = declaration.name + ":value";
  around->line = e.line;
  around->is_lambda = true;
  around->parameters = declaration.parameters;
  around->result = declaration.result;
  auto inner = std::make_unique<Expression>();
  inner->op = Op::kCall;
  inner->line = e.line;
  const auto add = [&](const std::string& text) {
    auto named = std::make_unique<Expression>();
    named->op = Op::kName;
    named->line = e.line;
    named->text = text;
    inner->kids.push_back(std::move(named));
  };
  add(declaration.name);
  for (const Parameter& parameter : declaration.parameters) add(parameter.name);
  auto statement = std::make_unique<Statement>();
  statement->what = declaration.result == types_.void_ ? Do::kExpression : Do::kReturn;
  statement->line = e.line;
  statement->value = std::move(inner);
  around->body.push_back(std::move(statement));
  e.op = Op::kLambda;
  e.lambda = std::move(around);
  return lambda(e);
}

TypeRef Checker::lambda(Expression& e) {
  Checker(program_, host_, *e.lambda, this).run();
  std::vector<TypeRef> parameters;
  for (const Parameter& parameter : e.lambda->parameters) parameters.push_back(parameter.type);
  host_.made(*e.lambda);
  return types_.function(e.lambda->result, parameters);
}

// ---- calls --------------------------------------------------------------------------------------------------------

void Checker::unify(TypeRef pattern, TypeRef type, Bindings& bindings) {
  if (pattern->kind == Kind::kVariable) {
    bindings.try_emplace(pattern->name.substr(1), type);
  } else if (pattern->kind == type->kind && pattern->parts.size() == type->parts.size()) {
    for (std::size_t i = 0; i < pattern->parts.size(); ++i) unify(pattern->parts[i], type->parts[i], bindings);
  }
}

Function* Checker::instance(const Declaration& declaration, const Bindings& bindings) {
  auto made = parse_instance(program_, declaration, bindings);
  auto& known = program_.instances[made->name];
  if (known) return known.get();
  known = std::move(made);
  host_.made(*known);
  Checker(program_, host_, *known, nullptr).run();
  return known.get();
}

TypeRef Checker::call_declared(Expression& e, const Declaration& declaration) {
  std::vector<TypeRef> have;
  for (std::size_t i = 1; i < e.kids.size(); ++i) have.push_back(kid(e, i));
  if (have.size() != declaration.parameters.size()) fail(e.line, "wrong number of arguments for " + declaration.name);
  Bindings bindings;
  for (std::size_t i = 0; i < have.size(); ++i) unify(declaration.parameters[i].type, have[i], bindings);
  for (const std::string& parameter : declaration.type_parameters)
    if (!bindings.contains(parameter)) fail(e.line, "no type for " + parameter + " of " + declaration.name);
  e.target = instance(declaration, bindings);
  e.place = Expression::kFunction;
  for (std::size_t i = 0; i < have.size(); ++i) want(have[i], e.target->parameters[i].type, e.line);
  return e.target->result;
}

TypeRef Checker::call_builtin(Expression& e, Builtin builtin) {
  e.place = Expression::kBuiltin;
  e.index = static_cast<int>(builtin);
  std::vector<TypeRef> have;
  for (std::size_t i = 1; i < e.kids.size(); ++i) have.push_back(kid(e, i));
  const auto takes = [&](const std::vector<TypeRef>& wanted, TypeRef result) {
    if (have.size() != wanted.size()) fail(e.line, "wrong number of arguments for " + e.kids[0]->text);
    for (std::size_t i = 0; i < have.size(); ++i) want(have[i], wanted[i], e.line);
    return result;
  };
  const TypeRef i = types_.int_, d = types_.double_, s = types_.string_, v = types_.void_;
  switch (builtin) {
    case Builtin::kLength:
      if (have.size() != 1 || (have[0] != s && have[0]->kind != Kind::kArray))
        fail(e.line, "len of an array or string");
      return i;
    case Builtin::kToDouble: return takes({i}, d);
    case Builtin::kToInt: return takes({d}, i);
    case Builtin::kSqrt: return takes({d}, d);
    case Builtin::kSubstring: return takes({s, i, i}, s);
    case Builtin::kCharacter: return takes({s, i}, i);
    case Builtin::kCollect: return takes({}, v);
    case Builtin::kDepth:
    case Builtin::kClock: return takes({}, i);
    case Builtin::kParallel: return takes({i, types_.function(v, {i})}, v);
    case Builtin::kSort:
      if (have.size() != 2 || have[0]->kind != Kind::kArray) fail(e.line, "qsort(array, fn(a, b): int)");
      return takes({have[0], types_.function(i, {have[0]->element(), have[0]->element()})}, v);
    default:
      if (have.size() != 1 || (have[0]->is_reference() && have[0] != s)) fail(e.line, "int, double, bool or string");
      return builtin == Builtin::kText ? s : v;
  }
}

TypeRef Checker::call(Expression& e) {
  Expression& called = *e.kids[0];
  if (called.op == Op::kName && !find_variable(called)) {
    for (const auto& [name, builtin] : kBuiltins)
      if (called.text == name) return call_builtin(e, builtin);
    const auto known = program_.functions.find(called.text);
    if (known == program_.functions.end()) fail(e.line, "unknown function " + called.text);
    return call_declared(e, known->second);
  }
  const TypeRef type = called.op == Op::kName ? called.type : kid(e, 0);
  if (type->kind != Kind::kFunction) fail(e.line, type->name + " is no function");
  called.type = type;
  if (type->parts.size() != e.kids.size()) fail(e.line, "wrong number of arguments");
  for (std::size_t i = 1; i < e.kids.size(); ++i) want(kid(e, i), type->parts[i], e.line);
  return type->parts[0];
}

// ---- other expressions --------------------------------------------------------------------------------------------

TypeRef Checker::binary(Expression& e) {
  const TypeRef left = kid(e, 0), right = kid(e, 1);
  const bool compares = e.text == "==" || e.text == "!=" || e.text[0] == '<' || e.text[0] == '>';
  if (e.text == "&&" || e.text == "||") {
    want(left, types_.bool_, e.line);
    want(right, types_.bool_, e.line);
    return types_.bool_;
  }
  if (left->kind == Kind::kNull || right->kind == Kind::kNull)
    want(left->kind == Kind::kNull ? left : right, left->kind == Kind::kNull ? right : left, e.line);
  else
    want(right, left, e.line);
  const bool number = left == types_.int_ || left == types_.double_;
  const bool equality = e.text == "==" || e.text == "!=";
  const bool joined = e.text == "+" && left == types_.string_;
  if (!number && !equality && !joined) fail(e.line, "operator " + e.text + " on " + left->name);
  if (e.text == "%" && left != types_.int_) fail(e.line, "% on doubles");
  return compares ? types_.bool_ : left;
}

TypeRef Checker::field(Expression& e) {
  const TypeRef object = kid(e, 0);
  if (object->kind != Kind::kStruct) fail(e.line, object->name + " has no fields");
  const auto& fields = program_.structs.at(object->name).fields;
  const auto found = std::ranges::find(fields, e.text, &Parameter::name);
  if (found == fields.end()) fail(e.line, object->name + " has no field " + e.text);
  e.index = static_cast<int>(found - fields.begin());
  return found->type;
}

TypeRef Checker::made_struct(Expression& e) {
  if (e.type->kind != Kind::kStruct) fail(e.line, "new of " + e.type->name);
  const auto& fields = program_.structs.at(e.type->name).fields;
  if (!e.kids.empty() && fields.size() != e.kids.size()) fail(e.line, "wrong number of fields");
  for (std::size_t i = 0; i < e.kids.size(); ++i) want(kid(e, i), fields[i].type, e.line);
  return e.type;
}

TypeRef Checker::of(Expression& e) {
  switch (e.op) {
    case Op::kInt: return types_.int_;
    case Op::kDouble: return types_.double_;
    case Op::kBool: return types_.bool_;
    case Op::kString: return types_.string_;
    case Op::kNull: return types_.null_;
    case Op::kName: return name(e);
    case Op::kUnary: {
      const TypeRef type = kid(e, 0);
      if (e.text == "!" ? type != types_.bool_ : type != types_.int_ && type != types_.double_)
        fail(e.line, "operator " + e.text + " on " + type->name);
      return type;
    }
    case Op::kBinary: return binary(e);
    case Op::kCall: return call(e);
    case Op::kField: return field(e);
    case Op::kIndex: {
      const TypeRef array = kid(e, 0);
      if (array->kind != Kind::kArray) fail(e.line, array->name + " is no array");
      want(kid(e, 1), types_.int_, e.line);
      return array->element();
    }
    case Op::kNew: return made_struct(e);
    case Op::kNewArray:
      if (e.kids.size() != 1) fail(e.line, "new [T](length)");
      want(kid(e, 0), types_.int_, e.line);
      return e.type;
    case Op::kArrayOf: {
      if (e.kids.empty()) fail(e.line, "an empty array has no type: new [T](0)");
      const TypeRef element = kid(e, 0);
      for (std::size_t i = 1; i < e.kids.size(); ++i) want(kid(e, i), element, e.line);
      return types_.array(element);
    }
    case Op::kLambda: return lambda(e);
  }
  return types_.void_;
}

TypeRef Checker::expression(Expression& e) { return e.type = of(e); }

}  // namespace

void check(Program& program, Host& host, Function& function) { Checker(program, host, function, nullptr).run(); }

}  // namespace lilt
