"""Reading of foreign files: JSON lines and arrays in a stream, copies of SQLite databases, ZIP archives. Nothing in a source is
written or run, and no symbolic link in it is followed: `open_file` refuses a path with one, so nothing outside of the source is
read. Where the source itself is a link, its real path is given to the readers."""

import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import apsw

from keryx.core import codec
from keryx.core.errors import Invalid
from keryx.importers.conversation import ImportLog, Json, as_dict

MAX_RECORD_BYTES = 64 << 20
MAX_FILE_BYTES = 256 << 20
# Of one record, as `codec.count_values` counts them. So many take about half a second to decode.
_MAX_RECORD_VALUES = 4_000_000
# An archive may be so many times as long when it is unpacked, beyond this length. Conversations become some 10 times as long.
_MAX_EXPANSION = 40
_SMALL_ARCHIVE_BYTES = 256 << 20
_CHUNK_SIZE = 1 << 20
_COPY_TRIES = 5
_LINK = "it is a symbolic link, or in a folder that is one"
# Columns that name a row for a report.
_KEYS = ("id", "session_id", "seq")
_SIZE, _PLACE = "keryx_size", "keryx_place"
_STRUCTURE = re.compile(rb'["\[\]{}]')
_STRING_END = re.compile(rb'\\.|"', re.DOTALL)


def find_files(root: Path, pattern: str, log: ImportLog) -> list[Path]:
    """Return the regular files below a folder that match a pattern, in order. Symbolic links are named in the log, and not
    followed."""
    if is_link(root):
        log.skip_link(root)
        return []
    found: list[Path] = []
    for folder, folders, names in os.walk(root):
        for name in folders:
            if (path := Path(folder, name)).is_symlink():
                log.skip_link(path)
        for name in names:
            path = Path(folder, name)
            if not path.relative_to(root).match(pattern):
                continue
            if path.is_symlink():
                log.skip_link(path)
            elif path.is_file():
                found.append(path)
    return sorted(found)


def is_link(path: Path) -> bool:
    """Whether a path is a symbolic link, or in a folder that is one."""
    try:
        return os.path.realpath(path) != os.path.abspath(path)
    except (OSError, ValueError):
        return True


def open_file(path: Path) -> BinaryIO:
    """Open a regular file. Raise `Invalid` for a symbolic link, and for anything else, such as a pipe, which would never
    end."""
    if is_link(path):
        raise Invalid(_LINK)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (OSError, ValueError) as exc:
        raise Invalid(f"{path} cannot be read: {exc}") from exc
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Invalid(f"{path} is not a regular file")
    return os.fdopen(handle, "rb")


def fingerprint_file(path: Path) -> str:
    """Return what changes when a file is written: its size and its time."""
    try:
        info = path.stat()
    except OSError:
        return ""
    return f"{info.st_size}-{info.st_mtime_ns}"


def read_attachment(root: Path, name: str) -> bytes:
    """Return the bytes of a file of a folder that a record names. Raise `Invalid` if it is not in the folder or too large."""
    if "\0" in name or name in ("", ".", "..") or Path(name).name != name:
        raise Invalid("it is not within the source")
    with open_file(root / name) as file:
        if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
            raise Invalid("it is too large")
        return file.read(MAX_FILE_BYTES)


def read_lines(path: Path, log: ImportLog | None = None) -> Iterator[tuple[str, Json]]:
    """Yield the JSON objects of a file of lines, each with its place. Lines that are none are reported. Only the lines that the
    file has when it is opened are read."""
    try:
        file = open_file(path)
    except Invalid as exc:
        if log:
            log.damage(str(path), str(exc))
        return
    with file:
        yield from parse_lines(file, str(path), log, end=os.fstat(file.fileno()).st_size)


