#include "cli/print/report.h"

#include <algorithm>

#include "cli/print/terminal_text.h"
#include "cli/support/console.h"
#include "cli/version.h"

namespace stepcast::cli {

Json provenance_json() {
  return {{"version", kVersion}, {"git", kGit}, {"data", kDataVersion}, {"schema", 1}};
}

namespace {

std::ostream* screen() { return console() == nullptr ? nullptr : console()->screen; }

}  // namespace

Report::Report(OutputFormat format) : Report(format, Nested{}) {
  fact("stepcast", provenance_json);
}

Report::Report(OutputFormat format, Nested)
    : format_(format),
      places_((format == OutputFormat::kJson  ? kInJson
               : format == OutputFormat::kCsv ? kInCsv
                                              : kInText) |
              (screen() != nullptr ? kInText : 0)) {}

void Report::put(const std::string& key, Json value) {
  parts_.emplace_back(Fact{key, std::move(value)});
}

void Report::facts(const Json& members) {
  for (const auto& [key, value] : members.items()) {
    fact(key, value);
  }
}

void Report::line(std::string_view line, Meaning meaning) {
  drawn([line = std::string(line), meaning](const TerminalStyle& style) {
    return coloured(wrapped(line, style.width), meaning, style) + '\n';
  });
}

void Report::text(std::string_view text) {
  drawn([text = printable(text)](const TerminalStyle&) { return text; });
}

void Report::drawn(Drawn picture) {
  if (for_people()) {
    parts_.emplace_back(std::move(picture));
  }
}

void Report::add(DataTable table) {
  if (table.in(places_)) {
    parts_.emplace_back(std::move(table));
  }
}

void Report::add(const std::vector<DataTable>& tables) {
  bool first = true;
  for (const DataTable& table : tables) {
    if (!first && table.in(kInText)) {
      line();
    }
    add(table);
    first = first && !table.in(kInText);
  }
}

Report& Report::nested(const std::string& key, bool item) {
  parts_.emplace_back(Section{key, item, std::shared_ptr<Report>(new Report(format_, Nested{}))});
  return *std::get<Section>(parts_.back()).report;
}

Report& Report::section(const std::string& key) { return nested(key, false); }
Report& Report::item(const std::string& key) { return nested(key, true); }
void Report::list(const std::string& key) { fact(key, Json::array()); }

void Report::print_text(std::ostream& out, const TerminalStyle& style) const {
  for (const auto& part : parts_) {
    if (const auto* picture = std::get_if<Drawn>(&part)) {
      print_coloured(out, (*picture)(style));
    } else if (const auto* table = std::get_if<DataTable>(&part); table && table->in(kInText)) {
      table->print_text(out, style);
    } else if (const auto* section = std::get_if<Section>(&part)) {
      section->report->print_text(out, style);
    }
  }
}

/// A table with the key and columns of the one before continues it; before others is an empty line.
void Report::print_csv(std::ostream& out, std::string& table_before) const {
  for (const auto& part : parts_) {
    if (const auto* table = std::get_if<DataTable>(&part); table && table->in(kInCsv)) {
      const std::string own = table->key() + '\n' + table->csv_header();
      if (own != table_before && !table_before.empty()) {
        out << '\n';
      }
      table->print_csv(out, own != table_before);
      table_before = own;
    } else if (const auto* section = std::get_if<Section>(&part)) {
      section->report->print_csv(out, table_before);
    }
  }
}

Json Report::json() const {
  Json j = Json::object();
  for (const auto& part : parts_) {
    if (const auto* fact = std::get_if<Fact>(&part)) {
      j[fact->key] = fact->value;
    } else if (const auto* item = std::get_if<Item>(&part)) {
      j[item->key].push_back(item->value);
    } else if (const auto* table = std::get_if<DataTable>(&part); table && table->in(kInJson)) {
      j[table->key()] = table->json();
    } else if (const auto* section = std::get_if<Section>(&part)) {
      Json whole = section->report->json();
      if (section->item) {
        j[section->key].push_back(std::move(whole));
      } else {
        j[section->key].update(whole);
      }
    }
  }
  return j;
}

void Report::print(std::ostream& out) const { print(out, terminal_style(out)); }

void Report::print(std::ostream& out, const TerminalStyle& style) const {
  switch (format_) {
    case OutputFormat::kText:
      print_text(out, style);
      break;
    case OutputFormat::kJson:
      out << json().dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
      break;
    case OutputFormat::kCsv: {
      std::string table_before;
      print_csv(out, table_before);
      break;
    }
  }
  if (screen() != nullptr) {
    print_text(*screen(), terminal_style(*screen()));
  }
}

void print_tables(const std::vector<DataTable>& tables, OutputFormat format, std::ostream& out) {
  Report report(format);
  report.add(tables);
  report.print(out);
}

}  // namespace stepcast::cli
