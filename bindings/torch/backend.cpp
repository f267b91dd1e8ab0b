// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/backend.hpp"

#include <algorithm>
#include <deque>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <rondo/error.hpp>

#include "bindings/torch/torch_store.hpp"
#include "bindings/torch/types.hpp"

namespace rondo::torch_backend {
namespace {

using Tensors = RondoBackend::Tensors;
using Counts = std::vector<std::size_t>;

std::size_t parts_in(const at::Tensor& tensor, const Element& element) {
  return static_cast<std::size_t>(tensor.numel()) * element.parts;
}

void check_tensor(std::string_view name, const at::Tensor& tensor) {
  if (!tensor.defined()) C10_THROW_ERROR(ValueError, c10::str("rondo: ", std::string(name), " of an undefined tensor"));
  if (!tensor.device().is_cpu()) {
    C10_THROW_ERROR(ValueError, c10::str("rondo: ", std::string(name), " of a tensor on ", tensor.device(),
                                         ": this backend takes tensors of the CPU alone"));
  }
  if (tensor.layout() != at::kStrided) {
    C10_THROW_ERROR(ValueError, c10::str("rondo: ", std::string(name), " of a tensor that is not dense"));
  }
}

void check_one(std::string_view name, const Tensors& tensors) {
  if (tensors.size() != 1) {
    C10_THROW_ERROR(ValueError, c10::str("rondo: ", std::string(name), " of ", tensors.size(),
                                         " tensors: it takes one on each rank"));
  }
  check_tensor(name, tensors.front());
}

void check_same_type(std::string_view name, const at::Tensor& one, const at::Tensor& other) {
  check_tensor(name, other);
  if (one.scalar_type() != other.scalar_type()) {
    C10_THROW_ERROR(TypeError, c10::str("rondo: ", std::string(name), " of tensors of ",
                                        c10::toString(one.scalar_type()), " and ", c10::toString(other.scalar_type())));
  }
}

void check_list(std::string_view name, const Tensors& list, std::size_t size, const at::Tensor& other) {
  if (list.size() != size) {
    C10_THROW_ERROR(ValueError, c10::str("rondo: ", std::string(name), " with a list of ", list.size(), " tensors for ",
                                         size, " ranks"));
  }
  for (const at::Tensor& one : list) check_same_type(name, other, one);
}

// Where they begin if they lie one behind the other in one piece of memory; null: they do not, or are empty.
void* one_piece(const Tensors& tensors) {
  char *begin = nullptr, *end = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    char* const data = static_cast<char*>(tensor.data_ptr());
    if (!tensor.is_contiguous() || (end != nullptr && data != end)) return nullptr;
    if (begin == nullptr) begin = data;
    end = data + tensor.nbytes();
  }
  return begin;
}

bool is_alike(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& one) { return one.numel() == tensors.front().numel(); });
}

Counts counts_of(const Tensors& tensors, const Element& element) {
  Counts counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(parts_in(tensor, element));
  return counts;
}

// With the word that scripts look for in an error of a deadline.
std::exception_ptr exception_of(std::string_view name, int rank, const Error& error) {
  const bool late = error.error_code() == ErrorCode::timeout;
  const std::string sentence =
      c10::str("rondo: ", std::string(name), " on rank ", rank, late ? " met its timeout : " : ": ", error.what());
  if (error.error_code() == ErrorCode::invalid_argument)
    return std::make_exception_ptr(c10::ValueError({__func__, __FILE__, __LINE__}, sentence));
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, __LINE__}, sentence));
}

}  // namespace

void (*without_python)(const std::function<void()>& body) = [](const std::function<void()>& body) { body(); };

// A call, what it needs while it runs, and what is left to do when it has.
struct RondoBackend::Task {
  c10d::OpType type;
  std::string name;
  Milliseconds timeout;
  bool runs_async;
  Tensors inputs{}, outputs{};  // the caller's
  Tensors kept{};               // in between
  std::deque<Counts> counts{};
  std::vector<Call> calls{};
  std::vector<std::function<void()>> after{};
  bool is_message = false, takes_source = false;

