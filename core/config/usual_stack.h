#pragma once
#include <string>
#include <vector>

#include "core/config/config.h"

namespace stepcast::config {

struct JobOnStack {
  Job job;
  std::string usual_stack;  ///< the stack taken because the job names none; "": none was taken
  std::string refused;      ///< why the usual stack cannot run the job as it is; "" where it can
};

/// As load_job; but a transformer that trains on a known GPU and says neither `stack` nor
/// `parallel.overlap` runs as the usual framework of its family of plans does (models/stacks: the
/// stack that is `default_of` the family), at the pace measured for it. What the job says itself
/// stays; where the stack cannot run the job as it is, none is taken.
JobOnStack load_job_on_usual_stack(const Source& source, const std::vector<std::string>& overrides,
                                   const Library& library);

}  // namespace stepcast::config
