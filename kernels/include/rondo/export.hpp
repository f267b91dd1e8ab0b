// SPDX-License-Identifier: Apache-2.0
// What librondo.so exports, everything else is hidden; and the check for C++20 of all public headers that need it.
#pragma once
#if __cplusplus < 202002L
#error "Rondo needs C++20: compile with -std=c++20 or later."
#include <rondo/the_rest_needs_cpp20>  // there is none: the compiler stops here
#endif
#define RONDO_API __attribute__((visibility("default")))
