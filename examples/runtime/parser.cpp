#include <bit>
#include <cstdlib>

#include "ast.h"

namespace lilt {

TypeRef Types::intern(Type type) {
  auto& known = types_[type.name];
  if (!known) known = std::make_unique<Type>(std::move(type));
  return known.get();
}

TypeRef Types::function(TypeRef result, const std::vector<TypeRef>& parameters) {
  Type type{Kind::kFunction, "fn(", {result}};
  for (TypeRef parameter : parameters) {
    type.name += (type.parts.size() > 1 ? "," : "") + parameter->name;
    type.parts.push_back(parameter);
  }
  type.name += "):" + result->name;
  return intern(std::move(type));
}

namespace {

using Made = std::unique_ptr<Expression>;

class Parser {
 public:
  Parser(Program& program, std::shared_ptr<const std::vector<Token>> tokens, std::size_t at, Bindings bindings)
      : program_(program), tokens_(std::move(tokens)), at_(at), bindings_(std::move(bindings)) {}

  Function* top_level();
  std::unique_ptr<Function> function(const std::string& name);
  void signature(std::vector<Parameter>& parameters, TypeRef& result);

 private:
  [[nodiscard]] const Token& peek() const { return (*tokens_)[at_]; }
  [[nodiscard]] bool is(const char* text) const {
    return peek().text == text && (peek().kind == Token::kSign || peek().kind == Token::kName);
  }
  bool take(const char* text) { return is(text) && (++at_, true); }
  void expect(const char* text) {
    if (!take(text)) throw SourceError(peek().line, "expected '" + std::string(text) + "', not '" + peek().text + "'");
  }
  std::string name() {
    if (peek().kind != Token::kName) throw SourceError(peek().line, "expected a name, not '" + peek().text + "'");
    return (*tokens_)[at_++].text;
  }

  void declare_struct();
  void declare_function();
  void skip_block();
  TypeRef type();
  Block block();
  std::unique_ptr<Statement> statement();
  void simple(Statement& made);
  void try_statement(Statement& made);
  Made expression() { return binary(0); }
  Made binary(int level);
  Made unary();
  Made postfix();
  Made primary();
  Made literal();
  void arguments(Expression& to, const char* end);
  Made make(Op op, const std::string& text = "") const {
    auto made = std::make_unique<Expression>();
    made->op = op;
    made->line = peek().line;
    made->text = text;
    return made;
  }

