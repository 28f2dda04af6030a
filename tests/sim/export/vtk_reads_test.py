#!/usr/bin/env python3
"""VTK, whose readers ParaView has, opens what Palpate writes: vtk_reads_test.py SIM_EXPORT_TEST. Exit status 77: no VTK here."""
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

try:
    from vtkmodules.vtkIOXML import vtkXMLPolyDataReader, vtkXMLUnstructuredGridReader
    from vtkmodules.vtkCommonDataModel import VTK_TETRA, VTK_TRIANGLE
    from vtkmodules.vtkCommonCore import vtkOutputWindow, vtkStringOutputWindow
except ImportError:
    SYSTEM_PYTHON = "/usr/bin/python3"  # which has the distribution's packages
    if os.path.exists(SYSTEM_PYTHON) and not os.path.samefile(sys.executable, SYSTEM_PYTHON):
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    print("skipped: no VTK for Python (python3-vtk9)")
    sys.exit(77)

SIZE = (0.2, 0.1, 0.1)
STRETCH_PER_S = 0.5  # samples.h
TET_COUNT = 4 * 2 * 2 * 5


def read(reader, path):
    reader.SetFileName(str(path))
    reader.Update()
    if reader.GetErrorCode() != 0:
        raise AssertionError(f"{path}: VTK error {reader.GetErrorCode()}")
    return reader.GetOutput()


def near(a, b, tolerance=1e-6):
    return abs(a - b) <= tolerance


def volume_of(points, ids):
    a, b, c, d = (points.GetPoint(i) for i in ids)
    u, v, w = ([q[k] - a[k] for k in range(3)] for q in (b, c, d))
    return (u[0] * (v[1] * w[2] - v[2] * w[1]) - u[1] * (v[0] * w[2] - v[2] * w[0]) + u[2] * (v[0] * w[1] - v[1] * w[0])) / 6


def corners(cell):
    return [cell.GetPointId(k) for k in range(cell.GetNumberOfPoints())]


def check_motion(data, time):
    displacement, velocity = (data.GetPointData().GetArray(name) for name in ("displacement", "velocity"))
    assert data.GetPointData().GetVectors().GetName() == "displacement"
    assert displacement.GetNumberOfComponents() == velocity.GetNumberOfComponents() == 3
    for i in range(data.GetNumberOfPoints()):
        x = data.GetPoint(i)[0]
        rest = x / (1 + STRETCH_PER_S * time)
        assert near(displacement.GetTuple3(i)[0], x - rest) and near(displacement.GetTuple3(i)[1], 0), i
        assert near(velocity.GetTuple3(i)[0], STRETCH_PER_S * rest), i


def check_time(data, time):
    value = data.GetFieldData().GetArray("TimeValue")
    assert value is not None and value.GetNumberOfTuples() == 1 and value.GetValue(0) == time


def check_volume(path, time):
    grid = read(vtkXMLUnstructuredGridReader(), path)
    assert grid.GetNumberOfCells() == TET_COUNT, grid.GetNumberOfCells()
    assert grid.GetNumberOfPoints() == 5 * 3 * 3
    total = 0
    for i in range(grid.GetNumberOfCells()):
        assert grid.GetCellType(i) == VTK_TETRA
        volume = volume_of(grid, corners(grid.GetCell(i)))
        assert volume > 0
        total += volume
    assert near(total, SIZE[0] * SIZE[1] * SIZE[2] * (1 + STRETCH_PER_S * time), 1e-8), total
    zones = grid.GetCellData().GetArray("zone")
    assert {zones.GetValue(i) for i in range(TET_COUNT)} == {0, 1}
    check_motion(grid, time)
    check_time(grid, time)


def check_surface(path, time, hole):
    surface = read(vtkXMLPolyDataReader(), path)
    count = 2 * 2 * (4 * 2 + 4 * 2 + 2 * 2) - hole
    assert surface.GetNumberOfPolys() == surface.GetNumberOfCells() == count, surface.GetNumberOfPolys()
    zones, normals = surface.GetCellData().GetArray("zone"), surface.GetPointData().GetNormals()
    coordinates = surface.GetPointData().GetTCoords()
    assert normals.GetName() == "Normals" and coordinates.GetName() == "TextureCoordinates" and coordinates.GetNumberOfComponents() == 2
    top = 0
    for i in range(count):
        cell = surface.GetCell(i)
        assert cell.GetCellType() == VTK_TRIANGLE
        is_top = all(near(surface.GetPoint(k)[2], max(surface.GetBounds()[4:])) for k in corners(cell))
        assert zones.GetValue(i) == (2 if is_top else 0), i
        top += is_top
    assert top == 2 * 4 * 2 - (hole if top < 2 * 4 * 2 else 0)
    for i in range(surface.GetNumberOfPoints()):
        x, y, _ = surface.GetPoint(i)
        assert near(sum(n * n for n in normals.GetTuple3(i)), 1)
        assert near(coordinates.GetTuple2(i)[0], 10 * x / (1 + STRETCH_PER_S * time), 1e-5) and near(coordinates.GetTuple2(i)[1], 10 * y, 1e-5)
    check_motion(surface, time)
    check_time(surface, time)


def entries(path):
    root = ElementTree.parse(path).getroot()
    assert root.tag == "VTKFile" and root.get("type") == "Collection"
    found = root.find("Collection").findall("DataSet")
    assert all(entry.get("name") == 'bar <one> & "two"' for entry in found)
    return [(float(entry.get("timestep")), path.parent / entry.get("file")) for entry in found]


def main():
    messages = vtkStringOutputWindow()
    vtkOutputWindow.SetInstance(messages)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PALPATE_EXPORT_SAMPLES": folder}
        subprocess.run([sys.argv[1], "--gtest_filter=Samples.*"], env=environment, check=True, stdout=subprocess.DEVNULL)
        volumes, surfaces = (entries(pathlib.Path(folder) / f"bar.{kind}.pvd") for kind in ("volume", "surface"))
        assert [time for time, _ in volumes] == [time for time, _ in surfaces] == [0, 0.25, 0.5, 0.75]
        for time, path in volumes:
            check_volume(path, time)
        for time, path in surfaces:
            check_surface(path, time, hole=1 if time >= 0.5 else 0)
    assert messages.GetOutput() == "", messages.GetOutput()
    print("8 files of 2 collections read by VTK")


if __name__ == "__main__":
    main()
