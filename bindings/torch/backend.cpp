// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/backend.hpp"

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>

#include <rondo/error.hpp>

#include "bindings/torch/torch_store.hpp"

namespace rondo::torch_backend {

void (*without_python)(const std::function<void()>& body) = [](const std::function<void()>& body) { body(); };

RondoBackend::RondoBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           c10::intrusive_ptr<Options> options)
    : Backend(rank, size), options_(std::move(options)), store_(store) {
  TorchStore meeting(store);
  rondo::Options how;
  how.timeout = how.join_timeout = options_->timeout;
  try {
    communicator_ = Communicator::create({.rank = rank, .world_size = size, .store = &meeting}, how);
  } catch (...) {
    std::rethrow_exception(error_of("init_process_group", std::current_exception()));
  }
  init();
}

RondoBackend::~RondoBackend() {
  without_python([this] {
    communicator_ = {};
    on_device_ = {};
    works_->completer.close();
  });
}

std::exception_ptr RondoBackend::error_of(std::string_view name, std::exception_ptr error) const {
  try {
    std::rethrow_exception(error);
  } catch (const Error& told) {
    return exception_of(name, getRank(), told);
  } catch (...) {
    return std::current_exception();
  }
}

Communicator& RondoBackend::communicator() {
  if (communicator_) return communicator_;
  C10_THROW_ERROR(DistBackendError, "rondo: the group was shut down");
}

void RondoBackend::setTimeout(Milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  communicator().set_timeout(timeout);
  if (on_device_) on_device_.set_timeout(timeout);
  options_->timeout = timeout;
}
std::uint64_t RondoBackend::getSequenceNumberForGroup() {
  const std::lock_guard lock(mutex_);
  return sequence_;
}
c10d::ErrorType RondoBackend::getError() {
  const std::lock_guard lock(mutex_);
  if (!communicator_) return c10d::ErrorType::SUCCESS;
  try {
    communicator_.check();
    if (on_device_) on_device_.check();
  } catch (const Error& error) {
    return error.error_code() == ErrorCode::timeout ? c10d::ErrorType::TIMEOUT : c10d::ErrorType::COMM_ERROR;
  }
  return c10d::ErrorType::SUCCESS;
}
void RondoBackend::waitForPendingWorks() {
  without_python([this] { works_->hooks.wait_for_all(); });
}
void RondoBackend::abort() {
  if (communicator_) communicator_.abort();
  const std::lock_guard lock(mutex_);
  if (on_device_) on_device_.abort();
}
// Its end waits for callbacks, which may need the lock, or Python's.
void RondoBackend::shutdown() {
  Communicator last, last_on_device;
  {
    const std::lock_guard lock(mutex_);
    last = std::exchange(communicator_, {});
    last_on_device = std::exchange(on_device_, {});
  }
  without_python([&] {
    last = {};
    last_on_device = {};
    works_->completer.close();
  });
}

RondoBackend::Milliseconds RondoBackend::timeout_of(Milliseconds given) const {
  return given == c10d::kUnsetTimeout ? options_->timeout : std::max(given, Milliseconds{1});
}

namespace {

// "monitored barrier #3: ranks 1, 2 did not come within 0.1 s; …" to "Ranks 1, 2", as PyTorch says it.
std::string missing_in(const std::string& sentence, int culprit) {
  const auto begin = sentence.find("rank"), end = sentence.find(" did not come");
  if (begin >= end || end == std::string::npos) return "Rank " + std::to_string(culprit);
  return 'R' + sentence.substr(begin + 1, end - begin - 1);
}

}  // namespace

// In the words that scripts look for.
void RondoBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const Milliseconds timeout = timeout_of(opts.timeout);
  std::unique_lock lock(mutex_);
  Communicator& comm = communicator();
  lock.unlock();
  try {
    comm.monitored_barrier(timeout, wait_all_ranks);
  } catch (const Error& error) {
    if (error.error_code() != ErrorCode::timeout)
      std::rethrow_exception(exception_of("monitored_barrier", getRank(), error));
    if (getRank() != 0) {
      C10_THROW_ERROR(
          DistBackendError,
          c10::str("[Rank ", getRank(), "]: Rank ", getRank(), " successfully reached monitoredBarrier, but ",
                   "received errors while waiting for send/recv from rank 0: ", error.what()));
    }
    C10_THROW_ERROR(DistBackendError, c10::str("[Rank 0]: ", missing_in(error.what(), error.culprit()),
                                               " failed to pass monitoredBarrier in ", timeout.count(),
                                               " ms (Rank 0 timed out in monitoredBarrier): ", error.what()));
  }
}

c10::intrusive_ptr<c10d::Backend> RondoBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const std::vector<int>& ranks,
                                                      const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  const auto own = std::find(ranks.begin(), ranks.end(), getRank());
  if (own == ranks.end()) return nullptr;
  auto options = c10::make_intrusive<Options>(opts ? opts->timeout : options_->timeout, getBackendName());
  return c10::make_intrusive<RondoBackend>(store, static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()),
                                           options);
}

}  // namespace rondo::torch_backend