  // Memory in one piece that holds, and will hold, what the tensor does.
  void* in_out(const at::Tensor& tensor) {
    void* const data = in(tensor);
    if (!tensor.is_contiguous()) after.push_back([tensor, flat = kept.back()] { at::Tensor(tensor).copy_(flat); });
    return data;
  }
  void* in(const at::Tensor& tensor) {
    kept.push_back(tensor.contiguous());
    return kept.back().data_ptr();
  }
  void* out(const at::Tensor& tensor) {
    kept.push_back(tensor.is_contiguous() ? tensor : at::empty(tensor.sizes(), tensor.options()));
    if (!tensor.is_contiguous()) after.push_back([tensor, flat = kept.back()] { at::Tensor(tensor).copy_(flat); });
    return kept.back().data_ptr();
  }
  // The same of a list, one behind the other.
  void* in(const Tensors& list) {
    kept.insert(kept.end(), list.begin(), list.end());
    if (void* const data = one_piece(list); data != nullptr || list.empty()) return data;
    Tensors flat;
    for (const at::Tensor& one : list) flat.push_back(one.reshape({-1}));
    kept.push_back(at::cat(flat));
    return kept.back().data_ptr();
  }
  void* out(const Tensors& list) {
    kept.insert(kept.end(), list.begin(), list.end());
    if (void* const data = one_piece(list); data != nullptr || list.empty()) return data;
    std::int64_t total = 0;
    for (const at::Tensor& one : list) total += one.numel();
    kept.push_back(at::empty({total}, list.front().options().memory_format(at::MemoryFormat::Contiguous)));
    after.push_back([list, flat = kept.back()] {
      std::int64_t from = 0;
      for (const at::Tensor& one : list) {
        at::Tensor(one).copy_(flat.narrow(0, from, one.numel()).view(one.sizes()));
        from += one.numel();
      }
    });
    return kept.back().data_ptr();
  }
  std::span<const std::size_t> keep(Counts given) { return counts.emplace_back(std::move(given)); }
  void finish() {
    for (const auto& step : after) step();
  }
};

struct RondoBackend::Started {
  std::shared_ptr<Task> task;
  c10::intrusive_ptr<RondoWork> work;
};

RondoBackend::RondoBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           c10::intrusive_ptr<Options> options)
    : Backend(rank, size), store_(store), options_(std::move(options)) {
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
    completer_->close();
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
  } catch (const Error& error) {
    return error.error_code() == ErrorCode::timeout ? c10d::ErrorType::TIMEOUT : c10d::ErrorType::COMM_ERROR;
  }
  return c10d::ErrorType::SUCCESS;
}
void RondoBackend::abort() {
  if (communicator_) communicator_.abort();
}
// Its end waits for callbacks, which may need the lock, or Python's.
void RondoBackend::shutdown() {
  Communicator last;
  {
    const std::lock_guard lock(mutex_);
    last = std::exchange(communicator_, {});
  }
  without_python([&] {
    last = {};
    completer_->close();
  });
}

RondoBackend::Milliseconds RondoBackend::timeout_of(Milliseconds given) const {
  return given == c10d::kUnsetTimeout ? options_->timeout : std::max(given, Milliseconds{1});
}

RondoBackend::Task RondoBackend::task(c10d::OpType type, std::string_view name, Milliseconds timeout,
                                      bool runs_async) const {
  return {.type = type, .name = std::string(name), .timeout = timeout_of(timeout), .runs_async = runs_async};
}

RondoBackend::WorkPtr RondoBackend::run(Task given) {
  auto task = std::make_shared<Task>(std::move(given));
  std::unique_lock lock(mutex_);
  const RondoWork::About about{.rank = getRank(),
                               .type = task->type,
                               .title = title_of(getBackendName(), task->name),
                               .sequence = ++sequence_,
                               .timeout = task->timeout,
                               .outputs = task->outputs};
  auto work = c10::make_intrusive<RondoWork>(about, task->inputs, completer_);
  if (task->takes_source) task->calls.front().source = work->source();
  if (coalescing_) {
    coalescing_->push_back({task, work});
    return work;
  }
  if (!task->is_message && !task->runs_async) {
    run_in_turn(lock, {task, work});
    return work;
  }
  Steps then;
  task->is_message ? start({{task, work}}, task->timeout, then) : start_in_turn({{task, work}}, task->timeout, then);
  lock.unlock();
  for (const auto& step : then) step();
  if (const auto error = work->failed_at_start()) std::rethrow_exception(error);
  return work;
}

// Whoever runs a call in its own thread does not hold the lock: what others start meanwhile, callbacks among them, has
// its turn behind it, and they go on.
void RondoBackend::start_in_turn(std::vector<Started> tasks, Milliseconds timeout, Steps& then) {
  if (!runs_here_) return start(std::move(tasks), timeout, then);
  deferred_.push_back({std::move(tasks), timeout});
}

