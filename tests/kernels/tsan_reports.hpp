// SPDX-License-Identifier: Apache-2.0
// Counts ThreadSanitizer's reports, so that a program can expect some. Include it in one source of a program; without
// that sanitizer there are none.
#pragma once

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RONDO_TEST_TSAN 1
#endif
#endif

namespace rondo::test {

inline unsigned tsan_report_count = 0;
inline unsigned tsan_reports() { return tsan_report_count; }

}  // namespace rondo::test

#ifdef RONDO_TEST_TSAN
extern "C" {
// Called with ThreadSanitizer's locks held: one instrumented access or call here, and it would wait for itself.
__attribute__((disable_sanitizer_instrumentation)) void __tsan_on_report(void*) { ++rondo::test::tsan_report_count; }
const char* __tsan_default_options() {
  return "exitcode=0:symbolize=0:suppress_equal_stacks=0:suppress_equal_addresses=0";
}
}
#endif
