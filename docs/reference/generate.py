#!/usr/bin/env python3
"""Writes api.md and python.md beside this file, from the comments of proto/palpate/v1 and the docstrings of clients/python/palpate.
usage: generate.py [--check]

Every service, call, message and enumeration, and every public name of the package, must say what it is; what does not is an error that names
file and line. A message that only carries the request or the answer of one call says so by itself. A field needs a comment unless its type
or one of the names that mean the same everywhere (COMMON) says what it is.
"""
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What clients call; files of jobs and recordings, and the browser's own protocol, have pages of their own.
PROTOS = ("scene", "control", "stream", "haptics", "edit", "record", "batch")
MODULES = ("scenes", "frames", "topology", "builder", "batch", "env", "spaces", "policy", "station", "errors", "aio")
# Names of fields that mean the same in every message.
COMMON = {
    "scene_id": "of the scene", "name": "what it is called", "body": "name of a body", "tool": "name of a tool", "body_index": "index of a body in the keyframe",
    "tool_index": "index of a tool", "dt_s": "length of a step", "step": "steps done since the last reset", "sim_time_s": "simulated time since the last reset",
    "server_time_us": "wall clock, microseconds since the Unix epoch", "state_hash": "of positions and velocities after the step",
    "state_hashes": "of positions and velocities after the steps, one each", "topology_version": "goes up with each change of topology",
    "vertex_count": "vertices", "tet_count": "tetrahedra", "failure": "why it stopped; empty unless it has failed", "color": "of the surface",
    "center_m": "of the ball or sphere, in W", "end0_m": "one end, in W", "end1_m": "the other end, in W", "x": "along x", "y": "along y", "z": "along z",
    "radius_m": "radius", "length_m": "length", "play": "whether it begins to play at once", "environment": "number of an environment",
    "environments": "numbers of environments", "message": "for people", "note": "for people",
}
UNITS = {"_m_per_s2": "m/s^2", "_rad_per_s": "rad/s", "_n_s_per_m": "N s/m", "_n_per_m": "N/m", "_kg_per_m3": "kg/m^3", "_m_per_s": "m/s", "_per_s": "1/s",
         "_n_m": "N m", "_m3": "m^3", "_kg": "kg", "_pa": "Pa", "_rad": "rad", "_hz": "Hz", "_ms": "ms", "_us": "us", "_n": "N", "_w": "W", "_j": "J", "_m": "m",
         "_s": "s"}


class Problem(Exception):
    """Something without a comment."""


# -- proto -------------------------------------------------------------------------------------------------------------------------------


class Element:
    """A service, call, message, enumeration, oneof, field or value."""

    def __init__(self, kind, name, comment, place, **more):
        self.kind, self.name, self.comment, self.place = kind, name, comment, place
        self.children = []
        self.more = more


BLOCK = re.compile(r"(service|message|enum|oneof)\s+(\w+)\s*\{(.*)$")
CALL = re.compile(r"rpc\s+(\w+)\((stream )?(\w+)\)\s+returns\s+\((stream )?(\w+)\)")
FIELD = re.compile(r"(repeated |optional )?((?:map<[^>]*>)|[\w.]+)\s+(\w+)\s*=\s*(\d+)\s*(\[[^\]]*\])?;")
VALUE = re.compile(r"(\w+)\s*=\s*(\d+);")


def parse_proto(path, shown):
    """The elements of one file, in order. Comments are those before a line, or behind it and the lines below that begin with more of it."""
    root = Element("file", path.stem, "", shown)
    stack, lead, last, column = [root], [], None, -1
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        code, _, comment = line.partition("//")
        code, comment = code.strip(), comment.strip()
        place = f"{shown}:{number}"
        if not code and comment:
            # Below a comment that stands behind a field, and as far to the right, its next line.
            if last is not None and not lead and line.index("//") >= column > 8:
                last.comment += " " + comment
            else:
                lead.append(comment)
                last = None
            continue
        text = " ".join(lead + ([comment] if comment else []))
        for match in [BLOCK.match(code)]:
            if match:
                element = Element(match[1], match[2], text, place)
                stack[-1].children.append(element)
                inner = match[3].strip()
                if inner.endswith("}"):  # on one line
                    parse_line(element, inner[:-1].strip(), "", place)
                else:
                    stack.append(element)
                last = None
                break
        else:
            if code.startswith("}"):
                stack.pop()
                last = None
            elif code:
                last = parse_line(stack[-1], code, text, place)
                column = line.index("//") if "//" in line else -1
                last = last if comment else None
            else:
                last = None
        lead = []
    return root


