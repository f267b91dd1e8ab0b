// SPDX-License-Identifier: Apache-2.0
// Ranks as threads: runs `body` on every rank of a world, and hands back what each threw.
#pragma once
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include <rondo/communicator.hpp>

namespace rondo::test {

// Each communicator in a thread of its own, until all are through.
template <class Body>
std::vector<std::exception_ptr> in_threads(std::vector<Communicator> ranks, Body body) {
  std::vector<std::exception_ptr> errors(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      Communicator comm = std::move(ranks[r]);
      try {
        body(comm);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}
inline void rethrow(const std::vector<std::exception_ptr>& errors) {
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

template <class Body>
std::vector<std::exception_ptr> run_ranks(int world_size, const Options& options, Body body) {
  return in_threads(Communicator::local(world_size, options), std::move(body));
}

// The same, and the first error is the caller's.
template <class Body>
void on_ranks(int world_size, Body body, const Options& options = {}) {
  rethrow(run_ranks(world_size, options, body));
}

template <class Body>
std::exception_ptr thrown_by(Body body) {
  try {
    body();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

inline ErrorCode code_of(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.error_code();
  } catch (...) {
    return {};
  }
}
inline std::string sentence_of(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

// -2: it is no Error of ours.
inline int culprit_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.culprit();
  } catch (...) {
  }
  return -2;
}

inline std::vector<int> culprits_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.culprits();
  } catch (...) {
  }
  return {};
}

// How the latest call went, as the flight record says.
inline std::string last_algorithm(const Communicator& comm) {
  const std::string record = comm.flight_record(), key = "\"algorithm\": \"";
  const std::size_t start = record.rfind(key) + key.size();
  return record.substr(start, record.find('"', start) - start);
}

}  // namespace rondo::test
