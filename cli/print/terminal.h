#pragma once
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace stepcast::cli {

/// Looks of text where it goes.
struct TerminalStyle {
  std::size_t width = 100;  ///< characters of a line
  bool colour = false;
  bool unicode = false;  ///< bars of blocks, not of ASCII
};
enum class ColourWhen { kAuto, kAlways, kNever };
/// Style of a stream: a terminal's own width, else 100 characters; COLUMNS goes before both. Colour
/// on a terminal unless NO_COLOR is set, or as the command line says (manners()); Unicode where the locale has UTF-8.
TerminalStyle terminal_style(const std::ostream& out);

/// Meanings that have a colour, each the same in all outputs.
enum class Meaning {
  kPlain,
  kCompute,
  kCommunication,
  kBubble,
  kHost,
  kOther,
  kMemory,
  kGood,
  kBad,
  kWarning,
  kStrong,
  kDim
};
/// The text, made printable, in the colour of what it means.
std::string coloured(std::string_view text, Meaning meaning, const TerminalStyle& style);

/// Part of a bar.
struct BarSegment {
  double share = 0;
  Meaning meaning = Meaning::kPlain;
};
/// A bar of `width` characters whose whole is 1: a shade, and a colour, for each segment.
std::string bar(const std::vector<BarSegment>& segments, std::size_t width,
                const TerminalStyle& style);

/// Characters that UTF-8 text takes on a line; colours take none.
std::size_t shown_width(std::string_view text);
/// Prose in lines of at most `width`: broken at spaces, commands in backquotes whole, lines after
/// the first indented by two more. Line ends stay.
std::string wrapped(std::string_view text, std::size_t width);
/// Pieces side by side, three spaces apart, in as many lines as they need.
std::string in_row(const std::vector<std::string>& pieces, std::size_t width, std::size_t indent);

/// Prints text that holds colours of ours and is printable otherwise.
void print_coloured(std::ostream& out, std::string_view text);

}  // namespace stepcast::cli
