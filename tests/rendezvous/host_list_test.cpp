// SPDX-License-Identifier: Apache-2.0
#include "runtime/launchers/host_list.hpp"

#include "tests/rendezvous/jobs.hpp"
#include "tests/support/catch.hpp"

using rondo::rendezvous::test::contains;
using rondo::rendezvous::test::error_of;
using rondo::runtime::expand_host_list;

TEST_CASE("host lists as Slurm writes them") {
  struct Row {
    const char* list;
    std::vector<std::string> hosts;
  };
  const Row row = GENERATE(
      Row{"n0", {"n0"}}, Row{"a-b.example.org", {"a-b.example.org"}}, Row{"n[0-1]", {"n0", "n1"}},
      Row{"n[07-11]", {"n07", "n08", "n09", "n10", "n11"}}, Row{"n[9-10]", {"n9", "n10"}},
      Row{"n[099-101]", {"n099", "n100", "n101"}}, Row{"n[07-9,12],m3", {"n07", "n08", "n09", "n12", "m3"}},
      Row{"m3,n[0-1]", {"m3", "n0", "n1"}}, Row{"n[1-4]-ib0", {"n1-ib0", "n2-ib0", "n3-ib0", "n4-ib0"}},
      Row{"r[1-2]n[3-4]", {"r1n3", "r1n4", "r2n3", "r2n4"}},
      Row{"r[1,3]n[02-3]x,[7-8]", {"r1n02x", "r1n03x", "r3n02x", "r3n03x", "7", "8"}}, Row{"n[3,1]", {"n3", "n1"}},
      Row{"n[4][5-6]", {"n45", "n46"}}, Row{"n[0]", {"n0"}}, Row{"n[00]", {"n00"}});
  CAPTURE(row.list);
  CHECK(expand_host_list(row.list, "HOSTS") == row.hosts);
}

TEST_CASE("what is no host list is refused by one sentence that names the place") {
  const char* garbage =
      GENERATE("", ",", "n1,", ",n1", "n1,,n2", "n[", "n[1", "n[1-", "n[1-2", "n[]", "n[,1]", "n[1,]", "n[-3]",
               "n[a-b]", "n[2-1]", "n]1[", "n[1[2]]", "n[1-2-3]", "n 1", "n1;n2", "(null)", "n[0-99999]",
               "n[0-9999999999]", "n[0-999]m[0-999]", "n[1-65536],m", "n[1-2]/x", "n[+1]");
  CAPTURE(garbage);
  const std::string error = error_of([&] { expand_host_list(garbage, "HOSTS"); });
  CHECK(contains(error, std::string("HOSTS=") + garbage + " is not a list of hosts"));
  CHECK(contains(error, "at character "));
  CHECK(error.find('\n') == std::string::npos);
}

TEST_CASE("a host list may be long") {
  const auto hosts = expand_host_list("n[1-65536]", "HOSTS");
  CHECK(hosts.size() == 65536);
  CHECK(hosts.back() == "n65536");
}
