// Names of enumerations of a job as files spell them.
#include "core/config/internal/loaders.h"

namespace stepcast::config {

const std::vector<std::pair<std::string, OptimizerKind>>& optimizer_names() {
  static const std::vector<std::pair<std::string, OptimizerKind>> names = [] {
    std::vector<std::pair<std::string, OptimizerKind>> all;
    for (const OptimizerKind k :
         {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kRowwiseAdagrad,
          OptimizerKind::kAdagrad, OptimizerKind::kMuon}) {
      all.emplace_back(name_of(k), k);
    }
    return all;
  }();
  return names;
}
const std::vector<std::pair<std::string, MuonShards>>& muon_shards_names() {
  static const std::vector<std::pair<std::string, MuonShards>> names = [] {
    std::vector<std::pair<std::string, MuonShards>> all;
    for (const MuonShards s : {MuonShards::kDuplicated, MuonShards::kDistributed,
                               MuonShards::kBlockwise, MuonShards::kLayerSharded}) {
      all.emplace_back(name_of(s), s);
    }
    return all;
  }();
  return names;
}
const std::vector<std::pair<std::string, ScheduleKind>>& schedule_names() {
  static const std::vector<std::pair<std::string, ScheduleKind>> names = [] {
    std::vector<std::pair<std::string, ScheduleKind>> all;
    for (const ScheduleTraits& s : kSchedules) {
      all.emplace_back(s.name, s.kind);
    }
    all.emplace_back(kInterleaved, ScheduleKind::kOneFOneB);
    return all;
  }();
  return names;
}

const std::vector<std::pair<std::string, Axis>>& axis_names() {
  static const std::vector<std::pair<std::string, Axis>> names{{"tensor", Axis::kTensor},
                                                               {"context", Axis::kContext},
                                                               {"pipeline", Axis::kPipeline},
                                                               {"data", Axis::kData}};
  return names;
}

const std::vector<std::pair<std::string, ExpertDispatch>>& expert_dispatch_names() {
  static const std::vector<std::pair<std::string, ExpertDispatch>> names{
      {"all_to_all", ExpertDispatch::kCopies}, {"per_machine", ExpertDispatch::kPerMachine}};
  return names;
}

const std::vector<std::pair<std::string, ExpertDispatcher>>& expert_dispatcher_names() {
  static const std::vector<std::pair<std::string, ExpertDispatcher>> names{
      {"plain", ExpertDispatcher::kPlain},
      {"deepep", ExpertDispatcher::kDeepEp},
      {"hybridep", ExpertDispatcher::kHybridEp}};
  return names;
}

const std::vector<std::pair<std::string, Graphs>>& graphs_names() {
  static const std::vector<std::pair<std::string, Graphs>> names{
      {"none", Graphs::kNone}, {"layer", Graphs::kLayer}, {"full", Graphs::kFull}};
  return names;
}

const std::vector<std::pair<std::string, ContextAlgorithm>>& context_algorithm_names() {
  static const std::vector<std::pair<std::string, ContextAlgorithm>> names{
      {"auto", ContextAlgorithm::kAuto},      {"all_gather", ContextAlgorithm::kAllGather},
      {"pass_kv", ContextAlgorithm::kPassKv}, {"ring", ContextAlgorithm::kPassKv},
      {"pass_q", ContextAlgorithm::kPassQ},   {"all_to_all", ContextAlgorithm::kAllToAll}};
  return names;
}

const std::vector<std::pair<std::string, JobPhase>>& phase_names() {
  static const std::vector<std::pair<std::string, JobPhase>> names{
      {"train", JobPhase::kTrain}, {"prefill", JobPhase::kPrefill}, {"decode", JobPhase::kDecode}};
  return names;
}

const std::vector<std::pair<std::string, DlrmPipeline>>& dlrm_pipeline_names() {
  static const std::vector<std::pair<std::string, DlrmPipeline>> names{
      {"none", DlrmPipeline::kNone},
      {"sparse_dist", DlrmPipeline::kSparseDist},
      {"prefetch", DlrmPipeline::kPrefetch},
      {"fused", DlrmPipeline::kFused}};
  return names;
}

}  // namespace stepcast::config