void RondoBackend::run_in_turn(std::unique_lock<std::mutex>& lock, const Started& one) {
  if (runs_here_) {  // another thread's
    Steps none;
    start_in_turn({one}, one.task->timeout, none);
    lock.unlock();
    one.work->wait(kNoTimeout);
    return;
  }
  auto& comm = communicator();
  runs_here_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    auto within = comm.within(one.task->timeout);
    for (const Call& call : one.task->calls) within.submit(call);
    one.task->finish();
  } catch (...) {
    error = error_of(one.task->name, std::current_exception());
  }
  lock.lock();
  runs_here_ = false;
  Steps then;
  for (auto& [tasks, timeout] : std::exchange(deferred_, {})) start(std::move(tasks), timeout, then);
  lock.unlock();
  for (const auto& step : then) step();
  one.work->complete(error);
  if (error) std::rethrow_exception(error);
}

// With the lock held; what wakes others is left to `then`, for when it is free.
void RondoBackend::start(std::vector<Started> tasks, Milliseconds timeout, Steps& then) {
  std::vector<Call> calls;
  for (const Started& each : tasks) calls.insert(calls.end(), each.task->calls.begin(), each.task->calls.end());
  try {
    rondo::Work running;
    if (calls.size() == 1) {
      running = communicator().async(timeout).submit(calls.front());
    } else {
      Group group = communicator().group(timeout);
      for (const Call& call : calls) group.submit(call);
      running = group.start();
    }
    // The call holds what it works on, and nothing of this object, which may go first.
    then.push_back([running, tasks = std::move(tasks), rank = getRank()]() mutable {
      running.on_done([tasks = std::move(tasks), rank](const std::exception_ptr& error) { end(tasks, rank, error); });
    });
  } catch (...) {
    const std::exception_ptr error = error_of(tasks.front().task->name, std::current_exception());
    then.push_back([tasks, error] {
      for (const Started& each : tasks) each.work->fail_at_start(error);
    });
  }
}

void RondoBackend::end(const std::vector<Started>& tasks, int rank, const std::exception_ptr& error) {
  for (const Started& each : tasks) {
    std::exception_ptr told;
    try {
      if (error) std::rethrow_exception(error);
      each.task->finish();
    } catch (const Error& wrong) {
      told = exception_of(each.task->name, rank, wrong);
    } catch (...) {
      told = std::current_exception();
    }
    each.work->complete(told);
  }
}

void RondoBackend::startCoalescing() {
  const std::lock_guard lock(mutex_);
  if (coalescing_) C10_THROW_ERROR(ValueError, "rondo: calls are being coalesced already");
  coalescing_.emplace();
}

RondoBackend::WorkPtr RondoBackend::endCoalescing() {
  std::unique_lock lock(mutex_);
  if (!coalescing_) C10_THROW_ERROR(ValueError, "rondo: no calls are being coalesced");
  auto tasks = std::move(*coalescing_);
  coalescing_.reset();
  if (tasks.empty()) return nullptr;
  Milliseconds timeout = tasks.front().task->timeout;
  auto whole = std::make_shared<Task>(
      Task{.type = c10d::OpType::COALESCED, .name = "coalesced", .timeout = timeout, .runs_async = true});
  for (const Started& each : tasks) {
    timeout = std::min(timeout, each.task->timeout);
    whole->outputs.insert(whole->outputs.end(), each.task->outputs.begin(), each.task->outputs.end());
  }
  const RondoWork::About about{.rank = getRank(),
                               .type = whole->type,
                               .title = title_of(getBackendName(), whole->name),
                               .sequence = ++sequence_,
                               .timeout = timeout,
                               .outputs = whole->outputs};
  auto work = c10::make_intrusive<RondoWork>(about, whole->inputs, completer_);
  tasks.push_back({whole, work});
  Steps then;
  start_in_turn(std::move(tasks), timeout, then);
  lock.unlock();
  for (const auto& step : then) step();
  if (const auto error = work->failed_at_start()) std::rethrow_exception(error);
  return work;
}

void RondoBackend::check_root(std::string_view name, std::int64_t root) const {
  if (root >= 0 && root < getSize()) return;
  C10_THROW_ERROR(ValueError,
                  c10::str("rondo: ", std::string(name), " with root rank ", root, " in a group of ", getSize()));
}

