#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""thin_library_test.py PROGRAM: on a small library made here, code for other GPUs becomes zeros and nothing else moves."""
import os
import struct
import subprocess
import sys
import tempfile


def container(entries):
    """Entries (architecture, payload) as CUDA packs them: a header, then each entry's header of 64 bytes and payload."""
    body = b''.join(struct.pack('<HHIQIIHHI', 2, 0x101, 64, len(payload), 0, 0, 7, 1, architecture).ljust(64, b'\0') + payload
                    for architecture, payload in entries)
    return struct.pack('<IHHQ', 0xBA55ED50, 1, 16, len(body)) + body


def library(sections):
    """An ELF file of these sections (name, bytes) and one of their names."""
    names = b'\0' + b''.join(name + b'\0' for name, _ in sections) + b'.shstrtab\0'
    rows, data, at = [struct.pack('<IIQQQQIIQQ', *[0] * 10)], b'', 64
    for name, payload in [*sections, (b'.shstrtab', names)]:
        rows.append(struct.pack('<IIQQQQIIQQ', names.index(b'\0' + name + b'\0') + 1, 1, 0, 0, at, len(payload), 0, 0, 1, 0))
        data += payload
        at += len(payload)
    head = b'\x7fELF\x02\x01\x01'.ljust(16, b'\0') + struct.pack('<HHIQQQIHHHHHH', 3, 62, 1, 0, 0, at, 0, 64, 0, 0, 64,
                                                               len(rows), len(rows) - 1)
    return head + data + b''.join(rows)


def main():
    h100, b200 = b'\x90' * 40, b'\xb2' * 56
    both = container([(90, h100), (100, b200)])
    before = library([(b'.text', b200), (b'.nv_fatbin', both + b'\0' * 8 + container([(100, b200)])), (b'__nv_relfatbin', both)])
    gone = container([(90, h100), (100, bytes(56))])
    rest = gone + b'\0' * 8 + container([(100, bytes(56))])
    with tempfile.TemporaryDirectory() as folder:
        source, output = os.path.join(folder, 'in.so'), os.path.join(folder, 'out.so')
        with open(source, 'wb') as file:
            file.write(before)

        def run(*words, status=0):
            ended = subprocess.run([sys.argv[1], *words], capture_output=True, text=True, timeout=30)
            assert ended.returncode == status, f'{words}: {ended}'
            return ended.stderr

        def expect(flags, unlinked):
            run(*flags, source, output, '90')
            with open(output, 'rb') as file:
                after = file.read()
            assert after == library([(b'.text', b200), (b'.nv_fatbin', rest), (b'__nv_relfatbin', unlinked)]), flags

        expect([], gone)
        expect(['--linked'], container([(90, bytes(40)), (100, bytes(56))]))
        assert 'has no code for 75' in run(source, output, '75', status=1)
        with open(source, 'wb') as file:
            file.write(b'no library')
        assert 'no 64-bit ELF file' in run(source, output, '90', status=1)


if __name__ == '__main__':
    main()