def parse_line(parent, code, comment, place):
    """A call, field or value; None for anything else."""
    if match := CALL.match(code):
        element = Element("call", match[1], comment, place, request=match[3], answer=match[5], streams=(bool(match[2]), bool(match[4])))
    elif parent.kind == "enum" and (match := VALUE.match(code)):
        element = Element("value", match[1], comment, place, number=match[2])
    elif parent.kind in ("message", "oneof") and (match := FIELD.match(code)):
        element = Element("field", match[3], comment, place, type=match[2], label=(match[1] or "").strip(), number=match[4])
    else:
        return None
    parent.children.append(element)
    return element


def walk(element, names=()):
    """(element, full name) of everything below."""
    for child in element.children:
        full = (*names, child.name) if child.kind in ("message", "enum", "service") else names
        yield child, ".".join(full)
        yield from walk(child, full)


def unit_of(name):
    """The unit that a name ends in; empty: none."""
    return next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), "")


def table(*rows):
    """Lines of a table; the first row is its head."""
    clean = [[cell.replace("|", "\\|").replace("\n", " ").strip() for cell in row] for row in rows]
    return ["| " + " | ".join(clean[0]) + " |", "|" + "---|" * len(clean[0]), *("| " + " | ".join(row) + " |" for row in clean[1:]), ""]


def carriers(files):
    """Messages that are the request or the answer of one call, with a sentence about it."""
    uses = {}
    for file in files:
        for service in (child for child in file.children if child.kind == "service"):
            for call in service.children:
                for role, what in (("request", "What `{}` is asked."), ("answer", "What `{}` answers.")):
                    uses.setdefault(call.more[role], []).append(what.format(f"{service.name}.{call.name}"))
    return {name: uses[name][0] for name in uses if len(uses[name]) == 1}


def field_rows(message, known, problems):
    """Rows of a message's fields, those of its oneofs named as such."""
    for child in message.children:
        if child.kind == "oneof":
            for row in field_rows(child, known, problems):
                yield [row[0], f"{row[1]} (one `{child.name}`)", row[2]]
        elif child.kind == "field":
            kind = child.more["type"]
            unit = unit_of(child.name)
            what = child.comment or COMMON.get(child.name, "")
            if not what and kind.split(".")[-1] in known:
                what = "see there"
            if not what and unit:
                what = "in " + unit
            if not what:
                problems.append(f"{child.place}: field {child.name} of {message.name} says nothing of itself")
            label = child.more["label"]
            yield [f"`{child.name}`", f"{label + ' ' if label else ''}`{kind}`", what]


