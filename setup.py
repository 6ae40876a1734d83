"""Puts the library and the data files into the wheel. STEPCAST_BUILD is a build folder of CMake that has them; else one is made."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

ROOT = pathlib.Path(__file__).resolve().parent
DATA = ("workloads/zoo", "workloads/published", "models/devices", "models/systems", "models/stacks", "traces/kernel_kinds.json")
os.makedirs("build", exist_ok=True)  # of egg_info


def built():
    """The package as CMake builds it."""
    given = os.environ.get("STEPCAST_BUILD")
    folder = pathlib.Path(given) if given else ROOT / "build" / "wheel"
    if not given:
        subprocess.check_call(["cmake", "-S", str(ROOT), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release", "-DSTEPCAST_TESTS=OFF",
                               "-DSTEPCAST_CUDA=OFF", f"-DPython3_EXECUTABLE={sys.executable}"])
        subprocess.check_call(["cmake", "--build", str(folder), "--target", "stepcast_python", "--parallel"])
    return folder / "python" / "stepcast"


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        package = pathlib.Path(self.build_lib) / "stepcast"
        for file in ("_commands.py", "libstepcast.so"):
            shutil.copyfile(built() / file, package / file)
        if shutil.which("strip"):
            subprocess.check_call(["strip", "--strip-unneeded", str(package / "libstepcast.so")])
        for data in DATA:
            target = package / "share" / "stepcast" / data
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / data).is_dir():
                shutil.copytree(ROOT / data, target, dirs_exist_ok=True)
            else:
                shutil.copyfile(ROOT / data, target)


class WheelOfAnyPython(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True


version = re.search(r"project\(stepcast VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
setup(version=version, distclass=WithLibrary, cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelOfAnyPython})
