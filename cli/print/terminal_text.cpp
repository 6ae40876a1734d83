#include "cli/print/terminal_text.h"

namespace stepcast::cli {
namespace {

bool obeyed(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\n' && c != '\t' && c != '\r') || byte == 0x7f;
}

}  // namespace

std::string short_text(const std::string& name) {
  constexpr std::size_t kMost = 70;
  return name.size() > kMost ? name.substr(0, kMost - 3) + "..." : name;
}

std::string printable(std::string_view text) {
  std::string safe(text);
  for (char& c : safe) {
    c = obeyed(c) ? '?' : c;
  }
  // The control characters of ISO 6429 beyond ASCII, as UTF-8: 0xc2 0x80 to 0x9f.
  for (std::size_t i = 0; i + 1 < safe.size(); ++i) {
    const auto next = static_cast<unsigned char>(safe[i + 1]);
    if (safe[i] == '\xc2' && next >= 0x80 && next < 0xa0) {
      safe[i] = safe[i + 1] = '?';
    }
  }
  return safe;
}

PrintableStream::PrintableStream(std::ostream& out)
    : out_(out), before_(out.rdbuf()), buffer_(before_) {
  out_.rdbuf(&buffer_);
}

PrintableStream::~PrintableStream() { out_.rdbuf(before_); }

PrintableStream::Buffer::int_type PrintableStream::Buffer::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) {
    return traits_type::not_eof(c);
  }
  const char one = traits_type::to_char_type(c);
  return to_->sputc(obeyed(one) ? '?' : one);
}

std::streamsize PrintableStream::Buffer::xsputn(const char* text, std::streamsize size) {
  const std::string safe = printable({text, static_cast<std::size_t>(size)});
  return to_->sputn(safe.data(), size);
}

}  // namespace stepcast::cli
