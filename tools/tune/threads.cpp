// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/threads.hpp"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <rondo/error.hpp>

namespace rondo::tune {
namespace {

struct Failures {
  std::mutex mutex;
  std::exception_ptr cause, echo;

  void add(bool echoes) {
    const std::lock_guard lock(mutex);
    std::exception_ptr& slot = echoes ? echo : cause;
    if (slot == nullptr) slot = std::current_exception();
  }
};

void run_rank(Communicator& communicator, const std::function<void(Communicator&)>& body, Failures& failures) {
  try {
    return body(communicator);
  } catch (const Error& error) {
    failures.add(error.error_code() == ErrorCode::aborted);
  } catch (const std::exception&) {
    failures.add(false);
  }
  communicator.abort();
}

}  // namespace

void run_threads(int ranks, const std::function<void(Communicator&)>& body) {
  std::vector<Communicator> communicators = Communicator::local(ranks);
  Failures failures;
  {
    std::vector<std::jthread> threads;
    for (Communicator& communicator : communicators) {
      threads.emplace_back([&] { run_rank(communicator, body, failures); });
    }
  }
  if (failures.cause != nullptr) std::rethrow_exception(failures.cause);
  if (failures.echo != nullptr) std::rethrow_exception(failures.echo);
}

}  // namespace rondo::tune