def api_reference(files):
    """api.md. Errors: Problem."""
    known = {name.split(".")[-1] for file in files for element, name in walk(file) if element.kind in ("message", "enum")}
    carried = carriers(files)
    problems = []
    lines = ["# Reference of the API", "", "Written by `docs/reference/generate.py` from the comments of `proto/palpate/v1`.", "They are the contract.", "",
             "Conventions of units, frames and errors: [conventions](../conventions.md).", ""]
    for file in files:
        lines += [f"## {file.name}.proto", ""]
        for element, name in walk(file):
            if element.kind not in ("service", "message", "enum"):
                continue
            comment = element.comment or carried.get(element.name, "")
            if not comment:
                problems.append(f"{element.place}: {element.kind} {name} says nothing of itself")
            lines += [f"### {name}", ""]
            if element.kind == "service":
                rows = [["call", "takes, gives", "what"], [f"`{name}`", "", comment]]
                for call in element.children:
                    if not call.comment:
                        problems.append(f"{call.place}: call {call.name} says nothing of itself")
                    streams = ["stream of " if is_stream else "" for is_stream in call.more["streams"]]
                    rows.append([f"`{call.name}`", f"{streams[0]}`{call.more['request']}`, {streams[1]}`{call.more['answer']}`", call.comment])
            elif element.kind == "message":
                rows = [["field", "type", "what"], [f"`{name}`", "message", comment], *field_rows(element, known, problems)]
            else:
                rows = [["value", "number", "what"], [f"`{name}`", "enum", comment]]
                for value in element.children:
                    is_default = value.name.endswith("_UNSPECIFIED")
                    text = value.comment or ("not said" if is_default else value_words(element, value))
                    rows.append([f"`{value.name}`", value.more["number"], text])
            lines += table(*rows)
    if problems:
        raise Problem("\n".join(problems))
    return "\n".join(lines)


def value_words(enum, value):
    """The words of a value's name behind those of its enumeration."""
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
    return value.name[len(prefix):].replace("_", " ").lower() if value.name.startswith(prefix) else value.name.lower().replace("_", " ")


# -- Python ------------------------------------------------------------------------------------------------------------------------------


def is_public(name):
    return not name.startswith("_") or name in ("__getitem__", "__next__", "__anext__")


class Unquoted(ast.NodeTransformer):
    """Annotations that are written as texts, as what they name."""

    def visit_Constant(self, node):
        return ast.Name(id=node.value) if isinstance(node.value, str) else node


def signature(function, is_method):
    """Name and arguments, without self and without annotations of what everybody sees."""
    for node in ast.walk(function.args):
        if isinstance(node, ast.arg) and node.annotation is not None:
            node.annotation = Unquoted().visit(node.annotation)
    arguments = function.args
    if is_method and arguments.args and not any(ast.unparse(d) in ("staticmethod",) for d in function.decorator_list):
        arguments = ast.arguments(posonlyargs=arguments.posonlyargs, args=arguments.args[1:], vararg=arguments.vararg, kwonlyargs=arguments.kwonlyargs,
                                  kw_defaults=arguments.kw_defaults, kwarg=arguments.kwarg, defaults=arguments.defaults)
    returns = f" -> {ast.unparse(Unquoted().visit(function.returns))}" if function.returns is not None else ""
    return f"{function.name}({ast.unparse(arguments)}){returns}"


def one_line(text):
    return re.sub(r"\s+", " ", text or "").strip()


def attribute_docs(body, place, problems):
    """(name, type, docstring) of the public attributes of a class or module; in __init__ those of self."""
    for statement, after in zip(body, [*body[1:], None]):
        target = None
        if isinstance(statement, ast.AnnAssign):
            target, annotation = statement.target, ast.unparse(statement.annotation)
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, annotation = statement.targets[0], ""
        if target is None:
            continue
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
            name = target.attr
        elif isinstance(target, ast.Name):
            name = target.id
        else:
            continue
        is_doc = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)
        if name.startswith("_") or (isinstance(target, ast.Name) and name in ("code", "metadata", "T")):
            continue
        if is_doc:
            yield name, annotation.strip("'\""), one_line(after.value.value)
        elif isinstance(statement, ast.AnnAssign) or isinstance(target, ast.Attribute):
            problems.append(f"{place}:{statement.lineno}: attribute {name} has no docstring")


def shared_classes(folder):
    """Name: (class, place) of those in private modules, whose members those have that are derived from them."""
    return {node.name: (node, path.name) for path in sorted(folder.glob("_[a-z]*.py"))
            for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)}


