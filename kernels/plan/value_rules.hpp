// SPDX-License-Identifier: Apache-2.0
// What may be done with symbolic values, and where the findings go.
#pragma once
#include <string>
#include <vector>

#include "kernels/plan/symbolic_memory.hpp"
#include "kernels/plan/verifier.hpp"

namespace rondo::kernels {

struct Where {  // in the plan
  int rank = kNobody;
  int step = -1;
};

class Findings {
 public:
  void add(Fault fault, Where where, const std::string& what);
  bool full() const { return list_.size() >= 8; }
  bool empty() const { return list_.empty(); }
  std::vector<Finding> take() { return std::move(list_); }

 private:
  std::vector<Finding> list_;
};

class ValueRules {
 public:
  ValueRules(const Problem& problem, bool canonical, Findings& findings)
      : problem_(problem), canonical_(canonical), findings_(findings) {}

  Value read(SymbolicMemory& memory, Location place, Where where);
  Value combine(const Value& received, const Value& local, Where where);
  Value complete(Value value, Where where);
  Value fold(const std::vector<Value>& by_rank, Where where);
  // False at the first wrong element: one finding tells enough.
  bool check_output(const Work& work, const Value& value, std::size_t element);

 private:
  void check_addable(const Value& value, Where where);
  bool reduces() const { return row_of(problem_.pattern).reduces; }

  const Problem& problem_;
  bool canonical_;
  Findings& findings_;
};

std::string describe(RankSet ranks);  // "ranks 0 1 5"

}  // namespace rondo::kernels
