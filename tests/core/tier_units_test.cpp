#include <catch2/catch.hpp>

#include "core/job/tier_units.h"

using namespace stepcast;

TEST_CASE("ranks draw on a shared tier in units, a partly filled last one too", "[core][tiers]") {
  // 10 ranks, 4 to a unit: {0..3}, {4..7}, {8, 9}.
  CHECK(units_of(10, 4) == 3);
  CHECK(units_of(8, 4) == 2);
  CHECK(units_of(0, 4) == 0);
  CHECK(unit_of(7, 4) == 1);
  CHECK(unit_of(9, 4) == 2);
  CHECK(unit_of(9, 1) == 9);

  const Tier ddr{"ddr", GB(100), GBps(10), 4};
  std::vector<Bytes> held(10);
  held[8] = GB(60);
  held[9] = GB(40);  // both together what a whole unit has, not two ranks' share of it
  CHECK_FALSE(tier_excess(ddr, held));
  held[2] = GB(100);  // one rank may take the whole unit
  CHECK_FALSE(tier_excess(ddr, held));
  held[9] = GB(41);
  held[1] = GB(3);
  const auto excess = tier_excess(ddr, held);
  REQUIRE(excess);  // unit 0 lacks 3 GB, unit 2 lacks 1 GB
  CHECK(excess->unit == 0);
  CHECK(excess->fullest_rank == 2);
  CHECK(excess->held == GB(103));
  CHECK(excess->capacity == GB(100));
  CHECK(excess->missing() == GB(3));
}

TEST_CASE("the device's own memory is a tier of each rank alone", "[core][tiers]") {
  System s;
  s.device.memory = GB(16);
  s.tiers = {{"hbm", {}, {}, 1}, {"ddr", GB(100), GBps(10), 4}};
  const auto hbm = tier_named(s, "hbm");
  REQUIRE(hbm);
  CHECK(hbm->capacity == GB(16));
  CHECK_FALSE(tier_excess(*hbm, {GB(16), GB(16)}));
  CHECK(tier_excess(*hbm, {GB(16), GB(17)})->unit == 1);
  CHECK(tier_named(s, "ddr")->shared_by == 4);
  CHECK_FALSE(tier_named(s, "ssd"));
}