def class_rows(node, place, problems, shared):
    """Rows of what a class has, members from classes that are not shown themselves included."""
    initializer = next((f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None)
    if initializer is not None:
        yield [f"`{signature(initializer, True).replace('__init__', node.name).replace(' -> None', '')}`", "constructor"]
    attributes = list(attribute_docs(node.body, place, problems))
    if initializer is not None:
        own = [s for part in initializer.body for s in (part.body if isinstance(part, ast.With) else [part])]
        attributes += [a for a in attribute_docs(own, place, [] if node.name in ("TipPosition", "TipMotion", "PalpateError") else problems)]
    for name, annotation, text in attributes:
        yield [f"`{name}`", text + (f" ({annotation})" if annotation and len(annotation) < 30 else "")]
    for function in node.body:
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or not is_public(function.name):
            continue
        text = one_line(ast.get_docstring(function))
        if not text and function.name not in ("__getitem__",):
            problems.append(f"{place}:{function.lineno}: {node.name}.{function.name} has no docstring")
        is_property = any(ast.unparse(d) == "property" for d in function.decorator_list)
        prefix = "async " if isinstance(function, ast.AsyncFunctionDef) else ""
        shown = function.name if is_property else prefix + signature(function, True)
        yield [f"`{shown}`", text or "an item by its name"]
    for base in node.bases:
        if ast.unparse(base) in shared:
            yield from list(class_rows(*shared[ast.unparse(base)], problems, shared))[has_initializer(shared[ast.unparse(base)][0]):]


def has_initializer(node):
    """Whether a class has a constructor of its own."""
    return any(isinstance(f, ast.FunctionDef) and f.name == "__init__" for f in node.body)


def python_reference(folder, shown):
    """python.md. Errors: Problem."""
    problems = []
    shared = shared_classes(folder)
    lines = ["# Reference of the Python package", "", "Written by `docs/reference/generate.py` from the docstrings of `clients/python/palpate`.", "",
             "The guide is [python.md](../python.md).", ""]
    for name in MODULES:
        path = folder / f"{name}.py"
        if not path.is_file():
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        place = f"{shown}/{name}.py"
        text = one_line((ast.get_docstring(tree) or "").split("\n\n")[0])
        if not text:
            problems.append(f"{place}:1: module without a docstring")
        lines += [f"## palpate.{name}", "", *table(["name", "what"], [f"`palpate.{name}`", text], *module_rows(tree, place, problems))]
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and is_public(node.name):
                text = one_line(ast.get_docstring(node))
                if not text:
                    problems.append(f"{place}:{node.lineno}: class {node.name} has no docstring")
                bases = [ast.unparse(base) for base in node.bases if ast.unparse(base) not in shared]
                lines += [f"### {name}.{node.name}", "",
                          *table(["name", "what"], [f"`{node.name}`" + (f" ({', '.join(bases)})" if bases else ""), text], *class_rows(node, place, problems, shared))]
    if problems:
        raise Problem("\n".join(problems))
    return "\n".join(lines)


def module_rows(tree, place, problems):
    """Rows of a module's functions and constants."""
    for name, _, text in attribute_docs(tree.body, place, []):
        yield [f"`{name}`", text]
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_public(node.name):
            text = one_line(ast.get_docstring(node))
            if not text:
                problems.append(f"{place}:{node.lineno}: function {node.name} has no docstring")
            prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
            yield [f"`{prefix}{signature(node, False)}`", text]


# -- both --------------------------------------------------------------------------------------------------------------------------------


def pages(root=ROOT):
    """Path and text of each page. Errors: Problem naming file and line of what has no comment."""
    files = [parse_proto(root / "proto/palpate/v1" / f"{name}.proto", f"proto/palpate/v1/{name}.proto") for name in PROTOS
             if (root / "proto/palpate/v1" / f"{name}.proto").is_file()]
    return {"docs/reference/api.md": api_reference(files), "docs/reference/python.md": python_reference(root / "clients/python/palpate", "clients/python/palpate")}


def main():
    try:
        made = pages()
    except Problem as problem:
        sys.exit(str(problem))
    for name, text in made.items():
        path = ROOT / name
        if sys.argv[1:] == ["--check"]:
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                sys.exit(f"{name} is not up to date: run docs/reference/generate.py")
        else:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
