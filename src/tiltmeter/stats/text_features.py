"""Counts per text of Markdown marks, lines of code and comment, and characters of noise, in one pass each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.numba_jit import kernel
from tiltmeter.stats.word_hashes import Bytes, Hashes, Ints, Texts

#: Columns of `markup_counts`.
LINE, HEADING, ITEM, BOLD, TABLE, FENCE, CODE, COMMENT = range(8)

_CODE_HINTS = np.zeros(256, bool)
_CODE_HINTS[[ord(char) for char in "*(="]] = True

# First words of lines of code, at most 8 letters: by themselves; before a final colon; and those that English has too.
_SURE = ("def", "elif", "const", "var", "func", "fn", "struct", "async", "await", "typedef", "int", "lambda")
_COLON = ("for", "if", "while", "with", "else", "try", "except", "finally", "class", "match", "case")
_SHARED = (
    *("return", "import", "from", "class", "raise", "assert", "yield", "del", "pass", "break", "continue", "print"),
    *("function", "public", "private", "static", "void", "let", "using", "package", "export", "throw", "global"),
)
_KEYS = np.array([int.from_bytes(word.encode(), "big") for word in (*_SURE, *_COLON, *_SHARED)], np.uint64)
_KINDS = np.repeat(np.arange(3, dtype=np.uint8), (len(_SURE), len(_COLON), len(_SHARED)))

# What a byte is to `noise_counts`.
_LETTER, _VOWEL, _CAPITAL, _DIGIT, _RULE, _CONTROL, _WIDE = 1, 2, 4, 8, 16, 32, 64
_ROLES = np.zeros(256, np.uint8)
_ROLES[[ord(char) for char in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"]] |= _LETTER
_ROLES[[ord(char) for char in "aeiouyAEIOUY"]] |= _VOWEL
_ROLES[[ord(char) for char in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]] |= _CAPITAL
_ROLES[[ord(char) for char in "0123456789"]] |= _DIGIT
_ROLES[[ord(char) for char in " \t\r\n0123456789-=_*#.~|+/\\<>()[]{}:`"]] |= _RULE
_ROLES[:32] |= np.where(np.isin(np.arange(32), (9, 10, 13)), 0, _CONTROL).astype(np.uint8)
_ROLES[127] |= _CONTROL
_ROLES[128:] |= _WIDE


def markup_counts(texts: Texts) -> Ints:
    r"""Per text: lines that are not blank, headings, list items, bold spans, table rows, code fences, lines of code,
    lines of comment.

    Lines between fences (``` or ~~~) are code and count as nothing else. A text without a fence is code as a whole, and
    keeps its Markdown, when it has at least 3 lines, at least half of them look like code, and at least 2, and an
    eighth of those that are no comments, can hardly be anything else. Hardly anything else: lines that end with `;`,
    `{` or `}` and have no backslash (LaTeX has), and lines in lower case that begin as statements do (`def`, `if ...:`,
    `return` where it is indented, or short and no end of a sentence), are one call, or are indented by 4 and end with
    `)` or `]`. Like code: lines with such an end, comments, and lines that call something, assign something, or begin
    in lower case and end with `:`; mathematics is full of them.

    A comment is a line that begins with `#` (not `#include`), `//`, `-- ` or a quotation mark three times over, or lies
    in a docstring or between `/*` and `*/`. Behind 4 spaces or a tab there is no heading.

    >>> markup_counts(Texts.of(["# Title\n- **one**\n- two\n```py\n# why\nx = 1\n```"])).tolist()
    [[7, 1, 2, 1, 0, 2, 2, 1]]
    """
    counts = np.zeros((len(texts), 8), np.int64)
    likely = np.zeros(len(texts), np.int64)
    _marks(texts.data, texts.offsets, _CODE_HINTS, counts, likely)
    lines, comments = counts[:, LINE], counts[:, COMMENT]
    unfenced = counts[:, FENCE] == 0
    needed = np.maximum(2, (lines - comments + 7) // 8)
    needed[~unfenced | (lines < 3) | (2 * likely < lines)] = 0
    if needed.any():
        _confirm_code(texts.data, texts.offsets, _KEYS, _KINDS, needed)
        counts[needed < 0, CODE] = lines[needed < 0]
    counts[unfenced & (needed >= 0), COMMENT] = 0
    return counts


def noise_counts(texts: Texts) -> tuple[Ints, Ints]:
    """Per text: characters of noise, and all characters.

    Noise are runs of 4 or more equal characters (100 or more of those that people draw lines with: white space, digits,
    brackets, hyphens and the like), words of 6 or more letters without a vowel that are not all capitals, words of more
    than 40 letters and digits, control characters, and the mark that stands for a byte that is no text. `!` and `?` are
    taken for the same character, and only words of ASCII letters are judged.

    >>> [part.tolist() for part in noise_counts(Texts.of(["fine!!!!", "a sdfghjk", "-----", "好好的"]))]
    [[4, 7, 0, 0], [8, 9, 5, 3]]
    """
    bad, all_of = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64)
    _noise(texts.data, texts.offsets, _ROLES, bad, all_of)
    return bad, all_of


@kernel
def _marks(data: Bytes, offsets: Ints, hints: NDArray[np.bool_], counts: Ints, likely_code: Ints) -> None:
    """Comments of a text without fences are counted as if it were code; `likely_code`: its lines that look like it."""
    one = np.uint64(1)
    for row in range(len(offsets) - 1):
        start, end = np.uint64(offsets[row]), np.uint64(offsets[row + 1])
        i = start
        fenced = False
        quote = np.uint8(0)  # of the docstring we are in; ord("*") inside /* */
        lines = likely = comments = heads = items = bolds = tables = fences = code_lines = code_comments = 0
        while i < end:
            while i < end and data[i] <= 32:  # blank lines and indentation
                i += one
            if i == end:
                break
            a = b = i  # first and last character of the line
            stars, like_code, previous = 0, False, np.uint8(0)
            while i < end:
                c = data[i]
                if c == 10:
                    break
                if hints[c]:
                    if c == 42:
                        if previous == 42:
                            stars += 1
                            c = np.uint8(0)  # three stars are one pair
                    elif c == 40:
                        like_code |= _in_word(previous)
                    else:
                        like_code |= previous == 32 or previous == 61 or previous == 43
                b = i if c > 32 or data[i] > 32 else b
                previous = c
                i += one
            size = b + one - a
            c, d, e = data[a], np.uint8(0), np.uint8(0)
            if size > 1:
                d = data[a + one]
            if size > 2:
                e = data[a + one + one]
            lines += 1
            if (c == 96 or c == 126) and d == c and e == c:
                fenced = not fenced
                quote = np.uint8(0)
                fences += 1
                continue
            last, before = data[b], data[b - one] if size > 1 else np.uint8(0)
            comment = _is_comment(c, d, e, quote)
            quote = _quote_after(c, d, e, quote, before, last, size)
            comments += comment
            if fenced:
                code_lines += 1
                code_comments += comment
                continue
            lower = 97 <= c <= 122
            ends = last == 59 or last == 123 or last == 125
            likely += comment or like_code or ends or (last == 58 and lower)
            bolds += stars // 2
            if c == 35:
                k = a
                while k <= b and data[k] == 35:
                    k += one
                heads += int(k - a <= 6 and k <= b and data[k] == 32 and _indent(data, start, a) < 4)
            elif ((c == 45 or c == 42 or c == 43) and d == 32) or (c == 0xE2 and d == 0x80 and e == 0xA2):
                items += 1
            elif c == 124 and last == 124 and size > 2:
                tables += 1
            elif 48 <= c <= 57:
                k = a
                while k <= b and k - a < 3 and 48 <= data[k] <= 57:
                    k += one
                items += int(k < b and (data[k] == 46 or data[k] == 41) and data[k + one] == 32)
        likely_code[row] = likely
        counts[row, 0], counts[row, 1], counts[row, 2], counts[row, 3] = lines, heads, items, bolds
        counts[row, 4], counts[row, 5], counts[row, 6] = tables, fences, code_lines
        counts[row, 7] = code_comments if fences else comments


@kernel
def _in_word(c: np.uint8) -> bool:
    return bool(97 <= c <= 122 or 65 <= c <= 90 or 48 <= c <= 57 or c == 95)


@kernel
def _indent(data: Bytes, start: np.uint64, a: np.uint64) -> int:
    """Spaces before position a, at most 4; a tab is 4."""
    one, spaces = np.uint64(1), 0
    while spaces < 4 and a > start and data[a - one] == 32:
        spaces += 1
        a -= one
    return 4 if a > start and data[a - one] == 9 else spaces


@kernel
def _confirm_code(data: Bytes, offsets: Ints, keys: Hashes, kinds: Bytes, needed: Ints) -> None:
    """Makes `needed` -1 where a text has so many lines that can hardly be anything but code."""
    one = np.uint64(1)
    for row in range(len(offsets) - 1):
        i, start, end = np.uint64(offsets[row]), np.uint64(offsets[row]), np.uint64(offsets[row + 1])
        missing = needed[row]
        while i < end and missing > 0:
            while i < end and data[i] <= 32:
                i += one
            a = b = i
            while i < end and data[i] != 10:
                b = i if data[i] > 32 else b
                i += one
            if a < end and (97 <= data[a] <= 122 or data[b] == 59 or data[b] == 123 or data[b] == 125):
                missing -= _is_code(data, start, a, b, keys, kinds)
                if missing == 0:
                    needed[row] = -1


@kernel
def _is_code(data: Bytes, start: np.uint64, a: np.uint64, b: np.uint64, keys: Hashes, kinds: Bytes) -> bool:
    """Whether a line from a to b that begins in lower case, or ends with one of ;{}, can hardly be anything else."""
    last = data[b]
    if last == 59 or last == 123 or last == 125:
        while a < b and data[a] != 92:
            a += np.uint64(1)
        return bool(a == b)
    return _is_statement(data, start, a, b, keys, kinds)


@kernel
def _is_statement(data: Bytes, start: np.uint64, a: np.uint64, b: np.uint64, keys: Hashes, kinds: Bytes) -> bool:
    """Whether a line from a to b that begins in lower case is a statement or a call."""
    one, eight, last = np.uint64(1), np.uint64(8), data[b]
    k, key = a, np.uint64(0)
    while k <= b and k - a <= eight and 97 <= data[k] <= 122:
        key = key << eight | np.uint64(data[k])
        k += one
    if k - a <= eight and not (k <= b and _in_word(data[k])):
        for n in range(len(keys)):
            if keys[n] == key:
                if kinds[n] == 0 or (kinds[n] == 1 and last == 58):
                    return True
                ends = last == 46 or last == 44 or last == 33 or last == 63  # .,!?
                if kinds[n] == 2 and (_indent(data, start, a) >= 2 or (b - a < 40 and not ends)):
                    return True
    if last != 41 and last != 93:
        return False
    if _indent(data, start, a) == 4:
        return True
    while k <= b and (_in_word(data[k]) or data[k] == 46):
        k += one
    return bool(k - a >= 4 and k <= b and data[k] == 40 and last == 41)


@kernel
def _is_comment(c: np.uint8, d: np.uint8, e: np.uint8, quote: np.uint8) -> bool:
    """Whether a line that begins with these three characters, in this docstring or none, is a comment."""
    if quote != 0 or (c == 47 and (d == 47 or d == 42)):
        return True
    if c == 35:
        return not (97 <= d <= 122 or d == 91)  # #include, #[derive]
    if c == 45 and d == 45:
        return bool(e == 32)
    return bool((c == 34 or c == 39) and d == c and e == c)


@kernel
def _quote_after(
    c: np.uint8, d: np.uint8, e: np.uint8, quote: np.uint8, before: np.uint8, last: np.uint8, size: np.uint64
) -> np.uint8:
    """Which docstring or block comment is open after a line of `size` that ends with `before` and `last`."""
    closes = before == 42 and last == 47
    if quote == 42:
        return np.uint8(0) if closes else quote
    if quote != 0:
        return np.uint8(0) if size >= 3 and before == quote and last == quote else quote
    if c == 47 and d == 42:
        return np.uint8(0 if closes and size >= 4 else 42)
    if (c == 34 or c == 39) and d == c and e == c:
        return np.uint8(0) if size >= 6 and before == c and last == c else c
    return np.uint8(0)


@kernel
def _noise(data: Bytes, offsets: Ints, roles: Bytes, bad: Ints, all_of: Ints) -> None:
    one = np.uint64(1)
    for row in range(len(offsets) - 1):
        i, end = np.uint64(offsets[row]), np.uint64(offsets[row + 1])
        characters = noisy = 0
        last, is_rule, run = np.uint32(0), False, 0  # the character before, and how often it came in a row
        size = letters = vowels = capitals = counted = 0  # of the word we are in; counted: as runs
        while True:
            role, code, width = np.uint8(0), np.uint32(0), one
            if i < end:
                b = data[i]
                role, code = roles[b], np.uint32(33 if b == 63 else b)
                if role & 64:
                    width = np.uint64(2 if b < 0xE0 else 3 if b < 0xF0 else 4)
                    for k in range(i + one, min(i + width, end)):
                        code = np.uint32(code << np.uint32(8) | np.uint32(data[k]))
            if code == last and run > 0 and i < end:
                run += 1
            else:
                if run >= 4 and (run >= 100 or not is_rule):
                    noisy += run
                    counted += run
                last, run = code, 1
                is_rule = bool(role & 16 != 0 or 0xE29400 <= code <= 0xE296BF)
            if role & 1 or (role & 8 and size > 0):
                if size == 0:
                    counted = 0
                size += 1
                letters += int(role & 1)
                vowels += int((role >> 1) & 1)
                capitals += int((role >> 2) & 1)
            elif size > 0:
                if size > 5:
                    # A word of another script that goes on is not judged; a dash or a quotation mark ends this one.
                    goes_on = role & 64 and not 0xE28080 <= code <= 0xE281BF
                    bare = letters == size and vowels == 0 and capitals < letters
                    if not goes_on and (size > 40 or bare):
                        noisy += size - min(counted, size)
                size = letters = vowels = capitals = 0
            if i >= end:
                break
            characters += 1
            if role & 32 or code == 0xEFBFBD:
                noisy += 1
                run = 0
            i += width
        bad[row], all_of[row] = min(noisy, characters), characters
