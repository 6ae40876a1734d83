#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace stepcast::models::ptx {

/// A token: a word (opcode with its dots, name, number, directive), a string, or one character.
struct Token {
  std::string_view text;  ///< empty at the end
  int line = 0;
  [[nodiscard]] bool is(std::string_view what) const { return text == what; }
  [[nodiscard]] bool end() const { return text.empty(); }
};

/// Cuts PTX text into tokens; comments and white space fall away.
class Lexer {
 public:
  Lexer(std::string_view text, std::string file, int line = 1)
      : text_(text), file_(std::move(file)), line_(line) {}

  Token next();
  [[nodiscard]] const Token& peek();
  /// The next token, which has to be `what`.
  Token expect(std::string_view what);
  bool take(std::string_view what);
  /// Whatever stands on the line of `token` after it.
  void skip_line(const Token& token);
  /// Up to the brace that closes the one just read, which is read too: the text between.
  std::string_view skip_braces();
  [[nodiscard]] int line() const { return line_; }
  [[nodiscard]] const std::string& file() const { return file_; }
  /// Throws InputError "FILE:LINE: what".
  [[noreturn]] void fail(int line, std::string_view what) const;

 private:
  Token read();
  void skip_space();

  std::string_view text_;
  std::string file_;
  std::size_t at_ = 0;
  int line_;
  bool peeked_ = false;
  Token ahead_;
};

}  // namespace stepcast::models::ptx
