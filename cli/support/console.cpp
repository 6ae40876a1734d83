#include "cli/support/console.h"

#include <iostream>

namespace stepcast::cli {
namespace {

thread_local const Console* current = nullptr;

}  // namespace

ConsoleScope::ConsoleScope(const Console& console) { current = &console; }
ConsoleScope::~ConsoleScope() { current = nullptr; }

std::ostream& answer() { return current != nullptr ? *current->answer : std::cout; }
std::ostream& notes() { return current != nullptr ? *current->notes : std::cerr; }
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