def parse_lines(
    file: IO[bytes], name: str, log: ImportLog | None, *, end: int = 1 << 62
) -> Iterator[tuple[str, Json]]:
    number = done = 0
    while done < end and (line := file.readline(min(MAX_RECORD_BYTES, end - done))):
        number += 1
        done += len(line)
        place = f"{name}:{number}"
        if len(line) == MAX_RECORD_BYTES and not line.endswith(b"\n"):
            while done < end and not line.endswith(b"\n") and (line := file.readline(_CHUNK_SIZE)):
                done += len(line)
            if log:
                log.damage(place, f"this line has more than {MAX_RECORD_BYTES >> 20} MB: it is left out")
            continue
        text = line.strip(b" \t\r\n\0\xef\xbb\xbf")
        if not text:
            continue
        try:
            record = decode_record(text)
        except Invalid as exc:
            if log:
                half = "the last line is half-written" if not line.endswith(b"\n") else str(exc)
                log.damage(place, f"{half}: it is left out")
            continue
        yield place, record


def decode_record(text: bytes) -> Json:
    """Return one object of a file. Raise `Invalid` if it is none, or if it has too many values."""
    if codec.count_values(text) > _MAX_RECORD_VALUES:
        raise Invalid(f"it has more than {_MAX_RECORD_VALUES:,} values")
    return as_dict(codec.loads(text, dict[str, Any]))


def load_json(path: Path, log: ImportLog) -> Any:
    """Return the value of a JSON file, `None` if there is none; a damaged one is reported."""
    if not os.path.lexists(path):
        return None
    try:
        with open_file(path) as file:
            if os.fstat(file.fileno()).st_size > MAX_RECORD_BYTES:
                raise Invalid(f"it has more than {MAX_RECORD_BYTES >> 20} MB: it is left out")
            return codec.loads(file.read().removeprefix(b"\xef\xbb\xbf"), object)
    except Invalid as exc:
        log.damage(str(path), str(exc))
        return None


def iterate_objects(file: IO[bytes], name: str, log: ImportLog) -> Iterator[tuple[str, Json]]:
    """Yield the objects of a JSON array, or of one object per line, without reading all of them into memory. A damaged one
    is reported, and so is the end of a file that was cut."""
    number = 0
    for number, raw in enumerate(_split_objects(file, name, log), 1):
        place = f"{name}, item {number}"
        try:
            yield place, decode_record(raw)
        except Invalid as exc:
            log.damage(place, f"{exc}: it is left out")
    if not number:
        log.damage(name, "it has no JSON objects")


def _split_objects(file: IO[bytes], name: str, log: ImportLog) -> Iterator[bytes]:
    """Yield the bytes of each outermost object."""
    buffer = bytearray()
    depth = position = offset = 0
    start = -1
    in_string = too_long = False
    while chunk := file.read(_CHUNK_SIZE):
        buffer += chunk
        while True:
            if in_string:
                found = _STRING_END.search(buffer, position)
                if found is None:
                    # A backslash at the end belongs to what comes next.
                    position = len(buffer) - buffer.endswith(b"\\")
                    break
                position = found.end()
                in_string = found[0] != b'"'
                continue
            found = _STRUCTURE.search(buffer, position)
            if found is None:
                position = len(buffer)
                break
            position = found.end()
            match found[0]:
                case b'"':
                    in_string = depth > 0
                case b"{":
                    start = found.start() if depth == 0 else start
                    depth += 1
                case b"[":
                    # The array around the objects is not an object itself.
                    depth += depth > 0
                case _:
                    if depth == 1:
                        if not too_long:
                            yield bytes(buffer[start:position])
                        start, too_long = -1, False
                    depth = max(0, depth - 1)
        keep = start if start >= 0 else position
        if position - keep > MAX_RECORD_BYTES and not too_long:
            log.damage(
                f"{name}, byte {offset + keep}",
                f"this object has more than {MAX_RECORD_BYTES >> 20} MB: it is left out",
            )
            too_long = True
        if too_long:
            keep, start = position, position
        del buffer[:keep]
        offset += keep
        position -= keep
        start = 0 if start >= 0 else -1
    if depth:
        log.damage(f"{name}, byte {offset}", "the file ends within an object: it is left out")


