#!/usr/bin/env python3
"""Includes go down the layers: server -> sim -> gpu, clients -> proto, with the exceptions below; inside a layer the folders form no circle."""
import pathlib
import re

import lint_common

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')
SOURCES = (".h", ".cc", ".cl", ".clh")

# Who may include whom, longest prefix first. Every folder may include itself.
MAY_INCLUDE = {
    "gpu": ["gpu"],
    "sim": ["sim", "gpu"],
    # A scene's description, its validator and its codec; only the last knows the API.
    "sim/scene": ["sim", "gpu", "proto"],
    # The past of scenes lies in files as messages of the API.
    "sim/record": ["sim", "gpu", "proto"],
    "server": ["server", "sim", "gpu", "proto"],
    "clients/cpp": ["proto", "gpu/base"],
    # The local model is the one piece that both ends of the haptic path run.
    "clients/station": ["proto", "clients/cpp", "sim/haptics", "sim/instrument", "gpu/base"],
    # Files are checked, meshed and converted on the user's machine by the code the server runs; `verify` runs the detectors themselves; `demo` checks
    # what it hands to the station.
    "clients/cli": ["proto", "clients/cpp", "clients/job", "clients/station", "sim/ccd", "sim/export", "sim/mesh", "sim/nurbs", "sim/topology", "sim/reference", "sim/scene", "sim/probe", "sim/record", "sim/volume", "sim/world", "gpu/collision", "gpu/shared", "gpu/runtime", "gpu/base"],
    # Files of CAD programs become files of ours.
    "clients/cad": ["sim/cad", "sim/nurbs", "sim/scene", "gpu/base"],
    # Jobs run worlds in their own process, without a server.
    "clients/job": ["proto", "clients/station", "sim", "gpu/base", "gpu/runtime"],
    "clients/web": [],
    "deploy": ["gpu/runtime", "gpu/base"],
    "bench": ["bench", "clients/cpp", "clients/station", "server", "sim", "gpu", "proto"],
    "tests": ["tests", "bench", "clients", "server", "sim", "gpu", "proto"],
}
# Only these folders speak to OpenCL, to gRPC and to OpenCASCADE.
RESTRICTED = [
    (re.compile(r"^CL/"), ("gpu/runtime", "tests", "bench"), "only gpu/runtime calls OpenCL"),
    (re.compile(r"^(grpcpp|grpc)/"), ("server", "clients", "tests", "bench"), "gpu and sim know no network"),
    (re.compile(r".*\.hxx$"), ("sim/cad", "tests", "bench"), "only sim/cad and a peer of the benchmarks know OpenCASCADE"),
]


def folder_of(path):
    """The second-level folder a path belongs to; generated API headers belong to `proto`."""
    if path.startswith("palpate/v1/"):
        return "proto"
    parts = pathlib.PurePosixPath(path).parts
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0] if len(parts) > 1 else ""


def within(folder, prefixes):
    return any(folder == p or folder.startswith(p + "/") for p in prefixes)


def check(root, files):
    edges = {}
    for name in files:
        if not name.endswith(SOURCES):
            continue
        own = folder_of(name)
        layer = next((p for p in sorted(MAY_INCLUDE, key=len, reverse=True) if within(own, [p])), None)
        if layer is None:
            yield f"{name}:1: no rule says what {own or 'this folder'} may include; see {pathlib.Path(__file__).name}"
            continue
        for number, line in enumerate((lint_common.text_of(root, name) or "").splitlines(), start=1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quoted, system = match.groups()
            where = f"{name}:{number}"
            for pattern, allowed, why in RESTRICTED:
                if pattern.match(quoted or system) and not within(own, allowed):
                    yield f"{where}: includes {quoted or system}: {why}"
            if quoted is None:
                continue
            if quoted.endswith((".cc", ".c")):
                yield f"{where}: includes the source file {quoted}"
            top = quoted.split("/")[0]
            if top not in ("gpu", "sim", "server", "clients", "bench", "tests", "palpate"):
                continue
            target = folder_of(quoted)
            if target == own:
                continue
            if not within(target, MAY_INCLUDE[layer] + [own]):
                yield f"{where}: {own} may not include {quoted} ({layer} may include: {', '.join(MAY_INCLUDE[layer]) or 'nothing'})"
            elif own.split("/")[0] == top and top not in ("tests", "bench"):
                edges.setdefault(own, {}).setdefault(target, f"{where}: includes {quoted}")
    yield from circles(edges)


def circles(edges):
    """One problem for each circle among the folders of a layer."""
    done = set()

    def visit(folder, path):
        if folder in path:
            ring = path[path.index(folder):] + [folder]
            yield f"{edges[ring[0]][ring[1]]}: folders in a circle: {' -> '.join(ring)}"
            return
        if folder in done:
            return
        for target in sorted(edges.get(folder, {})):
            yield from visit(target, path + [folder])
        done.add(folder)

    for folder in sorted(edges):
        yield from visit(folder, [])


SELF_TESTS = [
    ({"gpu/runtime/a.cc": '#include "gpu/base/status.h"\n#include <CL/cl.h>\n', "sim/mesh/a.h": '#include "gpu/base/status.h"\n'}, None),
    ({"server/core/a.cc": '#include "sim/world/world.h"\n#include "palpate/v1/scene.pb.h"\n'}, None),
    ({"clients/station/a.cc": '#include "sim/haptics/local_model.h"\n'}, None),
    ({"clients/station/a.cc": '#include "sim/world/world.h"\n'}, "clients/station may not include sim/world/world.h"),
    ({"clients/cpp/a.cc": '#include "sim/scene/scene_spec.h"\n'}, "clients/cpp may not include"),
    ({"gpu/runtime/a.cc": '#include "sim/mesh/tet_mesh.h"\n'}, "gpu/runtime may not include sim/mesh/tet_mesh.h"),
    ({"sim/mesh/a.cc": '\n#include "palpate/v1/scene.pb.h"\n'}, "sim/mesh/a.cc:2: sim/mesh may not include"),
    ({"sim/world/a.cc": '#include <CL/cl.h>\n'}, "only gpu/runtime calls OpenCL"),
    ({"sim/world/a.cc": '#include <grpcpp/grpcpp.h>\n'}, "know no network"),
    ({"sim/cad/a.cc": '#include <TopoDS_Shape.hxx>\n'}, None),
    ({"sim/nurbs/a.cc": '#include <TopoDS_Shape.hxx>\n'}, "only sim/cad and a peer of the benchmarks know OpenCASCADE"),
    ({"sim/world/a.cc": '#include "sim/mesh/tet_mesh.cc"\n'}, "includes the source file"),
    ({"sim/world/a.h": '#include "sim/mesh/b.h"\n', "sim/mesh/b.h": '#include "sim/world/a.h"\n'}, "circle: sim/mesh -> sim/world -> sim/mesh"),
    ({"gpu/primitives/a.cl": '#include "sim/scene/scene_spec.h"\n'}, "gpu/primitives may not include"),
    ({"other/place/a.cc": "\n"}, "no rule says"),
]

if __name__ == "__main__":
    lint_common.main(check, SELF_TESTS)