RondoBackend::WorkPtr RondoBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  constexpr std::string_view kName = "broadcast";
  check_one(kName, tensors);
  check_root(kName, opts.rootRank);
  Task t = task(c10d::OpType::BROADCAST, kName, opts.timeout, opts.asyncOp);
  t.inputs = t.outputs = tensors;
  const Element element = element_of(tensors[0].scalar_type());
  void* const data = t.in_out(tensors[0]);
  t.calls.push_back({.collective = Collective::broadcast,
                     .send = data,
                     .recv = data,
                     .count = parts_in(tensors[0], element),
                     .dtype = element.dtype,
                     .root = static_cast<int>(opts.rootRank)});
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors[0].defined() && tensors[0].is_sparse()) return allreduce_sparse(tensors, opts);
  check_one("all_reduce", tensors);
  c10d::AllreduceCoalescedOptions same;
  static_cast<c10d::AllreduceOptions&>(same) = opts;
  return allreduce_coalesced(tensors, same);
}

RondoBackend::WorkPtr RondoBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  const std::string_view name = "all_reduce";
  if (tensors.empty()) C10_THROW_ERROR(ValueError, "rondo: all_reduce_coalesced of no tensors");
  Task t = task(tensors.size() == 1 ? c10d::OpType::ALLREDUCE : c10d::OpType::ALLREDUCE_COALESCED, name, opts.timeout,
                opts.asyncOp);
  t.inputs = t.outputs = tensors;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(name, tensor);
    const auto [element, op] = reduction_of(name, tensor.scalar_type(), opts.reduceOp);
    void* const data = t.in_out(tensor);
    t.calls.push_back({.collective = Collective::all_reduce,
                       .send = data,
                       .recv = data,
                       .count = parts_in(tensor, element),
                       .dtype = element.dtype,
                       .op = op});
  }
  return run(std::move(t));
}

// Every rank's indices and values to everybody; each adds them up in the order of the ranks.
RondoBackend::WorkPtr RondoBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  constexpr std::string_view kName = "sparse_all_reduce";
  if (tensors.size() != 1 || !tensors[0].is_sparse() || tensors[0].is_cuda() || opts.reduceOp != c10d::ReduceOp::SUM)
    C10_THROW_ERROR(ValueError, "rondo: a sparse all_reduce takes one sparse tensor of the CPU, and SUM");
  const at::Tensor mine = tensors[0].coalesce();
  at::Tensor lengths = at::zeros({getSize()}, at::kLong), length = at::full({1}, mine._nnz(), at::kLong);
  c10d::AllgatherOptions here;
  here.timeout = opts.timeout;
  here.asyncOp = false;
  all_gather_single(lengths, length, here);
  const auto gathered = [&](at::Tensor part) {
    Lists all(1);
    for (int rank = 0; rank < getSize(); ++rank) {
      auto sizes = part.sizes().vec();
      sizes[0] = lengths[rank].item<std::int64_t>();
      all[0].push_back(at::empty(sizes, part.options()));
    }
    Tensors one{part};
    allgather(all, one, here);
    return all[0];
  };
  const Tensors indices = gathered(mine.indices().t().contiguous()), values = gathered(mine.values().contiguous());
  at::Tensor sum;
  for (std::size_t rank = 0; rank < indices.size(); ++rank) {
    const at::Tensor theirs = at::sparse_coo_tensor(indices[rank].t(), values[rank], mine.sizes());
    sum = sum.defined() ? sum + theirs : theirs;
  }
  tensors[0].copy_(sum.coalesce());
  Task t = task(c10d::OpType::_ALLREDUCE_SPARSE, kName, opts.timeout, false);
  t.inputs = t.outputs = tensors;
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  constexpr std::string_view kName = "reduce";
  check_one(kName, tensors);
  check_root(kName, opts.rootRank);
  const auto [element, op] = reduction_of(kName, tensors[0].scalar_type(), opts.reduceOp);
  Task t = task(c10d::OpType::REDUCE, kName, opts.timeout, opts.asyncOp);
  t.inputs = t.outputs = tensors;
  const bool is_root = getRank() == opts.rootRank;
  void* const data = is_root ? t.in_out(tensors[0]) : t.in(tensors[0]);
  t.calls.push_back({.collective = Collective::reduce,
                     .send = data,
                     .recv = is_root ? data : nullptr,
                     .count = parts_in(tensors[0], element),
                     .dtype = element.dtype,
                     .op = op,
                     .root = static_cast<int>(opts.rootRank)});
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  check_one("all_gather", inputs);
  Lists by_tensor;  // as allgather_coalesced has them: by rank, then by tensor
  if (outputs.size() != 1) C10_THROW_ERROR(ValueError, "rondo: all_gather takes one list of outputs");
  for (const at::Tensor& one : outputs[0]) by_tensor.push_back({one});
  return allgather_coalesced(by_tensor, inputs, opts);
}

