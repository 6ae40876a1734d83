#include "studies/fit/calibration_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/graph/op_codes.h"
#include "models/measured/op_text.h"

namespace stepcast::studies {
namespace {

/// One line; only names may hold commas or quotes, and none of these does.
struct Line {
  std::string configuration, kind, name;
  std::array<std::int64_t, 6> shape{};
  double flops = 0, bytes = 0, seconds = 0;
  Format format = Format::kFp32;
  int flags = 0, variant = 0;
  std::int64_t ranks = 0, ranks_per_machine = 0;
  double idle_time = -1;
  std::string operands = {}, embedding = {};

  [[nodiscard]] std::string text() const {
    std::string out = fmt::format("{},{},{}", configuration, kind, name);
    for (const std::int64_t s : shape) {
      out += fmt::format(",{}", s);
    }
    return out + fmt::format(",{:.9g},{:.9g},{:.9g},1,{},{},{},{},{},{:.9g},{},{}\n", flops, bytes,
                             seconds, name_of(format), flags, variant, ranks, ranks_per_machine,
                             idle_time, operands, embedding);
  }
};

std::string job_name(std::int64_t index) { return fmt::format("job-{}", index); }

std::string plain(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ',' || c == '"' || c == '\n'; }, ' ');
  return name;
}

}  // namespace

std::string calibration_csv(const FitRows& rows) {
  std::string text =
      "configuration,kind,name,s0,s1,s2,s3,s4,s5,flops,bytes,seconds,samples,format,flags,variant,"
      "ranks,ranks_per_machine,since_use,operands,embedding\n";
  for (const models::MeasuredOp& m : rows.ops) {
    const Op& op = *m.op;
    const OpCodes codes = codes_of(op);
    Line line{.configuration = job_name(m.configuration),
              .kind = std::string(name_of(op.kind)),
              .name = plain(m.program->name(op)),
              .shape = codes.sizes,
              .flops = op.flops.base(),
              .bytes = (op.bytes_read + op.bytes_written).base(),
              .seconds = m.time.base(),
              .format = op.format,
              .flags = op.flags,
              .variant = codes.variant};
    line.operands = models::operands_text(*m.program, op);
    line.embedding = models::embedding_text(*m.program, op);
    text += line.text();
  }
  for (const models::MeasuredCollective& c : rows.collectives) {
    text += Line{.configuration = "",
                 .kind = std::string(name_of(c.kind)),
                 .name = "",
                 .bytes = c.bytes,
                 .seconds = c.time.base(),
                 .format = c.format,
                 .ranks = c.group.size,
                 .ranks_per_machine = c.group.size,
                 .idle_time = c.idle_time.base()}
                .text();
  }
  for (std::size_t j = 0; j < rows.hosts.size(); ++j) {
    const models::MeasuredHost& host = rows.hosts[j].medians;
    const auto add = [&](const char* kind, const std::vector<double>& samples) {
      for (const double s : samples) {
        if (s > 0) {
          text += Line{.configuration = job_name(static_cast<std::int64_t>(j)),
                       .kind = kind,
                       .name = "",
                       .seconds = s}
                      .text();
        }
      }
    };
    add("host_issue", host.issue);
    add("host_dispatch", host.dispatch);
    add("host_step", host.step);
  }
  for (std::size_t j = 0; j < rows.steps.size(); ++j) {
    text += Line{.configuration = job_name(static_cast<std::int64_t>(j)),
                 .kind = "step",
                 .name = "",
                 .flops = rows.steps[j].flops,
                 .bytes = rows.steps[j].bytes,
                 .seconds = rows.steps[j].seconds}
                .text();
  }
  return text;
}

}  // namespace stepcast::studies
