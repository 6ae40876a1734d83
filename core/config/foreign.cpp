#include "core/config/foreign.h"

#include <algorithm>

#include "core/config/lookups/text_ids.h"
#include "core/error.h"

namespace stepcast::config {
namespace {

/// Infinity and NaN, which Python writes and JSON lacks, as null.
std::string without_infinities(std::string_view text) {
  std::string out;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t taken = quoted && text[i] == '\\' ? 2 : 1;
    std::string_view written = text.substr(i, taken);
    quoted = quoted != (text[i] == '"');
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (!quoted && text.substr(i).starts_with(word)) {
        taken = word.size();
        written = "null";
      }
    }
    out += written;
    i += taken;
  }
  return out;
}

/// Throws where a line is none that JSON could hold.
void require_text(const Source& source) {
  std::size_t number = 1;
  for (std::string_view rest = source.text; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    if (!is_text(line)) {
      throw InputError(fmt::format("{}:{}", source.label, number),
                       "found bytes that are no UTF-8 text; save it as UTF-8");
    }
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
}

}  // namespace

OpenedSource open_source(const Source& source, Expected expected, const Library& library) {
  static const std::vector<ForeignFormat> kNone;
  const std::vector<ForeignFormat>& formats = library.foreign != nullptr ? *library.foreign : kNone;
  const auto first = [&](const auto& told) -> const ForeignFormat* {
    const auto it = std::find_if(formats.begin(), formats.end(), [&](const ForeignFormat& f) {
      const bool wanted = expected == Expected::kPlan ? f.plan_of != nullptr : f.describes_model();
      return wanted && told(f);
    });
    return it == formats.end() ? nullptr : &*it;
  };
  if (const ForeignFormat* format = first([&](const ForeignFormat& f) {
        return f.inferred_by_text != nullptr && f.inferred_by_text(source.text);
      })) {
    require_text(source);
    Document d;
    d.label = source.label;
    d.folder = source.folder;
    d.root = source.text;
    return {std::move(d), format};
  }
  const auto by_keys = [&](Document document) {
    const ForeignFormat* format = first([&](const ForeignFormat& f) {
      return f.inferred_by_keys != nullptr && f.inferred_by_keys(document.root);
    });
    return OpenedSource{std::move(document), format};
  };
  try {
    return by_keys(parse_document(source));
  } catch (const InputError&) {  // not JSON; another tool's file may be as Python writes it
    Source python = source;
    python.text = without_infinities(source.text);
    if (formats.empty() || python.text == source.text) {
      throw;
    }
    OpenedSource opened = by_keys(parse_document(python));
    if (opened.format == nullptr) {
      throw;
    }
    return opened;
  }
}

}  // namespace stepcast::config