RondoBackend::WorkPtr RondoBackend::allgather_coalesced(Lists& outputs, Tensors& inputs,
                                                        const c10d::AllgatherOptions& opts) {
  constexpr std::string_view kName = "all_gather";
  Task t = task(inputs.size() == 1 ? c10d::OpType::ALLGATHER : c10d::OpType::ALLGATHER_COALESCED, kName, opts.timeout,
                opts.asyncOp);
  t.inputs = inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(kName, inputs[i]);
    Tensors list;
    for (const Tensors& of_rank : outputs) {
      if (of_rank.size() != inputs.size())
        C10_THROW_ERROR(ValueError, c10::str("rondo: all_gather of ", inputs.size(), " tensors into ", of_rank.size()));
      list.push_back(of_rank[i]);
    }
    check_list(kName, list, static_cast<std::size_t>(getSize()), inputs[i]);
    const at::Tensor& own = list[static_cast<std::size_t>(getRank())];
    if (own.numel() != inputs[i].numel()) {
      C10_THROW_ERROR(ValueError, c10::str("rondo: all_gather of ", inputs[i].numel(), " elements, and room for ",
                                           own.numel(), " of this rank"));
    }
    const Element element = element_of(inputs[i].scalar_type());
    const bool alike = is_alike(list);
    t.outputs.insert(t.outputs.end(), list.begin(), list.end());
    t.calls.push_back({.collective = alike ? Collective::all_gather : Collective::all_gather_v,
                       .send = t.in(inputs[i]),
                       .recv = t.out(list),
                       .count = parts_in(inputs[i], element),
                       .dtype = element.dtype});
    if (!alike) t.calls.back().recv_counts = t.keep(counts_of(list, element));
  }
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::all_gather_single(at::Tensor& output, at::Tensor& input,
                                                      const c10d::AllgatherOptions& opts) {
  Tensors outputs{output}, inputs{input};
  return all_gather_single_coalesced(outputs, inputs, opts);
}

