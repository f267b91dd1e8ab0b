// SPDX-License-Identifier: Apache-2.0
// Trainings started as a user starts them, on a small data set of the test's own, and what they say of themselves.
#pragma once
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/examples/gzip_files.hpp"
#include "tests/process/running.hpp"
#include "tests/support/expect.hpp"

namespace rondo::test {

class Data : public DatasetFolder {
 public:
  Data() {
    write_patterns("train", 2400, 1);
    write_patterns("t10k", 503, 2);  // a prime: no number of ranks divides it
  }
};

inline std::vector<std::string> training(const std::string& data, int world_size,
                                         const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"--nproc-per-node", std::to_string(world_size), tool("fashion_mnist"), "--data",
                                        data};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return rondorun(arguments);
}
inline Ended train(const Data& data, int world_size, const std::vector<std::string>& flags) {
  return run(training(data.path(), world_size, flags));
}

// The fields of the line that starts with "result".
inline std::map<std::string, std::string> result_of(const std::string& out) {
  std::map<std::string, std::string> fields;
  const auto begin = out.find("result ");
  if (begin == std::string::npos) return fields;
  std::istringstream words(out.substr(begin, out.find('\n', begin) - begin));
  for (std::string word; words >> word;) {
    if (const auto equals = word.find('='); equals != std::string::npos) {
      fields[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  return fields;
}

}  // namespace rondo::test
