#include "runtime/cuda/quantised_plan.h"

#include <algorithm>
#include <map>

#include "runtime/cuda/alignment.h"
#include "runtime/cuda/kernels/quantise.h"
#include "runtime/cuda/matmul_plan.h"

namespace stepcast::runtime::cuda {
namespace {

std::size_t rounded(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

/// Values that have been cast and have not changed since.
struct Fresh {
  std::uintptr_t begin = 0, end = 0;
  TensorId tensor = 0;
  std::size_t issue = 0;  ///< of the cast
};

/// Use that products make of one cast.
struct Demand {
  bool gradient = false;
  std::size_t last_plain = 0, last_turned = 0;  ///< issues of the last products; 0: none
};

class Planner {
 public:
  Planner(const Program& program, const std::vector<IssuedOp>& issues, const TensorPlace& place,
          std::size_t in_graph)
      : program_(program), issues_(issues), place_(place) {
    plan_.uses.resize(issues.size());
    plan_.in_graph = in_graph;
  }

  QuantisedPlan plan() && {
    for (std::size_t i = 0; i < issues_.size(); ++i) {
      const Op& op = *issues_[i].op;
      if (op.kind == OpKind::kGemm && op.format == Format::kFp8 && stream_ == op.stream) {
        read_operands(i);
      }
      for (const TensorId t : program_.outputs(op)) {
        changed(t, issues_[i].microbatch);
      }
      // Work of one stream runs in the order of its issues: there memory can change hands.
      if (op.kind == OpKind::kCast && op.format == Format::kFp8 &&
          stream_.value_or(op.stream) == op.stream) {
        stream_ = op.stream;
        const TensorId t = program_.inputs(op)[0];
        const auto [begin, bytes] = place_(t, issues_[i].microbatch);
        fresh_.push_back({begin, begin + bytes, t, i});
      }
    }
    give_memory();
    return std::move(plan_);
  }

 private:
  void changed(TensorId t, std::int32_t microbatch) {
    const auto [begin, bytes] = place_(t, microbatch);
    const std::uintptr_t end = begin + bytes;
    std::erase_if(fresh_,
                  [&, begin = begin](const Fresh& f) { return f.begin < end && begin < f.end; });
  }

  /// Operand A is summed along its columns, or, transposed, along its rows; B the other way round.
  void read_operands(std::size_t i) {
    const Op& op = *issues_[i].op;
    const Product p = product_of(program_, op);
    if (p.batch != 1) {
      return;
    }
    const auto in = program_.inputs(op);
    const std::size_t a = find(i, in[0], p.transpose_a ? std::pair(p.k, p.m) : std::pair(p.m, p.k));
    const std::size_t b = find(i, in[1], p.transpose_b ? std::pair(p.n, p.k) : std::pair(p.k, p.n));
    want(i, a, p.transpose_a, p.gradient_a, plan_.uses[i].a);
    want(i, b, !p.transpose_b, p.gradient_b, plan_.uses[i].b);
  }

  /// The issue of the cast that this product can use; itself: none.
  std::size_t find(std::size_t product, TensorId t, std::pair<std::int64_t, std::int64_t> shape) {
    const Tensor& tensor = program_.tensors[t];
    const std::uintptr_t begin = place_(t, issues_[product].microbatch).first;
    for (const Fresh& f : fresh_) {
      if (f.tensor == t && f.begin == begin && std::pair(tensor.rows, tensor.columns) == shape) {
        return f.issue;
      }
    }
    return product;
  }

  /// Notes the demand; `use` is the cast's issue until copies have numbers.
  void want(std::size_t product, std::size_t cast, bool turned, bool gradient, std::int32_t& use) {
    if (cast == product) {
      return;
    }
    const auto [demand, first] = demands_.try_emplace(cast, Demand{gradient, 0, 0});
    if (!first && demand->second.gradient != gradient) {
      return;
    }
    (turned ? demand->second.last_turned : demand->second.last_plain) = product;
    wanted_.push_back({&use, cast, turned});
  }

  void give_memory() {
    struct Block {
      std::size_t begin, end, last;
    };
    std::vector<Block> taken;  // ascending
    const auto take = [&](std::size_t now, std::size_t last, std::size_t bytes) {
      std::erase_if(taken, [now](const Block& b) { return b.last < now; });
      std::size_t at = 0;
      auto before = taken.begin();
      const auto stay_whole = [&] {
        at = at < plan_.in_graph && at + bytes > plan_.in_graph ? plan_.in_graph : at;
      };
      stay_whole();
      for (; before != taken.end() && before->begin < at + bytes; ++before) {
        at = std::max(at, before->end);
        stay_whole();
      }
      const std::size_t end = at + aligned(bytes);
      taken.insert(before, {at, end, last});
      plan_.bytes = std::max(plan_.bytes, end);
      return at;
    };
    for (const auto& [issue, d] : demands_) {
      const Tensor& t = program_.tensors[program_.inputs(*issues_[issue].op)[0]];
      const auto number = static_cast<std::int32_t>(plan_.casts.size());
      QuantisedPlan::Cast cast;
      cast.gradient = d.gradient;
      cast.scales = take(issue, std::max(d.last_plain, d.last_turned), kernels::kQuantiseWorkspace);
      const auto copy = [&](std::size_t last, std::int64_t rows, std::int64_t columns) {
        if (last == 0) {
          return QuantisedPlan::kNone;
        }
        const auto pitch = static_cast<std::int64_t>(
            rounded(static_cast<std::size_t>(columns), static_cast<std::size_t>(kFp8Pack)));
        const std::size_t at = take(issue, last, static_cast<std::size_t>(rows * pitch));
        plan_.copies.push_back({rows, pitch, at, number});
        return static_cast<std::int32_t>(plan_.copies.size()) - 1;
      };
      cast.plain = copy(d.last_plain, t.rows, t.columns);
      cast.turned = copy(d.last_turned, t.columns, t.rows);
      plan_.casts.push_back(cast);
      plan_.uses[issue].cast = number;
    }
    for (const auto& [use, cast, turned] : wanted_) {
      const auto& made = plan_.casts[static_cast<std::size_t>(plan_.uses[cast].cast)];
      *use = turned ? made.turned : made.plain;
    }
  }

  struct Wanted {
    std::int32_t* use;
    std::size_t cast;
    bool turned;
  };

  const Program& program_;
  const std::vector<IssuedOp>& issues_;
  const TensorPlace& place_;
  QuantisedPlan plan_;
  std::optional<std::uint8_t> stream_;  ///< of the casts that are shared
  std::vector<Fresh> fresh_;
  std::map<std::size_t, Demand> demands_;  ///< by issue of the cast
  std::vector<Wanted> wanted_;
};

}  // namespace

QuantisedPlan quantised_plan(const Program& program, const std::vector<IssuedOp>& issues,
                             const TensorPlace& place, std::size_t in_graph) {
  return Planner(program, issues, place, in_graph).plan();
}

std::optional<TensorId> quantised_buffer(const Program& program) {
  for (TensorId t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.role == TensorRole::kBuffer && tensor.format == Format::kFp8 && !tensor.is_view()) {
      return t;
    }
  }
  return std::nullopt;
}

}  // namespace stepcast::runtime::cuda
