#!/usr/bin/env python3
"""Prose of the Markdown pages: lines of at most 100 columns, sentences below 25 words.

Code blocks, rows of tables, headings, images and HTML do not count. A line that holds a link, or one word only, may be longer, since it cannot
be broken. In a sentence a link counts as its text, and code in backticks or a formula counts as one word. A sentence ends at a full stop, a
question mark, an exclamation mark or a semicolon, and where its paragraph or list item ends. A colon ends it, too, where a list item begins.
"""
import re

import lint_common

MAX_COLUMNS = 100
MAX_WORDS = 24
FENCE = re.compile(r"\s*(```|~~~)")
ITEM = re.compile(r"\s*([-*+]|\d+[.)])\s+")
ABBREVIATIONS = ("e.g.", "i.e.", "cf.", "vs.", "et al.", "Fig.", "Eq.", "approx.")


def paragraphs(text):
    """(line number, text) of each paragraph or list item, and each line of prose: two lists."""
    found, lines = [], []
    current = None
    fenced, html, after_blank = False, False, True
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced, current = not fenced, None
            continue
        stripped = line.strip()
        item = ITEM.match(line)
        if stripped.startswith("<") and not stripped.startswith("<http"):
            html = True
        inside = fenced or html
        if not stripped:
            html = False
        indented = line.startswith("    ") and after_blank and not item and (current is None)
        after_blank = not stripped or (indented and after_blank)
        if inside or not stripped or indented or stripped.startswith(("|", "#", "![")):
            current = None
            continue
        lines.append((number, line))
        if item or current is None:
            current = [number, line[item.end():] if item else stripped]
            found.append(current)
        else:
            current[1] += " " + stripped
    return found, lines


def plain(text):
    """A link is its text; code and formulas are one word."""
    text = re.sub(r"``[^`]+``|`[^`]*`", "code", text)
    text = re.sub(r"\$[^$]+\$", "formula", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return text.replace("*", "")


def sentences(text):
    text = plain(text)
    for abbreviation in ABBREVIATIONS:
        text = text.replace(abbreviation, abbreviation.replace(".", ""))
    return [s for s in re.split(r"(?<=[.!?;])[)\"']*\s+", text) if s.strip()]


def word_count(sentence):
    return sum(1 for word in sentence.split() if re.search(r"[A-Za-z0-9]", word))


def check(root, files):
    for name in files:
        if not name.endswith(".md"):
            continue
        text = lint_common.text_of(root, name)
        found, lines = paragraphs(text)
        for number, line in lines:
            if len(line) > MAX_COLUMNS and "](" not in line and len(line.split()) > 1:
                yield f"{name}:{number}: {len(line)} columns, {MAX_COLUMNS} at most"
        for number, paragraph in found:
            for sentence in sentences(paragraph):
                if (count := word_count(sentence)) > MAX_WORDS:
                    yield f"{name}:{number}: a sentence of {count} words, {MAX_WORDS} at most: {sentence}"


W24 = " ".join(["word"] * 24)
SELF_TESTS = [
    ({"a.md": f"# T\n\n{W24}.\n".replace("word word word word word word word word ", "word word word word word word word word\n")}, None),
    ({"a.md": "a " * 12 + "\n" + "b " * 12 + "b.\n"}, "a sentence of 25 words"),
    ({"a.md": "- " + "a " * 12 + "\n  " + "b " * 12 + "b\n- c\n"}, "a.md:1: a sentence of 25 words"),
    ({"a.md": "a " * 13 + "e.g. " + "\n" + "b " * 12 + "b.\n"}, "a sentence of 27 words"),
    ({"a.md": "a " * 13 + "by 2.5 and \n" + "b " * 12 + "b.\n"}, "a sentence of 29 words"),
    ({"a.md": "a " * 20 + "a. " + "\n" + "b " * 20 + "b.\n"}, None),
    ({"a.md": "- " + "a " * 20 + "a\n- " + "b " * 20 + "b\n"}, None),
    ({"a.md": "a " * 20 + "`x y z x y z`, [b b](https://example.org/" + "x" * 90 + ")\n"}, None),
    ({"a.md": "a" * 60 + " " + "b" * 40 + "\n"}, "a.md:1: 101 columns"),
    ({"a.md": "a" * 60 + " " + "b" * 39 + "\n"}, None),
    ({"a.md": "| " + "a " * 90 + "|\n\n```\n" + "a " * 90 + "\n```\n\n    " + "a " * 90 + "\n"}, None),
    ({"a.md": "```\n" + "a " * 90 + "\n```\n" + "a " * 13 + "\n" + "a " * 12 + "\n"}, "a.md:4: a sentence of 25 words"),
    ({"a.txt": "a " * 90}, None),
]

if __name__ == "__main__":
    lint_common.main(check, SELF_TESTS)
