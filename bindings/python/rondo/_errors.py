# SPDX-License-Identifier: Apache-2.0
"""What the library raises."""

import enum


class ErrorCode(enum.IntEnum):
    """What the caller can do about an Error."""

    invalid_argument = 1  # this call is wrong on this rank alone; the communicator goes on
    mismatch = 2  # ranks called different things; the communicator has failed
    timeout = 3  # a deadline passed; the message says who is missing
    peer_lost = 4  # a rank's process or connection is gone
    aborted = 5  # abort() was called, here or on another rank
    unsupported = 6  # not in this build or on this machine
    system = 7  # the operating system refused
    cuda = 8  # the CUDA runtime refused
    corrupt_message = 9  # bytes that no peer of ours would have sent


class Error(RuntimeError):
    """One sentence, a code that says what the caller can do, and whom it blames.

    culprit: the first of culprits; None: nobody's fault, or that of one of culprits, and nobody knows of which.
    """

    code: ErrorCode
    culprit: "int | None"
    culprits: "tuple[int, ...]"

    def __init__(self, sentence: str, code: int = ErrorCode.system, culprit: "int | None" = None,
                 culprits: "tuple[int, ...] | None" = None):
        super().__init__(sentence)
        self.code = ErrorCode(code)
        self.culprit = culprit
        self.culprits = tuple(culprits) if culprits is not None else () if culprit is None else (culprit,)

    def __reduce__(self):
        return type(self), (str(self), int(self.code), self.culprit, self.culprits)


class InvalidArgument(Error, ValueError):
    """An Error with ErrorCode.invalid_argument: this call is wrong, and the communicator goes on."""


def make(sentence: str, code: int, culprit: int, culprits: "list[int]") -> Error:
    cls = InvalidArgument if code == ErrorCode.invalid_argument else Error
    return cls(sentence, code, culprit if culprit >= 0 else None, culprits)