  Program& program_;
  std::shared_ptr<const std::vector<Token>> tokens_;
  std::size_t at_;
  Bindings bindings_;
};

// ---- declarations -------------------------------------------------------------------------------------------------

TypeRef Parser::type() {
  Types& types = program_.types;
  if (take("[")) {
    TypeRef element = type();
    expect("]");
    return types.array(element);
  }
  const int line = peek().line;
  const std::string text = name();
  if (text == "fn") {
    std::vector<TypeRef> parameters;
    expect("(");
    while (!take(")")) {
      parameters.push_back(type());
      if (!is(")")) expect(",");
    }
    return types.function(take(":") ? type() : types.void_, parameters);
  }
  for (TypeRef basic : {types.void_, types.int_, types.double_, types.bool_, types.string_})
    if (basic->name == text) return basic;
  if (const auto bound = bindings_.find(text); bound != bindings_.end()) return bound->second;
  if (const auto known = program_.structs.find(text); known != program_.structs.end()) return known->second.type;
  throw SourceError(line, "unknown type " + text);
}

void Parser::declare_struct() {
  Struct& made = program_.structs[name()];
  expect("{");
  made.fields.clear();
  while (!take("}")) {
    const std::string field = name();
    expect(":");
    made.fields.push_back({field, type()});
    expect(";");
  }
}

void Parser::signature(std::vector<Parameter>& parameters, TypeRef& result) {
  expect("(");
  while (!take(")")) {
    const std::string parameter = name();
    expect(":");
    parameters.push_back({parameter, type()});
    if (!is(")")) expect(",");
  }
  result = take(":") ? type() : program_.types.void_;
}

void Parser::skip_block() {
  int depth = 0;
  do {
    if (peek().kind == Token::kEnd) throw SourceError(peek().line, "block without end");
    if (is("{")) ++depth;
    if (is("}")) --depth;
    ++at_;
  } while (depth > 0);
}

void Parser::declare_function() {
  Declaration made;
  made.name = name();
  made.tokens = tokens_;
  made.at = at_;
  if (take("<"))
    while (!take(">")) {
      made.type_parameters.push_back(name());
      if (!is(">")) expect(",");
    }
  bindings_.clear();
  for (const std::string& parameter : made.type_parameters)
    bindings_[parameter] = program_.types.basic(Kind::kVariable, "'" + parameter);
  signature(made.parameters, made.result);
  bindings_.clear();
  skip_block();
  program_.functions[made.name] = std::move(made);
}

// Types first, as they may name one another; then the rest in its order.
Function* Parser::top_level() {
  for (const Token& token : *tokens_)
    if (token.kind == Token::kName && token.text == "struct") {
      const std::string& named = (&token)[1].text;
      program_.structs[named].name = named;
      program_.structs[named].type = program_.types.basic(Kind::kStruct, named);
    }
  auto made = std::make_unique<Function>();
  made->name = "main";
  made->result = program_.types.void_;
  while (peek().kind != Token::kEnd) {
    if (take("struct"))
      declare_struct();
    else if (is("fn") && (*tokens_)[at_ + 1].kind == Token::kName)
      ++at_, declare_function();
    else
      made->body.push_back(statement());
  }
  program_.mains.push_back(std::move(made));
  return program_.mains.back().get();
}

std::unique_ptr<Function> Parser::function(const std::string& name) {
  auto made = std::make_unique<Function>();
  made->name = name;
  made->line = peek().line;
  if (take("<"))
    while (!take(">")) ++at_;
  signature(made->parameters, made->result);
  made->body = block();
  return made;
}

// ---- statements ---------------------------------------------------------------------------------------------------

Block Parser::block() {
  Block made;
  expect("{");
  while (!take("}")) made.push_back(statement());
  return made;
}

void Parser::try_statement(Statement& made) {
  made.what = Do::kTry;
  made.body = block();
  while (take("catch")) {
    Catch& clause = made.catches.emplace_back();
    expect("(");
    clause.name = name();
    expect(":");
    clause.type = type();
    expect(")");
    if (take("when")) clause.when = expression();
    clause.body = block();
  }
  if ((made.has_finally = take("finally"))) made.other = block();
}

void Parser::simple(Statement& made) {
  if (take("let")) {
    made.what = Do::kLet;
    made.name = name();
    if (take(":")) made.type = type();
    expect("=");
    made.value = expression();
  } else if (take("return") || is("throw")) {
    made.what = take("throw") ? Do::kThrow : Do::kReturn;
    if (!is(";")) made.value = expression();
  } else {
    made.what = Do::kExpression;
    made.value = expression();
    if (take("=")) {
      made.what = Do::kAssign;
      made.to = std::move(made.value);
      made.value = expression();
    }
  }
  expect(";");
}

std::unique_ptr<Statement> Parser::statement() {
  auto made = std::make_unique<Statement>();
  made->line = peek().line;
  if (is("{")) {
    made->body = block();
  } else if (take("if") || is("while")) {
    made->what = take("while") ? Do::kWhile : Do::kIf;
    expect("(");
    made->value = expression();
    expect(")");
    made->body.push_back(statement());
    if (made->what == Do::kIf && take("else")) made->other.push_back(statement());
  } else if (take("try")) {
    try_statement(*made);
  } else {
    simple(*made);
  }
  return made;
}

// ---- expressions --------------------------------------------------------------------------------------------------

constexpr int kLevels = 6;
const std::vector<std::string> kOperators[kLevels] = {{"||"},     {"&&"},         {"==", "!="}, {"<", "<=", ">", ">="},
                                                      {"+", "-"}, {"*", "/", "%"}};

Made Parser::binary(int level) {
  if (level == kLevels) return unary();
  Made left = binary(level + 1);
  for (bool found = true; found;) {
    found = false;
    for (const std::string& sign : kOperators[level])
      if (take(sign.c_str())) {
        Made made = make(Op::kBinary, sign);
        made->kids.push_back(std::move(left));
        made->kids.push_back(binary(level + 1));
        left = std::move(made);
        found = true;
        break;
      }
  }
  return left;
}

Made Parser::unary() {
  for (const char* sign : {"-", "!"})
    if (take(sign)) {
      Made made = make(Op::kUnary, sign);
      made->kids.push_back(unary());
      return made;
    }
  return postfix();
}

void Parser::arguments(Expression& to, const char* end) {
  while (!take(end)) {
    to.kids.push_back(expression());
    if (!is(end)) expect(",");
  }
}

Made Parser::postfix() {
  Made made = primary();
  for (;;) {
    Made outer;
    if (take("(")) {
      outer = make(Op::kCall);
      outer->kids.push_back(std::move(made));
      arguments(*outer, ")");
    } else if (take("[")) {
      outer = make(Op::kIndex);
      outer->kids.push_back(std::move(made));
      outer->kids.push_back(expression());
      expect("]");
    } else if (take(".")) {
      outer = make(Op::kField);
      outer->text = name();
      outer->kids.push_back(std::move(made));
    } else {
      return made;
    }
    made = std::move(outer);
  }
}

Made Parser::literal() {
  const Token& token = peek();
  Made made = make(Op::kInt, token.text);
  if (token.kind == Token::kInt) {
    made->value = std::strtoll(token.text.c_str(), nullptr, 10);
  } else if (token.kind == Token::kDouble) {
    made->op = Op::kDouble;
    made->value = std::bit_cast<std::int64_t>(std::strtod(token.text.c_str(), nullptr));
  } else if (token.kind == Token::kString) {
    made->op = Op::kString;
  } else if (is("true") || is("false")) {
    made->op = Op::kBool;
    made->value = is("true") ? 1 : 0;
  } else if (is("null")) {
    made->op = Op::kNull;
  } else {
    return nullptr;
  }
  ++at_;
  return made;
}

Made Parser::primary() {
  if (Made made = literal()) return made;
  Made made = make(Op::kName);
  if (take("(")) {
    made = expression();
    expect(")");
  } else if (take("[")) {
    made->op = Op::kArrayOf;
    arguments(*made, "]");
  } else if (take("new")) {
    made->type = type();
    made->op = made->type->kind == Kind::kArray ? Op::kNewArray : Op::kNew;
    expect("(");
    arguments(*made, ")");
  } else if (take("fn")) {
    made->op = Op::kLambda;
    made->lambda = function("lambda:" + std::to_string(made->line));
    made->lambda->is_lambda = true;
  } else {
    made->text = name();
  }
  return made;
}

}  // namespace

Function* parse(Program& program, const std::string& source) {
  return Parser(program, std::make_shared<const std::vector<Token>>(lex(source)), 0, {}).top_level();
}

std::unique_ptr<Function> parse_instance(Program& program, const Declaration& declaration, const Bindings& bindings) {
  std::string name = declaration.name;
  for (const std::string& parameter : declaration.type_parameters)
    name += (parameter == declaration.type_parameters[0] ? "<" : ",") + bindings.at(parameter)->name;
  if (!declaration.type_parameters.empty()) name += ">";
  return Parser(program, declaration.tokens, declaration.at, bindings).function(name);
}

}  // namespace lilt
