// SPDX-License-Identifier: Apache-2.0
// Which *_perf program this is: all that differs between them.
namespace rondo::bench {

extern const char* const kProgram;
const char* const kProgram = RONDO_BENCH_PROGRAM;

}  // namespace rondo::bench
