#pragma once
#include <array>

#include "core/job/plan.h"

namespace stepcast {

/// A part of a plan's ledger by the word that all outputs use for such memory; its key in documents
/// is that word with "_bytes".
struct LedgerPart {
  const char* name;
  double (*of)(const LedgerLine&);
};
/// Rows of tables with the index of their order; the dense model comes with what libraries take.
inline constexpr std::array<LedgerPart, 6> kLedgerParts{
    {{"embeddings", [](const LedgerLine& l) { return l.weights + l.remap; }},
     {"optimizer", [](const LedgerLine& l) { return l.optimizer; }},
     {"gradients", [](const LedgerLine& l) { return l.gradients; }},
     {"cache", [](const LedgerLine& l) { return l.cache; }},
     {"communication", [](const LedgerLine& l) { return l.buffers; }},
     {"dense", [](const LedgerLine& l) { return l.dense; }}}};

}  // namespace stepcast
