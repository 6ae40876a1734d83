#include "cli/support/console.h"

#include <iostream>

namespace stepcast::cli {
namespace {

thread_local const Console* current = nullptr;
thread_local std::ostream* kept_answer = nullptr;
thread_local Manners own_manners;

}  // namespace

ConsoleScope::ConsoleScope(const Console& console) { current = &console; }
ConsoleScope::~ConsoleScope() { current = nullptr; }

KeptAnswer::KeptAnswer() : before_(kept_answer) { kept_answer = &text_; }
KeptAnswer::~KeptAnswer() { kept_answer = before_; }

Manners& manners() { return own_manners; }

std::ostream& answer() {
  return kept_answer != nullptr ? *kept_answer : current != nullptr ? *current->answer : std::cout;
}
std::ostream& errors() { return current != nullptr ? *current->notes : std::cerr; }
std::ostream& notes() {
  static thread_local std::ostream nowhere(nullptr);
  return own_manners.quiet ? nowhere : errors();
}
const Console* console() { return current; }

config::Source named_source(const std::string& name) {
  if (current != nullptr) {
    if (const auto found = current->documents.find(name); found != current->documents.end()) {
      return config::text_source(found->second, name);
    }
  }
  return config::file_source(name);
}

}  // namespace stepcast::cli
