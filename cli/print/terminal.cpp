#include "cli/print/terminal.h"

#include <fmt/color.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "cli/print/terminal_text.h"
#include "cli/support/console.h"
#include "core/lower.h"

namespace stepcast::cli {
namespace {

constexpr std::size_t kWideGap = 4, kPieceGap = 2;  ///< between pieces of a row

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool on_terminal(const std::ostream& out) {
  return &out == &std::cout && isatty(STDOUT_FILENO) != 0;
}

std::size_t columns_of(bool terminal) {
  const std::string said = variable("COLUMNS");
  std::size_t columns = 0;
  if (std::from_chars(said.data(), said.data() + said.size(), columns).ec == std::errc{} &&
      columns > 0) {
    return columns;
  }
  winsize size{};
  if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  return TerminalStyle{}.width;
}

bool locale_has_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (const std::string locale = lower(variable(name)); !locale.empty()) {
      return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
    }
  }
  return false;
}

bool inside_character(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80; }

/// Look of a meaning: its colour, and its shade in bars without one.
struct Look {
  fmt::text_style style;
  const char *block, *letter;
};
Look look_of(Meaning meaning) {
  using fmt::terminal_color;
  const auto in = [](terminal_color colour, const char* block, const char* letter) {
    return Look{fmt::fg(colour), block, letter};
  };
  switch (meaning) {
    case Meaning::kCompute:
      return in(terminal_color::blue, "█", "#");
    case Meaning::kCommunication:
      return in(terminal_color::yellow, "▓", "=");
    case Meaning::kBubble:
      return in(terminal_color::magenta, "░", ".");
    case Meaning::kHost:
      return in(terminal_color::cyan, "▒", "-");
    case Meaning::kMemory:
      return in(terminal_color::blue, "█", "#");
    case Meaning::kGood:
      return in(terminal_color::green, "█", "#");
    case Meaning::kBad:
      return {fmt::fg(terminal_color::red) | fmt::emphasis::bold, "█", "#"};
    case Meaning::kWarning:
      return in(terminal_color::yellow, "█", "#");
    case Meaning::kStrong:
      return {fmt::emphasis::bold, "█", "#"};
    case Meaning::kOther:
    case Meaning::kDim:
      return {fmt::emphasis::faint, "░", "."};
    case Meaning::kPlain:
      break;
  }
  return {{}, "█", "#"};
}

/// The words of prose; what stands in backquotes is one.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  bool quoted = false;
  for (std::size_t i = 0; i <= line.size(); ++i) {
    if (i < line.size() && line[i] == '`') {
      quoted = !quoted && line.find('`', i + 1) != std::string_view::npos;
    }
    if (i == line.size() || (line[i] == ' ' && !quoted)) {
      if (i > begin) {
        words.push_back(line.substr(begin, i - begin));
      }
      begin = i + 1;
    }
  }
  return words;
}

}  // namespace

TerminalStyle terminal_style(const std::ostream& out) {
  const ColourWhen when = manners().colour;
  const bool terminal = on_terminal(out);
  const bool welcome = terminal && variable("NO_COLOR").empty() && variable("TERM") != "dumb";
  return {columns_of(terminal),
          when == ColourWhen::kAlways || (when == ColourWhen::kAuto && welcome),
          locale_has_utf8()};
}

std::string coloured(std::string_view text, Meaning meaning, const TerminalStyle& style) {
  const std::string safe = printable(text);
  return style.colour && meaning != Meaning::kPlain
             ? fmt::format(look_of(meaning).style, "{}", safe)
             : safe;
}

std::string bar(const std::vector<BarSegment>& segments, std::size_t width,
                const TerminalStyle& style) {
  std::string text;
  double end = 0;
  std::size_t drawn = 0;
  for (const BarSegment& segment : segments) {
    end += std::clamp(segment.share, 0.0, 1.0);
    const auto upto = std::min(
        width, static_cast<std::size_t>(std::lround(end * static_cast<double>(width))));
    const Look look = look_of(segment.meaning);
    std::string part;
    for (; drawn < upto; ++drawn) {
      part += style.unicode ? look.block : look.letter;
    }
    text += part.empty() ? part : coloured(part, segment.meaning, style);
  }
  return text + std::string(width - drawn, ' ');
}

std::size_t shown_width(std::string_view text) {
  std::size_t width = 0;
  bool escape = false;
  for (const char c : text) {
    escape = escape || c == '\x1b';
    width += escape || inside_character(c) ? 0 : 1;
    escape = escape && c != 'm';
  }
  return width;
}

std::string wrapped(std::string_view text, std::size_t width) {
  std::string all;
  while (true) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    if (shown_width(line) <= width) {
      all += line;
    } else {
      std::size_t used = indent;
      all.append(indent, ' ');
      bool first = true;
      for (const std::string_view word : words_of(line)) {
        const std::size_t wide = shown_width(word);
        if (!first && used + 1 + wide > width) {
          all += '\n';
          all.append(indent + 2, ' ');
          used = indent + 2;
        } else if (!first) {
          all += ' ';
          ++used;
        }
        all += word;
        used += wide;
        first = false;
      }
    }
    if (end == text.size()) {
      return all;
    }
    all += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string in_row(const std::vector<std::string>& pieces, std::size_t width, std::size_t indent) {
  std::size_t sum = indent;
  for (const std::string& piece : pieces) {
    sum += shown_width(piece);
  }
  const std::size_t free = width > sum ? width - sum : 0;
  const std::size_t gap =
      std::clamp(free / std::max<std::size_t>(1, pieces.size() - 1), kPieceGap, kWideGap);
  std::string text;
  std::size_t used = 0;
  for (const std::string& piece : pieces) {
    const std::size_t wide = shown_width(piece);
    if (used > 0 && used + gap + wide <= width) {
      text.append(gap, ' ');
      used += gap + wide;
    } else {
      text += used > 0 ? "\n" : "";
      text.append(indent, ' ');
      used = indent + wide;
    }
    text += piece;
  }
  return text + '\n';
}

void print_coloured(std::ostream& out, std::string_view text) {
  if (auto* guard = dynamic_cast<PrintableStream::Buffer*>(out.rdbuf())) {
    guard->pass(text);
  } else {
    out << text;
  }
}

}  // namespace stepcast::cli
