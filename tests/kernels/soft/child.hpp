// SPDX-License-Identifier: Apache-2.0
// A forked process that runs one function, and talks with the test through two pipes. It dies after 30 s.
#pragma once
#include <sys/types.h>

#include <functional>
#include <type_traits>

namespace rondo::soft::testing {

class Pipes {
 public:
  Pipes();
  ~Pipes();
  Pipes(const Pipes&) = delete;
  Pipes& operator=(const Pipes&) = delete;
  int to_child[2], to_parent[2];
};

// What either side says to the other. False: the other is gone.
class Wire {
 public:
  Wire(int in, int out) : in_(in), out_(out) {}
  template <class T>
  bool send(const T& value) const {
    static_assert(std::is_trivially_copyable_v<T>);
    return send_bytes(&value, sizeof(T));
  }
  template <class T>
  bool receive(T& value) const {
    static_assert(std::is_trivially_copyable_v<T>);
    return receive_bytes(&value, sizeof(T));
  }
  bool send_word() const { return send('.'); }
  bool wait_word() const {
    char word = 0;
    return receive(word);
  }

 private:
  bool send_bytes(const void* bytes, std::size_t count) const;
  bool receive_bytes(void* bytes, std::size_t count) const;
  int in_, out_;
};

class Child {
 public:
  explicit Child(const std::function<int(const Wire&)>& body);  // leaves by std::exit with its result
  ~Child();                                                     // kills it
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const Wire& wire() const { return wire_; }
  pid_t pid() const { return pid_; }
  void kill_hard();  // SIGKILL, not waited for: a zombie
  int wait();        // exit status; 128 + signal

 private:
  Pipes pipes_;
  pid_t pid_ = -1;
  Wire wire_;
};

}  // namespace rondo::soft::testing
