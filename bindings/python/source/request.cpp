// SPDX-License-Identifier: Apache-2.0
#include "bindings/python/source/request.hpp"

#include <nanobind/stl/pair.h>

#include <atomic>
#include <mutex>
#include <string>

#include <rondo/error.hpp>

namespace rondo::python {
namespace {

// Buffers of calls that are done. It is never destroyed: at the interpreter's end nobody may give back any more.
struct Returned {
  std::mutex mutex;
  std::vector<std::vector<Buffer>> buffers;
  std::atomic<bool> some{false};
};
Returned& returned() {
  static auto& the = *new Returned;
  return the;
}

int give_back_pending(void*) {
  give_back_borrowed();
  return 0;
}

std::size_t total(const std::vector<std::size_t>& counts) {
  std::size_t sum = 0;
  for (const std::size_t count : counts) sum += count;
  return sum;
}

class Builder {
 public:
  Builder(const Arguments& arguments, const Place& place)
      : arguments_(arguments), place_(place), row_(row_of(arguments.collective)) {}

  Request build() {
    borrowed_->reserve(2);
    const bool is_root = place_.rank == arguments_.root;
    const Buffer* send = nullptr;
    const Buffer* recv = nullptr;
    const bool in_place = arguments_.send.is(arguments_.recv) && !arguments_.send.is_none();
    if (row_.send != Extent::none && (!row_.send_at_root || is_root || in_place)) {
      send = borrow(arguments_.send, in_place ? "the buffer" : "send", in_place);
    }
    if (row_.recv != Extent::none && (!row_.recv_at_root || is_root)) {
      recv = in_place ? send : borrow(arguments_.recv, "recv", true);
    }
    if (send != nullptr && recv != nullptr && !(send->element() == recv->element())) {
      throw nb::type_error((name() + ": send and recv have elements of different types").c_str());
    }
    return finish(send, recv);
  }

 private:
  std::string name() const { return std::string(row_.name); }

  const Buffer* borrow(const nb::object& object, const std::string& which, bool written) {
    if (object.is_none()) throw nb::type_error((name() + ": this rank needs " + which).c_str());
    return &borrowed_->add(Buffer(object, name() + ": " + which, written, place_.device));
  }

  std::size_t own_count(const Buffer* send, const Buffer* recv) const {
    const auto world = static_cast<std::size_t>(place_.world_size);
    const auto& common = arguments_.send_counts ? arguments_.send_counts : arguments_.recv_counts;
    if (row_.has_own_counts()) return 0;
    if (row_.has_common_counts()) {
      check("counts", world, common ? common->size() : 0);
      return (*common)[static_cast<std::size_t>(place_.rank)];
    }
    if (row_.send == Extent::one && send != nullptr) return send->count();
    if (row_.recv == Extent::one && recv != nullptr) return recv->count();
    return send == nullptr ? 0 : send->count() / world;
  }

  std::size_t expected(Extent extent, std::size_t count, const Counts& counts) const {
    if (extent == Extent::one) return count;
    if (extent == Extent::world) return count * static_cast<std::size_t>(place_.world_size);
    return counts ? total(*counts) : 0;
  }

  void check(const char* what, std::size_t wanted, std::size_t got) const {
    if (wanted != got) detail::throw_wrong_size(row_.collective, what, wanted, got);
  }

  Request finish(const Buffer* send, const Buffer* recv) {
    const auto world = static_cast<std::size_t>(place_.world_size);
    if (row_.has_own_counts()) {
      check("send_counts", world, arguments_.send_counts ? arguments_.send_counts->size() : 0);
      check("recv_counts", world, arguments_.recv_counts ? arguments_.recv_counts->size() : 0);
    }
    const std::size_t count = own_count(send, recv);
    if (send != nullptr) check("send", expected(row_.send, count, arguments_.send_counts), send->count());
    if (recv != nullptr) check("recv", expected(row_.recv, count, arguments_.recv_counts), recv->count());
    const Element element = send != nullptr ? send->element() : recv != nullptr ? recv->element() : Element{};
    if (row_.reduces && !element.reduces) {
      throw nb::type_error((name() + ": elements of type " + element.name + " can be moved, not reduced").c_str());
    }
    Request request{.call = {.collective = row_.collective,
                             .send = send == nullptr ? nullptr : send->data(),
                             .recv = recv == nullptr ? nullptr : recv->data(),
                             .count = count * element.times,
                             .dtype = element.dtype,
                             .op = arguments_.op,
                             .root = arguments_.root,
                             .stream = reinterpret_cast<Stream>(arguments_.stream)},  // NOLINT: as Python has it
                    .borrowed = borrowed_};
    request.call.tag = arguments_.tag;
    if (row_.collective == Collective::recv && place_.device.kind == Device::Kind::cpu) {
      request.call.source = &borrowed_->source;
    } else if (row_.collective == Collective::recv) {
      borrowed_->source = arguments_.root;  // a device's come from whom they are asked of
    }
    keep_counts(request, element.times);
    return request;
  }

  void keep_counts(Request& request, std::size_t times) {
    const auto keep = [times](const Counts& given, std::vector<std::size_t>& kept) {
      if (given) kept = *given;
      for (std::size_t& count : kept) count *= times;
      return std::span<const std::size_t>(kept);
    };
    request.call.send_counts = keep(arguments_.send_counts, borrowed_->send_counts);
    request.call.recv_counts = keep(arguments_.recv_counts, borrowed_->recv_counts);
  }

  const Arguments& arguments_;
  const Place& place_;
  const CollectiveRow& row_;
  std::shared_ptr<Borrowed> borrowed_ = std::make_shared<Borrowed>();
};

}  // namespace

Borrowed::~Borrowed() {
  if (buffers_.empty()) return;
  if (PyGILState_Check() != 0) return;  // a blocking call's: they go at once
  Returned& all = returned();
  {
    const std::lock_guard lock(all.mutex);
    all.buffers.push_back(std::move(buffers_));
    buffers_.clear();
  }
  // Python's main thread does it soon; where its list is full, the next call does.
  if (!all.some.exchange(true)) Py_AddPendingCall(give_back_pending, nullptr);
}

void give_back_borrowed() {
  Returned& all = returned();
  if (!all.some.load(std::memory_order_relaxed)) return;
  std::vector<std::vector<Buffer>> done;
  {
    const std::lock_guard lock(all.mutex);
    done.swap(all.buffers);
    all.some = false;
  }
}

Request make_request(const Arguments& arguments, const Place& place) { return Builder(arguments, place).build(); }

}  // namespace rondo::python
