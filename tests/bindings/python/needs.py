# SPDX-License-Identifier: Apache-2.0
"""What tests need beside the module; where it is not, they are skipped."""

import sys

try:
    import numpy
except ImportError:
    print("skipped: numpy is not here")
    sys.exit(77)
