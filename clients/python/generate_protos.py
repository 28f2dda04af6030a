#!/usr/bin/env python3
"""Generates palpate/v1/*_pb2.py, *_pb2.pyi and *_pb2_grpc.py into a folder. usage: generate_protos.py PROTO_FOLDER OUT_FOLDER

Takes grpc_tools where it is installed, otherwise protoc and grpc_python_plugin, as Debian packages them.
"""
import importlib.util
import pathlib
import shutil
import subprocess
import sys


def compiler():
    """The command line of a protoc that knows the plug-in of gRPC for Python."""
    if importlib.util.find_spec("grpc_tools") is not None:
        return [sys.executable, "-m", "grpc_tools.protoc"]
    protoc, plugin = shutil.which("protoc"), shutil.which("grpc_python_plugin")
    if protoc is None or plugin is None:
        raise SystemExit("protoc and grpc_python_plugin are needed (Debian: protobuf-compiler, protobuf-compiler-grpc, libprotobuf-dev; elsewhere: pip install grpcio-tools)")
    return [protoc, f"--plugin=protoc-gen-grpc_python={plugin}"]


def generate(proto_folder, out_folder):
    """All of the API; leaves an __init__.py beside the modules."""
    proto_folder, out_folder = pathlib.Path(proto_folder), pathlib.Path(out_folder)
    names = sorted(str(path.relative_to(proto_folder)) for path in (proto_folder / "palpate/v1").glob("*.proto"))
    if not names:
        raise SystemExit(f"{proto_folder}: no palpate/v1/*.proto")
    out_folder.mkdir(parents=True, exist_ok=True)
    outputs = [f"--{kind}_out={out_folder}" for kind in ("python", "pyi", "grpc_python")]
    if subprocess.run([*compiler(), "-I", str(proto_folder), *outputs, *names], check=False).returncode != 0:
        raise SystemExit("protoc failed (messages above). Debian has the files of google/protobuf, which it needs, in libprotobuf-dev")
    (out_folder / "palpate/v1/__init__.py").write_text('"""The messages of the API, generated from proto/palpate/v1."""\n', encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    generate(sys.argv[1], sys.argv[2])
