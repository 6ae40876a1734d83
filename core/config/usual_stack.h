#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"
#include "core/job/plan_request.h"

namespace stepcast::config {

struct JobOnStack {
  Job job;
  std::string usual_stack;  ///< the stack taken because the job names none; "": none was taken
  std::string refused;      ///< why none was where it could be: the usual stack cannot run the job
                            ///< as it is, or the job says its overlaps itself; "" otherwise
};

/// Variant of load_job: a transformer that trains on a known GPU and says neither `stack` nor its
/// `parallel.overlap` as a whole runs as the usual framework of its family of plans does
/// (models/stacks: the stack that is `default_of` the family), at the pace measured for it, or with
/// the scalar of its `calibration`. What the job says itself stays, single overlaps too; where the
/// stack cannot run the job as it is, none is taken.
JobOnStack load_job_on_usual_stack(const Source& source, const std::vector<std::string>& overrides,
                                   const Library& library);

struct PlanRequestOnStack {
  PlanRequest request;
  std::string usual_stack;  ///< as in JobOnStack
  std::string refused;
};

/// Variant of load_plan_request, on the stack `framework` where one is given, else on the usual one
/// as load_job_on_usual_stack takes it for a plan that is not split: all plans are compared as one
/// framework runs them.
PlanRequestOnStack load_plan_request_on_stack(const Source& source,
                                              const std::vector<std::string>& overrides,
                                              const Library& library, std::string_view framework);

/// A setting `key=value` as a shell takes it after --set: quoted where the value is an object.
std::string quoted_setting(const std::string& setting);

struct PlanAsSet {
  std::vector<std::string> settings;  ///< key=value, after what the job says itself
  Job job;                            ///< that they load
};

/// A plan of `request`, whose stack was taken for want of a named one ("" none), as a user types
/// it: that stack, and the keys in which `plan` differs from what the job loads without them. What
/// the stack does with plans of that shape is no key of the plan, and the job that is loaded has
/// it.
PlanAsSet plan_as_set(const Source& source, const std::vector<std::string>& overrides,
                      const Library& library, const PlanRequestOnStack& request, const Job& plan);

}  // namespace stepcast::config
