// SPDX-License-Identifier: Apache-2.0
// What is measured, a file each.
#pragma once
#include "tests/reliability/report.hpp"

namespace rondo::test {

void measure_kills(const Given& given, Report& report);
void measure_kills_of_hosts(const Given& given, Report& report);
void measure_odd_calls(const Given& given, Report& report);
void measure_changes(const Given& given, Report& report);
void measure_orders(const Given& given, Report& report);
void measure_moments(const Given& given, Report& report);
void measure_strangers(const Given& given, Report& report);
void measure_weathers(const Given& given, Report& report);

struct Subject {
  const char *name, *what;
  Given usual;
  bool hosts;  // needs network namespaces
  void (*measure)(const Given&, Report&);
};

}  // namespace rondo::test