class ForeignDatabase:
    """A copy of a SQLite database of another program. Rows are read by the names of their columns."""

    def __init__(self, connection: apsw.Connection, path: Path, log: ImportLog) -> None:
        self._connection = connection
        self._path = path
        self._log = log
        self._columns: dict[str, frozenset[str]] = {}

    def columns(self, table: str) -> frozenset[str]:
        """Return the names of a table's columns; none if there is no such table. A view or a virtual table is none, and a
        column that the file computes is not among them."""
        if table not in self._columns:
            names = self._fetch(
                "select p.name from pragma_table_list(?) t, pragma_table_info(t.name) p"
                " where t.schema = 'main' and t.type = 'table'",
                (table,),
                table,
            )
            self._columns[table] = frozenset(str(row["name"]) for row in names)
        return self._columns[table]

    def check(self, program: str, needed: Mapping[str, Iterable[str]]) -> bool:
        """Whether the tables that a reader needs are there with their columns; report it if not."""
        missing = [table for table, columns in needed.items() if not set(columns) <= self.columns(table)]
        if missing:
            text = f"it is not a database of {program}: table {missing[0]} is missing or another one"
            self._log.damage(str(self._path), text)
        return not missing

    def rows(
        self,
        table: str,
        *,
        where: Mapping[str, object] | None = None,
        order: Iterable[str] = (),
        columns: Iterable[str] = (),
    ) -> Iterator[Json]:
        """Yield the rows of a table in order, with those of the columns that exist. A row that is too large is reported and
        left out; a damaged page is reported, and ends the rows."""
        there = self.columns(table)
        if not there or not set(where or ()) <= there:
            return
        chosen = [name for name in columns if name in there] if columns else sorted(there)
        conditions = " and ".join(f"{_quote(name)} is ?" for name in where or ())
        # The bare name would be that of the result, which no index has.
        ordering = ", ".join(f"{_quote(table)}.{_quote(name)}" for name in order if name in there)
        # A value that is too large is not loaded.
        size = " + ".join(f"coalesce(octet_length({_quote(name)}), 0)" for name in chosen)
        key = next((name for name in _KEYS if name in there), None)
        place = f"substr({_quote(key)}, 1, 100)" if key else "''"
        fields = (
            f"iif(octet_length({_quote(name)}) > {MAX_RECORD_BYTES}, null, {_quote(name)}) as {_quote(name)}"
            for name in chosen
        )
        sql = f"select {size} as {_SIZE}, {place} as {_PLACE}, {', '.join(fields)} from {_quote(table)}"
        sql += f" where {conditions}" if conditions else ""
        sql += f" order by {ordering}" if ordering else ""
        for row in self._fetch(sql, tuple((where or {}).values()), table):
            length, name = row.pop(_SIZE), row.pop(_PLACE)
            if length > MAX_RECORD_BYTES:
                self._log.damage(
                    f"{self._path}, table {table}, {name}",
                    f"this row has more than {MAX_RECORD_BYTES >> 20} MB: it is left out",
                )
            else:
                yield row

    def count(self, table: str, *, where: Mapping[str, object], largest: str) -> tuple[int, object]:
        """Return the number of rows and the largest value of a column, to see whether anything was added."""
        if not ({*where, largest} <= self.columns(table)):
            return 0, None
        conditions = " and ".join(f"{_quote(name)} is ?" for name in where)
        sql = f"select count(*) as n, max({_quote(largest)}) as top from {_quote(table)} where {conditions}"
        for row in self._fetch(sql, tuple(where.values()), table):
            return int(row["n"]), row["top"]
        return 0, None

    def _fetch(self, sql: str, values: tuple[object, ...], table: str) -> Iterator[Json]:
        try:
            cursor = self._connection.cursor()
            cursor.execute(sql, values)  # pyright: ignore[reportUnknownMemberType]
            names: list[str] = []
            for row in cursor:
                names = names or [column[0] for column in cursor.get_description()]
                yield dict(zip(names, row, strict=True))
        except (apsw.Error, UnicodeDecodeError) as exc:
            self._log.damage(f"{self._path}, table {table}", f"the rest of it cannot be read: {exc}")


