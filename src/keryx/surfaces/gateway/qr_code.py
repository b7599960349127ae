"""QR codes for terminals: encodes a text by ISO/IEC 18004 (bytes, error correction level L, versions 1 to 20) and draws it with half blocks."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from keryx.core.errors import Invalid

Modules = list[list[bool]]

_MAX_VERSION = 20
# By version, from 1 on: the error correction codewords of each block, and the number of blocks.
_CHECK_CODEWORDS = (7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22, 24, 28, 30, 28, 28)
_BLOCKS = (1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6, 6, 6, 6, 7, 8)
_BYTE_MODE = 0b0100
_PADDING = (0xEC, 0x11)
# Error correction level L, before the number of the mask.
_LEVEL_BITS = 0b01
_FORMAT_POLYNOMIAL, _FORMAT_MASK = 0x537, 0x5412
_VERSION_POLYNOMIAL = 0x1F25
_FIELD_POLYNOMIAL = 0x11D
_MASKS: tuple[Callable[[int, int], bool], ...] = (
    lambda x, y: (x + y) % 2 == 0,
    lambda x, y: y % 2 == 0,
    lambda x, y: x % 3 == 0,
    lambda x, y: (x + y) % 3 == 0,
    lambda x, y: (x // 3 + y // 2) % 2 == 0,
    lambda x, y: x * y % 2 + x * y % 3 == 0,
    lambda x, y: (x * y % 2 + x * y % 3) % 2 == 0,
    lambda x, y: ((x + y) % 2 + x * y % 3) % 2 == 0,
)
_FINDER_LIKE = (
    (True, False, True, True, True, False, True, False, False, False, False),
    (False, False, False, False, True, False, True, True, True, False, True),
)
_QUIET_ZONE = 4
# By the modules above and below. Light ones are drawn, because most terminals are dark.
_HALF_BLOCKS = {(False, False): "█", (False, True): "▀", (True, False): "▄", (True, True): " "}


def render_text(text: str) -> str:
    """Return a QR code as lines of text, two rows in a line. Raise `Invalid` for a text that is too long."""
    modules = encode(text)
    size = len(modules)

    def is_dark(x: int, y: int) -> bool:
        return 0 <= x < size and 0 <= y < size and modules[y][x]

    columns = range(-_QUIET_ZONE, size + _QUIET_ZONE)
    rows = range(-_QUIET_ZONE, size + _QUIET_ZONE, 2)
    return "\n".join("".join(_HALF_BLOCKS[is_dark(x, y), is_dark(x, y + 1)] for x in columns) for y in rows)


def encode(text: str) -> Modules:
    """Return the modules of a QR code by row and column; dark ones are true. Raise `Invalid` for a text that is too long."""
    data = text.encode()
    versions = range(1, _MAX_VERSION + 1)
    # The mode and the length of the text need 2 or 3 codewords.
    fitting = (v for v in versions if len(data) + (2 if v < 10 else 3) <= _count_data_codewords(v))
    version = next(fitting, 0)
    if not version:
        raise Invalid(f"a text of {len(data)} bytes is too long for a QR code")
    canvas = _Canvas(version)
    # The text with its length, padded to the size of the version.
    length_bits = 8 if version < 10 else 16
    capacity = _count_data_codewords(version)
    bits = f"{_BYTE_MODE:04b}{len(data):0{length_bits}b}" + "".join(f"{byte:08b}" for byte in data)
    bits += "0" * min(4, capacity * 8 - len(bits))
    bits += "0" * (-len(bits) % 8)
    found = bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
    canvas.draw_codewords(
        _add_error_correction(found + bytes(_PADDING[i % 2] for i in range(capacity - len(found))), version)
    )
    return min((canvas.apply_mask(number) for number in range(len(_MASKS))), key=_measure_penalty)


def _count_data_codewords(version: int) -> int:
    """Return how many codewords fit beside those for error correction."""
    modules = (16 * version + 128) * version + 64
    if version >= 2:
        aligned = version // 7 + 2
        modules -= (25 * aligned - 10) * aligned - 55
        modules -= 36 if version >= 7 else 0
    return modules // 8 - _CHECK_CODEWORDS[version - 1] * _BLOCKS[version - 1]


def _add_error_correction(data: bytes, version: int) -> bytes:
    """Return the blocks of the data and then those of their error correction, interleaved."""
    count, checks = _BLOCKS[version - 1], _CHECK_CODEWORDS[version - 1]
    short, longer = divmod(len(data), count)
    # The coefficients of the Reed-Solomon generator polynomial, without the leading 1.
    found = bytearray(checks)
    found[-1] = 1
    root = 1
    for _ in range(checks):
        for i in range(checks):
            found[i] = _multiply(found[i], root)
            if i + 1 < checks:
                found[i] ^= found[i + 1]
        root = _multiply(root, 2)
    generator = bytes(found)
    blocks: list[bytes] = []
    start = 0
    for number in range(count):
        size = short + (number >= count - longer)
        blocks.append(data[start : start + size])
        start += size
    corrections = [_divide(block, generator) for block in blocks]
    return _interleave(blocks) + _interleave(corrections)


def _interleave(blocks: Sequence[bytes]) -> bytes:
    longest = max(map(len, blocks))
    return bytes(block[i] for i in range(longest) for block in blocks if i < len(block))


def _multiply(one: int, other: int) -> int:
    """Multiply in the field of 256 elements."""
    product = 0
    for bit in reversed(range(8)):
        product = (product << 1) ^ ((product >> 7) * _FIELD_POLYNOMIAL)
        product ^= ((other >> bit) & 1) * one
    return product


def _divide(data: bytes, generator: bytes) -> bytes:
    """Return the remainder of a division of polynomials, which is the error correction of the data."""
    remainder = bytearray(len(generator))
    for byte in data:
        factor = byte ^ remainder[0]
        remainder = remainder[1:] + b"\0"
        for i, coefficient in enumerate(generator):
            remainder[i] ^= _multiply(coefficient, factor)
    return bytes(remainder)


def _append_remainder(value: int, bits: int, polynomial: int) -> int:
    """Return a value followed by its BCH error correction of so many bits."""
    remainder = value
    for _ in range(bits):
        remainder = (remainder << 1) ^ ((remainder >> (bits - 1)) * polynomial)
    return value << bits | remainder


class _Canvas:
    """The modules of one version: patterns of fixed places first, then codewords, then a mask."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._size = version * 4 + 17
        self._modules: Modules = [[False] * self._size for _ in range(self._size)]
        self._reserved: Modules = [[False] * self._size for _ in range(self._size)]
        self._draw_patterns()

    def draw_codewords(self, codewords: bytes) -> None:
        """Fill what is free, in pairs of columns from the right, upwards and downwards by turns."""
        bits = "".join(f"{codeword:08b}" for codeword in codewords)
        # The modules that are left over are light.
        for (x, y), bit in zip(self._list_free(), bits, strict=False):
            self._modules[y][x] = bit == "1"

    def apply_mask(self, number: int) -> Modules:
        """Return the finished modules with one of the eight masks."""
        mask = _MASKS[number]
        masked = [
            [dark != (mask(x, y) and not self._reserved[y][x]) for x, dark in enumerate(row)]
            for y, row in enumerate(self._modules)
        ]
        bits = _append_remainder(_LEVEL_BITS << 3 | number, 10, _FORMAT_POLYNOMIAL) ^ _FORMAT_MASK
        for (x, y), (x2, y2), bit in self._list_format_places(bits):
            masked[y][x] = masked[y2][x2] = bit
        return masked

    def _list_format_places(self, bits: int) -> Iterator[tuple[tuple[int, int], tuple[int, int], bool]]:
        """Yield both places of each bit of the format, the lowest first, and the bit."""
        last = self._size - 1
        column = [*range(6), 7, 8]
        for i in range(8):
            yield (8, column[i]), (last - i, 8), bool(bits >> i & 1)
        row = [7, *range(5, -1, -1)]
        for i in range(8, 15):
            yield (row[i - 8], 8), (8, last - 14 + i), bool(bits >> i & 1)

    def _list_free(self) -> Iterator[tuple[int, int]]:
        upwards = True
        for right in (*range(self._size - 1, 6, -2), 5, 3, 1):
            rows = reversed(range(self._size)) if upwards else range(self._size)
            for y in rows:
                for x in (right, right - 1):
                    if not self._reserved[y][x]:
                        yield x, y
            upwards = not upwards

    def _set(self, x: int, y: int, dark: bool) -> None:
        if 0 <= x < self._size and 0 <= y < self._size:
            self._modules[y][x] = dark
            self._reserved[y][x] = True

    def _draw_patterns(self) -> None:
        last = self._size - 1
        for i in range(self._size):
            self._set(6, i, i % 2 == 0)
            self._set(i, 6, i % 2 == 0)
        for x, y in ((3, 3), (last - 3, 3), (3, last - 3)):
            self._draw_square(x, y, 4, light=(2, 4))
        centres = self._list_alignment_centres()
        for x in centres:
            for y in centres:
                # The corners have finder patterns.
                if (x, y) not in ((6, 6), (6, last - 6), (last - 6, 6)):
                    self._draw_square(x, y, 2, light=(1,))
        for (x, y), (x2, y2), bit in self._list_format_places(0):
            self._set(x, y, bit)
            self._set(x2, y2, bit)
        self._set(8, last - 7, True)
        self._draw_version()

    def _draw_square(self, x: int, y: int, radius: int, *, light: tuple[int, ...]) -> None:
        """Draw concentric squares. `light` are the distances from the centre that are light."""
        for dy in range(-radius, radius + 1):
            for dx in range(-radius, radius + 1):
                self._set(x + dx, y + dy, max(abs(dx), abs(dy)) not in light)

    def _list_alignment_centres(self) -> list[int]:
        if self._version == 1:
            return []
        count = self._version // 7 + 2
        step = (self._version * 8 + count * 3 + 5) // (count * 4 - 4) * 2
        return [6, *sorted(self._size - 7 - i * step for i in range(count - 1))]

    def _draw_version(self) -> None:
        if self._version < 7:
            return
        bits = _append_remainder(self._version, 12, _VERSION_POLYNOMIAL)
        for i in range(18):
            a, b = self._size - 11 + i % 3, i // 3
            self._set(a, b, bool(bits >> i & 1))
            self._set(b, a, bool(bits >> i & 1))


def _measure_penalty(modules: Modules) -> int:
    """Return how hard a pattern is to read, by the four rules of the standard."""
    size = len(modules)
    columns = [[row[x] for row in modules] for x in range(size)]
    penalty = 0
    for line in (*modules, *columns):
        runs = (len(list(group)) for _, group in groupby(line))
        penalty += sum(run - 2 for run in runs if run >= 5)
        penalty += 40 * sum(tuple(line[i : i + 11]) in _FINDER_LIKE for i in range(size - 10))
    for y in range(size - 1):
        for x in range(size - 1):
            penalty += 3 * (modules[y][x] == modules[y][x + 1] == modules[y + 1][x] == modules[y + 1][x + 1])
    dark, total = sum(map(sum, modules)), size * size
    # Ten for each five percent that the dark modules are away from one half.
    return penalty + 10 * ((abs(dark * 20 - total * 10) + total - 1) // total - 1)
