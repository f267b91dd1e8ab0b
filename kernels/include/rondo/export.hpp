// SPDX-License-Identifier: Apache-2.0
// What librondo.so exports; everything else is hidden.
#pragma once
#define RONDO_API __attribute__((visibility("default")))
