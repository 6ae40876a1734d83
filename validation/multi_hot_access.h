#pragma once
#include "core/access/access.h"

namespace stepcast::validation {

/// Lookups of MLPerf's multi-hot data: every id of the one-hot data has a fixed list of
/// `ids_per_bag` ids, itself and others drawn once, uniformly from the table; a sample looks up the
/// whole list of its id. The share p of an id is so spread over ids_per_bag rows, p / ids_per_bag
/// each: flatter at its head than the law of the one-hot ids, and as many times more distinct rows.
/// `one_hot` is that law; `samples` how many were drawn of it. Ids whose lists would not fit the
/// table any more add to its coldest rows. One id a bag leaves the law as it is.
/// Source: facebookresearch/dlrm torchrec_dlrm/multi_hot.py, --multi_hot_distribution_type uniform.
Access multi_hot_access(const Access& one_hot, double ids_per_bag, double samples);

}  // namespace stepcast::validation
