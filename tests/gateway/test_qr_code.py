"""QR codes: read back as a phone does, and compared with one of another program."""

import hashlib

import pytest

from keryx.core.errors import Invalid
from keryx.surfaces.gateway import qr_code

# The exponents of 2 in the field of 256 elements.
_POWERS = [1]
while len(_POWERS) < 255:
    _POWERS.append((_POWERS[-1] << 1) ^ (0x11D if _POWERS[-1] & 0x80 else 0))
_LOGS = {power: exponent for exponent, power in enumerate(_POWERS)}
# By version: blocks, and codewords for error correction in each, of the table in the standard for level L.
_STANDARD = {1: (1, 7), 2: (1, 10), 5: (1, 26), 6: (2, 18), 7: (2, 20), 10: (4, 18), 14: (4, 30), 20: (8, 28)}
_CENTRES = {
    1: [],
    2: [6, 18],
    5: [6, 30],
    6: [6, 34],
    7: [6, 22, 38],
    10: [6, 28, 50],
    14: [6, 26, 46, 66],
    20: [6, 34, 62, 90],
}


def read(modules: list[list[bool]]) -> bytes:
    """Read a code by the standard, without correcting errors: every block must be without one."""
    size = len(modules)
    version = (size - 17) // 4
    mask = read_mask(modules)
    bits = [modules[y][x] != is_masked(mask, x, y) for x, y in list_data(size, version)]
    codewords = [int("".join("01"[b] for b in bits[i : i + 8]), 2) for i in range(0, len(bits) - 7, 8)]
    data = join_blocks(codewords, version)
    stream = "".join(f"{byte:08b}" for byte in data)
    assert stream[:4] == "0100"
    width = 8 if version < 10 else 16
    length = int(stream[4 : 4 + width], 2)
    start = 4 + width
    return bytes(int(stream[start + 8 * i : start + 8 * i + 8], 2) for i in range(length))


def read_mask(modules: list[list[bool]]) -> int:
    size = len(modules)
    places = [(8, y) for y in (0, 1, 2, 3, 4, 5, 7, 8)] + [(x, 8) for x in (7, 5, 4, 3, 2, 1, 0)]
    others = [(size - 1 - i, 8) for i in range(8)] + [(8, size - 15 + i) for i in range(8, 15)]
    formats = [sum(modules[y][x] << i for i, (x, y) in enumerate(which)) for which in (places, others)]
    assert formats[0] == formats[1] and modules[size - 8][8]
    shown = formats[0] ^ 0b101010000010010
    assert shown >> 13 == 0b01, "level L"
    return shown >> 10 & 0b111


def is_masked(mask: int, x: int, y: int) -> bool:
    product = x * y
    return (
        (x + y) % 2,
        y % 2,
        x % 3,
        (x + y) % 3,
        (x // 3 + y // 2) % 2,
        product % 2 + product % 3,
        (product % 2 + product % 3) % 2,
        ((x + y) % 2 + product % 3) % 2,
    )[mask] == 0


def list_data(size: int, version: int) -> list[tuple[int, int]]:
    taken = {(x, y) for x in range(9) for y in range(9)}
    taken |= {(x, y) for x in range(size - 8, size) for y in range(9)}
    taken |= {(x, y) for x in range(9) for y in range(size - 8, size)}
    taken |= {(6, i) for i in range(size)} | {(i, 6) for i in range(size)}
    centres = _CENTRES[version]
    for x in centres:
        for y in centres:
            if (x, y) not in {(6, 6), (6, centres[-1]), (centres[-1], 6)}:
                taken |= {(x + dx, y + dy) for dx in range(-2, 3) for dy in range(-2, 3)}
    if version >= 7:
        taken |= {(size - 11 + i % 3, i // 3) for i in range(18)} | {
            (i // 3, size - 11 + i % 3) for i in range(18)
        }
    found: list[tuple[int, int]] = []
    upwards, right = True, size - 1
    while right > 0:
        right -= right == 6
        for y in reversed(range(size)) if upwards else range(size):
            found += [(x, y) for x in (right, right - 1) if (x, y) not in taken]
        upwards, right = not upwards, right - 2
    return found


def join_blocks(codewords: list[int], version: int) -> list[int]:
    count, checks = _STANDARD[version]
    data = len(codewords) - count * checks
    short, longer = divmod(data, count)
    sizes = [short + (number >= count - longer) for number in range(count)]
    blocks: list[list[int]] = [[] for _ in range(count)]
    rest = iter(codewords)
    for row in range(max(sizes)):
        for number, size in enumerate(sizes):
            if row < size:
                blocks[number].append(next(rest))
    corrected = [list(block) for block in blocks]
    for _ in range(checks):
        for block in corrected:
            block.append(next(rest))
    assert all(has_no_error(block, checks) for block in corrected)
    return [byte for block in blocks for byte in block]


def has_no_error(block: list[int], checks: int) -> bool:
    """Whether the polynomial of a block is zero at all roots of the generator."""
    for root in range(checks):
        value = 0
        for byte in block:
            value = (_POWERS[(_LOGS[value] + root) % 255] if value else 0) ^ byte
        if value:
            return False
    return True


@pytest.mark.parametrize("length", [1, 16, 17, 18, 32, 100, 107, 134, 135, 154, 255, 271, 420, 458, 859 - 1])
def test_a_code_can_be_read_back(length: int) -> None:
    text = ("https://liteapp.weixin.qq.com/q/7GiQu1?qrcode=" + "aB3-_=&%" * 120)[:length]
    modules = qr_code.encode(text)
    if (len(modules) - 17) // 4 in _STANDARD:
        assert read(modules) == text.encode()


def test_text_of_any_language_is_utf8() -> None:
    assert read(qr_code.encode("微信")) == "微信".encode()


def test_a_code_is_that_of_other_programs() -> None:
    """The same modules as those of the package `qrcode` 8.2 for this text, level L."""
    modules = qr_code.encode("https://keryx.example/login")
    pattern = "".join("01"[dark] for row in modules for dark in row)
    assert (
        hashlib.sha256(pattern.encode()).hexdigest()
        == "7a4382565fd40f3a6a64f7e3ab5836756c9d4c4afa5bd3c49a549504a4e2d038"
    )


def test_a_code_is_drawn_with_a_quiet_zone_and_two_rows_in_a_line() -> None:
    lines = qr_code.render_text("x").splitlines()
    assert len(lines) == 15 and {len(line) for line in lines} == {29}
    assert lines[0] == lines[1] == "█" * 29 and set("".join(lines)) <= set("█▀▄ ")
    assert lines[2].startswith("████ ▄▄▄▄▄ █")


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(Invalid, match="859 bytes is too long"):
        qr_code.encode("x" * 859)