RondoBackend::WorkPtr RondoBackend::all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions& opts) {
  constexpr std::string_view kName = "all_gather";
  Task t = task(inputs.size() == 1 ? c10d::OpType::_ALLGATHER_BASE : c10d::OpType::ALLGATHER_INTO_TENSOR_COALESCED,
                kName, opts.timeout, opts.asyncOp);
  t.inputs = inputs;
  t.outputs = outputs;
  if (outputs.size() != inputs.size())
    C10_THROW_ERROR(ValueError, c10::str("rondo: all_gather of ", inputs.size(), " tensors into ", outputs.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(kName, inputs[i]);
    check_same_type(kName, inputs[i], outputs[i]);
    if (outputs[i].numel() != inputs[i].numel() * getSize()) {
      C10_THROW_ERROR(ValueError, c10::str("rondo: all_gather of ", inputs[i].numel(), " elements by ", getSize(),
                                           " ranks into a tensor of ", outputs[i].numel()));
    }
    const Element element = element_of(inputs[i].scalar_type());
    t.calls.push_back({.collective = Collective::all_gather,
                       .send = t.in(inputs[i]),
                       .recv = t.out(outputs[i]),
                       .count = parts_in(inputs[i], element),
                       .dtype = element.dtype});
  }
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  constexpr std::string_view kName = "gather";
  check_one(kName, inputs);
  check_root(kName, opts.rootRank);
  const bool is_root = getRank() == opts.rootRank;
  if (is_root && outputs.size() != 1) C10_THROW_ERROR(ValueError, "rondo: gather's root takes one list of outputs");
  if (!is_root && !outputs.empty()) C10_THROW_ERROR(ValueError, "rondo: gather's outputs are for the root alone");
  const Tensors list = is_root ? outputs[0] : Tensors{};
  if (is_root) check_list(kName, list, static_cast<std::size_t>(getSize()), inputs[0]);
  for (const at::Tensor& one : list) {
    if (one.numel() != inputs[0].numel())
      C10_THROW_ERROR(ValueError, c10::str("rondo: gather of ", inputs[0].numel(), " elements into ", one.numel()));
  }
  Task t = task(c10d::OpType::GATHER, kName, opts.timeout, opts.asyncOp);
  t.inputs = inputs;
  t.outputs = list;
  const Element element = element_of(inputs[0].scalar_type());
  t.calls.push_back({.collective = Collective::gather,
                     .send = t.in(inputs[0]),
                     .recv = t.out(list),
                     .count = parts_in(inputs[0], element),
                     .dtype = element.dtype,
                     .root = static_cast<int>(opts.rootRank)});
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::gather_single(at::Tensor& output, at::Tensor& input,
                                                  const c10d::GatherOptions& opts) {
  constexpr std::string_view kName = "gather";
  Tensors inputs{input};
  check_one(kName, inputs);
  check_root(kName, opts.rootRank);
  const bool is_root = getRank() == opts.rootRank;
  if (is_root) {
    check_same_type(kName, input, output);
    if (output.numel() != input.numel() * getSize())
      C10_THROW_ERROR(ValueError, c10::str("rondo: gather of ", input.numel(), " elements by ", getSize(),
                                           " ranks into a tensor of ", output.numel()));
  }
  Task t = task(c10d::OpType::GATHER, kName, opts.timeout, opts.asyncOp);
  t.inputs = inputs;
  if (is_root) t.outputs = {output};
  const Element element = element_of(input.scalar_type());
  t.calls.push_back({.collective = Collective::gather,
                     .send = t.in(input),
                     .recv = is_root ? t.out(output) : nullptr,
                     .count = parts_in(input, element),
                     .dtype = element.dtype,
                     .root = static_cast<int>(opts.rootRank)});
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) {
  constexpr std::string_view kName = "scatter";
  check_one(kName, outputs);
  check_root(kName, opts.rootRank);
  const bool is_root = getRank() == opts.rootRank;
  if (is_root && inputs.size() != 1) C10_THROW_ERROR(ValueError, "rondo: scatter's root takes one list of inputs");
  if (!is_root && !inputs.empty()) C10_THROW_ERROR(ValueError, "rondo: scatter's inputs are for the root alone");
  const Tensors list = is_root ? inputs[0] : Tensors{};
  if (is_root) check_list(kName, list, static_cast<std::size_t>(getSize()), outputs[0]);
  for (const at::Tensor& one : list) {
    if (one.numel() != outputs[0].numel())
      C10_THROW_ERROR(ValueError, c10::str("rondo: scatter of ", one.numel(), " elements into ", outputs[0].numel()));
  }
  Task t = task(c10d::OpType::SCATTER, kName, opts.timeout, opts.asyncOp);
  t.inputs = list;
  t.outputs = outputs;
  const Element element = element_of(outputs[0].scalar_type());
  t.calls.push_back({.collective = Collective::scatter,
                     .send = t.in(list),
                     .recv = t.out(outputs[0]),
                     .count = parts_in(outputs[0], element),
                     .dtype = element.dtype,
                     .root = static_cast<int>(opts.rootRank)});
  return run(std::move(t));
}

// Blocks of different lengths are reduced to their ranks one by one.
RondoBackend::WorkPtr RondoBackend::reduce_scatter(Tensors& outputs, Lists& inputs,
                                                   const c10d::ReduceScatterOptions& opts) {
  constexpr std::string_view kName = "reduce_scatter";
  check_one(kName, outputs);
  if (inputs.size() != 1) C10_THROW_ERROR(ValueError, "rondo: reduce_scatter takes one list of inputs");
  const Tensors& list = inputs[0];
  check_list(kName, list, static_cast<std::size_t>(getSize()), outputs[0]);
  const at::Tensor& own = list[static_cast<std::size_t>(getRank())];
  if (own.numel() != outputs[0].numel())
    C10_THROW_ERROR(ValueError,
                    c10::str("rondo: reduce_scatter of ", own.numel(), " elements into ", outputs[0].numel()));
  const auto [element, op] = reduction_of(kName, outputs[0].scalar_type(), opts.reduceOp);
  Task t = task(c10d::OpType::REDUCE_SCATTER, kName, opts.timeout, opts.asyncOp);
  t.inputs = list;
  t.outputs = outputs;
  if (is_alike(list)) {
    t.calls.push_back({.collective = Collective::reduce_scatter,
                       .send = t.in(list),
                       .recv = t.out(outputs[0]),
                       .count = parts_in(outputs[0], element),
                       .dtype = element.dtype,
                       .op = op});
    return run(std::move(t));
  }
  for (int root = 0; root < getSize(); ++root) {
    const at::Tensor& block = list[static_cast<std::size_t>(root)];
    t.calls.push_back({.collective = Collective::reduce,
                       .send = t.in(block),
                       .recv = root == getRank() ? t.out(outputs[0]) : nullptr,
                       .count = parts_in(block, element),
                       .dtype = element.dtype,
                       .op = op,
                       .root = root});
  }
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                                          const c10d::ReduceScatterOptions& opts) {
  Tensors outputs{output}, inputs{input};
  return reduce_scatter_single_coalesced(outputs, inputs, opts);
}

RondoBackend::WorkPtr RondoBackend::reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                                    const c10d::ReduceScatterOptions& opts) {
  constexpr std::string_view kName = "reduce_scatter";
  Task t = task(inputs.size() == 1 ? c10d::OpType::_REDUCE_SCATTER_BASE : c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                kName, opts.timeout, opts.asyncOp);
  t.inputs = inputs;
  t.outputs = outputs;
  if (outputs.size() != inputs.size())
    C10_THROW_ERROR(ValueError, c10::str("rondo: reduce_scatter of ", inputs.size(), " tensors into ", outputs.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(kName, inputs[i]);
    check_same_type(kName, inputs[i], outputs[i]);
    if (inputs[i].numel() != outputs[i].numel() * getSize()) {
      C10_THROW_ERROR(ValueError, c10::str("rondo: reduce_scatter of ", inputs[i].numel(), " elements by ", getSize(),
                                           " ranks into a tensor of ", outputs[i].numel()));
    }
    const auto [element, op] = reduction_of(kName, inputs[i].scalar_type(), opts.reduceOp);
    t.calls.push_back({.collective = Collective::reduce_scatter,
                       .send = t.in(inputs[i]),
                       .recv = t.out(outputs[i]),
                       .count = parts_in(outputs[i], element),
                       .dtype = element.dtype,
                       .op = op});
  }
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::all_to_all_single(at::Tensor& output, at::Tensor& input,
                                                      std::vector<std::int64_t>& output_splits,
                                                      std::vector<std::int64_t>& input_splits,
                                                      const c10d::AllToAllOptions& opts) {
  constexpr std::string_view kName = "all_to_all";
  check_tensor(kName, input);
  check_same_type(kName, input, output);
  const Element element = element_of(input.scalar_type());
  const auto counts = [&](const at::Tensor& tensor, const std::vector<std::int64_t>& splits) {
    const std::int64_t rows = tensor.dim() == 0 ? tensor.numel() : tensor.size(0);
    const std::int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
    if (splits.empty() && rows % getSize() != 0)
      C10_THROW_ERROR(ValueError, c10::str("rondo: all_to_all of ", rows, " rows by ", getSize(),
                                           " ranks: give the lengths of the parts"));
    Counts all;
    std::int64_t sum = 0;
    for (int rank = 0; rank < getSize(); ++rank) {
      const std::int64_t part = splits.empty() ? rows / getSize() : splits.at(static_cast<std::size_t>(rank));
      sum += part;
      all.push_back(static_cast<std::size_t>(part * row) * element.parts);
    }
    if (sum != rows || (!splits.empty() && splits.size() != static_cast<std::size_t>(getSize())))
      C10_THROW_ERROR(ValueError, c10::str("rondo: all_to_all of ", rows, " rows in parts of ", sum, " rows for ",
                                           splits.size(), " ranks of ", getSize()));
    return all;
  };
  Task t = task(c10d::OpType::ALLTOALL_BASE, kName, opts.timeout, opts.asyncOp);
  t.inputs = {input};
  t.outputs = {output};
  if (input_splits.empty() && output_splits.empty()) {
    const Counts all = counts(input, {});
    counts(output, {});
    t.calls.push_back({.collective = Collective::all_to_all,
                       .send = t.in(input),
                       .recv = t.out(output),
                       .count = all.front(),
                       .dtype = element.dtype});
    return run(std::move(t));
  }
  t.calls.push_back({.collective = Collective::all_to_all_v,
                     .send = t.in(input),
                     .recv = t.out(output),
                     .dtype = element.dtype,
                     .send_counts = t.keep(counts(input, input_splits)),
                     .recv_counts = t.keep(counts(output, output_splits))});
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  constexpr std::string_view kName = "all_to_all";
  if (inputs.empty()) C10_THROW_ERROR(ValueError, "rondo: all_to_all of no tensors");
  check_list(kName, inputs, static_cast<std::size_t>(getSize()), inputs.front());
  check_list(kName, outputs, static_cast<std::size_t>(getSize()), inputs.front());
  const Element element = element_of(inputs.front().scalar_type());
  Task t = task(c10d::OpType::ALLTOALL, kName, opts.timeout, opts.asyncOp);
  t.inputs = inputs;
  t.outputs = outputs;
  t.calls.push_back({.collective = Collective::all_to_all_v,
                     .send = t.in(inputs),
                     .recv = t.out(outputs),
                     .dtype = element.dtype,
                     .send_counts = t.keep(counts_of(inputs, element)),
                     .recv_counts = t.keep(counts_of(outputs, element))});
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::barrier(const c10d::BarrierOptions& opts) {
  Task t = task(c10d::OpType::BARRIER, "barrier", opts.timeout, opts.asyncOp);
  t.calls.push_back({.collective = Collective::barrier});
  return run(std::move(t));
}

// In the store: nobody's data are on their way, so whoever did not come may come later. The words are those that
// scripts look for.
void RondoBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const Milliseconds timeout = timeout_of(opts.timeout);
  std::unique_lock lock(mutex_);
  communicator();
  const std::string place = c10::str("rondo/monitored barrier/", ++monitored_, "/");
  lock.unlock();
  TorchStore store(store_->clone());
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  const std::string passed = "passed", verdict = place + "verdict";
  const auto came = [&](int rank) { return place + std::to_string(rank); };
  if (getRank() != 0) {
    store.set(came(getRank()), bytes(passed));
    std::string said = c10::str("nothing came from it in ", timeout.count(), " ms");
    try {
      // Rank 0 looks whether the others have come when the time is over.
      const Store::Bytes told = store.get(verdict, deadline + (wait_all_ranks ? timeout : Milliseconds::zero()));
      said.assign(reinterpret_cast<const char*>(told.data()), told.size());
    } catch (const Error& error) {
      if (error.error_code() != ErrorCode::timeout) said = error.what();
    }
    if (said == passed) return;
    C10_THROW_ERROR(DistBackendError,
                    c10::str("[Rank ", getRank(), "]: Rank ", getRank(), " successfully reached monitoredBarrier, but ",
                             "received errors while waiting for send/recv from rank 0: ", said));
  }
  std::string missing;
  for (int rank = 1; rank < getSize() && (missing.empty() || wait_all_ranks); ++rank) {
    try {
      store.get(came(rank), deadline);
    } catch (const Error& error) {
      if (error.error_code() != ErrorCode::timeout) std::rethrow_exception(exception_of("monitored_barrier", 0, error));
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  if (missing.empty()) return store.set(verdict, bytes(passed));
  const std::string sentence =
      c10::str("[Rank 0]: Rank", missing.find(',') == std::string::npos ? " " : "s ", missing,
               " failed to pass monitoredBarrier in ", timeout.count(), " ms (Rank 0 timed out in monitoredBarrier)");
  store.set(verdict, bytes(sentence));
  C10_THROW_ERROR(DistBackendError, sentence);
}

RondoBackend::WorkPtr RondoBackend::message(std::string_view name, c10d::OpType type, Tensors& tensors,
                                            Collective collective, int peer, int tag) {
  check_one(name, tensors);
  if (!tensors[0].is_contiguous())
    C10_THROW_ERROR(ValueError, c10::str("rondo: ", std::string(name), " of a tensor that is not contiguous"));
  const Element element = element_of(tensors[0].scalar_type());
  Task t = task(type, name, c10d::kUnsetTimeout, true);
  t.inputs = t.outputs = tensors;
  t.kept = tensors;
  Call call{.collective = collective, .count = parts_in(tensors[0], element), .dtype = element.dtype, .root = peer};
  call.tag = tag;
  (collective == Collective::send ? const_cast<void*&>(call.send) : call.recv) = tensors[0].data_ptr();
  t.is_message = true;
  t.takes_source = collective == Collective::recv;
  t.calls.push_back(call);
  return run(std::move(t));
}

RondoBackend::WorkPtr RondoBackend::send(Tensors& tensors, int peer, int tag) {
  return message("send", c10d::OpType::SEND, tensors, Collective::send, peer, tag);
}
RondoBackend::WorkPtr RondoBackend::recv(Tensors& tensors, int peer, int tag) {
  return message("recv", c10d::OpType::RECV, tensors, Collective::recv, peer, tag);
}
RondoBackend::WorkPtr RondoBackend::recvAnysource(Tensors& tensors, int tag) {
  return message("recvAnySource", c10d::OpType::RECVANYSOURCE, tensors, Collective::recv, kAnySource, tag);
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
