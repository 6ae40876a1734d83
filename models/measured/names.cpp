#include "models/measured/names.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace stepcast::models {
namespace {

constexpr std::array kDevices{
    // Columns and file names of the tables under data/.
    DeviceName{"Tesla P100-PCIE-16GB", "p100", ""},
    DeviceName{"Tesla P4", "p4", ""},
    DeviceName{"Tesla T4", "t4", ""},
    DeviceName{"Tesla V100-PCIE-32GB", "v100-pcie-32gb", ""},
    DeviceName{"Tesla V100-SXM2-16GB", "v100-sxm2-16gb", ""},
    DeviceName{"Tesla V100-SXM2-32GB", "v100-sxm2-32gb", "dgx-v100-32gb"},
    DeviceName{"NVIDIA A100-PCIE-40GB", "a100-pcie-40gb", ""},
    DeviceName{"NVIDIA A100-SXM4-40GB", "a100-sxm-40gb", "dgx-a100-40gb"},
    DeviceName{"NVIDIA A100-SXM4-80GB", "a100-sxm-80gb", "dgx-a100-80gb"},
    DeviceName{"NVIDIA A100-SXM-80GB", "a100-sxm-80gb", "dgx-a100-80gb"},
    DeviceName{"NVIDIA H100-SXM5-80GB", "h100-sxm-80gb", "dgx-h100"},
    DeviceName{"NVIDIA H100 80GB HBM3", "h100-sxm-80gb", "dgx-h100"},
    DeviceName{"NVIDIA H200", "h200-sxm-141gb", "dgx-h200"},
    DeviceName{"NVIDIA H200-SXM5-141GB", "h200-sxm-141gb", "dgx-h200"},
    DeviceName{"NVIDIA H200-NVL-141GB", "h200-nvl-141gb", "h200-nvl-4"},
    DeviceName{"NVIDIA B200", "b200-sxm", "dgx-b200"},
    DeviceName{"NVIDIA Blackwell GPU (B200-SXM-180GB)", "b200-sxm", "dgx-b200"},
    DeviceName{"NVIDIA GB200", "gb200", "gb200-nvl72"},
    DeviceName{"NVIDIA Blackwell GPU (GB200)", "gb200", "gb200-nvl72"},
    DeviceName{"NVIDIA L40S", "l40s", "l40s-8"},
    DeviceName{"a100_sxm", "a100-sxm-80gb", "dgx-a100-80gb"},
    DeviceName{"h100_sxm", "h100-sxm-80gb", "dgx-h100"},
    DeviceName{"h100_dgx", "h100-sxm-80gb", "dgx-h100"},
    DeviceName{"aws_p5_efa", "h100-sxm-80gb", "p5-h100"},
    DeviceName{"V100", "v100-sxm2-32gb", "dgx-v100-32gb"},  // the tables do not say which
    DeviceName{"4xV100", "v100-sxm2-32gb", "dgx-v100-32gb"},
    // Zoo names.
    DeviceName{"v100-sxm2-16gb", "v100-sxm2-16gb", ""},
    DeviceName{"v100-sxm2-32gb", "v100-sxm2-32gb", "dgx-v100-32gb"},
    DeviceName{"v100-sxm3-32gb", "v100-sxm3-32gb", "dgx2h-v100"},
    DeviceName{"v100-pcie-32gb", "v100-pcie-32gb", ""},
    DeviceName{"p100", "p100", ""},
    DeviceName{"p4", "p4", ""},
    DeviceName{"t4", "t4", ""},
    DeviceName{"a100-sxm-40gb", "a100-sxm-40gb", "dgx-a100-40gb"},
    DeviceName{"a100-sxm-80gb", "a100-sxm-80gb", "dgx-a100-80gb"},
    DeviceName{"a100-pcie-40gb", "a100-pcie-40gb", ""},
    DeviceName{"h100-sxm-80gb", "h100-sxm-80gb", "dgx-h100"},
    DeviceName{"h100-sxm-96gb", "h100-sxm-96gb", ""},
    DeviceName{"h200-sxm-141gb", "h200-sxm-141gb", "dgx-h200"},
    DeviceName{"h200-nvl-141gb", "h200-nvl-141gb", "h200-nvl-4"},
    DeviceName{"b200-sxm", "b200-sxm", "dgx-b200"},
    DeviceName{"gb200", "gb200", "gb200-nvl72"},
    DeviceName{"l40s", "l40s", "l40s-8"},
    DeviceName{"local-cpu-core", "local-cpu-core", "local-cpu"},
};

constexpr std::array kFormats{
    FormatName{"bfloat16", Format::kBf16}, FormatName{"half", Format::kFp16},
    FormatName{"float16", Format::kFp16},  FormatName{"float", Format::kFp32},
    FormatName{"float32", Format::kFp32},  FormatName{"fp8_block", Format::kFp8, "fp8_block"},
};

bool equal_letters(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), equal_letters);
}

bool stands_alone(std::string_view text, std::string_view word) {
  const auto separator = [&text](std::size_t i) {
    return i >= text.size() || std::isalnum(static_cast<unsigned char>(text[i])) == 0;
  };
  for (auto at = text.begin();;) {
    at = std::search(at, text.end(), word.begin(), word.end(), equal_letters);
    if (at == text.end()) {
      return false;
    }
    const auto begin = static_cast<std::size_t>(at - text.begin());
    if ((begin == 0 || separator(begin - 1)) && separator(begin + word.size())) {
      return true;
    }
    ++at;
  }
}

}  // namespace

std::optional<DeviceName> device_named(std::string_view written) {
  for (const DeviceName& d : kDevices) {
    if (same(d.written, written)) {
      return d;
    }
  }
  return std::nullopt;
}

std::optional<DeviceName> device_in(std::string_view file_name) {
  std::optional<DeviceName> longest;
  for (const DeviceName& d : kDevices) {
    if ((!longest || d.written.size() > longest->written.size()) &&
        stands_alone(file_name, d.written)) {
      longest = d;
    }
  }
  return longest;
}

std::optional<FormatName> measured_format(std::string_view written) {
  for (const FormatName& f : kFormats) {
    if (f.written == written) {
      return f;
    }
  }
  if (const auto format = format_named(written)) {
    return FormatName{written, *format};
  }
  return std::nullopt;
}

}  // namespace stepcast::models
