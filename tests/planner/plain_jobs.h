#pragma once
#include <memory>

#include "core/access/access.h"
#include "core/job/job.h"
#include "tests/workloads/dlrm_jobs.h"

namespace stepcast::planner {

/// A system without measured constants: machines of so many devices, 512 of them.
inline System plain_system(double memory, std::int64_t per_machine) {
  System s;
  s.name = "plain";
  s.device.name = "plain";
  s.device.memory = Bytes(memory);
  s.device.bandwidth = GBps(1000);
  s.device.l2 = MiB(40);
  s.device.launch = microseconds(3);
  s.device.peak[Format::kFp32] = teraflops(20);
  s.host.devices = per_machine;
  s.fabric = {{"inner", per_machine, GBps(200), microseconds(2), 1, false},
              {"outer", 512, GBps(25), microseconds(5), 1, false}};
  s.tiers = {{"hbm", {}, {}, 1}, {"ddr", GB(1), GBps(20), per_machine}};
  return s;
}

/// Unpooled tables of zipf lookups, 20 a sample, 64 columns, on a plain system.
inline Job sequence_job(std::int64_t devices, std::int64_t tables, std::int64_t rows,
                        double exponent, std::int64_t samples_each, std::int64_t per_machine) {
  Job job = test::dlrm_job(devices, tables, rows, 64, 20);
  for (EmbeddingTable& t : test::model_of(job).tables) {
    t.mode = PoolingMode::kSequence;
    t.access = std::make_shared<Access>(Access::zipf(t.rows, exponent));
  }
  job.system = plain_system(16e9, per_machine);
  job.parallel.data = devices;
  job.batch.global = devices * samples_each;
  return job;
}

}  // namespace stepcast::planner
