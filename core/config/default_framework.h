#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"
#include "core/job/plan_request.h"

namespace stepcast::config {

struct JobOnFramework {
  Job job;
  std::string
      default_framework;  ///< the framework taken because the job names none; "": none was taken
  std::string rejected;   ///< why none was where it could be: the default framework cannot run the
                          ///< job as it is; "" otherwise
  std::string framework = "";  ///< that it runs on: the named or the default one; "" none
};

/// Variant of load_job: a transformer that trains on a known GPU and names no framework runs as the
/// usual one does (models/stacks: the framework that is `default_of` plans of tensor ranks and
/// stages; no key of the plan changes that), at the efficiency measured for it, or with the scalar
/// of its `calibration`. What
/// the job says itself stays, single keys of an object too; where the framework cannot run the job
/// as it is, none is taken, nor of a resolved job that carries its efficiency. `stack` none asks
/// for the simulation alone.
JobOnFramework load_job_on_default_framework(const Source& source,
                                             const std::vector<std::string>& overrides,
                                             const Library& library);

/// Keys that say how a job is split, rather than how its ranks are numbered or attend: those that
/// `plan` searches.
std::vector<std::string> plan_keys();

/// Whether a job says these keys itself, in its file or by overrides.
struct GivenKeys {
  bool plan = false;  ///< any of plan_keys
  bool devices = false, global = false;
};

GivenKeys given_keys(const Source& source, const std::vector<std::string>& overrides,
                     const Library& library);

struct PlanRequestOnFramework {
  PlanRequest request;
  std::string default_framework;  ///< as in JobOnFramework
  std::string rejected;
  std::string framework;  ///< that plans run on: the named or the default one; "" none
};

/// A job whose parallel plan is to be chosen, and what of it is fixed already. Among
/// parallel degrees, schedule, sequence_parallel, zero, recompute and batch.micro, a given key is
/// fixed; one that says "auto" or is missing is searched. A recommendation model is a job as
/// load_job reads it. On the framework `framework` where one is given, else on the usual one as
/// load_job_on_usual_stack takes it for a plan that is not split: all plans are compared as one
/// framework runs them.
PlanRequestOnFramework load_plan_request_on_framework(const Source& source,
                                                      const std::vector<std::string>& overrides,
                                                      const Library& library,
                                                      std::string_view framework);

/// A job as job_to_json writes it, with the framework it runs on ("" none) and every key that a
/// framework may set: on another system it still runs on that one.
std::string job_on_framework_to_json(const Job& job, const std::string& framework, int indent = 2);
/// The same with the name of its built-in system in place of all constants, where that loads to an
/// equal job; else as job_to_json writes it.
std::string short_job_to_json(const Job& job, const std::string& framework, const Library& library);

/// A setting `key=value`, or another word, as a shell takes it: quoted where it has to be.
std::string quoted_setting(const std::string& setting);

struct PlanAsSet {
  std::vector<std::string> settings;  ///< key=value, after what the job says itself
  Job job;                            ///< that they load
};

/// A plan of `request`, whose framework was taken for want of a named one ("" none), as a user
/// types it: that framework, unless it is the usual one, and the keys in which `plan` differs from
/// what the job loads without them. What the framework does with plans of that shape is no key of
/// the plan, and the job that is loaded has it.
PlanAsSet plan_command_line(const Source& source, const std::vector<std::string>& overrides,
                            const Library& library, const PlanRequestOnFramework& request,
                            const Job& plan);

}  // namespace stepcast::config
