# SPDX-License-Identifier: Apache-2.0
"""The programs of the package: `rondo`, `rondorun`, `rondo-rendezvous`, and `python -m rondo.run`."""

import os
import sys
from typing import NoReturn


def _become(program: str) -> NoReturn:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", program)
    try:
        os.execv(path, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{program}: {path} cannot be run: {error.strerror}")


def rondo() -> NoReturn:
    _become("rondo")


def rondorun() -> NoReturn:
    _become("rondorun")


def rendezvous() -> NoReturn:
    _become("rondo-rendezvous")


if __name__ == "__main__":
    rondorun()
