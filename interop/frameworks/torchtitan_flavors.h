#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace stepcast::interop {

/// A model that torchtitan has registered (torchtitan/models/*/__init__.py, 2025-12) and its name
/// among ours. "ffn" is that of experts where there are some.
struct TitanFlavor {
  std::string_view model, flavor;
  const char* workload;
  std::int64_t layers, hidden, ffn, experts, vocabulary;
};
inline constexpr std::array kTitanFlavors{
    TitanFlavor{"llama3", "8B", "llama3-8b", 32, 4096, 14336, 0, 128256},
    TitanFlavor{"llama3", "70B", "llama3-70b", 80, 8192, 28672, 0, 128256},
    TitanFlavor{"llama3", "405B", "llama3-405b", 126, 16384, 53248, 0, 128256},
    TitanFlavor{"qwen3", "0.6B", "qwen3-0.6b", 28, 1024, 3072, 0, 151936},
    TitanFlavor{"qwen3", "1.7B", "qwen3-1.7b", 28, 2048, 6144, 0, 151936},
    TitanFlavor{"qwen3", "4B", "qwen3-4b", 36, 2560, 9728, 0, 151936},
    TitanFlavor{"qwen3", "8B", "qwen3-8b", 36, 4096, 12288, 0, 151936},
    TitanFlavor{"qwen3", "14B", "qwen3-14b", 40, 5120, 17408, 0, 151936},
    TitanFlavor{"qwen3", "32B", "qwen3-32b", 64, 5120, 25600, 0, 151936},
    TitanFlavor{"qwen3", "30B-A3B", "qwen3-30b-a3b", 48, 2048, 768, 128, 151936},
    TitanFlavor{"qwen3", "235B-A22B", "qwen3-235b-a22b", 94, 4096, 1536, 128, 151936},
    TitanFlavor{"deepseek_v3", "16B", "deepseek-v2-lite", 27, 2048, 1408, 64, 102400},
    TitanFlavor{"deepseek_v3", "236B", "deepseek-v2", 60, 5120, 1536, 160, 102400},
    TitanFlavor{"deepseek_v3", "671B", "deepseek-v3", 61, 7168, 2048, 256, 129280},
    TitanFlavor{"llama4", "17bx16e", "llama4-scout", 48, 5120, 8192, 16, 202048},
    TitanFlavor{"llama4", "17bx128e", "llama4-maverick", 48, 5120, 8192, 128, 202048},
    TitanFlavor{"gpt_oss", "20b", "gpt-oss-20b", 24, 2880, 2880, 32, 201088},
    TitanFlavor{"gpt_oss", "120b", "gpt-oss-120b", 36, 2880, 2880, 128, 201088}};

}  // namespace stepcast::interop
