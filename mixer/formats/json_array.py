"""JSON arrays: each element a row, found one by one, so that an array larger than memory is no matter.

Where elements end is found by the standard library's decoder over a window of the file; what they hold is then for the
same readers as JSON lines. An array that is no JSON has no elements after that place that could be trusted, so that is
an error under every policy; an element that is JSON but no row is for the policy.
"""

from __future__ import annotations

import codecs
import json
import re

from mixer.errors import InputError
from mixer.formats.base import Position
from mixer.formats.jsonl import JsonRows
from mixer.formats.lines import BOM, Block, Blocks, check_encoding
from mixer.formats.options import MAX_VALUE_BYTES
from mixer.formats.streams import Stream

_WINDOW_BYTES = 1 << 20
_LONGEST_TOKEN = 16
"""An error so close to the end of the window may be the end's fault: of an escape or a word that is cut in two."""
_NO_SPACE = re.compile(r"[^ \t\r\n]")
# Only where values end is asked for here; numbers are left as they are written.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


class JsonArrays(JsonRows):
    """Files that each hold one array of objects."""

    def blocks(self, stream: Stream, at: Position) -> Blocks:
        return Elements(stream, at)


class Elements:
    """The elements of an array from a position on, which is its beginning or the end of an element.

    Args:
        stream: The file, at the position.
        at: The position; its line is the number of the next element, counted from 1.

    Raises:
        InputError: The file does not hold an array.
    """

    def __init__(self, stream: Stream, at: Position) -> None:
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
        self._text, self._place = "", 0
        self._offset = at.offset
        """Bytes before the window, and what characters of elements in it take beyond one byte."""
        self._is_end = self._is_over = False
        self.position = at
        """Where the next element begins, or what is before it."""
        self.has_bom = False
        if at.offset == 0:
            self._begin()

    def take(self, most_bytes: int, most_lines: int) -> Block | None:
        """Return the next elements, each in a line of its own: about `most_bytes`, and at most `most_lines`.

        Raises:
            InputError: The array is broken or cut short, or an element is longer than `MAX_VALUE_BYTES`.
        """
        first = self.position
        elements: list[bytes] = []
        size = 0
        while size < most_bytes and len(elements) < most_lines:
            element = self._next()
            if element is None:
                break
            elements.append(element)
            size += len(element) + 1
        if not elements:
            return None
        return Block(b"\n".join([*elements, b""]), first.offset, first.line, len(elements))

    def _begin(self) -> None:
        self._grow()
        check_encoding(self._stream, self._text[:4].encode("utf-8", "surrogateescape"))
        self.has_bom = self._text.startswith(BOM.decode())
        if self.has_bom:
            self._text = self._text[1:]
        first = self._next_character()
        if first != "[":
            found = {"": "nothing", "{": "an object"}.get(first, repr(first))
            raise InputError(
                f"input file {self._stream.file.url}: expected an array of objects, found {found}; if this is an "
                f"object in each line, set `format: jsonl`"
            )
        self._place += 1
        self._offset += len(BOM) if self.has_bom else 0
        self._note()

    def _next(self) -> bytes | None:
        """Return the next element, None if there is no further one."""
        if self._is_over:
            return None
        mark = self._next_character()
        if mark == "]":
            self._end()
            return None
        if self.position.line > 1:
            if mark != ",":
                raise self._broken(f"expected ',' or ']', found {mark!r}")
            self._place += 1
            if self._next_character() == "]":
                raise self._broken("expected an element after ',', found ']'")
        stop = self._stop_of_value()
        element = self._text[self._place : stop].encode("utf-8", "surrogateescape")
        # Everything outside of elements is ASCII, where a character is a byte.
        self._offset += len(element) - (stop - self._place)
        self._place = stop
        self._note(elements=1)
        # It was decoded, so that line ends in it are mere space.
        return element.replace(b"\r", b" ").replace(b"\n", b" ")

    def _stop_of_value(self) -> int:
        """Return where the value that begins here ends; reads on as long as it is not complete."""
        while True:
            try:
                _, stop = _DECODER.raw_decode(self._text, self._place)
            except json.JSONDecodeError as error:
                is_cut = error.msg.startswith("Unterminated") or error.pos >= len(self._text) - _LONGEST_TOKEN
                if not is_cut or self._is_end:
                    what = "cut short" if is_cut and self._is_end else error.msg
                    raise self._broken(f"expected JSON, found something else: {what}") from None
            except RecursionError:
                raise self._broken("expected JSON of few levels, found very many") from None
            else:
                # What follows must be in the window, or the value may go on.
                if self._text[stop : stop + 1] or self._is_end:
                    return stop
            if len(self._text) - self._place > MAX_VALUE_BYTES:
                raise self._broken(f"expected at most {MAX_VALUE_BYTES:,} bytes, found more")
            self._grow()

    def _end(self) -> None:
        self._place += 1
        self._note()
        if self._next_character(is_needed=False):
            raise self._broken("expected nothing after the array, found more")
        self._is_over = True

    def _next_character(self, *, is_needed: bool = True) -> str:
        """Go on to the next character that is no space, and return it; empty at the end of the file."""
        while True:
            found = _NO_SPACE.search(self._text, self._place)
            if found is not None:
                self._place = found.start()
                return found[0]
            self._place = len(self._text)
            if self._is_end:
                if is_needed and self.position.offset:
                    raise self._broken("expected ']' at the end, found none: the file is cut short")
                return ""
            self._grow()

    def _grow(self) -> None:
        kept = self._text[self._place :]
        self._offset += self._place
        data = self._stream.read(max(_WINDOW_BYTES, len(kept) // 2))
        self._is_end = not data
        self._text, self._place = kept + self._decode(data, self._is_end), 0

    def _note(self, elements: int = 0) -> None:
        self.position = Position(self._offset + self._place, self.position.line + elements)

    def _broken(self, what: str) -> InputError:
        return InputError(
            f"input file {self._stream.file.url}, element {self.position.line}, after byte {self.position.offset}: "
            f"{what}; nothing after that place can be trusted, whatever `on_bad_line` says: mend the file"
        )
