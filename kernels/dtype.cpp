// SPDX-License-Identifier: Apache-2.0
#include <rondo/dtype.hpp>