@contextmanager
def open_database(path: Path, log: ImportLog) -> Generator[ForeignDatabase | None]:
    """Copy a database with its write-ahead log, and open the copy; `None` if that is not possible, which is reported."""
    with tempfile.TemporaryDirectory(prefix="keryx-import-") as folder:
        copy = Path(folder, "copy.db")
        try:
            _copy_database(path, copy)
            connection = apsw.Connection(str(copy))
        except (OSError, Invalid, apsw.Error) as exc:
            log.damage(str(path), f"it cannot be read: {exc}")
            yield None
            return
        try:
            # The schema is foreign as well: no function of it runs, and nothing is written.
            connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
            connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
            connection.execute("pragma query_only = on")  # pyright: ignore[reportUnknownMemberType]
            # SQLite reports here that a file is not a database.
            connection.execute("select 1 from sqlite_schema limit 1")  # pyright: ignore[reportUnknownMemberType]
        except apsw.Error as exc:
            log.damage(str(path), f"it is not a readable SQLite database: {exc}")
            yield None
        else:
            yield ForeignDatabase(connection, path, log)
        finally:
            connection.close()


def _copy_database(path: Path, copy: Path) -> None:
    """Copy a database that may be in use. Copy again if it was written meanwhile: a checkpoint between the two files would
    make a copy that never existed."""
    log_file = path.with_name(f"{path.name}-wal")
    for _ in range(_COPY_TRIES):
        before = fingerprint_file(path), fingerprint_file(log_file)
        for source, target in ((path, copy), (log_file, copy.with_name(f"{copy.name}-wal"))):
            target.unlink(missing_ok=True)
            if source == path or os.path.lexists(source):
                with open_file(source) as file, target.open("wb") as out:
                    shutil.copyfileobj(file, out, _CHUNK_SIZE)
        if before == (fingerprint_file(path), fingerprint_file(log_file)):
            return
    raise Invalid("it is written all the time: stop its program for a moment")


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _begins_as_archive(path: Path) -> bool:
    with open_file(path) as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


class SourceArchive:
    """The files of an export: a ZIP archive or a folder. Names in it are compared, and never used as paths."""

    def __init__(self, path: Path, log: ImportLog) -> None:
        self._path = path
        self._log = log
        self._archive: zipfile.ZipFile | None = None
        self._members: dict[str, zipfile.ZipInfo] = {}
        self._files: dict[str, Path] = {}
        if path.is_dir():
            base = path.resolve()
            self._files = {file.relative_to(base).as_posix(): file for file in find_files(path, "*", log)}
        elif _begins_as_archive(path):
            try:
                self._archive = zipfile.ZipFile(path)
            except (zipfile.BadZipFile, OSError, ValueError) as exc:
                raise Invalid(
                    f"{path} is a damaged ZIP archive ({exc}): fetch it again, or give a folder with what can be unpacked"
                ) from exc
            self._members = {m.filename: m for m in self._archive.infolist() if not m.is_dir()}
            size = sum(m.file_size for m in self._members.values())
            if size > max(_SMALL_ARCHIVE_BYTES, _MAX_EXPANSION * path.stat().st_size):
                raise Invalid(f"{path} is refused: unpacked it has {size >> 20} MB, too many for its length")
        else:
            self._files = {path.name: path}

    @property
    def names(self) -> list[str]:
        names = self._members or self._files
        return sorted(name for name in names if not name.startswith("__MACOSX/"))

    def find(self, pattern: str) -> list[str]:
        """Return the names whose last part matches a pattern."""
        return [name for name in self.names if re.fullmatch(pattern, name.rpartition("/")[2])]

    def iterate_objects(self, name: str) -> Iterator[tuple[str, Json]]:
        """Yield the objects of a JSON file."""
        try:
            with self._open(name) as file:
                yield from iterate_objects(file, name, self._log)
        except (
            Invalid,
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            OSError,
            NotImplementedError,
            RuntimeError,
        ) as exc:
            self._log.damage(name, f"the rest of it cannot be read: {exc}")

    def read(self, name: str) -> bytes:
        """Return the bytes of a file. Raise `Invalid` if it cannot be read or is too large."""
        try:
            with self._open(name) as file:
                body = file.read(MAX_FILE_BYTES + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as exc:
            raise Invalid(f"it cannot be read: {exc}") from exc
        if len(body) > MAX_FILE_BYTES:
            raise Invalid("it is too large")
        return body

    def _open(self, name: str) -> IO[bytes]:
        if self._archive is not None:
            return self._archive.open(self._members[name])
        return open_file(self._files[name])
