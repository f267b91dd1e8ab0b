// SPDX-License-Identifier: Apache-2.0
#include "runtime/launchers/host_list.hpp"

#include "tests/rendezvous/jobs.hpp"
#include "tests/support/catch.hpp"

using rondo::rendezvous::test::contains;
using rondo::rendezvous::test::error_of;
using rondo::runtime::HostList;

namespace {

std::vector<std::string> hosts_of(const std::string& list) {
  const HostList hosts(list, "HOSTS");
  std::vector<std::string> all;
  for (std::size_t i = 0; i < hosts.size(); ++i) all.push_back(hosts.at(i));
  return all;
}

}  // namespace

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
  CHECK(hosts_of(row.list) == row.hosts);
}

TEST_CASE("what is no host list is refused by one sentence that names the place") {
  const char* garbage =
      GENERATE("", ",", "n1,", ",n1", "n1,,n2", "n[", "n[1", "n[1-", "n[1-2", "n[]", "n[,1]", "n[1,]", "n[-3]",
               "n[a-b]", "n[2-1]", "n]1[", "n[1[2]]", "n[1-2-3]", "n 1", "n1;n2", "(null)", "n[0-99999]",
               "n[0-9999999999]", "n[0-999]m[0-999]", "n[1-65536],m", "n[1-2]/x", "n[+1]");
  CAPTURE(garbage);
  const std::string error = error_of([&] { HostList(garbage, "HOSTS"); });
  CHECK(contains(error, std::string("HOSTS=") + garbage + " is not a list of hosts"));
  CHECK(contains(error, "at character "));
  CHECK(error.find('\n') == std::string::npos);
}

TEST_CASE("a host list may be long, and is not written out for one of its hosts") {
  const HostList hosts("n[1-65536]", "HOSTS");
  CHECK(hosts.size() == 65536);
  CHECK(hosts.at(65535) == "n65536");
  CHECK(hosts_of("n[1-65536]").back() == "n65536");
  std::string brackets = "n[1-65536]";  // of 16 million letters, if they were
  for (int i = 0; i < 200; ++i) brackets += "[1]";
  for (int i = 0; i < 1000; ++i) CHECK(HostList(brackets, "HOSTS").at(65535) == "n65536" + std::string(200, '1'));
}

TEST_CASE("a host has a name that a host can have") {
  CHECK(HostList(std::string(249, 'n') + "[1-65536]-", "HOSTS").at(0) == std::string(249, 'n') + "1-");
  const std::string error = error_of([] { HostList(std::string(251, 'n') + "[1-65536]", "HOSTS"); });
  CHECK(contains(error, "a name has more than 255 letters"));
}
