#include <cctype>

#include "ast.h"

namespace lilt {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

char escaped(char c) { return c == 'n' ? '\n' : c == 't' ? '\t' : c; }

Token string_at(const std::string& source, std::size_t& at, int line) {
  Token token{Token::kString, "", line};
  for (++at; at < source.size() && source[at] != '"'; ++at) {
    if (source[at] == '\\' && at + 1 < source.size())
      token.text += escaped(source[++at]);
    else
      token.text += source[at];
  }
  if (at++ >= source.size()) throw SourceError(line, "string without end");
  return token;
}

Token number_at(const std::string& source, std::size_t& at, int line) {
  const std::size_t begin = at;
  bool real = false;
  while (at < source.size()) {
    const char c = source[at];
    const bool exponent = (c == '-' || c == '+') && (source[at - 1] == 'e') && real;
    if (c == '.' || c == 'e') real = true;
    if (std::isdigit(static_cast<unsigned char>(c)) == 0 && c != '.' && c != 'e' && !exponent) break;
    ++at;
  }
  return {real ? Token::kDouble : Token::kInt, source.substr(begin, at - begin), line};
}

Token sign_at(const std::string& source, std::size_t& at, int line) {
  static const char* const kTwo[] = {"==", "!=", "<=", ">=", "&&", "||"};
  for (const char* sign : kTwo)
    if (source.compare(at, 2, sign) == 0) return at += 2, Token{Token::kSign, sign, line};
  static const std::string kOne = "+-*/%<>=!(){}[],;:.";
  if (kOne.find(source[at]) == std::string::npos)
    throw SourceError(line, std::string("unknown character '") + source[at] + "'");
  return {Token::kSign, std::string(1, source[at++]), line};
}

}  // namespace

std::vector<Token> lex(const std::string& source) {
  std::vector<Token> tokens;
  int line = 1;
  for (std::size_t at = 0; at < source.size();) {
    const char c = source[at];
    if (c == '\n') ++line;
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at;
    } else if (source.compare(at, 2, "//") == 0) {
      while (at < source.size() && source[at] != '\n') ++at;
    } else if (c == '"') {
      tokens.push_back(string_at(source, at, line));
    } else if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      tokens.push_back(number_at(source, at, line));
    } else if (is_word(c)) {
      const std::size_t begin = at;
      while (at < source.size() && is_word(source[at])) ++at;
      tokens.push_back({Token::kName, source.substr(begin, at - begin), line});
    } else {
      tokens.push_back(sign_at(source, at, line));
    }
  }
  tokens.push_back({Token::kEnd, "end of the source", line});
  return tokens;
}

}  // namespace lilt
